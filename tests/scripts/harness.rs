//! How scripts are run, and what of their workloads several tests need.

use std::{
    env,
    ffi::{CStr, OsString},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

/// Names the workload that a copy of this test program is to be.
pub const WORKLOAD: &str = "PERF_PROF_TEST_WORKLOAD";

/// Why this machine cannot run these tests.
pub fn skipped() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let reason = match fs::read_dir("/sys/kernel/tracing") {
        _ if !root => "not root".to_owned(),
        Err(error) => format!("/sys/kernel/tracing: {error}"),
        Ok(_) => return false,
    };
    println!("skipped: {reason}");
    true
}

/// Whether the kernel samples less often than so many times a second, and says so: it lowers its limit by itself where
/// samples take long.
pub fn samples_less_often_than(frequency: u64) -> bool {
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    let is_less = limit.trim().parse().is_ok_and(|limit: u64| limit < frequency);
    if is_less {
        println!("skipped: kernel.perf_event_max_sample_rate is {}", limit.trim());
    }
    is_less
}

/// A script, as a shell runs it: by its first line, which finds perf-prof in PATH.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    in_path(&mut command).env("LC_ALL", "C");
    // A shell that runs tests in the background lets them inherit that SIGINT is ignored, and then it would not end us.
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    };
    command
}

/// Lets a command find perf-prof and the scripts.
pub fn in_path(command: &mut Command) -> &mut Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_perf-prof")).parent().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = [bin.to_owned(), scripts].into_iter().chain(env::split_paths(&path)).collect();
    command.env("PATH", env::join_paths(path).unwrap())
}

/// This program again, as the workload `name`.
pub fn workload(name: &str) -> Vec<OsString> {
    let this = env::current_exe().unwrap();
    // With one test at a time it runs in the first thread. What it says itself comes at its end, not into a script's lines.
    let args = ["--exact", "the_workload", "--nocapture", "--test-threads=1", "--quiet"];
    let mut words: Vec<OsString> = vec!["env".into(), format!("{WORKLOAD}={name}").into(), this.into()];
    words.extend(args.map(OsString::from));
    words
}

pub fn on_workload(name: &str, args: &[&str], work: &str) -> String {
    text(script(name).args(args).arg("--exec").args(workload(work)).output().unwrap())
}

/// What a script that watches the whole machine prints, and what the workload beside it says.
pub fn beside(name: &str, args: &[&str], work: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let files = ["out", "err"].map(|name| directory.path().join(name));
    let [out, err] = files.each_ref().map(|path| fs::File::create(path).unwrap());
    let mut child = script(name).args(args).stdout(out).stderr(err).spawn().unwrap();
    // The first table says that events flow.
    while fs::metadata(&files[0]).unwrap().len() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&files[1]).unwrap());
        thread::sleep(Duration::from_millis(10));
    }
    let words = workload(work);
    let truth = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    // SAFETY: the child was not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let status = child.wait().unwrap();
    let [stdout, stderr] = files.map(|path| fs::read(path).unwrap());
    (text(Output { status, stdout, stderr }), String::from_utf8(truth.stdout).unwrap())
}

#[track_caller]
pub fn text(output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // How many samples it takes at a time the kernel lowers by itself, where they take long; what is left out then is no loss.
    let is_throttling = |line: &&str| line.starts_with("perf-prof: the kernel throttled sampling ");
    let err: String = err.lines().filter(|line| !is_throttling(line)).flat_map(|line| [line, "\n"]).collect();
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(!err.contains("lost") && !err.contains("Traceback"), "{err}");
    out.into_owned()
}

/// The words of the line that begins with `first`.
#[track_caller]
pub fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no row {first} in\n{text}"))
}

/// Compiles a program with frame pointers; `None` where there is no compiler.
pub fn compile(directory: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (text, program) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&text, source).unwrap();
    let options = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o"];
    match Command::new("cc").args(options).args([&program, &text]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("skipped: cc: {error}");
            return None;
        }
    }
    Some(program)
}

/// What a script does with made-up events: `script` is its module, `event(**members)` makes one.
pub fn on_made_up_events(name: &str, test: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
    let prelude = format!(
        "
import importlib.util, sys
def dummy(event): pass
class event(dict):
    __getattr__ = dict.__getitem__
    def __init__(self, **members): super().__init__(members)
sys.argv = ['{name}']
spec = importlib.util.spec_from_file_location('tested', {path:?})
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.py");
    fs::write(&file, prelude + test).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.args(["python", "-q", "-e", "dummy"]).arg(file).args(["--exec", "true"]);
    text(command.output().unwrap())
}

pub fn named(name: &CStr) {
    // SAFETY: the name ends with a NUL and lives across the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Keeps this thread on the first CPU that it may use.
pub fn pin() {
    // SAFETY: the set lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Whether this thread now is a real-time one.
pub fn first_in_first_out() -> bool {
    // SAFETY: the parameter lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 1 }) == 0 }
}

/// Where a program lies.
pub fn program(name: &str) -> PathBuf {
    env::split_paths(&env::var_os("PATH").unwrap()).map(|dir| dir.join(name)).find(|path| path.is_file()).unwrap()
}
