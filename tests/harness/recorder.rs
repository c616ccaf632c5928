//! Runs the built `perf-prof record` with workloads that make a known number of calls, and the tools that read the
//! recordings.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use perf_prof_format::{
    abi::{PERF_COUNT_SW_PAGE_FAULTS, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER, PERF_TYPE_SOFTWARE, perf_event_attr},
    record::{Record, Records, record_type},
};
use tempfile::TempDir;

use super::{run::tested_program, task, wait, workload};

/// The event that only generators cause.
pub const CALL: &str = "syscalls:sys_enter_getppid";

/// The environment variable with the generator's number of calls.
const CALLS: &str = "PERF_PROF_TEST_CALLS";

/// The generator, which makes its calls and ends.
pub fn generator() {
    let calls = std::env::var(CALLS).unwrap();
    if let Some(line) = std::env::var_os("PERF_PROF_TEST_WAITS") {
        // The generator waits until its standard input ends.
        std::io::read_to_string(std::io::stdin()).unwrap();
        drop(line);
    }
    task::getppid(calls.parse().unwrap());
    println!("made {calls} calls");
}

/// A workload that touches pages and counts its own page faults. So two programs have a software event.
pub fn counting_generator() {
    let pages = std::env::var(CALLS).unwrap();
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: PERF_COUNT_SW_PAGE_FAULTS,
        sample_type: PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_ID,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    // SAFETY: the attr is one, and of the size that it states.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, 0, -1, -1, 0) };
    assert!(fd >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    task::touch(pages.parse().unwrap());
    println!("touched {pages} pages");
}

/// Returns the command of this workload.
pub fn counting_generator_words() -> Vec<String> {
    workload::words("counting-generator")
}

/// Returns the command of a generator. Callers add the variable with the number of calls.
pub fn generator_words() -> Vec<String> {
    workload::words("generator")
}

/// Sets how many calls the generator of a command makes.
pub fn with_calls(command: &mut Command, calls: u64) -> &mut Command {
    command.env(CALLS, calls.to_string())
}

/// Starts a generator that makes its calls when its standard input is closed.
pub fn waiting_generator(calls: u64) -> Child {
    let words = generator_words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(CALLS, calls.to_string()).env("PERF_PROF_TEST_WAITS", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Returns the thread of a waiting generator that will make the calls. It is not the main thread, whose id is the
/// process id. Ids wrap around, so its id may be smaller.
pub fn generating_thread(pid: u32) -> u32 {
    let mut found = None;
    wait::until("the generator has its thread", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut tids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
        found = tids.find(|&tid: &u32| tid != pid);
        found.is_some()
    });
    found.unwrap()
}

/// A recording in its own folder.
pub struct RecordRun {
    pub dir: TempDir,
    pub status: i32,
    /// What the recorder printed on stderr. `DIR` replaces the folder.
    pub said: String,
}

/// Records a generator that makes this many calls.
pub fn record_calls(options: &[&str], calls: u64) -> RecordRun {
    let mut args: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    args.push("--".into());
    args.extend(generator_words());
    record_with(&args, calls)
}

/// Records with these arguments. The path of the recording is added.
pub fn record(args: &[&str]) -> RecordRun {
    record_with(args, 0)
}

/// Records a workload.
pub fn record_workload(options: &[&str], name: &str) -> RecordRun {
    let options = options.iter().copied().chain(["--"]).map(str::to_owned);
    record_with(&options.chain(workload::words(name)).collect::<Vec<_>>(), 0)
}

fn record_with(args: &[impl AsRef<OsStr>], calls: u64) -> RecordRun {
    let dir = tempfile::tempdir().unwrap();
    let mut command = command(&dir, args);
    let output = command.env(CALLS, calls.to_string()).output().unwrap();
    finished(dir, &output)
}

/// Records a waiting generator from now on. `target` returns the option and the id for it.
pub fn record_attached(options: &[&str], target: impl Fn(u32) -> (&'static str, u32), calls: u64) -> RecordRun {
    let mut generator = waiting_generator(calls);
    let (option, id) = target(generator.id());
    let dir = tempfile::tempdir().unwrap();
    let id = id.to_string();
    let args = [options, &[option, &id]].concat();
    let recorder = command(&dir, &args).stderr(Stdio::piped()).spawn().unwrap();
    // The events are enabled when the file is not empty, because existing tasks and mappings are written after the
    // events are opened.
    await_events(&recorder, &dir.path().join("perf.data"));
    drop(generator.stdin.take());
    generator.wait().unwrap();
    ended(dir, recorder)
}

/// Returns the command of a recorder, which the test runs itself.
pub fn command(dir: &TempDir, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(tested_program());
    command.arg("record").args(["-o", "perf.data"]).args(args).current_dir(dir.path());
    command
}

/// Waits for the end of a recorder, whose stderr is a pipe.
pub fn ended(dir: TempDir, recorder: Child) -> RecordRun {
    finished(dir, &recorder.wait_with_output().unwrap())
}

pub fn finished(dir: TempDir, output: &Output) -> RecordRun {
    let said = String::from_utf8_lossy(&output.stderr).replace(dir.path().to_str().unwrap(), "DIR");
    RecordRun { dir, status: output.status.code().unwrap(), said }
}

impl RecordRun {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("perf.data")
    }

    /// Returns the number before this word in the last line of stderr.
    pub fn said_number(&self, before: &str) -> u64 {
        let words: Vec<&str> = self.said.trim_end().lines().last().unwrap_or_default().split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == before).unwrap_or_else(|| panic!("{}", self.said));
        words[at - 1].parse().unwrap()
    }

    /// Returns what perf prints for the recording. perf must print nothing on stderr.
    pub fn perf(&self, args: &[&str]) -> String {
        perf(&self.path(), args)
    }

    /// Returns the number of samples that `perf script` prints.
    pub fn samples(&self) -> u64 {
        self.perf(&["script", "-F", "event"]).lines().count() as u64
    }
}

impl RecordRun {
    /// Calls `each` for each record of the data section.
    pub fn for_each_record(&self, each: impl FnMut(u32, Record<'_>)) {
        for_each_record(&self.path(), each);
    }
}

/// Calls `each` for each record in the data section of a recording.
pub fn for_each_record(path: &Path, mut each: impl FnMut(u32, Record<'_>)) {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let data = &bytes[word(40)..word(40) + word(48)];
    let mut records = Records::new(data);
    records.by_ref().for_each(|record| each(record_type(record), Record::parse(record)));
    assert!(records.rest().is_empty(), "the last {} bytes are not a record", records.rest().len());
}

/// Returns whether perf's messages only say that the kernel lost events, as it does on a busy machine.
pub fn are_about_losses(stderr: &str) -> bool {
    const TEXTS: [&str; 3] = ["lost ", "Warning:", "Check IO/CPU overload!"];
    stderr.lines().all(|line| line.is_empty() || TEXTS.iter().any(|text| line.contains(text)))
}

/// Returns what perf prints for a recording. On stderr, perf must print nothing but that events were lost.
#[track_caller]
pub fn perf(path: &Path, args: &[&str]) -> String {
    let mut command = Command::new("perf");
    command.args(args).arg("-i").arg(path).env("HOME", path.parent().unwrap()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && are_about_losses(&stderr), "perf {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the events of a recorder are enabled. Then it has found its target and written the existing tasks and
/// mappings.
pub fn await_events(recorder: &Child, path: &Path) {
    let of_tracepoint = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", recorder.id())).ok()?;
        let links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        Some(links.filter(|link| link.to_str() == Some("anon_inode:[perf_event]")).count())
    };
    wait::until("the recorder has opened its events", || of_tracepoint().unwrap_or(0) > 0 && path.exists());
    // The recorder works until the events are enabled, and then waits for them. This may take long on a busy machine. A
    // recorder that always gets events never waits for long, so it is checked only a few times.
    let asleep = || {
        let status = fs::read_to_string(format!("/proc/{}/status", recorder.id())).unwrap_or_default();
        let lines = status.lines().filter(|line| line.starts_with("State:") || line.contains("ctxt_switches:"));
        lines.collect::<Vec<_>>().join(" ")
    };
    for _ in 0..6 {
        let before = asleep();
        std::thread::sleep(std::time::Duration::from_millis(500));
        if before.contains("sleeping") && before == asleep() {
            return;
        }
    }
}
