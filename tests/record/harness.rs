//! Runs the built `perf-prof record` with workloads whose calls are counted, and the tools that read what it wrote.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use perf_prof::{
    abi::{PERF_COUNT_SW_PAGE_FAULTS, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER, PERF_TYPE_SOFTWARE, perf_event_attr},
    record::{Record, Records, record_type},
};
use tempfile::TempDir;

/// The program under test.
pub const PERF_PROF: &str = env!("CARGO_BIN_EXE_perf-prof");

/// The event whose every occurrence is a generator's own.
pub const CALL: &str = "syscalls:sys_enter_getppid";

/// Has the generator make so many calls.
const CALLS: &str = "PERF_PROF_TEST_CALLS";

/// Why this machine cannot run a test that records, if it cannot.
pub fn skipped() -> bool {
    let id = fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id");
    match &id {
        Err(error) => println!("skipped: tracefs: {error}"),
        Ok(_) if Command::new("perf").arg("--version").output().is_err() => println!("skipped: no perf"),
        Ok(_) => return false,
    }
    true
}

/// Whether this kernel has no probes of programs.
pub fn without_uprobes() -> bool {
    let without = !Path::new("/sys/bus/event_source/devices/uprobe").exists();
    if without {
        println!("skipped: no uprobe PMU");
    }
    without
}

/// The process of a workload: so many calls, then it ends. A test of this executable, so that nothing has to be built.
#[test]
fn generator() {
    let Ok(calls) = std::env::var(CALLS) else { return };
    if let Some(line) = std::env::var_os("PERF_PROF_TEST_WAITS") {
        // Until its standard input ends.
        std::io::read_to_string(std::io::stdin()).unwrap();
        drop(line);
    }
    for _ in 0..calls.parse::<u64>().unwrap() {
        // SAFETY: getppid takes no pointer and cannot fail. By number, because a C library may remember it.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

/// The process of a workload that counts its own page faults, of which it has so many: another program's software event.
#[test]
fn counting_generator() {
    let Ok(pages) = std::env::var(CALLS) else { return };
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
    let size = 4096 * pages.parse::<usize>().unwrap();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory is asked for, wherever there is room.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    assert!(memory != libc::MAP_FAILED);
    // SAFETY: it is that memory. Of a large page there would be one fault.
    unsafe { libc::madvise(memory, size, libc::MADV_NOHUGEPAGE) };
    for at in (0..size).step_by(4096) {
        // SAFETY: it lies within that memory.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
}

/// The command of a workload with so many page faults of its own, which it counts.
pub fn counting_generator_words() -> [String; 4] {
    let [own, exact, _, nocapture] = generator_words();
    [own, exact, "harness::counting_generator".into(), nocapture]
}

/// The command of a generator; the variable that says how many calls is to be added.
pub fn generator_words() -> [String; 4] {
    let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    [own, "--exact".into(), "harness::generator".into(), "--nocapture".into()]
}

/// Has a command's generator make so many calls.
pub fn with_calls(command: &mut Command, calls: u64) -> &mut Command {
    command.env(CALLS, calls.to_string())
}

/// A generator that begins when its standard input is closed.
pub fn waiting_generator(calls: u64) -> Child {
    let words = generator_words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(CALLS, calls.to_string()).env("PERF_PROF_TEST_WAITS", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// The thread of a waiting generator that is to make the calls: not the first one, whose id is the process's. Ids wrap
/// around, so that it may be the smaller one.
pub fn generating_thread(pid: u32) -> u32 {
    loop {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut tids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
        if let Some(tid) = tids.find(|&tid: &u32| tid != pid) {
            return tid;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A recording in a folder of its own.
pub struct Recorded {
    pub dir: TempDir,
    pub status: i32,
    /// What it said, the folder replaced by `DIR`.
    pub said: String,
}

/// Records a generator of so many calls.
pub fn record_calls(options: &[&str], calls: u64) -> Recorded {
    let mut args: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    args.push("--".into());
    args.extend(generator_words());
    record_with(&args, calls)
}

/// Records with these arguments, the output's place but.
pub fn record(args: &[&str]) -> Recorded {
    record_with(args, 0)
}

/// The options, and a test of this executable as the command.
pub fn words_of(options: &[&str], test: &str) -> Vec<String> {
    let [own, exact, _, nocapture] = generator_words();
    let command = ["--".to_owned(), own, exact, test.to_owned(), nocapture];
    options.iter().map(|&option| option.to_owned()).chain(command).collect()
}

/// Records with these arguments, and with a variable that tells a test that it is the command.
pub fn record_with_env(args: &[String], variable: &str) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let output = command(&dir, args).env(variable, "1").output().unwrap();
    finished(dir, output.status.code().unwrap(), &output.stderr)
}

fn record_with(args: &[impl AsRef<OsStr>], calls: u64) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let mut command = command(&dir, args);
    let output = command.env(CALLS, calls.to_string()).output().unwrap();
    finished(dir, output.status.code().unwrap(), &output.stderr)
}

/// The command, to be run by the test itself.
pub fn command(dir: &TempDir, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(PERF_PROF);
    command.arg("record").args(["-o", "perf.data"]).args(args).current_dir(dir.path());
    command
}

pub fn finished(dir: TempDir, status: i32, stderr: &[u8]) -> Recorded {
    let said = String::from_utf8_lossy(stderr).replace(dir.path().to_str().unwrap(), "DIR");
    Recorded { dir, status, said }
}

impl Recorded {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("perf.data")
    }

    /// The number before these words in the last line.
    pub fn said_number(&self, before: &str) -> u64 {
        let words: Vec<&str> = self.said.trim_end().lines().last().unwrap_or_default().split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == before).unwrap_or_else(|| panic!("{}", self.said));
        words[at - 1].parse().unwrap()
    }

    /// What perf prints of the recording; it must not complain.
    pub fn perf(&self, args: &[&str]) -> String {
        perf(&self.path(), args)
    }

    /// How many samples `perf script` sees.
    pub fn samples(&self) -> u64 {
        self.perf(&["script", "-F", "event"]).lines().count() as u64
    }
}

impl Recorded {
    /// The records of the data section, one by one.
    pub fn for_each_record(&self, mut each: impl FnMut(u32, Record<'_>)) {
        let bytes = fs::read(self.path()).unwrap();
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let data = &bytes[word(40)..word(40) + word(48)];
        let mut records = Records::new(data);
        records.by_ref().for_each(|record| each(record_type(record), Record::parse(record)));
        assert!(records.rest().is_empty(), "{} bytes are no records", records.rest().len());
    }
}

/// What perf prints of a recording; it must not complain.
#[track_caller]
pub fn perf(path: &Path, args: &[&str]) -> String {
    let mut command = Command::new("perf");
    command.args(args).arg("-i").arg(path).env("HOME", path.parent().unwrap()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "perf {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until a recorder has its events on: it has found its target by then, and written what there was before.
pub fn await_events(recorder: &Child, path: &Path) {
    let of_tracepoint = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", recorder.id())).ok()?;
        let links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        Some(links.filter(|link| link.to_str() == Some("anon_inode:[perf_event]")).count())
    };
    while of_tracepoint().unwrap_or(0) == 0 || !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // What follows until the events are enabled is work, then it waits for them. A busy machine may make that long; what has
    // events all the time never waits long, and has the time of some looks.
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
