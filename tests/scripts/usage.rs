//! Tests the usage of the scripts, and runs the examples in the documents.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
    scripts::{script, text},
};

/// At the end of the run, the error would come too late, and the results would be lost.
#[test]
fn a_flame_graph_that_cannot_be_saved_is_refused_at_once() {
    needs([Need::Tracefs]);
    let folder = tempfile::Builder::new().suffix(".svg").tempdir().unwrap();
    for name in ["profile.py", "faults.py", "offcpu.py", "offwake.py"] {
        for (file, why) in [
            ("x.png", "must end in .svg or .folded"),
            ("/no/such/x.svg", "cannot create or overwrite a file in /no/such"),
            (folder.path().to_str().unwrap(), "this is a folder"),
        ] {
            let out = script(name).args(["--flame", file, "--exec", "echo", "ran"]).output().unwrap();
            let err = String::from_utf8_lossy(&out.stderr);
            assert_eq!((out.status.code(), &*out.stdout), (Some(2), &b""[..]), "{name} {err}");
            assert!(err.contains(&format!("--flame {file}: ")) && err.contains(why), "{name} {err}");
        }
    }
}

/// Otherwise, `| head` would cost the picture.
#[test]
fn a_flame_graph_is_saved_if_the_reader_of_the_table_is_gone() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let program = "sleep 0.05; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    for name in ["profile.py", "faults.py", "offcpu.py", "offwake.py"] {
        let file = folder.path().join(name).with_extension("folded");
        let mut command = script(name);
        command.arg("--flame").arg(&file).args(["--exec", "sh", "-c", program]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{name} {}", String::from_utf8_lossy(&out.stderr));
        assert!(fs::read_to_string(&file).is_ok_and(|stacks| stacks.contains("sh")), "{name}");
    }
}

#[test]
fn scripts_explain_themselves() {
    needs([Need::Tracefs]);
    for name in [
        "wakeups.py",
        "runqlat.py",
        "syscalls.py",
        "execsnoop.py",
        "offcpu.py",
        "profile.py",
        "faults.py",
        "uprobe_latency.py",
        "signals.py",
        "killsnoop.py",
        "opensnoop.py",
        "slowcalls.py",
        "irqlat.py",
        "cpudist.py",
        "runqlen.py",
        "schedblame.py",
        "offwake.py",
        "biosnoop.py",
        "biolatency.py",
        "tcplife.py",
        "filelife.py",
        "lockstat.py",
        "mallocleak.py",
        "memleak.py",
    ] {
        let out = text(script(name).arg("--usage").output().unwrap());
        assert!(out.starts_with(&format!("usage: {name}")), "{out}");
        let wrong = script(name).arg("--no-such-option").output().unwrap();
        let err = String::from_utf8(wrong.stderr).unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{err}");
        assert!(err.contains("unrecognized arguments: --no-such-option\n") && wrong.stdout.is_empty(), "{err}");
        // perf-prof's own commands take a command after `--`, but scripts do not.
        let command = script(name).args(["--", "sh", "-c", "a b"]).output().unwrap();
        let err = String::from_utf8(command.stderr).unwrap();
        assert_eq!(command.status.code(), Some(2), "{err}");
        assert!(err.contains("; to run and trace a command, write `--exec sh -c 'a b'`\n"), "{err}");
    }
}

