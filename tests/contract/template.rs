//! `help` prints a script that runs without changes.

use std::{fs, process::Command};

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
    script::{CALL, Run},
};

/// Returns the template for these events.
fn template(events: &str) -> String {
    let output = Command::new(tested_program()).args(["python", "-e", events, "help"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_template_for_three_events_runs_as_it_is() {
    needs([Need::Tracefs]);
    let events =
        format!("{CALL},syscalls:sys_exit_getpgid//alias=back/,raw_syscalls:sys_enter/id=={}/", libc::SYS_getpgid);
    let text = template(&events);
    let run = Run::script(&text).event(&events).workload("comm worker calls 2");
    let outcome = run.run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    for part in ["syscalls:sys_enter_getpgid: ", "syscalls:sys_exit_getpgid: ", "raw_syscalls:sys_enter: NR "] {
        let of_event = |line: &&&str| line.contains(&format!(": {part}")) && line.contains(" worker ");
        assert_eq!(lines.iter().filter(of_event).count(), 2, "{lines:?}");
    }
    assert_eq!((lines.len(), lines[6]), (7, "6 events"));
    assert!(text.contains(&format!(" python -e {events} help\n")), "{text}");
}

#[test]
fn every_optional_callback_is_marked_and_every_event_has_a_handler() {
    needs([Need::Tracefs]);
    let text = template(&format!("{CALL},{CALL}//alias=a-b.c/,kmem:kmem_cache_alloc,{CALL}"));
    for name in [
        "__init__()",
        "__exit__()",
        "__interval__()",
        "__print_stat__(indent: int)",
        "__lost__(lost_start: int, lost_end: int)",
        "__sample__(event)",
    ] {
        let before = text.split(&format!("def {name} -> None:")).next().unwrap();
        assert_ne!(before, text, "{name} is missing");
        assert!(before.trim_end().lines().last().unwrap().starts_with("# [OPTIONAL]"), "{name} has no mark in {text}");
    }
    for name in ["syscalls__sys_enter_getpgid", "syscalls__a_b_c", "kmem__kmem_cache_alloc"] {
        assert_eq!(text.matches(&format!("def {name}(event) -> None:")).count(), 1, "{name} in {text}");
    }
    for field in ["pid : int", "name : str", "accounted : bool", "node : int", "ptr : int"] {
        assert!(text.contains(field), "{field} is not in {text}");
    }
    assert!(!text.lines().any(|line| line.starts_with("import ") || line.starts_with("from ")), "{text}");
}

#[test]
fn a_template_is_valid_python_for_many_events_at_once() {
    needs([Need::Tracefs]);
    let run = Run::script(&(template("sched:*,irq:*,xfs:*,ext4:*") + "\ndef __init__(): raise SystemExit(3)\n"));
    let outcome = run.call_event().workload("exit 0").run();
    assert_eq!(outcome.status, 3, "{}", outcome.stderr);
}

#[test]
fn a_command_line_in_a_template_stays_a_comment() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(tested_program())
        .args(["python", "-o", "a\nimport nothing", "-e", CALL, "help"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    // `-o` writes stdout to the file too.
    let text = fs::read_to_string(dir.path().join("a\nimport nothing")).unwrap();
    assert!(output.status.success() && !text.lines().any(|line| line.starts_with("import")), "{text}");
}

#[test]
fn a_template_to_a_closed_pipe_ends_quietly() {
    needs([Need::Tracefs]);
    for (redirection, status) in [("| head -1 >/dev/null; exit ${PIPESTATUS[0]}", 0), ("> /dev/full", 1)] {
        let line = format!("{} python -e 'syscalls:sys_enter_*' help {redirection}", tested_program());
        let output = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(!complaints.contains("panicked"), "{complaints}");
        assert_eq!(output.status.code(), Some(status), "{complaints}");
    }
}
