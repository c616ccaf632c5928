//! Makes recordings of a given number of system calls with the executable, and compares the cost of recording with
//! perf.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{
    cpu, python,
    table::{Table, median},
};

/// The recorded event.
pub const EVENT: &str = "raw_syscalls:sys_enter";

/// The number of system calls of a burst, on both CPUs together.
const BURST: u64 = 1_000_000;

/// Returns the reason why nothing can be recorded on this machine, if there is one.
pub fn why_not_recordable() -> Option<&'static str> {
    // SAFETY: geteuid can always be called.
    let root = unsafe { libc::geteuid() } == 0;
    match std::thread::available_parallelism().map_or(1, usize::from) {
        _ if !root => Some("skipped: needs root"),
        1 => Some("skipped: needs two CPUs"),
        _ => None,
    }
}

/// A recording. Its file or directory is deleted when this value is dropped.
pub struct Recording {
    _dir: TempDir,
    pub path: PathBuf,
}

impl Recording {
    /// Records this many calls, made on two CPUs at the same time.
    pub fn of(calls: u64, options: &[&str]) -> Recording {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        let own = [&["record", "-q", "-m", "64M"], options].concat();
        record(env!("CARGO_BIN_EXE_perf-prof"), &own, &path, calls);
        Recording::written(dir, path)
    }

    /// Records this command.
    pub fn of_command(options: &[&str], recorded: &Command) -> Recording {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["record", "-q", "-m", "64M"]).args(options).arg("-o").arg(&path).arg("--");
        command.arg(recorded.get_program()).args(recorded.get_args());
        cpu::run(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        Recording::written(dir, path)
    }

    fn written(dir: TempDir, path: PathBuf) -> Recording {
        // The data is written to disk now, so that no write-back disturbs the measurement.
        match fs::read_dir(&path) {
            Ok(files) => files.for_each(|file| sync(&file.unwrap().path())),
            Err(_) => sync(&path),
        }
        Recording { _dir: dir, path }
    }

    /// Removes the mark of the block index at the end of the file, because perf's files have no such index.
    pub fn remove_block_index(&self) {
        const END: &[u8; 8] = b"blocks\0\x02";
        let file = fs::File::options().read(true).write(true).open(&self.path).unwrap();
        let at = file.metadata().unwrap().len() - END.len() as u64;
        let mut last = [0; END.len()];
        file.read_exact_at(&mut last, at).unwrap();
        assert_eq!(last, *END, "the file has no block index");
        file.set_len(at).unwrap();
    }
}

fn sync(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
}

/// Records this many calls. Returns the CPU time of the recorder and of the recorded processes, in ns.
fn record(recorder: &str, args: &[&str], path: &Path, calls: u64) -> (u64, u64) {
    let used = path.with_extension("used");
    let mut command = Command::new(recorder);
    command.args(args).args(["-e", EVENT, "-o"]).arg(path).arg("--");
    command.arg(std::env::current_exe().unwrap()).args(["--burst", &calls.to_string()]).arg(&used);
    let all = cpu::run(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())).cpu_ns;
    let recorded = fs::read_to_string(&used).unwrap().parse().unwrap();
    (all - recorded, recorded)
}

/// Makes this many calls, half of them on each of two CPUs, and writes the CPU time that they took to the file `used`,
/// in ns.
pub fn burst(calls: u64, used: &Path) {
    let generator = |cpu| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--generate", &(calls / 2).to_string()]).stdin(Stdio::null());
        cpu::pinned(&mut command, cpu).spawn().unwrap()
    };
    let both = [0, 1].map(generator);
    let ns: u64 = both.into_iter().map(cpu::reap_ns).sum();
    fs::write(used, ns.to_string()).unwrap();
}

/// Adds rows with the CPU time per event of compressed recording with several threads, for perf-prof and for perf.
pub fn rows(table: &mut Table) {
    let (ours, perf) = ("record --threads -z", "perf record --threads -z");
    let why = why_not_recordable().or_else(|| (!python::has("perf")).then_some("skipped: perf is not installed"));
    if let Some(why) = why {
        [ours, perf].into_iter().for_each(|name| table.row(name, &[], "ns", why));
        return;
    }
    let calls = table.effort.count(BURST);
    let (mut own, mut other, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..table.effort.runs().min(5) {
        let run = |recorder, args: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            let (recorder, recorded) = record(recorder, args, &dir.path().join("recording"), calls);
            (recorder as f64 / calls as f64, (recorder + recorded) as f64)
        };
        // -B and -N: at its end, perf would otherwise read build ids and fill its cache, which takes long.
        let (perf, with_perf) = run("perf", &["record", "-q", "-B", "-N", "-z", "--threads"]);
        let (ours, with_ours) = run(env!("CARGO_BIN_EXE_perf-prof"), &["record", "-q", "-z", "--threads"]);
        own.push(ours);
        other.push(perf);
        whole.push(with_ours / with_perf);
    }
    let note = "CPU time of the recorder per call, including start-up; two CPUs do nothing but make calls";
    table.row(perf, &other, "ns", note);
    let note = format!("the same; including the CPU time of the calls, the ratio is {:.2}", median(&whole));
    table.compared(ours, &own, (perf, &other), "ns", &note);
}
