//! Checks types: mypy and pyright find no error in the package, in the types of all events of this kernel, and in the
//! shipped scripts. Live events have the types in the output of `perf-prof stubs`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::harness::{
    machine::{Need, needs, skip},
    run::{stdout, tested_program},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The lowest supported version, from `requires-python` in pyproject.toml.
const LOWEST_PYTHON: &str = "3.10";

/// Returns the folder with mypy and pyright, which are installed once and kept with the build.
fn checkers() -> &'static Path {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("type-checkers-with-pytest");
        let done = folder.join("done");
        if !done.exists() {
            let _ = fs::remove_dir_all(&folder);
            let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
            let pip =
                Command::new(folder.join("bin/pip")).args(["install", "--quiet", "mypy", "pyright", "pytest"]).status();
            let all = [made, pip].into_iter().all(|status| status.is_ok_and(|status| status.success()));
            // The first call of pyright installs its other files.
            let ready = all && Command::new(folder.join("bin/pyright")).arg("--version").output().is_ok();
            if !ready || fs::write(&done, "").is_err() {
                return None;
            }
        }
        Some(folder.join("bin"))
    });
    folder.as_deref().unwrap_or_else(|| skip(Need::Pypi, "mypy and pyright cannot be installed"))
}

/// Runs a checker on files. It searches imports in `folder` and in the folder of the package.
fn check(checker: &str, folder: &Path, files: &[&str]) -> Output {
    let config =
        format!(r#"{{"extraPaths": ["{ROOT}/python"], "include": ["."], "pythonVersion": "{LOWEST_PYTHON}"}}"#);
    fs::write(folder.join("pyrightconfig.json"), config).unwrap();
    let mut command = Command::new(checkers().join(checker));
    match checker {
        "mypy" => {
            command.args(["--strict", "--python-version", LOWEST_PYTHON, "--cache-dir"]).arg(checkers().join("cache"))
        }
        _ => command.arg("--project").arg(folder),
    };
    // mypy fails with an internal error if another mypy changes its cache at the same time.
    static CACHE: Mutex<()> = Mutex::new(());
    let mut _cache = None;
    if checker == "mypy" {
        command.args(files);
        _cache = Some(CACHE.lock().unwrap_or_else(PoisonError::into_inner));
    }
    command.env("MYPYPATH", format!("{ROOT}/python")).current_dir(folder).output().unwrap()
}

#[track_caller]
fn passes(checker: &str, folder: &Path, files: &[&str]) {
    let output = check(checker, folder, files);
    assert!(output.status.success(), "{checker}: {}", String::from_utf8_lossy(&output.stdout));
}

fn write_stubs(folder: &Path, args: &[&str]) {
    let status =
        Command::new(tested_program()).arg("stubs").args(args).arg("-o").arg(folder.join("events.pyi")).status();
    assert!(status.unwrap().success());
}

const SCRIPT: &str = "\
from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from events import Handlers, PageFaults, SchedSwitch


def sched__sched_switch(event: SchedSwitch) -> None:
    print(event.prev_comm.upper(), event.next_pid + event._pid, event['prev_prio'])


def page_faults(event: PageFaults) -> None:
    print(event.addr + event.ip)


handlers: Handlers = {'sched__sched_switch': sched__sched_switch, 'page_faults': page_faults}
";

#[test]
fn types_of_all_events_pass_mypy() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    write_stubs(folder.path(), &["*:*", "page-faults", "cpu-clock", "syscall", "offcpu", "runqueue", "process"]);
    // Other tests add and remove probes at the same time, so only the events of system calls are counted. If a probe is removed
    // while the kernel's list of events is read, the list lacks another event.
    let text = fs::read_to_string(folder.path().join("events.pyi")).unwrap();
    let documented = text.lines().filter(|line| line.starts_with("    \"\"\"syscalls:")).count();
    let list = || Command::new(tested_program()).args(["list", "syscalls:*"]).output().unwrap();
    let listed: Vec<usize> = (0..5).map(|_| stdout(&list()).lines().count()).collect();
    assert!(documented > 400 && listed.contains(&documented), "{documented} of {listed:?}");
    assert!(text.lines().filter(|line| line.starts_with("class ")).count() > documented + 100);
    passes("mypy", folder.path(), &["events.pyi"]);
}

#[test]
fn scripts_with_types_pass_both_checkers() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    write_stubs(folder.path(), &["sched:*,syscalls:sys_enter_open*", "page-faults"]);
    fs::write(folder.path().join("script.py"), SCRIPT).unwrap();
    passes("mypy", folder.path(), &["script.py", "events.pyi"]);
    passes("pyright", folder.path(), &[]);
}

#[test]
fn the_package_passes_both_checkers() {
    let folder = tempfile::tempdir().unwrap();
    passes("mypy", folder.path(), &["-p", "perf_prof"]);
    symlink(Path::new(ROOT).join("python/perf_prof"), folder.path().join("perf_prof")).unwrap();
    passes("pyright", folder.path(), &[]);
}

#[test]
fn shipped_scripts_pass_both_checkers() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for script in fs::read_dir(Path::new(ROOT).join("scripts")).unwrap() {
        let script = script.unwrap();
        names.push(script.file_name().into_string().unwrap());
        fs::copy(script.path(), folder.path().join(script.file_name())).unwrap();
    }
    let files: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.ends_with(".py")).collect();
    assert!(files.len() > 8, "{files:?}");
    passes("mypy", folder.path(), &files);
    passes("pyright", folder.path(), &[]);
}

