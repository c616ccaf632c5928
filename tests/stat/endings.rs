//! How counting ends, and messages about wrong usage.

use std::{fs, os::unix::process::CommandExt, process::Stdio};

use expect_test::{Expect, expect};

use crate::harness::{
    cgroup::Cgroup,
    counting::{await_line, count, objects, run, stat},
    machine::{Need, needs},
    run::{PATIENCE, tested_program, with_patience},
};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    needs([Need::Tracefs]);
    let status = |command: &str| run(&["-q", "-e", "page-faults", "--"], &words(&["sh", "-c", command])).0;
    assert_eq!(status("exit 0"), 0);
    assert_eq!(status("exit 7"), 7);
    assert_eq!(status("kill -TERM $$"), 143);
    // If one of several runs fails, the exit status shows it.
    assert_eq!(run(&["-r", "2", "-e", "page-faults", "--"], &words(&["false"])).0, 1);
}

/// Counts until a signal is sent. Returns the exit status and the objects.
fn until(signal: i32, args: &[&str]) -> (Option<i32>, Vec<serde_json::Value>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts");
    let mut command = stat(&["--json", "-I", "20", "--summary", "-e", "context-switches", "-o"]);
    command.arg(&file).args(args).stdout(Stdio::null());
    // SAFETY: signal is async-signal-safe. Without this call, SIGINT would be ignored if a shell runs the tests in the
    // background.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    await_line(&file);
    // SAFETY: the child was not waited for, so the id is still its own.
    unsafe { libc::kill(child.id() as i32, signal) };
    let status = child.wait().unwrap().code();
    (status, objects(&fs::read_to_string(&file).unwrap()))
}

#[test]
fn counts_are_printed_after_a_signal() {
    needs([Need::Tracefs]);
    for (signal, status) in [(libc::SIGINT, 0), (libc::SIGTERM, 143)] {
        for args in [&["-a"][..], &["--", "sleep", "100"]] {
            let (ended, objects) = until(signal, args);
            assert_eq!(ended, Some(status), "{args:?}");
            let (whole, intervals) = objects.split_last().unwrap();
            assert!(whole["time"].is_null() && !intervals.is_empty());
            let sum: u64 = intervals.iter().map(|interval| count(interval, "context-switches")).sum();
            assert_eq!(sum, count(whole, "context-switches"), "{args:?}");
        }
    }
}

/// The cgroup allows no further thread. perf-prof must not need one to notice that the command has exited.
#[test]
fn a_command_ends_the_counting_where_no_thread_can_be_started() {
    needs([Need::Tracefs]);
    // `record` has a thread that reads the rings.
    for (limit, words) in [(2, &["stat", "-e", "page-faults"][..]), (3, &["record", "-C", "0", "-e", "dummy"])] {
        let (cgroup, dir) = (Cgroup::with_threads(limit), tempfile::tempdir().unwrap());
        let mut command = cgroup.shell();
        command.arg(tested_program()).args(words).args(["--", "true"]).current_dir(dir.path());
        let output = with_patience(&mut command, PATIENCE).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    }
}

/// The command must not run on without a message.
#[test]
fn a_command_whose_table_cannot_be_written_is_ended() {
    needs([Need::Tracefs]);
    let full = fs::File::create("/dev/full").unwrap();
    let status = stat(&["-I", "50", "-e", "task-clock", "--", "sleep", "47.11"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let cmdlines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    assert_eq!(cmdlines.filter(|line| line == b"sleep\x0047.11\0").count(), 0);
}

#[test]
fn tables_are_written_to_a_file() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts");
    for (append, tables) in [(false, 1), (true, 2), (false, 1)] {
        let mut command = stat(&["-e", "page-faults", "-o"]);
        command.arg(&file).args(append.then_some("--append")).args(["--", "true"]);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("Counts of true:").count(), tables, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("# 20")).count(), tables, "{text}");
    }
}

/// With perf_event_paranoid 2, the kernel's default, all users may count what their programs do in user space.
#[test]
fn a_plain_user_counts_in_user_space() {
    needs([Need::Tracefs]);
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if level.trim() != "2" {
        return println!("skipped: kernel.perf_event_paranoid is {}", level.trim());
    }
    let as_nobody = |args: &[&str]| {
        let mut command = stat(args);
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::setgid(65534);
                libc::setuid(65534);
                Ok(())
            });
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = as_nobody(&["--json", "--", "true"]);
    assert_eq!(status, Some(0), "{text}");
    let object = &objects(&text)[0];
    assert!(count(object, "page-faults:u") > 0 && count(object, "task-clock:u") > 0, "{text}");
    // A user who names an event gets all of it, or its part in user space, or the reason why it cannot be counted.
    let (status, text) = as_nobody(&["-e", "page-faults", "true"]);
    assert_eq!(status, Some(0));
    assert!(text.starts_with("perf-prof: only events in user space are seen (page-faults:u), because"), "{text}");
    let (status, text) = as_nobody(&["-e", "context-switches", "true"]);
    assert_eq!(status, Some(1));
    assert!(
        text.starts_with("perf-prof: no permission to trace context-switches: kernel.perf_event_paranoid is 2"),
        "{text}"
    );
}

