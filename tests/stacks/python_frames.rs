//! Frames of Python functions, compared with what `faulthandler` says in the program itself.

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

/// Prints the Python frames of each call, and makes the file `done` when the program has reached its end.
const SCRIPT: &str = "\
import sys
def syscalls__sys_enter_getppid(event):
    frames = [frame for frame in event._callchain if frame.get('python')]
    names = [(frame['symbol'].split('.')[-1], frame['dso'], frame['line']) for frame in frames]
    print(*('%s@%s:%s' % name for name in names), flush=True)
    if any(name[0] == 'last' for name in names):
        open(sys.argv[1], 'w').close()
";

/// Returns interpreters of this machine, one for each version that is supported and each way of building it.
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

/// Returns the stacks in faulthandler's text, each as `name@file:line ...`.
fn stacks_of_faulthandler(text: &str) -> Vec<String> {
    let frame = |line: &str| {
        let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
        // 3.13 has a frame without a file that ends calls of `__init__`.
        let (line, name) = rest.split_once(" in ").filter(|(line, _)| *line != "???")?;
        Some(format!("{name}@{}:{line}", file.rsplit('/').next().unwrap_or(file)))
    };
    let stacks = text.split("Stack (most recent call first):\n").skip(1);
    stacks.map(|stack| stack.lines().filter_map(frame).collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
fn check(python: &Path) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (script, truth, done) = (path("frames_of_getppid.py"), path("truth"), path("done"));
    fs::write(&script, SCRIPT).unwrap();
    let python_path = python.display().to_string();
    let of_events = ["--order", "--python-frames=only", "-e", "syscalls:sys_enter_getppid", &script, &done];
    let command = ["--exec", &python_path, PROGRAM, &truth, &done];
    let args = [&["python"][..], &of_events, &command].concat();
    let output = with_patience(&mut perf_prof(&args), 60).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (seen, truth) = (stdout(&output), stacks_of_faulthandler(&fs::read_to_string(truth).unwrap()));
    let seen: Vec<&str> = seen.lines().collect();
    assert!(truth.len() > 500, "{}: {}", python.display(), truth.len());
    let differ = truth.iter().zip(&seen).find(|(truth, seen)| truth != *seen);
    assert_eq!((seen.len(), differ), (truth.len(), None), "{}", python.display());
}

#[test]
fn functions_and_lines_of_python_are_those_of_faulthandler() {
    needs([Need::Bpf]);
    let found = interpreters();
    if found.is_empty() {
        skip(Need::Python, "there is no CPython 3.11, 3.12 or 3.13");
    }
    found.values().for_each(|python| check(python));
}

#[test]
fn functions_have_their_place_between_those_of_the_interpreter() {
    needs([Need::Bpf]);
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
