//! Sources on recordings that lack some of their events: the result says what is not known.

use std::path::{Path, PathBuf};

use crate::harness::{
    awake::Awake,
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{perf_prof, said, stdout},
    script::workload,
};

use super::replay;

/// Records these events of all tasks while a workload runs.
fn recording(folder: &Folder, events: &str, operations: &str) -> PathBuf {
    needs([Need::Tracefs]);
    let path = folder.path("r.data");
    let workload = workload(operations);
    let args = ["-a", "-e", events, "--"].into_iter().chain(workload.iter().map(String::as_str));
    record_here(&path, &args.collect::<Vec<_>>());
    path
}

/// Runs a command on the recording. Returns what it prints on stdout and on stderr.
fn shown(command: &str, selector: &str, options: &[&str], path: &Path) -> (String, String) {
    let output = perf_prof(&[command, selector]).args(options).arg("--input").arg(path).output().unwrap();
    (stdout(&output), said(&output))
}

#[test]
fn without_recorded_wakeups_it_is_not_known_how_long_a_task_was_blocked() {
    let _awake = Awake::new();
    let folder = Folder::new();
    let path = recording(&folder, "sched:sched_switch", "comm napper sleep-ms 20 sleep-ms 20");
    let selector = "offcpu/comm=napper,state=sleeping,min=19ms/";
    let sums = ["--by", "comm", "--sum", "duration,blocked,waited"];
    let (table, told) = shown("top", selector, &sums, &path);
    let is_unknown = |row: &str| row.starts_with("napper ") && row.matches(" - ").count() == 2;
    assert!(table.lines().any(is_unknown), "{table}");
    let warning = "has no sched:sched_waking, so `blocked`, `waited` and the waker are not known";
    assert_eq!(told.matches(warning).count(), 1, "{told}");
    let script = "
def offcpu(e): print(e.blocked, e.waited, e.waker_pid)
";
    let run = replay(script, selector, &path, &["-q"]);
    assert!(run.stdout.lines().count() >= 2, "{}", run.stdout);
    assert!(run.stdout.lines().all(|line| line == "None None -1"), "{}", run.stdout);
}

#[test]
fn exit_codes_whose_events_were_not_recorded_are_called_unknown() {
    let folder = Folder::new();
    let events = "task:task_newtask,sched:sched_process_exec,sched:sched_process_exit";
    let path = recording(&folder, events, "call 1");
    let (_, told) = shown("top", "process", &["--by", "comm,exit_code"], &path);
    for (event, fields) in [
        ("syscalls:sys_enter_exit_group", "most values of `exit_code`"),
        ("signal:signal_deliver", "`signal` and its sender"),
    ] {
        assert_eq!(told.matches(&format!("has no {event}, so {fields} are not known")).count(), 1, "{told}");
    }
}