#[track_caller]
fn check(args: &[&str], expected: Expect) {
    let (status, text) = run(args, &[]);
    // The removed parts depend on the machine: the fields of an event, and the online CPUs.
    let text = text.lines().filter(|line| !line.starts_with("its fields: ")).collect::<Vec<_>>().join("\n");
    let text = text.split("; the online CPUs are ").next().unwrap().trim_end();
    expected.assert_eq(&format!("{text}\nstatus {status}\n"));
}

#[test]
fn errors_name_the_thing_the_cause_and_the_way_out() {
    needs([Need::Tracefs]);
    check(
        &["-e", "sched:sched_swich", "true"],
        expect![[r#"
        perf-prof: unknown event sched:sched_swich; did you mean sched:sched_switch?
        status 1
    "#]],
    );
    check(
        &["-e", "page-fault", "true"],
        expect![[r#"
        perf-prof: unknown event page-fault; did you mean page-faults?
        status 1
    "#]],
    );
    check(
        &["-e", "getpgid,page-faults", "true"],
        expect![[r#"
            perf-prof: syscall: spans cannot be counted by the kernel; use `perf-prof top`, or select the events that begin and end it
            status 1
        "#]],
    );
    check(
        &["-e", "sched:sched_switch//stack/", "true"],
        expect![[r#"
        perf-prof: sched:sched_switch//stack/: events are only counted, not sampled; remove stack
        status 1
    "#]],
    );
    check(
        &["-e", "page-faults", "no-such-command"],
        expect![[r#"
        perf-prof: cannot execute no-such-command: No such file or directory (os error 2)
        status 1
    "#]],
    );
    check(
        &["-e", "page-faults", "-p", "2147483647"],
        expect![[r#"
        perf-prof: there is no process 2147483647
        status 1
    "#]],
    );
    check(
        &["-p", "1", "-C", "0"],
        expect![[r#"
        perf-prof: -C and -p cannot be combined: select only one target for the events
        `perf-prof stat --help` explains the options, with examples
        status 2
    "#]],
    );
    check(
        &["--cgroups", "a", "-p", "1"],
        expect![[r#"
        perf-prof: --cgroups and -p cannot be combined: select only one target for the events
        `perf-prof stat --help` explains the options, with examples
        status 2
    "#]],
    );
    check(
        &["-A", "true"],
        expect![[r#"
        perf-prof: --per-cpu: counts of tasks are not known for each CPU; count all tasks of the CPUs instead (-a or -C)
        status 1
    "#]],
    );
    check(
        &["-r", "2", "-a"],
        expect![[r#"
        perf-prof: -r repeats a command, but there is no command; give one, for example `perf-prof stat -r 5 -- CMD`
        `perf-prof stat --help` explains the options, with examples
        status 2
    "#]],
    );
    check(
        &["-r", "2", "-I", "1s", "true"],
        expect![[r#"
        perf-prof: the argument '--repeat <N>' cannot be used with '--interval <TIME>'
        `perf-prof stat --help` explains the options
        status 2
    "#]],
    );
    check(
        &["-C", "9999", "-e", "page-faults", "true"],
        expect![[r#"
            perf-prof: CPU 9999 does not exist or is offline
            status 1
        "#]],
    );
    check(
        &["-e", "page-faults", "-o", "/no/such/folder/file", "true"],
        expect![[r#"
        perf-prof: cannot write '/no/such/folder/file': No such file or directory (os error 2)
        status 1
    "#]],
    );
    check(
        &["-e", "sched:sched_switch/prev_pd>0/", "true"],
        expect![[r#"
            perf-prof: the kernel refuses the filter `prev_pd>0` of sched:sched_switch: Invalid argument (os error 22): Field not found (the kernel found the error at the end of `prev_pd>`)
            status 1
        "#]],
    );
}

/// The command gets SIGTERM, which is no failure.
#[test]
fn counting_ends_after_its_duration() {
    needs([Need::Tracefs]);
    let (status, counts) = run(&["-q", "--duration", "300ms", "-e", "page-faults", "--"], &words(&["sleep", "600"]));
    assert_eq!(status, 0);
    assert!(counts.contains("page-faults"), "{counts}");
}
