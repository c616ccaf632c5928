//! The executable's file can give capabilities to a user without privileges. Tests what this user can do with
//! perf-prof, and what a script of this user cannot do.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    process::Command,
};

use tempfile::TempDir;

use crate::harness::{
    machine::{Need, skip},
    plain_user::{NOBODY, Outcome, Tracefs, folder, needs_plain_user, run},
    run::tested_program,
    script::CALL,
};

/// Returns a folder with a copy of perf-prof. The copy has these capabilities, and belongs to the group of the user.
fn folder_with_executable(capabilities: &str) -> TempDir {
    needs_plain_user();
    let dir = folder();
    let executable = dir.path().join("perf-prof");
    fs::copy(tested_program(), &executable).unwrap();
    chown(&executable, Some(0), Some(NOBODY)).unwrap();
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o750)).unwrap();
    match Command::new("setcap").arg(capabilities).arg(&executable).output() {
        Ok(output) if output.status.success() => {}
        output => skip(Need::PlainUser, format!("setcap: {output:?}")),
    }
    let secret = dir.path().join("secret");
    fs::write(&secret, "secret\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

fn traces(dir: &TempDir, options: &[&str], script: &str) -> Outcome {
    fs::write(dir.path().join("s.py"), script).unwrap();
    let own = std::env::current_exe().unwrap();
    let words = [&["./perf-prof", "python"], options, &["s.py", "--exec"]].concat();
    let workload = [own.to_str().unwrap(), crate::harness::calls::WORKLOAD, "calls", "5"];
    run(dir, Tracefs::Closed, &[words.as_slice(), &workload].concat())
}

const SCRIPT: &str = r#"
import os
count = 0
def syscalls__sys_enter_getpgid(event):
    global count
    count += 1
def read(path):
    try:
        return open(path).read()
    except PermissionError:
        return "refused"
def __exit__():
    status = dict(line.split(":") for line in open("/proc/thread-self/status") if line.startswith("Cap"))
    held = [name for name, bits in status.items() if name != "CapBnd" and int(bits, 16) >> 2 & 1]
    print(count, read("secret"), read("/sys/kernel/tracing/available_events"), held)
"#;

/// perf-prof reads tracefs with the capability. A script must not be able to read all files with this capability.
#[test]
fn a_script_has_no_right_to_read_all_files() {
    let dir = folder_with_executable("cap_perfmon,cap_dac_read_search+ep");
    let outcome = traces(&dir, &["-e", CALL], SCRIPT);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(0), "5 refused refused []\n"), "{}", outcome.stderr);
}

/// Formats and tables are read before perf-prof gives up the capability. A recording needs them too.
#[test]
fn what_a_script_needs_of_tracefs_is_read_before_it_starts() {
    let dir = folder_with_executable("cap_perfmon,cap_dac_read_search+ep");
    let script = "def syscalls__sys_enter_getpgid(event): event.print(timestamp=False)\n\
                  def syscalls__sys_enter_getppid(event): pass\n";
    let outcome = traces(&dir, &["-e", CALL, "--record", "r.data"], script);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!((outcome.status, lines.len()), (Some(0), 5), "{outcome:?}");
    assert!(lines[4].contains("sys_getpgid(pid: 5)"), "{outcome:?}");
    let unselected = "syscalls__sys_enter_getppid() is never called: syscalls:sys_enter_getppid is not selected";
    assert!(outcome.stderr.contains(unselected), "{outcome:?}");
    let words = ["./perf-prof", "script", "-i", "r.data"];
    let replayed = run(&dir, Tracefs::Closed, &words);
    assert_eq!((replayed.status, replayed.stdout.lines().count()), (Some(0), 5), "{replayed:?}");
}

/// The events of a flight recorder beside the script are also selected before perf-prof gives up the capability.
#[test]
fn a_script_without_rights_has_snapshots() {
    let dir = folder_with_executable("cap_perfmon,cap_dac_read_search+ep");
    let script = SCRIPT.to_owned() + "    import perf_prof; print(perf_prof.snapshot(path='r.data'))\n";
    let outcome = traces(&dir, &["-q", "--before", "20s", "-e", CALL], &script);
    let expected = "5 refused refused []\nr.data\n";
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(0), expected), "{}", outcome.stderr);
    let words = ["./perf-prof", "script", "-i", "r.data", "-F", "event,trace"];
    let replayed = run(&dir, Tracefs::Closed, &words);
    assert_eq!(replayed.stdout.matches(CALL).count(), 5, "{replayed:?}");
}

/// Commands such as `report` run no code of the user, but open files that the user names.
#[test]
fn files_are_opened_with_the_rights_of_the_user() {
    let dir = folder_with_executable("cap_perfmon,cap_dac_read_search+ep");
    let record = ["./perf-prof", "record", "-q", "-e", "cpu-clock", "-o", "r.data", "--", "true"];
    let recorded = run(&dir, Tracefs::Closed, &record);
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    chown(dir.path().join("r.data"), Some(0), Some(0)).unwrap();
    fs::set_permissions(dir.path().join("r.data"), fs::Permissions::from_mode(0o600)).unwrap();
    for command in [&["script"][..], &["report"], &["evlist"], &["python", "s.py"]] {
        let input = ["--input", "r.data"];
        fs::write(dir.path().join("s.py"), "def cpu_clock(event): print('seen')\n").unwrap();
        let words = [&["./perf-prof"], &command[..1], &input, &command[1..]].concat();
        let outcome = run(&dir, Tracefs::Closed, &words);
        assert!(outcome.stderr.contains("Permission denied"), "{words:?} {outcome:?}");
        assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(1), ""), "{words:?}");
    }
}
