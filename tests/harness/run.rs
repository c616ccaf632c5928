//! Runs the program under test, and returns what it printed.

use std::{
    env,
    os::unix::process::CommandExt,
    process::{Command, Output},
    sync::LazyLock,
};

/// The environment variable with the path of another program to test: the command `perf-prof` of an installed package.
const OTHER_PROGRAM: &str = "PERF_PROF_TESTS_PROGRAM";

/// Returns the program under test.
pub fn tested_program() -> &'static str {
    static PROGRAM: LazyLock<String> =
        LazyLock::new(|| env::var(OTHER_PROGRAM).unwrap_or_else(|_| env!("CARGO_BIN_EXE_perf-prof").to_owned()));
    &PROGRAM
}

/// Returns whether the program under test is the command of an installed package.
pub fn is_installed_package() -> bool {
    env::var_os(OTHER_PROGRAM).is_some()
}

/// The time in s after which a program is killed, because it probably hangs. A failed test is better than one that
/// never ends.
pub const PATIENCE: u32 = 100;

/// Returns the command `perf-prof` with these arguments.
pub fn perf_prof(args: &[&str]) -> Command {
    let mut command = Command::new(tested_program());
    command.args(args);
    command
}

/// Kills the command after this many seconds.
pub fn with_patience(command: &mut Command, seconds: u32) -> &mut Command {
    // An alarm outlives exec.
    // SAFETY: alarm is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::alarm(seconds);
            Ok(())
        })
    }
}

/// Returns what a program printed. The program must have succeeded. Other bytes than UTF-8 are replaced, because comms
/// and symbols may contain any bytes.
#[track_caller]
pub fn stdout(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), said(output));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Returns the lines that a program printed. The program must have succeeded.
#[track_caller]
pub fn printed(output: &Output) -> Vec<String> {
    stdout(output).lines().map(str::to_owned).collect()
}

/// Returns what a program printed on stderr.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
