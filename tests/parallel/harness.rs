//! Recordings of the real `perf`, and commands that work on them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Records context switches, with rings that lose none on a busy machine, as perf would say so; `None` where that cannot be done here.
pub fn recording(folder: &Path) -> Option<()> {
    let perf = Command::new("perf")
        .args(["record", "-q", "-a", "-m", "1024", "-e", "sched:sched_switch,sched:sched_wakeup", "-o", "perf.data"])
        .args(["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done"])
        .current_dir(folder)
        .output();
    match perf {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => {
            println!("skipped: perf record: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            println!("skipped: perf: {error}");
            None
        }
    }
}

pub fn parallel(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.arg("parallel").args(args).current_dir(folder).output().unwrap()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A script of ours, run by its first line, in a folder.
pub fn script(folder: &Path, name: &str, args: &[&str]) -> Output {
    let bin = Path::new(env!("CARGO_BIN_EXE_perf-prof")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::iter::once(bin.to_owned()).chain(env::split_paths(&path)).collect();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    command
        .env("PATH", env::join_paths(path).unwrap())
        .env("TZ", "UTC")
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}
