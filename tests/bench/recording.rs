//! Recordings of so many system calls, made by the executable, and what recording costs beside perf.

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

/// What is recorded.
pub const EVENT: &str = "raw_syscalls:sys_enter";

/// System calls of a burst, on all of its CPUs together.
const BURST: u64 = 1_000_000;

/// Why nothing can be recorded here, if so.
pub fn unable() -> Option<&'static str> {
    // SAFETY: always callable.
    let root = unsafe { libc::geteuid() } == 0;
    match std::thread::available_parallelism().map_or(1, usize::from) {
        _ if !root => Some("skipped: needs root"),
        1 => Some("skipped: needs two CPUs"),
        _ => None,
    }
}

/// A recording, whose file or directory goes with it.
pub struct Recording {
    _dir: TempDir,
    pub path: PathBuf,
}

impl Recording {
    /// Records so many calls, made on two CPUs at the same time.
    pub fn of(calls: u64, options: &[&str]) -> Recording {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        let own = [&["record", "-q", "-m", "64M"], options].concat();
        record(env!("CARGO_BIN_EXE_perf-prof"), &own, &path, calls);
        // Nothing is written back behind what is measured.
        match fs::read_dir(&path) {
            Ok(files) => files.for_each(|file| sync(&file.unwrap().path())),
            Err(_) => sync(&path),
        }
        Recording { _dir: dir, path }
    }

    /// Has the file say nothing of where its blocks lie, as perf's do not: what would end it goes.
    pub fn forget_blocks(&self) {
        const END: &[u8; 8] = b"blocks\0\x01";
        let file = fs::File::options().read(true).write(true).open(&self.path).unwrap();
        let at = file.metadata().unwrap().len() - END.len() as u64;
        let mut last = [0; END.len()];
        file.read_exact_at(&mut last, at).unwrap();
        assert_eq!(last, *END, "it says nothing");
        file.set_len(at).unwrap();
    }
}

fn sync(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
}

/// Records so many calls; nanoseconds of CPU of the recorder, and of what it recorded.
fn record(recorder: &str, args: &[&str], path: &Path, calls: u64) -> (u64, u64) {
    let used = path.with_extension("used");
    let mut command = Command::new(recorder);
    command.args(args).args(["-e", EVENT, "-o"]).arg(path).arg("--");
    command.arg(std::env::current_exe().unwrap()).args(["--burst", &calls.to_string()]).arg(&used);
    let all = cpu::run(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())).cpu_ns;
    let recorded = fs::read_to_string(&used).unwrap().parse().unwrap();
    (all - recorded, recorded)
}

/// Makes so many calls, half of them on each of two CPUs, and writes down what CPU time they took.
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

/// CPU per event that recording in parallel takes, packed, side by side with perf.
pub fn rows(table: &mut Table) {
    let (ours, perf) = ("record --threads -z", "perf record --threads -z");
    let why = unable().or_else(|| (!python::has("perf")).then_some("skipped: perf is not installed"));
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
        // perf looks for build ids at its end, which takes long and is nothing of this.
        let (perf, with_perf) = run("perf", &["record", "-q", "-B", "-N", "-z", "--threads"]);
        let (ours, with_ours) = run(env!("CARGO_BIN_EXE_perf-prof"), &["record", "-q", "-z", "--threads"]);
        own.push(ours);
        other.push(perf);
        whole.push(with_ours / with_perf);
    }
    let note = "CPU of the recorder, start-up too, for each call of two CPUs that do nothing else";
    table.row(perf, &other, "ns", note);
    let note = format!("the same; with the calls' own CPU {:.2} of perf's", median(&whole));
    table.compared(ours, &own, (perf, &other), "ns", &note);
}
