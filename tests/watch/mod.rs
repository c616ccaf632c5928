//! The commands that answer questions without a script, on workloads with known counts, live and from recordings.

mod difference;
mod edges;
mod hist;
mod partial;
mod pictures;
mod screen;
mod spans;
mod top;
mod trace;

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value as Json;

use crate::harness::{
    counting::{CALL, count, objects, words},
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{PATIENCE, perf_prof, printed, said, stdout, with_patience},
};

/// Runs a command of perf-prof with these arguments on a program.
fn run(args: &[&str], program: &[String]) -> Output {
    with_patience(perf_prof(args).arg("--").args(program), PATIENCE).output().unwrap()
}

#[test]
fn a_command_may_stand_behind_exec_as_in_python() {
    needs([Need::Tracefs]);
    // Options after the command belong to the command.
    let command = ["--exec", "sh", "-c", "exec \"$@\"", "--exec"].map(str::to_owned).into_iter().chain(words(40, 0, 0));
    let command: Vec<String> = command.collect();
    let counted = |args: &[&str]| objects(&stdout(&perf_prof(args).args(&command).output().unwrap()));
    assert_eq!(counted(&["trace", "-e", CALL, "--json"]).len(), 40);
    for args in [&["top", CALL, "--json"][..], &["hist", CALL, "--value", "pid", "--json"]] {
        assert_eq!(counted(args).last().unwrap()["events"], 40);
    }
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let recorded = perf_prof(&["record", "-e", CALL, "-o", path.to_str().unwrap()]).args(&command).output().unwrap();
    assert!(said(&recorded).contains("40 samples"), "{recorded:?}");
    let stat = perf_prof(&["stat", "-r", "2", "-e", CALL, "--json"]).args(&command).output().unwrap();
    assert_eq!(stat.status.code(), Some(0), "{stat:?}");
    assert_eq!(count(objects(&said(&stat)).last().unwrap(), CALL), 40);
}

/// Runs a command on a recording. Returns the printed lines.
fn replay(command: &str, path: &Path, args: &[&str]) -> Vec<String> {
    printed(&perf_prof(&[command, "--input"]).arg(path).args(args).output().unwrap())
}

/// Returns the objects that a command prints with `--json` for a program.
fn json(args: &[&str], program: &[String]) -> Vec<Json> {
    objects(&stdout(&run(&[args, &["--json"]].concat(), program)))
}

/// Returns a recording of 100 calls of one thread, for the processes 0 to 99.
fn recording(folder: &Folder) -> PathBuf {
    let path = folder.path("calls.data");
    let command = words(100, 0, 0);
    let args: Vec<&str> = ["-e", CALL, "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    record_here(&path, &args);
    path
}
