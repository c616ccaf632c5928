//! The text of recordings that are of no kind of their own, and what `perf-prof script` is asked for and answers.

use std::process::{Command, Stdio};

use crate::{
    harness::{can_record, ours, perf_prof, record},
    text::{Names, compare},
};

/// Records with these arguments and compares.
#[track_caller]
fn check(args: &[&str], names: Names) {
    if can_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        record(&path, args);
        println!("{}", compare(&path, &[], names));
    }
}

const SLEEP: [&str; 4] = ["-a", "--", "sleep", "0.3"];
const LS: [&str; 4] = ["--", "ls", "-lR", "/usr/lib"];

#[test]
fn tracepoints_with_call_chains() {
    check(&[&["-g", "-e", "sched:sched_switch"][..], &SLEEP].concat(), Names::Differ);
}

#[test]
fn one_of_several_events_with_call_chains() {
    let events = ["-e", "sched:sched_switch/call-graph=fp/", "-e", "sched:sched_wakeup", "-e", "cpu-clock"];
    check(&[&events[..], &LS].concat(), Names::Differ);
}

/// Without CPUs in the samples, lines have none.
#[test]
fn a_command_by_thread() {
    check(&[&["-e", "cpu-clock,page-faults"][..], &LS].concat(), Names::Differ);
}

/// The kernel's own text of system calls is not what their print format says, which perf shows.
#[test]
fn system_calls() {
    check(&["-e", "syscalls:*", "--", "ls", "-l", "/"], Names::None);
}

/// A program that is removed while it runs, as those are that packages replace.
#[test]
fn a_file_that_was_removed() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (program, path) = (folder.path().join("removed"), folder.path().join("perf.data"));
    std::fs::copy("/bin/sh", &program).unwrap();
    let mut busy = Command::new(&program).args(["-c", "while :; do :; done"]).spawn().unwrap();
    std::fs::remove_file(&program).unwrap();
    record(&path, &["-g", "-e", "cpu-clock", "-p", &busy.id().to_string(), "--", "sleep", "0.2"]);
    busy.kill().unwrap();
    busy.wait().unwrap();
    compare(&path, &[], Names::Differ);
    let removed = format!("({} (deleted))", program.display());
    assert!(ours(&["script"], &path).iter().any(|line| line.ends_with(&removed)));
}

#[test]
fn options() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "-e", "sched:sched_switch,cpu-clock"][..], &SLEEP].concat());
    compare(&path, &["--ns"], Names::Differ);
    compare(&path, &["-G"], Names::Differ);
    compare(&path, &["-C", "0", "-G", "-F", "comm,tid,time,event"], Names::None);
    // The idle tasks have a number too.
    compare(&path, &["-G", "--pid", "0"], Names::None);
    compare(&path, &["-F", "pid,tid,cpu,time,period,event,trace", "--time", "10%/2"], Names::None);
}

/// `| head` is no failure.
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "sched:sched_switch,irq:*,timer:*"][..], &SLEEP].concat());
    let mut ours =
        perf_prof(&["script", "-i"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(ours.stdout.take());
    let output = ours.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn errors_name_what_is_wrong() {
    let said = |args: &[&str]| {
        let output = perf_prof(&["script"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = said(&["-i", "not-there.data"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("not-there.data"), "{text}");
    let (status, text) = said(&["-F", "tme"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("there is no field `tme`; fields are comm, pid,"), "{text}");
    let (status, text) = said(&["--time", "5,3"]);
    assert_eq!((status, text.contains("ends before it begins")), (Some(2), true), "{text}");
}