const PROGRAM: &str = "\
from perf_prof import EventFormat, RunResult, events, run
from perf_prof.testing import Lost, ScriptResult, make_event, run_script

made = make_event('sched:sched_switch', formats='shipped', prev_pid=7, _time=1)
out: ScriptResult = run_script('s.py', [made, Lost(events=2)], args=['--all'], interval=1.0)
print(out.stdout.upper(), out.status + 1, out.module.table)
formats: list[EventFormat] = events('sched:*')
for field in formats[0].fields:
    print(field.name.upper(), field.size + field.offset, field.python_type.__name__)
result: RunResult = run('sched:*', handlers=print, cpus=[0], input='perf.data', jobs=2, split='cpu')
";

#[test]
fn programs_and_tests_of_scripts_pass_both_checkers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.py"), PROGRAM).unwrap();
    for checker in ["mypy", "pyright"] {
        passes(checker, folder.path(), &["program.py"]);
    }
    for (right, wrong) in [
        ("out.status + 1", "out.status + ''"),
        ("Lost(events=2)", "Lost(number=2)"),
        ("[made", "['made'"),
        ("cpus=[0]", "cpu=[0]"),
        ("jobs=2", "jobs=[2]"),
        ("split='cpu'", "split='task'"),
    ] {
        assert!(PROGRAM.contains(right));
        fs::write(folder.path().join("program.py"), PROGRAM.replace(right, wrong)).unwrap();
        for checker in ["mypy", "pyright"] {
            assert!(!check(checker, folder.path(), &["program.py"]).status.success(), "{checker}: {wrong}");
        }
    }
}

#[test]
fn both_checkers_find_names_that_are_no_fields_and_wrong_types() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    write_stubs(folder.path(), &["sched:sched_switch", "page-faults"]);
    for (right, wrong) in
        [("event.prev_comm", "event.prev_com"), (".next_pid +", ".next_comm +"), ("'page_faults'", "'faults'")]
    {
        assert!(SCRIPT.contains(right));
        fs::write(folder.path().join("script.py"), SCRIPT.replace(right, wrong)).unwrap();
        for checker in ["mypy", "pyright"] {
            let output = check(checker, folder.path(), &["script.py"]);
            let text = stdout_of_failed(&output);
            let line = 1 + SCRIPT.lines().position(|line| line.contains(right)).unwrap();
            assert!(
                text.contains(&format!("script.py:{line}:")) && text.contains("error"),
                "{checker} {wrong}: {text}"
            );
        }
    }
}

fn stdout_of_failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares each field of each event with the types in the file `events.pyi`.
const COMPARE: &str = r#"
import ast, sys

types = {}
for node in ast.parse(open(sys.argv[1]).read()).body:
    if isinstance(node, ast.ClassDef):
        own = {f.name: f.returns.attr for f in node.body if isinstance(f, ast.FunctionDef)}
        types[ast.get_docstring(node).split("\n")[0]] = own
seen = {}


def __sample__(event):
    names = [name for name in event.keys() if not name.startswith(("_pid", "_tid", "_time", "_cpu", "_period", "common_"))]
    expected = types[event._event]
    names = [name for name in names if name not in ("_realtime", "_callchain", "_event")]
    assert names == list(expected), (event._event, names, expected)
    for name, python in expected.items():
        assert type(getattr(event, name)).__name__ == python, (event._event, name, python)
    seen[event._event] = True


def __exit__():
    print(len(seen), sorted(seen)[:3])
"#;

#[test]
fn live_events_have_the_types_of_the_stubs() {
    needs([Need::Tracefs, Need::Python]);
    const EVENTS: &str = "sched:*,syscalls:sys_*_openat,syscalls:sys_enter_execve,raw_syscalls:*,task:*,page-faults";
    let folder = tempfile::tempdir().unwrap();
    write_stubs(folder.path(), &[EVENTS]);
    fs::write(folder.path().join("compare.py"), COMPARE).unwrap();
    let mut run = Command::new(tested_program());
    run.args([
        "python",
        "--on-error",
        "stop",
        "-e",
        EVENTS,
        "compare.py",
        "events.pyi",
        "--exec",
        "sh",
        "-c",
        "ls /; ls /",
    ]);
    let output = run.current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let events: usize = text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(events > 8, "{text}");
}

#[test]
fn types_of_a_recording_are_those_of_its_events() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(tested_program()).args(args).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    };
    run(&["record", "-e", "sched:sched_process_exec,task:task_newtask", "--", "true"]);
    let classes = |text: &str| -> Vec<String> {
        // The text contains the command, which differs, so only the classes are compared.
        text.split_once("\n\nclass ").unwrap().1.lines().map(str::to_owned).collect()
    };
    let recorded = run(&["stubs", "-i", "perf.data"]);
    let live = run(&["stubs", "sched:sched_process_exec,task:task_newtask"]);
    assert_eq!(classes(&recorded), classes(&live));
    assert!(!run(&["stubs", "-i", "perf.data", "task:*"]).contains("SchedProcessExec"));
}
