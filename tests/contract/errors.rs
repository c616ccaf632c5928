//! For each failure, one to three lines on stderr name the problem, its cause and the way out. The exit status is
//! checked too.

use std::process::{Command, Stdio};

use expect_test::{Expect, expect};

use crate::harness::{
    machine::{Need, needs, skip},
    run::{is_installed_package, tested_program},
    script::{CALL, Outcome, Run, finish},
    seccomp::refuse,
};

/// A script without errors.
fn plain() -> Run {
    Run::script("def __sample__(event): pass\n")
}

/// Runs perf-prof as a user who may not trace.
fn as_nobody(run: &Run) -> Outcome {
    let mut command = run.command();
    // SAFETY: both calls are async-signal-safe, and they change the user of the child only, which has one thread.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::setgid(65534);
            libc::setuid(65534);
            Ok(())
        });
    }
    std::fs::set_permissions(run.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        // The interpreter of an installed package may be in a folder that only root can read.
        Err(error) if is_installed_package() => skip(Need::EmbeddedPython, error),
        child => finish(child.unwrap(), run.dir.path()),
    }
}

fn fails(run: Run, expect: Expect) {
    needs([Need::Tracefs]);
    let outcome = run.run();
    failed(&outcome, expect);
}

fn failed(outcome: &Outcome, expect: Expect) {
    outcome.assert_civil();
    assert!(outcome.stderr.lines().count() <= 3, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    expect.assert_eq(&format!("{}status {}\n", outcome.stderr, outcome.status));
}

#[test]
fn a_script_with_events_in_its_first_line_is_started_by_it() {
    let text = format!("#!/usr/bin/env -S perf-prof python -e {CALL}\ndef __sample__(event): pass\n");
    fails(
        Run::script(&text),
        expect![[r#"
            perf-prof: no event selected; to use the events in the first line of s.py, start the script itself: `./s.py`
            `perf-prof python --help` explains the options, with examples
            status 2
        "#]],
    );
}

/// A user may expect this, because `perf-prof top` takes a command after `--`.
#[test]
fn a_command_behind_a_script_has_a_warning() {
    needs([Need::Tracefs]);
    let text = "import sys\ndef __sample__(event): pass\ndef __exit__(): print(sys.argv[1:])\n";
    let run = |args: &[&str]| Run::script(text).call_event().options(["--duration", "100"]).args(args).run();
    let warning = "warning: `-- sleep 1` belongs to the script; to run and trace a command, use `--exec sleep 1`";
    let outcome = run(&["--", "sleep", "1"]);
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("['--', 'sleep', '1']\n", 0));
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert_eq!(run(&["--", "-x", "sleep"]).complaints(), "");
}

/// The run would trace the whole machine, without an end.
#[test]
fn the_path_of_a_program_behind_a_script_needs_a_target() {
    needs([Need::Tracefs]);
    let text = "import sys\ndef __sample__(event): pass\ndef __exit__(): print(sys.argv[1:])\n";
    let run = |options: &[&str], file: &str| {
        let options: Vec<&str> = ["-q", "--duration", "100ms"].iter().chain(options).copied().collect();
        Run::script(text).call_event().options(&options).args(["--", file, "x"]).run()
    };
    let refused = run(&[], "/bin/sh");
    let message = "perf-prof: `-- /bin/sh x` belongs to the script; to run and trace a command, use `--exec /bin/sh x`";
    assert!(refused.stderr.contains(message) && refused.status == 2, "{}", refused.stderr);
    // The user said what to trace, or the file cannot be executed.
    let own = std::process::id().to_string();
    for (options, file) in [(&["-p", &own][..], "/bin/sh"), (&["--all-cpus"], "/bin/sh"), (&[], "/etc/passwd")] {
        let outcome = run(options, file);
        assert_eq!((outcome.stdout, outcome.status), (format!("['--', '{file}', 'x']\n"), 0), "{}", outcome.stderr);
    }
}

#[test]
fn no_event() {
    fails(
        plain(),
        expect![[r#"
        perf-prof: no event selected; use -e, for example `perf-prof python -e sched:sched_wakeup script.py` (`perf-prof list` lists all events)
        `perf-prof python --help` explains the options, with examples
        status 2
    "#]],
    );
}

#[test]
fn no_module() {
    let command = Command::new(tested_program()).args(["python", "-e", CALL]).output().unwrap();
    expect![[r#"
        perf-prof: no script: give a script after the options, for example `perf-prof python -e syscalls:sys_enter_getpgid script.py`; write `help` instead of the script to print a template
        `perf-prof python --help` explains the options, with examples
        exit status: 2"#]].assert_eq(&format!("{}{}", String::from_utf8_lossy(&command.stderr), command.status));
}

#[test]
fn an_unknown_option() {
    let command =
        Command::new(tested_program()).args(["python", "--intervall", "5", "-e", CALL, "s.py"]).output().unwrap();
    expect![[r#"
        perf-prof: unknown option `--intervall`, did you mean --interval?
        `perf-prof python --help` explains the options, with examples
        exit status: 2"#]]
    .assert_eq(&format!("{}{}", String::from_utf8_lossy(&command.stderr), command.status));
}

#[test]
fn help_is_no_failure() {
    let command = Command::new(tested_program()).args(["python", "-h"]).output().unwrap();
    assert!(command.status.success() && command.stderr.is_empty() && !command.stdout.is_empty());
}

#[test]
fn an_event_that_is_not_there() {
    fails(
        plain().event("sched:sched_wakup"),
        expect![[r#"
        perf-prof: unknown event sched:sched_wakup; did you mean sched:sched_wakeup?
        status 1
    "#]],
    );
}

#[test]
fn an_event_without_a_system() {
    fails(
        plain().event("sched_wakeup"),
        expect![[r#"
            perf-prof: unknown event sched_wakeup; did you mean sched:sched_wakeup?
            status 1
        "#]],
    );
}

#[test]
fn a_pattern_without_a_match() {
    fails(
        plain().event("nosuch*:*"),
        expect![[r#"
        perf-prof: no event of this kernel matches nosuch*:*; `perf-prof list` shows all events
        status 1
    "#]],
    );
}

#[test]
fn an_attribute_in_the_place_of_the_filter_is_named() {
    needs([Need::Tracefs]);
    for attribute in ["stak", "stack"] {
        let run =
            Run::script("def __sample__(event): pass\n").event(format!("{CALL}/{attribute}/")).workload("calls 1");
        let outcome = run.run();
        assert!(
            outcome
                .stderr
                .ends_with(&format!("\nthe first section is the filter; attributes come after it: {CALL}//stack/\n")),
            "{}",
            outcome.stderr
        );
        assert_eq!(outcome.status, 1);
    }
}

#[test]
fn a_filter_that_the_kernel_refuses() {
    fails(
        plain().event(format!("{CALL}/pdi==5/")),
        expect![[r#"
            perf-prof: the kernel refuses the filter `pdi==5` of syscalls:sys_enter_getpgid: Invalid argument (os error 22): Field not found (the kernel found the error at the end of `pdi=`)
            its fields: __syscall_nr (int), pid (pid_t), common_type (unsigned short), common_flags (unsigned char), common_preempt_count (unsigned char), common_pid (int)
            status 1
        "#]],
    );
}

#[test]
fn an_attribute_that_is_not_there() {
    fails(
        plain().event(format!("{CALL}//stak/")),
        expect![[r#"
            perf-prof: -e syscalls:sys_enter_getpgid//stak/: unknown attribute `stak` (did you mean stack?); the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH
            `perf-prof python --help` explains the options, with examples
            status 2
        "#]],
    );
}

#[test]
fn an_attribute_of_another_profiler() {
    fails(
        plain().event(format!("{CALL}//key=pid/")),
        expect![[r#"
            perf-prof: -e syscalls:sys_enter_getpgid//key=pid/: perf-prof does not support the attribute `key` of the C implementation; remove it; the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH
            `perf-prof python --help` explains the options, with examples
            status 2
        "#]],
    );
}

#[test]
fn a_section_that_is_not_closed() {
    fails(
        plain().event(format!("{CALL}/pid==5")),
        expect![[r#"
        perf-prof: -e syscalls:sys_enter_getpgid: the section `/pid==5` is not closed; end it with `/`
        `perf-prof python --help` explains the options, with examples
        status 2
    "#]],
    );
}

#[test]
fn a_cpu_that_is_not_there() {
    needs([Need::Tracefs]);
    let outcome = plain().call_event().options(["-C", "4000"]).run();
    outcome.assert_civil();
    let start = "perf-prof: CPU 4000 does not exist or is offline; the online CPUs are 0";
    assert!(outcome.stderr.starts_with(start) && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
    assert_eq!(outcome.status, 1);
}

/// A list of CPUs for a larger machine. As in the C implementation, the events of existing CPUs are delivered.
#[test]
fn cpus_that_are_not_there_beside_one_that_is_are_named_in_a_warning() {
    needs([Need::Tracefs]);
    let warning =
        "warning: CPU 4000-4001 does not exist or is offline; the events of the other selected CPUs are delivered";
    let outcome = plain().call_event().options(["-C", "0,4000-4001", "--duration", "200ms"]).run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches(warning).count(), 1, "{}", outcome.stderr);
}

#[test]
fn cpus_with_processes() {
    fails(
        plain().call_event().options(["-C", "0", "-p", "1"]),
        expect![[r#"
        perf-prof: -C and -p cannot be combined: select only one target for the events
        `perf-prof python --help` explains the options, with examples
        status 2
    "#]],
    );
}

#[test]
fn a_process_that_is_not_there() {
    fails(
        plain().call_event().options(["-p", "4194303"]),
        expect![[r#"
        perf-prof: there is no process 4194303
        status 1
    "#]],
    );
}

#[test]
fn a_workload_that_is_not_there() {
    fails(
        plain().call_event().exec(["/no/such/command"]),
        expect![[r#"
            Loaded module: DIR/s.py
            perf-prof: cannot execute /no/such/command: No such file or directory (os error 2)
            status 1
        "#]],
    );
}

#[test]
fn a_kprobe_where_there_are_none() {
    needs([Need::NoKprobes]);
    fails(
        plain().event("kprobe:do_exit"),
        expect![[r#"
            perf-prof: kprobe:do_exit: this kernel does not support kprobe probes (they need CONFIG_KPROBE_EVENTS); use a nearby tracepoint instead (`perf-prof list` lists tracepoints)
            status 1
        "#]],
    );
}

#[test]
fn a_user_who_may_not_trace() {
    needs([Need::Tracefs]);
    let outcome = as_nobody(&plain().call_event());
    outcome.assert_civil();
    assert!(outcome.stderr.lines().count() <= 3, "{}", outcome.stderr);
    assert_eq!(outcome.status, 1);
    // Either tracefs or the system call is refused first, depending on the machine.
    let (tracefs, call) =
        ("run as root, or let all users read it with `mount -o remount", "kernel.perf_event_paranoid");
    assert!(outcome.stderr.contains("permission"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(tracefs) || outcome.stderr.contains(call), "{}", outcome.stderr);
}

#[test]
fn rings_that_are_too_large() {
    fails(
        plain().call_event().options(["-m", "1T"]),
        expect![[r#"
            perf-prof: cannot map a ring of 1073741824 KiB for CPU 0: Cannot allocate memory (os error 12); the kernel has no memory for it: give a smaller -m
            status 1
        "#]],
    );
}

#[test]
fn an_output_that_cannot_be_written() {
    fails(
        plain().call_event().options(["-o", "/no/such/folder/file"]),
        expect![[r#"
        perf-prof: cannot append to '/no/such/folder/file': No such file or directory (os error 2)
        status 1
    "#]],
    );
}

#[test]
fn a_python_that_is_not_there() {
    needs([Need::EmbeddedPython]);
    fails(
        plain().call_event().options(["--python", "/no/such/python"]),
        expect![[r#"
        perf-prof: --python: no usable Python at '/no/such/python'; give the path of an interpreter or of a virtual environment
        status 1
    "#]],
    );
}

#[test]
fn a_failed_start_leaves_no_command_running() {
    needs([Need::Tracefs]);
    // The command is forked before the script is loaded. If loading fails, the command must not run.
    let run = plain().file("s.py", "1/0\n").call_event();
    let mark = run.path("ran");
    let outcome = run.exec([std::ffi::OsStr::new("touch"), mark.as_os_str()]);
    assert_eq!(outcome.run().status, 1);
    assert!(!mark.exists());
}

#[test]
fn a_seccomp_profile_that_forbids_events_is_named() {
    needs([Need::Tracefs]);
    let run = plain().call_event();
    let mut command = run.command();
    refuse(&mut command, libc::SYS_perf_event_open, None);
    let outcome = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), run.dir.path());
    outcome.assert_civil();
    let end = "and the request is allowed, so a security module or a container's seccomp profile forbids it\n";
    assert!(
        outcome.stderr.starts_with("perf-prof: no permission to trace the clock of events: "),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.ends_with(end) && outcome.status == 1, "{}", outcome.stderr);
}

/// Capabilities have to be known even without procfs, or without a free descriptor for its files.
#[test]
fn rights_are_not_missing_where_files_cannot_be_opened() {
    needs([Need::Tracefs, Need::Namespaces]);
    let files = (3..16).map(|files| format!("ulimit -n {files}"));
    for limit in files.chain(["mount -t tmpfs none /proc".to_owned()]) {
        for words in [&["record", "-o", "/dev/null"][..], &["stat"]] {
            let mut command = Command::new("unshare");
            let script = format!("{limit}; exec \"$@\"");
            command.args(["-m", "sh", "-c", &script, "sh", tested_program()]).args(words);
            let output = command.args(["-e", "uprobe:malloc@libc,cpu-clock", "--", "true"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("CAP_PERFMON") && !said.contains("only events in user space"), "{limit}: {said}");
        }
    }
}
