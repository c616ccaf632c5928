//! perf-prof under sudo: which code of the user root runs, and which user owns the files that root writes. Each run has
//! its own sudoers file in a mount namespace.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs},
    plain_user::{NOBODY, Tracefs, command, folder, needs_plain_user},
    run::tested_program,
};

/// Whether sudo keeps the user's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Environment {
    /// `env_reset`, sudo's default: hardly any variable is kept.
    Reset,
    /// `!env_reset`: all variables are kept, except those that sudo knows to be harmful.
    Kept,
}

/// Where Python or perf may look for code: the variable that names the folder, and the file in it. The code writes the
/// name of the variable to stdout.
const PLANTED: [(&str, &str); 4] = [
    ("PYTHONPATH", "sitecustomize.py"),
    ("PYTHONSTARTUP", ""),
    ("HOME", ".local/lib/pythonVERSION/site-packages/usercustomize.py"),
    ("PERF_EXEC_PATH", "scripts/python/bin/planted-report"),
];

/// A run of perf-prof as root, which a user starts with sudo.
struct Sudo {
    dir: TempDir,
}

/// What a run printed, and its exit status.
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Sudo {
    fn new() -> Sudo {
        needs_plain_user();
        needs([Need::Sudo]);
        let dir = folder();
        let sudo = Sudo { dir };
        for (variable, file) in PLANTED {
            let path = sudo.planted(variable).join(file.replace("VERSION", &version()));
            let path = if file.is_empty() { sudo.planted(variable) } else { path };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("print('{variable} was run')\n")).unwrap();
        }
        fs::write(sudo.path("script.py"), "import os\nprint('uid', os.getuid())\ndef __sample__(event): pass\n")
            .unwrap();
        sudo
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn planted(&self, variable: &str) -> PathBuf {
        self.path(&variable.to_lowercase())
    }

    /// Runs perf-prof with sudo as the user `nobody`, who sets all these variables.
    fn run(&self, environment: Environment, words: &[&str]) -> Ran {
        let rules = match environment {
            Environment::Reset => "Defaults env_reset\n",
            Environment::Kept => "Defaults !env_reset\n",
        };
        let rules = format!("{rules}Defaults !use_pty\n#{NOBODY} ALL=(ALL) NOPASSWD: ALL\n");
        // The file is not in the user's folder, because sudo only accepts a file of root in a folder of root.
        let sudoers = tempfile::NamedTempFile::new().unwrap();
        fs::write(sudoers.path(), rules).unwrap();
        fs::set_permissions(sudoers.path(), Permissions::from_mode(0o440)).unwrap();
        let as_user = command(&self.dir, Tracefs::Closed, &[&["sudo", "-n", tested_program()], words].concat());
        let mut outer = Command::new("unshare");
        outer.args(["-m", "sh", "-c", "mount --bind \"$0\" /etc/sudoers && exec \"$@\""]).arg(sudoers.path());
        outer.arg(as_user.get_program()).args(as_user.get_args());
        for (name, value) in as_user.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        for (variable, _) in PLANTED {
            outer.env(variable, self.planted(variable));
        }
        let output = outer.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs the script on a recording, and returns what it printed.
    fn script(&self, environment: Environment) -> String {
        let ran = self.run(environment, &["python", "-q", "--input", "perf.data", "script.py"]);
        assert_eq!(ran.status, Some(0), "{environment:?}: {}", ran.stderr);
        ran.stdout
    }
}

/// The version of Python, as `major.minor`.
fn version() -> String {
    let output = Command::new(tested_program()).args(["doctor"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let after = text.split(", Python ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().to_owned()
}

const RECORD: [&str; 9] = ["record", "-q", "-o", "perf.data", "-e", "page-faults", "-c", "1", "--"];

#[test]
fn with_the_environment_that_sudo_resets_root_runs_no_code_of_the_user_but_the_script() {
    let sudo = Sudo::new();
    let recorded = sudo.run(Environment::Reset, &[&RECORD[..], &["true"]].concat());
    assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""));
    assert_eq!(sudo.script(Environment::Reset), "uid 0\n");
    assert!(!sudo.run(Environment::Reset, &["script", "-l"]).stdout.contains("planted"));
}

#[test]
fn with_the_environment_of_the_user_sudo_removes_the_path_of_modules_and_start_up_files_are_not_run() {
    let sudo = Sudo::new();
    let recorded = sudo.run(Environment::Kept, &[&RECORD[..], &["true"]].concat());
    assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""));
    // As for `sudo python3` with this environment, root also uses the packages in the user's home.
    assert_eq!(sudo.script(Environment::Kept), "HOME was run\nuid 0\n");
    // `script -l` also lists scripts in the user's folder.
    assert!(sudo.run(Environment::Kept, &["script", "-l"]).stdout.contains("planted"));
}

#[test]
fn files_that_are_written_under_sudo_belong_to_root() {
    let sudo = Sudo::new();
    let recorded = sudo.run(Environment::Reset, &[&RECORD[..], &["true"]].concat());
    assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""));
    let output = ["python", "-q", "--input", "perf.data", "-o", "out.txt", "script.py"];
    assert_eq!(sudo.run(Environment::Reset, &output).status, Some(0));
    let found = |name: &str| fs::metadata(sudo.path(name)).unwrap();
    assert_eq!((found("perf.data").uid(), found("perf.data").mode() & 0o777), (0, 0o600));
    assert_eq!((found("out.txt").uid(), found("out.txt").mode() & 0o022), (0, 0));
}

#[test]
fn a_recording_of_the_user_is_read_under_sudo_only_if_it_is_asked_for() {
    let sudo = Sudo::new();
    let recorded = sudo.run(Environment::Reset, &[&RECORD[..], &["true"]].concat());
    assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""));
    chown(sudo.path("perf.data"), Some(NOBODY), Some(NOBODY)).unwrap();
    let refused = sudo.run(Environment::Reset, &["report", "-i", "perf.data"]);
    assert!(refused.status == Some(1) && refused.stderr.contains("belongs to another user"), "{}", refused.stderr);
    assert_eq!(sudo.run(Environment::Reset, &["report", "-f", "-i", "perf.data"]).status, Some(0));
}
