//! Compiles programs for tests, with the compilers and tools of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    machine::{Need, skip},
    run::stdout,
};

/// Options with which frame pointers show each function in call chains.
pub const FRAMES: &[&str] = &["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];

/// Runs a compiler or another tool, which must succeed. Returns its output.
#[track_caller]
pub fn build(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => stdout(&output),
        Err(error) => skip(Need::Compilers, format!("{}: {error}", command.get_program().display())),
    }
}

/// Runs the tool of this name like [`build`].
#[track_caller]
pub fn tool(name: &str, arguments: &[&str]) -> String {
    build(Command::new(name).args(arguments))
}

/// Compiles a C program with options.
#[track_caller]
pub fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (text, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&text, source).unwrap();
    build(Command::new("gcc").arg(&text).arg("-o").arg(&program).args(options));
    program
}
