//! Runs the program under test, and tells what it printed.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Output},
};

/// The program under test.
pub const PERF_PROF: &str = env!("CARGO_BIN_EXE_perf-prof");

/// What runs for so many seconds hangs, and is ended: a test that fails is better than one that never ends.
pub const PATIENCE: u32 = 100;

/// `perf-prof` with these words.
pub fn perf_prof(args: &[&str]) -> Command {
    let mut command = Command::new(PERF_PROF);
    command.args(args);
    command
}

/// Ends a command that takes longer than so many seconds.
pub fn with_patience(command: &mut Command, seconds: u32) -> &mut Command {
    // SAFETY: alarm is async-signal-safe. An alarm outlives exec.
    unsafe {
        command.pre_exec(move || {
            libc::alarm(seconds);
            Ok(())
        })
    }
}

/// What a program printed, when it ended well. Task names and symbols may be any bytes.
#[track_caller]
pub fn stdout(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), said(output));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// The lines of it.
#[track_caller]
pub fn printed(output: &Output) -> Vec<String> {
    stdout(output).lines().map(str::to_owned).collect()
}

/// What a program said on stderr.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
