//! Recordings of all kinds: the same events, in the same order, as `perf script` shows.

use crate::harness::{Folder, LIST, perf, perf_script, python, record, stdout};

/// Records with these arguments and compares all events with perf's own list.
#[track_caller]
fn check(args: &[&str]) {
    if perf().is_none() {
        return;
    }
    let folder = Folder::new();
    let (data, script) = (folder.path("perf.data"), folder.write("list.py", LIST.as_bytes()));
    record(&data, args);
    let expected = perf_script(&data);
    let output = python(&["-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()]);
    let found: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    assert!(expected.len() > 10, "{args:?}: perf has {} events only", expected.len());
    assert_eq!(found.len(), expected.len(), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
    let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(first, None, "{args:?}: {:?} {:?}", found[first.unwrap_or(0)], expected[first.unwrap_or(0)]);
}

#[test]
fn one_event() {
    check(&["-e", "sched:sched_wakeup", "-a", "--", "sleep", "0.3"]);
}

#[test]
fn several_events_with_call_chains() {
    check(&[
        "-g",
        "-e",
        "sched:sched_wakeup",
        "-e",
        "sched:sched_switch",
        "-e",
        "cpu-clock",
        "-a",
        "--",
        "sleep",
        "0.3",
    ]);
}

#[test]
fn a_command() {
    check(&["-e", "syscalls:sys_enter_*", "--", "ls", "-l", "/"]);
}
