//! How scripts are run, and what of their workloads several tests need.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use super::{run::PERF_PROF, workload::words};

/// A script, as a shell runs it: by its first line, which finds perf-prof in PATH.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    in_path(&mut command).env("LC_ALL", "C");
    command
}

/// Lets a command find perf-prof and the scripts.
pub fn in_path(command: &mut Command) -> &mut Command {
    let bin = Path::new(PERF_PROF).parent().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = [bin.to_owned(), scripts].into_iter().chain(env::split_paths(&path)).collect();
    command.env("PATH", env::join_paths(path).unwrap())
}

/// What a script prints of a workload, which a program executes that was executed itself.
pub fn on_workload(name: &str, args: &[&str], work: &str) -> String {
    text(script(name).args(args).args(["--exec", "env"]).args(words(work)).output().unwrap())
}

/// A script with the options of its first line, whose events come only if they pass a filter of the kernel, by their names:
/// what else the machine does may be more than the script keeps up with.
pub fn filtered(name: &str, filter: impl Fn(&str) -> &'static str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().next().unwrap().strip_prefix("#!/usr/bin/env -S perf-prof ").unwrap();
    let with_filter = |event: &str| format!("{event}/{}/", filter(event));
    let mut command = Command::new(PERF_PROF);
    for word in line.split(' ') {
        let events =
            word.split(',').map(|event| if event.contains(':') { with_filter(event) } else { event.to_owned() });
        command.arg(events.collect::<Vec<_>>().join(","));
    }
    in_path(command.arg(path)).env("LC_ALL", "C");
    command
}

/// What a script that watches the whole machine prints, and what the workload beside it says.
pub fn beside(mut script: Command, work: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let files = ["out", "err"].map(|name| directory.path().join(name));
    let [out, err] = files.each_ref().map(|path| fs::File::create(path).unwrap());
    let mut child = script.stdout(out).stderr(err).spawn().unwrap();
    // The first table says that events flow.
    while fs::metadata(&files[0]).unwrap().len() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&files[1]).unwrap());
        thread::sleep(Duration::from_millis(10));
    }
    let words = words(work);
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
    let mut command = Command::new(PERF_PROF);
    command.args(["python", "-q", "-e", "dummy"]).arg(file).args(["--exec", "true"]);
    text(command.output().unwrap())
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
