//! Compares what perf-prof and the real perf print for recordings of `perf stat record`.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    machine::{Need, needs},
    recording::{ours, perf},
    run::{perf_prof, printed, stdout},
    wait::Killed,
};

/// A command that takes longer than three intervals of 50 ms.
const COMMAND: [&str; 4] = ["--", "sh", "-c", "for i in 1 2 3 4; do sleep 0.05; ls / >/dev/null; done"];

/// Runs `perf stat record` with these arguments.
#[track_caller]
fn stat_record(path: &Path, args: &[&str]) {
    let mut command = Command::new("perf");
    command.args(["stat", "record", "-o"]).arg(path).args(args).args(COMMAND);
    stdout(&command.stderr(Stdio::null()).stdout(Stdio::null()).output().unwrap());
}

#[test]
fn the_counts_of_each_round_are_printed() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let all: [&[&str]; 6] = [
        &["-e", "task-clock,page-faults:u,cycles:u"],
        &["-I", "50", "-e", "task-clock,context-switches"],
        &["-a", "-A", "-I", "50", "-e", "faults:u,cs"],
        &["-a", "-I", "50", "-e", "{faults:u,cs}"],
        &["-a", "--no-scale", "--per-socket", "-e", "cs"],
        &["--per-thread", "-p", "PID", "-I", "50", "-e", "task-clock,cs"],
    ];
    let busy = Killed(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let pid = busy.0.id().to_string();
    for (at, args) in all.into_iter().enumerate() {
        let path = folder.path().join(at.to_string());
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "PID" { &*pid } else { arg }).collect();
        stat_record(&path, &args);
        let lines = ours(&["script"], &path);
        assert_eq!(lines, perf(&["script"], &path), "{args:?}");
        let rounds = if args.contains(&"-I") { 3 } else { 1 };
        assert!(lines.len() > rounds && lines[0].starts_with("CPU   THREAD "), "{lines:?}");
        assert_eq!(ours(&["evlist"], &path), perf(&["evlist"], &path));
        let header = ours(&["script", "--header-only"], &path).join("\n");
        assert!(header.contains("# cmdline : ") && header.contains("stat record -o"), "{header}");
    }
}

/// perf 6.1 cannot read its own recording of tracepoint counts.
#[test]
fn tracepoints_are_counted() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    stat_record(&path, &["-e", "sched:sched_process_exec,task-clock"]);
    let lines = ours(&["script"], &path);
    // The shell itself makes one exec. The commands that it starts (sleep and ls) make the remaining 8.
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!((words[0], words[2], words[6]), ("-1", "9", "sched:sched_process_exec"), "{lines:?}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_pipe_in_a_file_has_the_same_counts() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.data");
    let mut command = Command::new("perf");
    command.args(["stat", "record", "-o", "-", "-e", "faults:u,cs", "--", "true"]).stderr(Stdio::null());
    assert!(command.stdout(File::create(&path).unwrap()).status().unwrap().success());
    let lines = ours(&["script"], &path);
    assert_eq!((lines.len(), &lines), (3, &perf(&["script"], &path)));
    let from_stdin = perf_prof(&["script", "-i", "-"]).stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(printed(&from_stdin), lines);
    assert_eq!(ours(&["evlist"], &path), ["faults:u", "cs"]);
}

/// The command ends only after the lines of the first round were printed. If they were printed at the end, the test
/// would hang.
#[test]
fn a_round_is_printed_before_the_next_one_ends() {
    needs([Need::Perf]);
    let mut command = Command::new("perf");
    command.args(["stat", "record", "-I", "20", "-o", "-", "-e", "task-clock", "--", "cat"]);
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (input, records) = (recorder.stdin.take().unwrap(), recorder.stdout.take().unwrap());
    let mut reader = perf_prof(&["script", "-i", "-"]).stdin(records).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let first: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
    assert!(first[0].starts_with("CPU ") && first[2].ends_with(" task-clock"), "{first:?}");
    drop(input);
    assert!(recorder.wait().unwrap().success());
    assert!(lines.all(|line| line.unwrap().ends_with(" task-clock")));
    assert!(reader.wait().unwrap().success());
}