/// A negative number of rows would leave out the last rows and count them wrongly.
#[test]
fn numbers_out_of_range_are_wrong_usage() {
    needs([Need::Tracefs]);
    let top =
        ["wakeups.py", "syscalls.py", "offcpu.py", "profile.py", "faults.py", "signals.py"].map(|name| (name, "--top"));
    let others = [("offcpu.py", "--pid"), ("offcpu.py", "--tid"), ("runqlat.py", "--pid"), ("runqlat.py", "--tid")];
    for (name, option) in top.into_iter().chain(others) {
        for wrong in ["0", "-3", "x", "1.5"] {
            is_refused(name, option, wrong, &format!("'{wrong}' is not an integer of at least 1"));
        }
    }
    for (name, option) in [("runqlat.py", "--top"), ("offcpu.py", "--min")] {
        is_refused(name, option, "-1", "'-1' is not an integer of at least 0");
    }
    for wrong in ["-0.5", "nan", "x"] {
        is_refused("uprobe_latency.py", "--min", wrong, &format!("'{wrong}' is not a number of at least 0"));
    }
    for wrong in ["0", "65", "99999", "NONE"] {
        is_refused("signals.py", "--signal", wrong, &format!("--signal {wrong}: there is no such signal"));
    }
    text(script("runqlat.py").args(["--top", "0", "--exec", "true"]).output().unwrap());
    text(script("offcpu.py").args(["--top", "1", "--min", "0", "--exec", "true"]).output().unwrap());
}

#[track_caller]
fn is_refused(name: &str, option: &str, value: &str, why: &str) {
    let out = script(name).args([&format!("{option}={value}"), "--exec", "true"]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), &*out.stdout), (Some(2), &b""[..]), "{name} {option}={value}: {err}");
    assert!(err.contains(why), "{name} {option}={value}: {err}");
}

/// If a script has no docstring, perf-prof's help is shown.
#[test]
fn help_of_a_script_with_a_first_line_is_the_scripts_then_says_where_perf_profs_is() {
    for name in ["runqlat.py", "profile.py"] {
        for option in ["--help", "-h"] {
            let out = text(script(name).arg(option).output().unwrap());
            let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)).unwrap();
            let title = source.lines().nth(1).unwrap().trim_start_matches('"');
            assert!(out.starts_with(title) && out.contains(&format!("usage: {name}")), "{out}");
            assert!(out.lines().last().unwrap().contains("`perf-prof python --help`"), "{out}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.py");
    fs::write(&path, "#!/usr/bin/env -S perf-prof python -e a:b\n'''Title.'''\n").unwrap();
    // The user typed `perf-prof python`, so its help is shown.
    let typed = text(Command::new(tested_program()).args(["python", "--help"]).arg(&path).output().unwrap());
    assert!(typed.contains("--exec") && !typed.contains("Title."), "{typed}");
    let started = ["python", "-e", "a:b", path.to_str().unwrap(), "--help"];
    assert!(text(Command::new(tested_program()).args(started).output().unwrap()).starts_with("Title.\n\n"));
    fs::write(&path, "#!/usr/bin/env -S perf-prof python -e a:b\nimport sys\n").unwrap();
    assert!(text(Command::new(tested_program()).args(started).output().unwrap()).contains("--exec"));
}

/// Returns the Python blocks of a document.
fn python_blocks(document: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let blocks = text.split("```python\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Returns `system:name` for each handler in a script whose event exists in this kernel, without aliases.
fn handled_events(script: &str) -> Vec<String> {
    let names = script.lines().filter_map(|line| line.strip_prefix("def ")?.strip_suffix("(event):")?.split_once("__"));
    let there = |(system, name): &(&str, &str)| {
        !system.is_empty() && Path::new("/sys/kernel/tracing/events").join(system).join(name).exists()
    };
    names.filter(there).map(|(system, name)| format!("{system}:{name}")).collect()
}

#[test]
fn examples_in_the_documents_run() {
    needs([Need::Tracefs]);
    let mut ran = 0;
    for document in ["README.md", "docs/writing-scripts.md"] {
        for example in python_blocks(document) {
            let events = handled_events(&example);
            if events.is_empty() {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("example.py"), &example).unwrap();
            let mut command = Command::new(tested_program());
            command.current_dir(&directory).args(["python", "-i", "50", "-e", &events.join(","), "example.py"]);
            // The command opens files, fails to open files, wakes tasks and allocates memory.
            let work = "for i in 1 2 3 4 5 6 7 8 9 10; do ls /nonexistent /tmp | cat; done >/dev/null 2>&1";
            text(command.args(["--exec", "sh", "-c", work]).output().unwrap());
            ran += 1;
        }
    }
    assert!(ran >= 6, "{ran} examples ran");
}
