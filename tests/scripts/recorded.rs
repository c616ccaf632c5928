//! Each script says how to record what it needs, and works on what was recorded like that.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::harness::{compile, in_path, row, script, skipped, text};

/// Programs that start and end, sleep, wake each other up and touch memory.
const WORK: &str = "sh -c 'for i in 1 2 3 4 5 6 7 8; do ls /usr/bin | cat >/dev/null; sleep 0.02; done'";

/// The command that records, and the one that shows the recording; of a script's usage.
fn commands(usage: &str) -> (String, String) {
    let usage = usage.replace("\\\n", "");
    let lines: Vec<&str> = usage.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with("perf-prof record ")).expect(&usage);
    (lines[at].replace("COMMAND", WORK).replace("sleep 10", WORK), lines[at + 1].to_owned())
}

/// What perf's own command is called, in the place of which of ours.
fn in_perf(usage: &str) -> (&str, &str) {
    let (_, rest) = usage.split_once("(also perf's own").expect(usage);
    let quoted: Vec<&str> = rest.split('`').collect();
    (quoted[1], quoted[3])
}

fn shell(folder: &Path, command: &str) -> Output {
    let mut shell = Command::new("sh");
    in_path(shell.args(["-c", command]).current_dir(folder)).output().unwrap()
}

#[test]
fn scripts_work_on_what_they_say_is_to_be_recorded() {
    if skipped() {
        return;
    }
    let perf = Command::new("perf").arg("--version").output().is_ok();
    if !perf {
        println!("not tested: recordings of perf, which is not in PATH");
    }
    for (name, options, shown) in [
        ("wakeups.py", "", " wake-ups, "),
        ("runqlat.py", "", "ls: "),
        ("syscalls.py", "", " calls of "),
        ("execsnoop.py", "", "/ls\n"),
        ("offcpu.py", "--top 1000", " ls\n"),
        ("profile.py", "", " samples in "),
        ("faults.py", "", " minor and "),
    ] {
        let usage = text(script(name).arg("--usage").output().unwrap());
        let (record, show) = commands(&usage);
        let (theirs, ours) = in_perf(&usage);
        let records = [Some(record.clone()), perf.then(|| record.replace(ours, theirs))];
        for record in records.into_iter().flatten() {
            let folder = tempfile::tempdir().unwrap();
            // Into a pipe perf would write the recording itself. While somebody else on the machine asks for build ids of mappings, perf 6.1 takes what it gets for damaged, and
            // aborts at its end.
            let mut attempts = (0..5).map(|_| shell(folder.path(), &format!("{record} >/dev/null")));
            let aborted = |output: &Output| output.status.code().is_none_or(|code| code > 128);
            let recorded = attempts.find(|output| !aborted(output)).unwrap();
            assert!(recorded.status.success(), "{record}: {}", String::from_utf8_lossy(&recorded.stderr));
            assert!(fs::exists(folder.path().join("perf.data")).unwrap(), "{record}");
            let shown_by = shell(folder.path(), &format!("{show} {options}"));
            let (out, err) = (String::from_utf8_lossy(&shown_by.stdout), String::from_utf8_lossy(&shown_by.stderr));
            // Of a busy machine some may be lost.
            assert!(shown_by.status.success() && !err.contains("Traceback"), "{record}; {show}: {err}");
            assert!(out.contains(shown), "{record}; {show}: {out}");
            for nothing in ["\n0 samples", "no waits", "\n0 calls", ": 0 wake-ups", "\n0 minor", "in 0 stacks"] {
                assert!(!format!("\n{out}").contains(nothing), "{record}; {show}: {out}");
            }
        }
    }
}

/// It read the mappings of processes that are there now; then it refused recordings, which hold what it needs.
#[test]
fn uprobe_latency_works_on_recordings_of_its_probes() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    const NAPS: &str = "#include <unistd.h>
__attribute__((noinline)) void nap(void) { usleep(2000); }
int main(void) { for (int i = 0; i < 10; i++) nap(); return 0; }
";
    let folder = tempfile::tempdir().unwrap();
    if compile(folder.path(), "naps", NAPS).is_none() {
        return;
    }
    let probes = "-e uprobe:nap@./naps,uretprobe:nap@./naps";
    let recorded = shell(folder.path(), &format!("perf-prof record -q {probes} -- ./naps"));
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let mut command = script("uprobe_latency.py");
    command.args(["--input", "perf.data"]).current_dir(folder.path());
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && err.contains("name the probes that were recorded"), "{err}");
    let out = text(command.args(probes.split(' ')).output().unwrap());
    let calls = row(&out, "nap:");
    let mean: f64 = calls[4].parse().unwrap();
    assert!(calls[1..3] == ["10", "calls,"] && mean > 1950.0, "{out}");
}
