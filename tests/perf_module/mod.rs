//! Scripts for perf's Python module: they contain `import perf`, and open recordings and live events themselves.

mod live;
mod programs;
mod sessions;

use std::{path::Path, process::Output};

use crate::harness::{
    recording::Folder,
    run::{perf_prof, said, stdout},
};

/// Runs a script with arguments.
fn run(folder: &Folder, script: &str, args: &[&Path]) -> Output {
    let script = folder.write("program.py", script.as_bytes());
    perf_prof(&["script"]).arg(script).args(args).output().unwrap()
}

/// Runs a script that must succeed, and returns what it prints.
#[track_caller]
fn printed(folder: &Folder, script: &str, args: &[&Path]) -> String {
    let output = run(folder, script, args);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    stdout(&output)
}
