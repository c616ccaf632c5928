//! Makes recordings with the real perf and with perf-prof, and returns what the two programs print for them.

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use super::{
    machine_lock,
    run::{perf_prof, printed, stdout},
};

/// The lock between perf and perf-prof. perf 6.1 cannot record while perf-prof records, because perf-prof asks for build
/// ids.
const RECORDERS: &str = "recorders";

/// Records with `perf record` and these arguments.
#[track_caller]
pub fn record(path: &Path, args: &[&str]) {
    try_until_whole(path, || {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-o"]).arg(path).args(args).stdout(Stdio::null());
        command
    });
}

/// Records in pipe format into a file.
#[track_caller]
pub fn record_pipe(path: &Path, args: &[&str]) {
    try_until_whole(path, || {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-o", "-"]).args(args).stdout(File::create(path).unwrap());
        command
    });
}

/// Records until perf succeeds. While another program on the machine requests build ids, perf 6.1 takes the kernel's
/// records of mappings for damaged. It then aborts at its end, or aborts or fails with -EFAULT when it reads the recording.
#[track_caller]
fn try_until_whole(path: &Path, recorder: impl Fn() -> Command) {
    const TRIES: u64 = 20;
    let _theirs = machine_lock::shared(RECORDERS);
    const EFAULT: i32 = 256 - libc::EFAULT;
    let aborted = |output: &Output| output.status.signal().is_some() || output.status.code() == Some(EFAULT);
    let read = || {
        Command::new("perf").args(["script", "-F", "tid,time", "--show-mmap-events", "-i"]).arg(path).output().unwrap()
    };
    for attempt in 1..=TRIES {
        let output = recorder().output().unwrap();
        if !aborted(&output) || attempt == TRIES {
            stdout(&output);
            if attempt == TRIES || !aborted(&read()) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(100 * attempt.min(7)));
    }
}

/// Records with `perf-prof record` and these arguments.
#[track_caller]
pub fn record_here(path: &Path, args: &[&str]) {
    let _ours = machine_lock::alone(RECORDERS);
    stdout(&perf_prof(&["record", "-q", "-o"]).arg(path).args(args).stdout(Stdio::null()).output().unwrap());
}

/// Records with `perf-prof record` in pipe format into a file.
#[track_caller]
pub fn record_pipe_here(path: &Path, args: &[&str]) {
    let _ours = machine_lock::alone(RECORDERS);
    let file = File::create(path).unwrap();
    stdout(&perf_prof(&["record", "-q", "-o", "-"]).args(args).stdout(file).output().unwrap());
}

/// Runs `perf` with these arguments on a recording. Returns the lines that it printed. perf 6.1 crashes now and then, also on
/// recordings of its own. If the recording is the reason, it crashes again.
#[track_caller]
pub fn perf(args: &[&str], path: &Path) -> Vec<String> {
    let read = || Command::new("perf").args(args).arg("-i").arg(path).output().unwrap();
    let output = read();
    printed(&if output.status.signal().is_some() { read() } else { output })
}

/// Runs `perf-prof` with these arguments on a recording. Returns the lines that it printed.
#[track_caller]
pub fn ours(args: &[&str], path: &Path) -> Vec<String> {
    printed(&perf_prof(args).arg("-i").arg(path).output().unwrap())
}

/// A folder with a recording and scripts.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Runs `perf-prof python` with these arguments.
pub fn python(args: &[&str]) -> Output {
    perf_prof(&["python"]).args(args).env_remove("PERF_PROF_COMPAT").output().unwrap()
}

/// A script that prints `time cpu tid event` for each event.
pub const LIST: &str = "def __sample__(e):\n    print(e._time, e._cpu, e._tid, e._event)\n";

/// Returns the lines of [`LIST`], as `perf script` prints them.
pub fn perf_script(path: &Path) -> Vec<String> {
    perf_script_with(path, &[])
}

/// Like [`perf_script`], with options of `perf script`.
pub fn perf_script_with(path: &Path, args: &[&str]) -> Vec<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", "-F", "cpu,tid,time,event", "-i"]).arg(path).args(args);
    printed(&command.output().unwrap()).iter().filter_map(|line| self::line(line)).collect()
}

/// Converts `20356 [000] 23865.342060829: sched:sched_wakeup: ` to `23865342060829 0 20356 sched:sched_wakeup`.
fn line(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let tid: i64 = words.next()?.parse().ok()?;
    let cpu: u32 = words.next()?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let (seconds, nanos) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
    let event = words.next()?.strip_suffix(':')?;
    Some(format!("{time} {cpu} {tid} {event}"))
}
