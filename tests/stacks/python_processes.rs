//! Frames of Python functions in processes that see other files or other ids than perf-prof, or whose files are gone.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::python_frames::interpreters;
use crate::harness::{
    machine::{Need, needs, skip},
    run::{perf_prof, stdout, with_patience},
    wait::Killed,
};

/// Removes the file that its argument names, says its id and whether its interpreter's file is there, and then calls getppid() in
/// functions.
const PROGRAM: &str = "\
import os, sys, time
def load_rows():
    os.getppid()
def main():
    while True:
        load_rows()
        time.sleep(0.01)
for file in sys.argv[1:]:
    os.remove(file)
print(os.getpid(), os.path.exists(sys.executable), flush=True)
main()
";

/// Runs a command of a shell in a folder of its own. `$python` is an interpreter that needs no other file but its modules, and `$program`
/// is [`PROGRAM`]. Returns what the program says, and what perf-prof shows of its calls.
#[track_caller]
fn said_and_shown(command: &str) -> (String, String) {
    let Some((_, python)) = interpreters().into_iter().find(|((_, is_shared), _)| !is_shared) else {
        skip(Need::Python, "there is no CPython without a shared library");
    };
    let of_home = Command::new(&python).args(["-c", "import sys; print(sys.base_prefix)"]).output().unwrap();
    let (python, home) = (python.display().to_string(), stdout(&of_home));
    let variables = [("python", python.as_str()), ("PYTHONHOME", home.trim()), ("program", PROGRAM)];
    let folder = TempDir::new().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).envs(variables).current_dir(&folder).stdout(Stdio::piped());
    let mut running = Killed(shell.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let started = running.0.id().to_string();
    let pid = last_of_family(&started);
    let args = ["trace", "-e", "syscalls:sys_enter_getppid", "--python=only", "-N", "20", "-p", &pid];
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    (said.trim().to_owned(), shown)
}

/// Returns the process that has no child: this one, or its first child, and so on.
fn last_of_family(pid: &str) -> String {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().map_or_else(|| pid.to_owned(), last_of_family)
}

#[track_caller]
fn check(shown: &str) {
    let calls = |function: &str| shown.matches(function).count();
    assert_eq!(
        [calls("load_rows (<string>:3)"), calls("main (<string>:6)"), calls("[python: ")],
        [20, 20, 0],
        "{shown}"
    );
}

#[test]
fn a_version_without_frames_is_named() {
    needs([Need::Bpf, Need::Python]);
    let versions = Path::new(&std::env::var("HOME").unwrap_or_default()).join(".pyenv/versions");
    let is_old = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("3.10."));
    let found = fs::read_dir(versions).into_iter().flatten().flatten().map(|entry| entry.path()).find(is_old);
    let Some(python) = found else { skip(Need::Python, "there is no CPython 3.10") };
    let mut running = Command::new(python.join("bin/python3"));
    let mut running = Killed(running.args(["-c", PROGRAM]).stdout(Stdio::piped()).spawn().unwrap());
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let pid = running.0.id().to_string();
    let event = "syscalls:sys_enter_getppid";
    let args = ["trace", "-e", event, "--python", "--call-graph", "dwarf,32768", "-N", "3", "-p", &pid];
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    assert_eq!(shown.matches("[python: frames of CPython before 3.11 cannot be read]").count(), 3, "{shown}");
}

#[test]
fn a_process_whose_interpreter_was_removed_has_names() {
    needs([Need::Bpf, Need::Python]);
    let (said, shown) = said_and_shown("cp \"$python\" python3 && exec ./python3 -c \"$program\" python3");
    assert!(said.ends_with(" False"), "{said}");
    check(&shown);
}

#[test]
fn a_process_that_has_another_id_in_its_namespace_has_names() {
    needs([Need::Bpf, Need::Python, Need::Namespaces]);
    // One namespace is in the other one.
    let unshare = "unshare --pid --fork --kill-child";
    let (said, shown) = said_and_shown(&format!("exec {unshare} {unshare} --mount-proc \"$python\" -c \"$program\""));
    assert!(said.starts_with("1 "), "{said}");
    check(&shown);
}

