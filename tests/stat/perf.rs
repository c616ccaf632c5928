//! Compares counts with the counts of the real `perf stat`.

use std::{
    collections::HashMap,
    process::{Command, Stdio},
};

use crate::harness::{
    counting::{CALL, count, json, objects, run, stat, words},
    machine::{Need, needs, skip},
};

/// Returns the count of each event in `perf stat`, or `None` if perf prints no number.
fn rows_of_perf(args: &[&str], command: &[String]) -> Vec<(String, Option<f64>)> {
    let output = Command::new("perf").args(["stat", "-x", ";"]).args(args).arg("--").args(command).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(';').collect();
        Some(((*columns.get(2)?).to_owned(), columns[0].parse().ok()))
    };
    text.lines().filter_map(row).collect()
}

#[track_caller]
fn check(events: &[&str], command: &[String]) {
    are_equal(events, &events.join(","), command);
    are_equal(events, &format!("{{{}}},{{{}}}", events[..2].join(","), events[2..].join(",")), command);
}

#[track_caller]
fn are_equal(events: &[&str], list: &str, command: &[String]) {
    let theirs: HashMap<String, Option<f64>> = rows_of_perf(&["-e", list], command).into_iter().collect();
    let ours = json(&["-e", list, "--"], command);
    for event in events {
        assert_eq!(Some(count(&ours[0], event) as f64), theirs[*event], "{event}");
    }
}

#[test]
fn counts_of_the_same_command_are_equal() {
    needs([Need::Tracefs, Need::Perf]);
    let tasks = ["sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"];
    check(&[&[CALL, "syscalls:sys_exit_execve"], &tasks[..]].concat(), &words(1234, 2, 2));
    let files = ["openat", "read", "mmap", "close", "exit_group"].map(|name| format!("syscalls:sys_enter_{name}"));
    check(&files.each_ref().map(String::as_str), &["cat".to_owned(), "/etc/passwd".to_owned()]);
}

#[test]
fn stat_supports_the_same_events_as_perf() {
    needs([Need::Tracefs, Need::Perf]);
    let names = "cycles,instructions,bus-cycles,ref-cycles,stalled-cycles-backend,LLC-loads,node-prefetches,cs,dummy";
    for event in names.split(',') {
        let (_, text) = run(&["--json", "-q", "-e", event, "--"], &["true".to_owned()]);
        let ours = &objects(&text)[0]["events"][0]["status"];
        let output = Command::new("perf").args(["stat", "-x", ";", "-e", event, "true"]).output().unwrap();
        let theirs = String::from_utf8_lossy(&output.stderr).contains("<not supported>");
        assert_eq!(ours == "not supported", theirs, "{event}: {text}");
    }
}

/// There are more events than the CPU has counters. So each event is counted for a part of the time, and its count is
/// scaled. The accuracy depends on the machine, because a virtual machine may stop while counters are switched. So the
/// mean only has to be near perf's mean.
#[test]
fn events_that_share_counters_are_scaled() {
    needs([Need::Tracefs, Need::Perf]);
    const EVENTS: usize = 24;
    let list = vec!["instructions:u"; EVENTS].join(",");
    let spin = ["python3", "-c", "for i in range(20_000_000): pass"].map(str::to_owned);
    let ours = json(&["-q", "-e", &list, "--"], &spin);
    let ours = ours[0]["events"].as_array().unwrap();
    if ours[0]["status"] == "not supported" {
        skip(Need::Pmu, "no instructions are counted");
    }
    let number = |event: &serde_json::Value, name: &str| event[name].as_f64().unwrap();
    let share = ours.iter().map(|event| number(event, "running") / number(event, "enabled")).sum::<f64>();
    assert!(share < 0.9 * EVENTS as f64, "there were enough counters: {ours:?}");
    let mean = ours.iter().map(|event| number(event, "value")).sum::<f64>() / EVENTS as f64;
    let theirs: Vec<f64> = rows_of_perf(&["-e", &list], &spin).into_iter().filter_map(|(_, value)| value).collect();
    let of_perf = theirs.iter().sum::<f64>() / theirs.len() as f64;
    assert!((mean / of_perf - 1.0).abs() < 0.3, "{mean}, perf {of_perf}");
}

#[test]
fn a_table_goes_to_stderr_and_the_commands_output_to_stdout() {
    needs([Need::Tracefs, Need::Perf]);
    let output = stat(&["-e", CALL, "echo", "hello"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello\n");
    assert!(String::from_utf8(output.stderr).unwrap().contains(CALL));
}
