//! The program as a user runs it: its output on stdout and stderr, and its exit status.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::ffi::OsStrExt,
    process::{Command, Output, Stdio},
};

use expect_test::{Expect, expect};

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
};

fn perf_prof() -> Command {
    let mut command = Command::new(tested_program());
    for name in ["PERF_PROF_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(name);
    }
    command
}

fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    perf_prof().args(args).output().expect("perf-prof runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Wrong usage gives status 2, nothing on stdout, and at most two lines on stderr.
#[track_caller]
fn check(line: &str, expected: Expect) {
    let output = run(&line.split_whitespace().collect::<Vec<_>>());
    let stderr = text(&output.stderr);
    expected.assert_eq(&stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty() && stderr.lines().count() <= 2, "{line}");
}

#[test]
fn wrong_usage() {
    check(
        "python",
        expect![[r#"
        perf-prof: no event selected; use -e, for example `perf-prof python -e sched:sched_wakeup script.py` (`perf-prof list` lists all events)
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "top",
        expect![[r#"
            perf-prof: no event selected; write it after `top`, for example `perf-prof top sched:sched_switch` (`perf-prof list` lists all events)
            `perf-prof top --help` explains the options, with examples
        "#]],
    );
    check(
        "hist a:b --input x -- ls -l",
        expect![[r#"
            perf-prof: `ls -l` is not run: the events come from the recording of --input
            `perf-prof hist --help` explains the options, with examples
        "#]],
    );
    check(
        "trace --call-grap dwarf ls",
        expect![[r#"
        perf-prof: unexpected argument '--call-grap' found (a similar argument exists: '--call-graph')
        `perf-prof trace --help` explains the options
    "#]],
    );
    check(
        "top --callgraf dwarf a:b",
        expect![[r#"
        perf-prof: unexpected argument '--callgraf' found (a similar argument exists: '--call-graph')
        `perf-prof top --help` explains the options
    "#]],
    );
    check(
        "trace -p make,7",
        expect![[r#"
        perf-prof: invalid value 'make,7' for '--pid <LIST>': `make` is not a process or thread id; to select tasks by their name, write it with the event: `EVENT/comm=="make"/`, or with a source: `offcpu/comm=make/`
        `perf-prof trace --help` explains the options
    "#]],
    );
    check(
        "top -t 1,2x a:b",
        expect![[r#"
        perf-prof: invalid value '1,2x' for '--tid <LIST>': `2x` is not a process or thread id
        `perf-prof top --help` explains the options
    "#]],
    );
    check(
        "hist --zzz a:b",
        expect![[r#"
        perf-prof: unexpected argument '--zzz' found
        `perf-prof hist --help` explains the options
    "#]],
    );
    check(
        "trace -e a:b -p 1 -- true",
        expect![[r#"
            perf-prof: a command and -C, -p, -t or --cgroups cannot be combined: select one target for the events, or all CPUs with -a for as long as the command runs
            `perf-prof trace --help` explains the options, with examples
        "#]],
    );
    check(
        "python -e sched:sched_wakeup",
        expect![[r#"
        perf-prof: no script: give a script after the options, for example `perf-prof python -e sched:sched_wakeup script.py`; write `help` instead of the script to print a template
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -e sched:sched_wakeup/pid>1 x.py",
        expect![[r#"
        perf-prof: -e sched:sched_wakeup: the section `/pid>1` is not closed; end it with `/`
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -e sched:sched_wakeup//key=pid/ x.py",
        expect![[r#"
            perf-prof: -e sched:sched_wakeup//key=pid/: perf-prof does not support the attribute `key` of the C implementation; remove it; the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH
            `perf-prof python --help` explains the options, with examples
        "#]],
    );
    check(
        "python --intervall 3 -e a:b x.py",
        expect![[r#"
        perf-prof: unknown option `--intervall`, did you mean --interval?
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -i x -e a:b x.py",
        expect![[r#"
        perf-prof: invalid value 'x' for '--interval <TIME>': `x` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -C 0 -p 1 -e a:b x.py",
        expect![[r#"
        perf-prof: -C and -p cannot be combined: select only one target for the events
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -C 3-1 -e a:b x.py",
        expect![[r#"
        perf-prof: invalid value '3-1' for '--cpus <LIST>': the range of CPUs `3-1` is reversed; write the lower CPU first
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -p 1 -e a:b x.py --exec true",
        expect![[r#"
        perf-prof: -p and --exec cannot be combined: select only one target for the events
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -e a:b x.py -N 0",
        expect![[r#"
        perf-prof: invalid value '0' for '--exit-N <N>': 0 is not in 1..18446744073709551615
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -e a:b x.py --on-error=ignore",
        expect![[r#"
        perf-prof: invalid value 'ignore' for '--on-error <ACTION>' [possible values: continue, stop]
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python -e a:b help me",
        expect![[r#"
        perf-prof: `help` prints a template and takes no arguments, but `me` was given (to run a script named help, use ./help)
        `perf-prof python --help` explains the options, with examples
    "#]],
    );
    check(
        "python --jobs 2 --input - --input a x.py",
        expect![[r#"
            perf-prof: --input - cannot be combined with other recordings or with --executor: a pipe can be read only once
            `perf-prof python --help` explains the options, with examples
        "#]],
    );
    check(
        "record -e a:b --threads=0/0:0-1/1",
        expect![[r#"
            perf-prof: invalid value '0/0:0-1/1' for '--threads[=<LAYOUT>]': two threads write the events of CPU 0; assign each CPU to one thread only
            `perf-prof record --help` explains the options
        "#]],
    );
    check(
        "evlist --jsn",
        expect![[r#"
            perf-prof: unexpected argument '--jsn' found (a similar argument exists: '--json')
            `perf-prof evlist --help` explains the options
        "#]],
    );
    check(
        "script perf.data",
        expect![[r#"
            perf-prof: `perf.data` is no script
            `perf-prof script -l` lists the scripts that have names; to select a recording, use -i: `-i perf.data`
        "#]],
    );
    check(
        "lsit",
        expect![[r#"
        perf-prof: unrecognized subcommand 'lsit' (did you mean list?)
        `perf-prof --help` shows the commands
    "#]],
    );
    check(
        "tpo",
        expect![[r#"
            perf-prof: unrecognized subcommand 'tpo' (did you mean top?)
            `perf-prof --help` shows the commands
        "#]],
    );
}

#[test]
fn an_option_with_one_hyphen_is_explained() {
    check(
        "top -min 5 -- true",
        expect![[r#"
            perf-prof: invalid value 'in' for '--mmap-pages <N>': `in` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M` (`-min` is `-m in`; long options begin with two hyphens)
            `perf-prof top --help` explains the options
        "#]],
    );
}

#[test]
fn a_run_of_a_few_milliseconds_needs_a_unit() {
    for command in ["top", "trace", "record", "stat"] {
        let refused = run(&[command, "--duration", "5"]);
        assert_eq!(refused.status.code(), Some(2), "{command}");
        assert!(text(&refused.stderr).contains("`5` has no unit; write 5s, or 5ms"), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_shebang_line_without_env_s_is_explained() {
    let output = run(&["python -e sched:sched_wakeup", "./x.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("#!/usr/bin/env -S perf-prof python"));
}

#[test]
fn help_and_version_go_to_stdout() {
    for args in
        [&["-h"][..], &["--help"], &["python", "-h"], &["python", "-e", "a:b", "x.py", "-h"], &["help", "python"]]
    {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("Usage: perf-prof") && output.stderr.is_empty(), "{args:?}");
    }
    let version = concat!("perf-prof ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text(&run(&["-V"]).stdout), version);
    assert_eq!(text(&run(&["python", "-V"]).stdout), version);
    assert!(text(&run(&["-V", "-v"]).stdout).contains("libpython: "));
    let output = run(&["python", "-V", "-v", "--python", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--python"));
    assert!(text(&run(&["python", "--help"]).stdout).contains("Options of perf-prof and options of the script"));
    let output = run::<&str>(&[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(text(&output.stderr).contains("Usage: perf-prof"));
}

#[test]
fn arguments_that_are_not_utf8_cause_no_panic() {
    let bad = OsStr::from_bytes(b"\xff\xfe");
    for place in 0..4 {
        let mut args = ["python", "-e", "sched:no_such_event", "-C"].map(OsStr::new);
        args[place] = bad;
        let output = run(&args);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
        assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
    }
}

#[test]
fn lists_events_and_their_fields() {
    needs([Need::Tracefs]);
    assert_eq!(text(&run(&["list", "sched:sched_switch"]).stdout), "sched:sched_switch\n");
    let fields = text(&run(&["list", "-v", "sched:sched_switch"]).stdout);
    assert!(fields.lines().any(|line| line.split_whitespace().eq(["prev_pid", "int", "s32", "pid_t"])), "{fields}");

    let json = |args: &[&str]| -> Vec<serde_json::Value> { serde_json::from_slice(&run(args).stdout).unwrap() };
    let plain = json(&["list", "--json", "sched:*"]);
    assert!(plain.len() > 5 && plain.iter().all(|event| event["system"] == "sched" && event.get("fields").is_none()));
    // perf-prof can parse the format of every event of this kernel.
    let all = json(&["list", "--json", "-v"]);
    let types = ["int", "str", "bytes", "bool"];
    let tracepoints = all.iter().filter(|event| event["kind"] == "tracepoint");
    let fields = tracepoints.flat_map(|event| event["fields"].as_array().unwrap());
    assert!(fields.into_iter().all(|field| types.contains(&field["python"].as_str().unwrap())));
    // Events other than tracepoints are listed too.
    let kind = |name: &str| all.iter().find(|event| event["event"] == name).map(|event| event["kind"].clone());
    assert_eq!(kind("profile").unwrap(), "built-in source");
    assert_eq!(kind("cpu-clock").unwrap(), "software event");
    assert_eq!(kind("software//").unwrap(), "PMU");
    let faults = text(&run(&["list", "-v", "page-faults"]).stdout);
    assert!(faults.starts_with("page-faults                    [software event]\n"), "{faults}");
    assert!(faults.lines().any(|line| line.trim_start().starts_with("addr ")), "{faults}");

    let none = run(&["list", "sched:sched_swithc"]);
    assert_eq!(none.status.code(), Some(1));
    expect![[r#"
        perf-prof: no event of this kernel matches `sched:sched_swithc`; did you mean sched:sched_switch?
    "#]]
    .assert_eq(&text(&none.stderr));
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    needs([Need::Tracefs]);
    let mut child = perf_prof().args(["list", "-v"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The output is longer than the buffer of a pipe, so the program still writes when the pipe is closed.
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn doctor_names_what_it_checks_and_its_status_says_whether_scripts_can_run() {
    let json = run(&["doctor", "--json"]);
    let checks: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    let failed = checks.iter().any(|check| check["state"] == "fail");
    assert_eq!(json.status.code(), Some(i32::from(failed)));
    let lines = text(&run(&["doctor"]).stdout);
    for check in &checks {
        assert!(lines.contains(check["name"].as_str().unwrap()), "{lines}");
    }
    // A venv that does not exist is a failure on any machine.
    let output = perf_prof().arg("doctor").env("VIRTUAL_ENV", "/nonexistent/venv").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("unset VIRTUAL_ENV"));
}