#[test]
fn a_process_that_sees_other_mounts_has_names() {
    needs([Need::Bpf, Need::Python, Need::Namespaces]);
    let command = "mkdir m && mount -t tmpfs none m && cp \"$python\" m/python3 && exec m/python3 -c \"$program\"";
    let (said, shown) = said_and_shown(&format!("exec unshare --mount sh -c '{command}'"));
    assert!(said.ends_with(" True"), "{said}");
    check(&shown);
}

/// Prints the files that may have the interpreter.
const FILES: &str = "print(*{line.split()[5] for line in open('/proc/self/maps') if '/libpython' in line or '/python3' in line}, sep='\\n')";

/// A copy of an interpreter that says that it is a free-threaded build stands for one.
#[test]
fn a_free_threaded_interpreter_has_a_reason_in_place_of_its_functions() {
    needs([Need::Bpf, Need::Python]);
    let Some((_, python)) = interpreters().into_iter().find(|((minor, _), _)| ["13", "14"].contains(&&**minor)) else {
        skip(Need::Python, "there is no CPython 3.13 or 3.14");
    };
    let folder = TempDir::new().unwrap();
    let files = stdout(&Command::new(&python).args(["-c", FILES]).output().unwrap());
    // `_Py_DebugOffsets` starts with a cookie, the version, and whether the build is free-threaded.
    let state = |bytes: &[u8]| bytes.windows(16).position(|head| head.starts_with(b"xdebugpy") && head[11] == 3);
    let found = files.lines().find_map(|file| {
        let bytes = fs::read(file).ok()?;
        Some((Path::new(file), state(&bytes)?, bytes))
    });
    let (file, state, mut bytes) = found.unwrap();
    bytes[state + 16] = 1;
    let copy = folder.path().join(file.file_name().unwrap());
    fs::write(&copy, bytes).unwrap();
    let is_library = copy.to_string_lossy().contains("/libpython");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let home = stdout(&Command::new(&python).args(["-c", "import sys; print(sys.base_prefix)"]).output().unwrap());
    let variables = [format!("PYTHONHOME={}", home.trim()), format!("LD_PRELOAD={}", copy.display())];
    let program = "import os, time\ndef load_rows():\n    os.getppid()\ntime.sleep(1)\nload_rows()\ntime.sleep(2)\n";
    let executable = if is_library { python } else { copy }.display().to_string();
    let mut args =
        vec!["trace", "-e", "syscalls:sys_enter_getppid", "--python", "--call-graph", "dwarf,32768", "--", "env"];
    args.extend(variables.iter().take(1 + usize::from(is_library)).map(String::as_str));
    args.extend([&*executable, "-c", program]);
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    assert!(shown.contains("[python: frames of a free-threaded CPython cannot be read]"), "{shown}");
    assert!(!shown.contains("load_rows"), "{shown}");
}

/// Calls getppid() in a function right before its end. The record of the call is delivered at least 20 ms later.
const ENDS: &str = "\
import os, time
def last_words():
    os.getppid()
time.sleep(0.1)
last_words()
time.sleep(0.012)
os._exit(0)
";

/// On a busy machine, a record may be read too late. So one of many runs is enough.
#[test]
fn what_a_process_runs_right_before_its_end_has_names() {
    needs([Need::Bpf, Need::Python]);
    let Some(python) = interpreters().into_values().next() else {
        skip(Need::Python, "there is no CPython 3.11 to 3.15");
    };
    let python = python.display().to_string();
    let args = ["trace", "-e", "syscalls:sys_enter_getppid", "--python=only", "--", &python, "-c", ENDS];
    let mut runs = (0..30).map(|_| stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap()));
    let mut shown = String::new();
    let is_named = |run: String| {
        shown = run;
        shown.contains("last_words (<string>:3)")
    };
    assert!(runs.any(is_named), "{shown}");
}
