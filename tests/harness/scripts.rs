//! Runs the shipped scripts, and prepares what several tests need for this.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{run::tested_program, wait, workload::words};

/// Returns the command of a script as a shell runs it: the script's first line finds perf-prof in PATH.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    in_path(&mut command).env("LC_ALL", "C");
    command
}

/// Puts perf-prof and the scripts into the PATH of a command.
pub fn in_path(command: &mut Command) -> &mut Command {
    let bin = Path::new(tested_program()).parent().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = [bin.to_owned(), scripts].into_iter().chain(env::split_paths(&path)).collect();
    command.env("PATH", env::join_paths(path).unwrap())
}

/// Returns what a script prints for a workload. perf-prof executes `env`, which then executes the workload.
pub fn on_workload(name: &str, args: &[&str], work: &str) -> String {
    text(script(name).args(args).args(["--exec", "env"]).args(words(work)).output().unwrap())
}

/// Returns the command of a script with the options of its first line, and with a kernel filter for each event.
/// `filter` returns the filter for an event's name. Without filters, other programs may cause more events than the
/// script can process.
pub fn filtered(name: &str, filter: impl Fn(&str) -> &'static str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().next().unwrap().strip_prefix("#!/usr/bin/env -S perf-prof ").unwrap();
    let with_filter = |event: &str| format!("{event}/{}/", filter(event));
    let mut command = Command::new(tested_program());
    for word in line.split(' ') {
        let events =
            word.split(',').map(|event| if event.contains(':') { with_filter(event) } else { event.to_owned() });
        command.arg(events.collect::<Vec<_>>().join(","));
    }
    in_path(command.arg(path)).env("LC_ALL", "C");
    command
}

/// Runs a workload while a script traces the whole machine. Returns what the script and the workload printed.
pub fn beside(mut script: Command, work: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let files = ["out", "err"].map(|name| directory.path().join(name));
    let [out, err] = files.each_ref().map(|path| fs::File::create(path).unwrap());
    let mut child = script.stdout(out).stderr(err).spawn().unwrap();
    // The first table shows that events are delivered.
    wait::until("the script has printed a table", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&files[1]).unwrap());
        fs::metadata(&files[0]).unwrap().len() > 0
    });
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
    // The kernel lowers its limit of samples if they take long. Samples beyond the limit are not lost events.
    let is_throttling = |line: &&str| line.starts_with("perf-prof: the kernel throttled sampling ");
    let err: String = err.lines().filter(|line| !is_throttling(line)).flat_map(|line| [line, "\n"]).collect();
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(!err.contains("lost") && !err.contains("Traceback"), "{err}");
    out.into_owned()
}

/// Returns the objects that a script prints with --json.
#[track_caller]
pub fn objects(out: &str) -> Vec<serde_json::Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Returns the words of the line that begins with `first`.
#[track_caller]
pub fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no row {first} in\n{text}"))
}

/// Runs the Python code `test` on a script with made events, and returns what it prints. In the code, `script` is the
/// script's module, and `event(**members)` creates an event.
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
    let mut command = Command::new(tested_program());
    command.args(["python", "-q", "-e", "dummy"]).arg(file).args(["--exec", "true"]);
    text(command.output().unwrap())
}

/// Gives this thread a real-time policy. Returns whether the kernel allowed it.
pub fn first_in_first_out() -> bool {
    // SAFETY: the parameter lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 1 }) == 0 }
}

/// Returns the path of a program in PATH.
pub fn program(name: &str) -> PathBuf {
    env::split_paths(&env::var_os("PATH").unwrap()).map(|dir| dir.join(name)).find(|path| path.is_file()).unwrap()
}
