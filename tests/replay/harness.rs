//! Recordings that the real `perf` makes, and what it says of them.

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The perf of this machine; `None`, with the reason on stdout, where it cannot record.
pub fn perf() -> Option<&'static str> {
    let skip = |why: &str| {
        println!("skipped: {why}");
        None
    };
    // A process owns its own folder in procfs.
    let uid = std::fs::metadata("/proc/self").map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata));
    match uid {
        Ok(0) => {}
        _ => return skip("recording needs root"),
    }
    match Command::new("perf").arg("--version").output() {
        Ok(output) if output.status.success() => Some("perf"),
        _ => skip("there is no perf in PATH"),
    }
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

/// Runs `perf record` with these arguments into `path`.
pub fn record(path: &Path, args: &[&str]) {
    // While somebody else on the machine asks for build ids of mappings, perf 6.1 takes what it gets for damaged, and
    // aborts at its end, or when it reads what it has recorded.
    const TRIES: usize = 20;
    let aborts = |output: &Output| output.status.signal().is_some();
    let read = || Command::new("perf").args(["script", "-F", "tid,time", "-i"]).arg(path).output().unwrap();
    for attempt in 1..=TRIES {
        let output = Command::new("perf").args(["record", "-q", "-o"]).arg(path).args(args).output().unwrap();
        if !aborts(&output) || attempt == TRIES {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            if attempt == TRIES || !aborts(&read()) {
                return;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
}

/// `perf-prof python` with these arguments.
pub fn python(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.arg("python").args(args).env_remove("PERF_PROF_COMPAT").output().unwrap()
}

/// What it printed, when it ended well.
#[track_caller]
pub fn stdout(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// A script that prints `time cpu tid event` of every event.
pub const LIST: &str = "def __sample__(e):\n    print(e._time, e._cpu, e._tid, e._event)\n";

/// The same lines from `perf script`.
pub fn perf_script(path: &Path) -> Vec<String> {
    perf_script_with(path, &[])
}

/// The same with options of perf's.
pub fn perf_script_with(path: &Path, args: &[&str]) -> Vec<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", "-F", "cpu,tid,time,event", "-i"]).arg(path).args(args);
    stdout(&command.output().unwrap()).lines().filter_map(line).collect()
}

/// `20356 [000] 23865.342060829: sched:sched_wakeup: ` to `23865342060829 0 20356 sched:sched_wakeup`.
fn line(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let tid: i64 = words.next()?.parse().ok()?;
    let cpu: u32 = words.next()?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let (seconds, nanos) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
    let event = words.next()?.strip_suffix(':')?;
    Some(format!("{time} {cpu} {tid} {event}"))
}
