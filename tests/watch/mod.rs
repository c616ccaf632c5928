//! The commands that answer questions without a script: known counts of workloads, live and from recordings.

mod difference;
mod hist;
mod partial;
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
    counting::{CALL, objects, words},
    recording::{Folder, record_here},
    run::{PATIENCE, perf_prof, printed, stdout, with_patience},
};

/// Runs a command of perf-prof with these arguments on a program.
fn run(args: &[&str], program: &[String]) -> Output {
    with_patience(perf_prof(args).arg("--").args(program), PATIENCE).output().unwrap()
}

/// Runs a command on a recording. Returns its lines.
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
