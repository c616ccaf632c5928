//! Frames of Python functions, compared with the output of `faulthandler` in the traced program.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs, skip},
    run::{perf_prof, stdout, with_patience},
};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/python_frames.py");

const FREED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/freed_functions.py");

/// A script that prints the Python frames of each call. It creates the file `ready` when it gets the program's first
/// event, and `done` when the program has reached its end.
const SCRIPT: &str = "\
import os, sys
def syscalls__sys_enter_getppid(event):
    frames = [frame for frame in event._callchain if frame.get('python')]
    names = [(frame['symbol'].split('.')[-1], frame['dso'], frame['line']) for frame in frames]
    if any(name[0] == 'ready' for name in names):
        open(sys.argv[2], 'w').close()
    if not os.path.exists(sys.argv[2]) or any(name[0] == 'ready' for name in names):
        return
    print(*('%s@%s:%s' % name for name in names), flush=True)
    if any(name[0] == 'last' for name in names):
        open(sys.argv[1], 'w').close()
";

/// Returns interpreters of this machine: one for each supported version and each way of building it.
fn interpreters() -> BTreeMap<(String, bool), PathBuf> {
    let versions = Path::new(&std::env::var("HOME").unwrap_or_default()).join(".pyenv/versions");
    let of_pyenv = fs::read_dir(versions).into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let of_system = [11, 12, 13].map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")));
    let facts = "import sys, sysconfig; print(sys.version_info[1], bool(sysconfig.get_config_var('Py_ENABLE_SHARED')))";
    let fact = |path: PathBuf| {
        let output = Command::new(&path).args(["-c", facts]).output().ok()?;
        let (minor, is_shared) = stdout(&output).trim().split_once(' ').map(|(a, b)| (a.to_owned(), b == "True"))?;
        ["11", "12", "13"].contains(&&*minor).then_some(((minor, is_shared), path))
    };
    of_pyenv.chain(of_system).filter(|path| path.exists()).filter_map(fact).collect()
}

/// Returns the stacks in the text of faulthandler, each as `name@file:line ...`.
fn stacks_of_faulthandler(text: &str) -> Vec<String> {
    let frame = |line: &str| {
        let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
        // 3.13 has a frame without a file, which ends calls of `__init__`.
        let (line, name) = rest.split_once(" in ").filter(|(line, _)| *line != "???")?;
        Some(format!("{name}@{}:{line}", file.rsplit('/').next().unwrap_or(file)))
    };
    let stacks = text.split("Stack (most recent call first):\n").skip(1);
    stacks.map(|stack| stack.lines().filter_map(frame).collect::<Vec<_>>().join(" ")).collect()
}

/// Runs a program with this interpreter. Returns the stacks that perf-prof reports, and what the program writes about
/// them.
#[track_caller]
fn seen_and_truth(python: &Path, program: &str) -> (Vec<String>, String) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [script, truth, done, ready] = ["frames_of_getppid.py", "truth", "done", "ready"].map(path);
    fs::write(&script, SCRIPT).unwrap();
    let python_path = python.display().to_string();
    let of_events = ["--order", "--python-frames=only", "-e", "syscalls:sys_enter_getppid", &script, &done, &ready];
    let command = ["--exec", &python_path, program, &truth, &done, &ready];
    let args = [&["python"][..], &of_events, &command].concat();
    let output = with_patience(&mut perf_prof(&args), 60).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (stdout(&output).lines().map(str::to_owned).collect(), fs::read_to_string(truth).unwrap())
}

#[track_caller]
fn check(python: &Path) {
    let (seen, truth) = seen_and_truth(python, PROGRAM);
    let truth = stacks_of_faulthandler(&truth);
    assert!(truth.len() > 500, "{}: {}", python.display(), truth.len());
    let differ = truth.iter().zip(&seen).find(|(truth, seen)| truth != seen);
    assert_eq!((seen.len(), differ), (truth.len(), None), "{}", python.display());
}

#[test]
fn functions_and_lines_of_python_are_those_of_faulthandler() {
    needs([Need::Bpf, Need::Python]);
    let found = interpreters();
    if found.is_empty() {
        skip(Need::Python, "there is no CPython 3.11, 3.12 or 3.13");
    }
    found.values().for_each(|python| check(python));
}

#[test]
fn a_function_that_was_freed_has_its_own_name_or_none() {
    needs([Need::Bpf, Need::Python]);
    // Since 3.12, code objects have numbers, which distinguish them.
    let found = interpreters();
    for ((minor, _), python) in found.iter().filter(|((minor, _), _)| minor != "11") {
        let (seen, truth) = seen_and_truth(python, FREED);
        let truth: Vec<&str> = truth.lines().collect();
        assert_eq!((seen.len(), truth.len()), (1001, 1001), "3.{minor}");
        let is_named = |seen: &str| !seen.starts_with("[python: ");
        let wrong = seen.iter().zip(&truth).find(|(seen, truth)| is_named(seen) && !seen.starts_with(*truth));
        assert_eq!(wrong, None, "3.{minor}");
    }
}

#[test]
fn functions_have_their_place_between_those_of_the_interpreter() {
    needs([Need::Bpf, Need::Python]);
    let Some(python) = interpreters().into_values().next() else {
        skip(Need::Python, "there is no CPython 3.11, 3.12 or 3.13");
    };
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("sorts.py");
    let text =
        "import os, time\ndef key(x):\n    return os.getppid()\ntime.sleep(1)\nsorted([1], key=key)\ntime.sleep(3)\n";
    fs::write(&program, text).unwrap();
    let (python, program) = (python.display().to_string(), program.display().to_string());
    let event = "syscalls:sys_enter_getppid";
    let args = ["trace", "-e", event, "--python", "--call-graph", "dwarf,32768", "--", &python, &program];
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    let place =
        |text: &str| shown.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert!(place("getppid+") < place("key (sorts.py:3)"), "{shown}");
    assert!(place("key (sorts.py:3)") < place("<module> (sorts.py:5)"), "{shown}");
}
