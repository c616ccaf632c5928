//! Recordings that the real perf makes, and what the two programs print of them.

use std::{
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{PoisonError, RwLock},
    time::Duration,
};

/// Recordings of perf 6.1 do not stand ours beside them, which ask for build ids.
static RECORDERS: RwLock<()> = RwLock::new(());

/// Whether perf can record here; if not, the reason is on stdout.
pub fn can_record() -> bool {
    let skip = |why: &str| {
        println!("skipped: {why}");
        false
    };
    // A process owns its own folder in procfs.
    if !std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
        return skip("recording needs root");
    }
    match Command::new("perf").arg("--version").output() {
        Ok(output) if output.status.success() => true,
        _ => skip("there is no perf in PATH"),
    }
}

/// Records with these arguments. While another program on the machine asks for build ids, the kernel's records of mappings
/// make perf 6.1 fail an assertion; then it is tried again.
pub fn record(path: &Path, args: &[&str]) {
    let _theirs = RECORDERS.read().unwrap_or_else(PoisonError::into_inner);
    let mut said = String::new();
    for _ in 0..20 {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-o"]).arg(path).args(args).stdout(Stdio::null());
        let output = command.output().unwrap();
        if output.status.success() {
            return;
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("perf record {args:?}: {said}");
}

/// Records with these arguments by `perf-prof record`.
#[track_caller]
pub fn record_here(path: &Path, args: &[&str]) {
    let _ours = RECORDERS.write().unwrap_or_else(PoisonError::into_inner);
    let output = perf_prof(&["record", "-q", "-o"]).arg(path).args(args).stdout(Stdio::null()).output().unwrap();
    stdout(&output);
}

/// `perf-prof` with these words.
pub fn perf_prof(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.args(args);
    command
}

/// The lines that a program printed, when it ended well.
#[track_caller]
pub fn stdout(output: &Output) -> Vec<String> {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{err}", output.status);
    // Task names and symbols may be any bytes.
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// `perf` with these words and this recording; what it printed.
pub fn perf(args: &[&str], path: &Path) -> Vec<String> {
    stdout(&Command::new("perf").args(args).arg("-i").arg(path).output().unwrap())
}

/// The same of `perf-prof`.
#[track_caller]
pub fn ours(args: &[&str], path: &Path) -> Vec<String> {
    stdout(&perf_prof(args).arg("-i").arg(path).output().unwrap())
}
