//! The static probes and functions of a real server: PostgreSQL, which Debian builds with static probes.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::{
    counting::objects,
    machine::{Need, needs, skip},
    run::{PATIENCE, perf_prof, stdout, with_patience},
};

/// A database that no server uses yet.
struct Database {
    folder: TempDir,
    programs: PathBuf,
}

/// Runs the server, and a client with the statements in the other arguments. The first argument is the folder with
/// their programs.
const WORK: &str = r#"
set -e
export PATH="$1:$PATH"; shift
postgres -D data -k "$PWD" -h '' 2>log & server=$!
until pg_isready -q -h "$PWD"; do kill -0 $server; sleep 0.05; done
for statement; do psql -q -X -h "$PWD" -U postgres -o /dev/null -c "$statement" postgres; done
kill -INT $server; wait $server
"#;

/// Returns the folder with the programs of a server that has static probes.
fn programs() -> PathBuf {
    let folders = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = folders.map(|folder| folder.path().join("bin")).collect();
    folders.sort();
    let Some(found) = folders.into_iter().rfind(|folder| folder.join("postgres").is_file()) else {
        skip(Need::Postgresql, "no server in /usr/lib/postgresql");
    };
    let pattern = format!("usdt:postgresql:query*@{}/postgres", found.display());
    if !perf_prof(&["list", &pattern]).output().unwrap().status.success() {
        skip(Need::Postgresql, "the server has no static probes");
    }
    found
}

/// The user of the server, which must not be root.
const AS_USER: [&str; 4] = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];

impl Database {
    fn new() -> Database {
        needs([Need::Tracefs, Need::Uprobes]);
        let programs = programs();
        let folder = tempfile::tempdir().unwrap();
        let owned = Command::new("chown").arg("postgres").arg(folder.path()).stderr(Stdio::null()).status();
        if !owned.unwrap().success() {
            skip(Need::Postgresql, "there is no user postgres");
        }
        let mut make = Command::new(AS_USER[0]);
        make.args(&AS_USER[1..]).arg(programs.join("initdb")).args(["-D", "data", "-A", "trust", "-N"]);
        stdout(&make.current_dir(folder.path()).output().unwrap());
        Database { folder, programs }
    }

    fn server(&self) -> String {
        self.programs.join("postgres").display().to_string()
    }

    /// Returns what a command of perf-prof prints about the server while a client sends these statements.
    fn json(&self, args: &[&str], statements: &[&str]) -> Vec<Json> {
        let mut command = perf_prof(args);
        command
            .args(["--json", "--"])
            .args(AS_USER)
            .args(["sh", "-c", WORK, "sh"])
            .arg(&self.programs)
            .args(statements);
        command.current_dir(self.folder.path());
        let text = stdout(&with_patience(&mut command, PATIENCE).output().unwrap());
        objects(&text.lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>().join("\n"))
    }
}

const STATEMENTS: [&str; 4] = ["select pg_sleep(0.05)", "select 1", "select 1", "select count(*) from pg_class"];

/// Returns the text, the number and the total time in ns of each statement.
fn of_statements(objects: &[Json]) -> Vec<(&str, u64, u64)> {
    let rows = objects[0]["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| (row["q"].as_str().unwrap(), row["count"].as_u64().unwrap(), row["total"].as_u64().unwrap()))
        .collect()
}

#[test]
fn the_latency_of_each_sql_statement_is_known_by_its_text() {
    let database = Database::new();
    let file = database.server();
    let start = format!("usdt:postgresql:query-start@{file}");
    let by_probe = format!("span:query={start}..usdt:postgresql:query-done@{file}//key=_tid/q=arg1:string/");
    // exec_simple_query() is only known if debug symbols are installed. The parser gets the same text.
    let by_function = format!("function:pg_parse_query@{file}//q=+0(%di):string/");
    for (selector, slowest) in [(by_probe, Some("select pg_sleep(0.05)")), (by_function, None)] {
        let printed = database.json(&["top", &selector, "--by", "q"], &STATEMENTS);
        let rows = of_statements(&printed);
        let mut counts: Vec<(&str, u64)> = rows.iter().map(|(text, count, _)| (*text, *count)).collect();
        counts.sort_unstable();
        let expected = [("select 1", 2), ("select count(*) from pg_class", 1), ("select pg_sleep(0.05)", 1)];
        assert_eq!(counts, expected, "{selector}");
        if let Some(slowest) = slowest {
            assert!(rows[0].0 == slowest && rows[0].2 >= 50_000_000, "{rows:?}");
        }
    }
}

/// The 57 probes of the server have up to eleven arguments, constants, several places and variables of the program.
#[test]
fn all_probes_of_the_server_can_be_traced_at_once() {
    let database = Database::new();
    let events = format!("usdt:postgresql:*@{}", database.server());
    let events = database.json(&["trace", "-e", &events], &["select 1", "select 2"]);
    let of = |name: &str| -> Vec<&Json> {
        events.iter().filter(|event| event["_event"] == format!("sdt_postgresql:{name}")).collect()
    };
    assert_eq!(of("query__start").len(), 2);
    assert_eq!(of("query__parse__done").len(), 2);
    let ended = of("transaction__commit").len() + of("transaction__abort").len();
    assert!(ended > 2 && of("transaction__start").len() >= ended, "{ended}");
    let locks = of("lwlock__acquire");
    // A lock mode is 0 (exclusive), 1 (shared) or 2 (wait until free).
    assert!(!locks.is_empty() && locks.iter().all(|event| event["arg2"].as_u64() <= Some(2)), "{locks:?}");
}

/// The probe's variables are in no register. The server exports their names.
#[test]
fn a_variable_of_the_server_is_read_by_its_name() {
    let database = Database::new();
    let listed = perf_prof(&["list", "-v", &format!("usdt:postgresql:*@{}", database.server())]).output().unwrap();
    let listed = stdout(&listed);
    if !listed.contains("NBuffers(%rip)") {
        skip(Need::Postgresql, "no probe of the server has the variable NBuffers");
    }
    assert!(!listed.contains("does not say"), "{listed}");
    let events = format!("usdt:postgresql:buffer-sync-start@{}", database.server());
    let events = database.json(&["trace", "-e", &events], &["create table t (a int)", "checkpoint"]);
    // The default of shared_buffers in a new database: 128 MB in buffers of 8 KB.
    assert!(!events.is_empty() && events.iter().all(|event| event["arg1"] == 16384), "{events:?}");
}
