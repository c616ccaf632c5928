//! Runs programs as a user without privileges, in their own mount namespace. In the namespace, all files that the
//! programs need are readable, and tracefs is closed or not mounted.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use super::{
    machine::{Need, is_root, skip},
    run::tested_program,
    task,
};

/// The user and the group `nobody`, which run the programs.
pub const NOBODY: u32 = 65534;

/// The number of new pages that a workload touches.
pub const PAGES: usize = 300;

/// The state of tracefs for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracefs {
    /// tracefs is mounted, but only root can read it.
    Closed,
    /// tracefs is not mounted.
    NotMounted,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Ends the test as ignored if this machine cannot run programs as this user.
pub fn needs_plain_user() {
    let why = || {
        if !is_root() {
            return Some("not root".to_owned());
        }
        match fs::metadata("/sys/kernel/tracing") {
            Ok(folder) if folder.mode() & 0o005 != 0 => return Some("tracefs is open to all".to_owned()),
            Ok(_) => {}
            Err(error) => return Some(format!("/sys/kernel/tracing: {error}")),
        }
        if level() < 0 || level() > 2 {
            return Some(format!("kernel.perf_event_paranoid is {}", level()));
        }
        let dir = tempfile::tempdir().ok()?;
        let tried = command(&dir, Tracefs::NotMounted, &["perf", "--version"]).output();
        match tried {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(format!("unshare: {error}")),
        }
    };
    if let Some(why) = why() {
        skip(Need::PlainUser, why);
    }
}

/// Returns `kernel.perf_event_paranoid`. Above 1, this user gets no events of the kernel.
pub fn level() -> i32 {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap()
}

/// Returns the name of an event that is selected without `:u` and `:k`.
pub fn as_seen(event: &str) -> String {
    if level() > 1 { format!("{event}:u") } else { event.to_owned() }
}

/// Makes a folder that belongs to this user.
pub fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    dir
}

/// The script that sets up the namespace.
const NAMESPACE: &str = include_str!("namespace.sh");

/// The folder of the Python that perf-prof was built for.
#[cfg(feature = "python")]
const PYTHON: &str = perf_prof_python::script::BUILD_PREFIX;
#[cfg(not(feature = "python"))]
const PYTHON: &str = "/usr";

/// Returns a command that runs as this user in `dir`.
pub fn command(dir: &TempDir, tracefs: Tracefs, words: &[&str]) -> Command {
    let executables = Path::new(tested_program()).parent().unwrap();
    let needed = [executables, Path::new(PYTHON), dir.path()];
    let closed: Vec<(&Path, PathBuf)> = needed.iter().filter_map(|path| Some((*path, closed(path)?))).collect();
    let mut over: Vec<&PathBuf> = closed.iter().map(|(_, over)| over).collect();
    over.sort();
    over.dedup();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", NAMESPACE, "namespace"]);
    command.arg(if tracefs == Tracefs::NotMounted { "not-mounted" } else { "closed" });
    command.args(closed.iter().map(|(path, _)| path)).arg("--").args(over).arg("--").arg(dir.path()).args(words);
    command.env("HOME", dir.path()).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command.env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
    command
}

/// Returns the topmost folder above `path` that other users cannot enter.
fn closed(path: &Path) -> Option<PathBuf> {
    let ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    let is_closed = |folder: &&&Path| fs::metadata(folder).unwrap().permissions().mode() & 0o001 == 0;
    ancestors.iter().rev().find(is_closed).map(|folder| folder.to_path_buf())
}

/// The kernel limits the locked memory of all processes of a user together, so they run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a command as this user.
pub fn run(dir: &TempDir, tracefs: Tracefs, words: &[&str]) -> Outcome {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command(dir, tracefs, words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs perf-prof as this user.
pub fn perf_prof(dir: &TempDir, tracefs: Tracefs, words: &[&str]) -> Outcome {
    run(dir, tracefs, &[&[tested_program()], words].concat())
}

/// Returns the command of a workload.
pub fn workload() -> Vec<String> {
    crate::harness::workload::words("works")
}

/// Returns `words`, followed by the command of a workload.
pub fn with_workload<'a>(words: &[&'a str], workload: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(workload.iter().map(String::as_str)).collect()
}

/// The workload, which touches pages and then computes until it has used some CPU time.
pub fn working() {
    task::touch(PAGES);
    let used = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` lives across the call.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
        time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    };
    let (begun, mut sum) = (used(), 0_u64);
    while used() - begun < 100 {
        sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
    }
}
