//! `__exit__` is called once, however the run ends, and the exit status says how it ended.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use expect_test::expect;

use crate::harness::{
    calls::WORKLOAD,
    machine::{Need, needs},
    script::{Run, check, finish},
};

/// A script that counts calls, executes `on_call` for each of them, and prints the count in `__exit__`.
fn counting(on_call: &str) -> String {
    format!(
        "
import os, signal, sys
n = 0
def __sample__(event):
    global n
    n += 1
    {on_call}
def __exit__(): print('exit after', n)
"
    )
}

/// How a run ends: after this number of calls, and with this status.
struct End {
    calls: u32,
    status: i32,
}

#[track_caller]
fn ends(on_call: &str, workload: &str, end: End) {
    ends_with(&[], on_call, workload, end);
}

#[track_caller]
fn ends_with(options: &[&str], on_call: &str, workload: &str, end: End) {
    needs([Need::Tracefs]);
    let outcome = Run::script(&counting(on_call)).call_event().workload(workload).options(options).run();
    assert_eq!(outcome.complaints(), "");
    assert_eq!((outcome.stdout, outcome.status), (format!("exit after {}\n", end.calls), end.status));
}

#[test]
fn by_the_end_of_the_workload() {
    ends("pass", "calls 5", End { calls: 5, status: 0 });
}

#[test]
fn by_the_end_of_the_workload_with_its_status() {
    ends("pass", "calls 5 exit 9", End { calls: 5, status: 9 });
}

#[test]
fn by_the_end_of_the_workload_and_its_children() {
    ends("pass", "calls 2 fork fork", End { calls: 4, status: 0 });
}

#[test]
fn by_the_number_of_events() {
    ends_with(&["-N", "7"], "pass", "calls 100 forever", End { calls: 7, status: 0 });
}

#[test]
fn by_sys_exit_in_a_handler() {
    ends("if n == 4: sys.exit()", "calls 100 forever", End { calls: 4, status: 0 });
}

#[test]
fn by_sys_exit_with_a_status() {
    ends("if n == 4: sys.exit(42)", "calls 100 exit 9", End { calls: 4, status: 42 });
}

#[test]
fn by_sys_exit_with_a_text() {
    check(
        Run::script(&counting("if n == 4: sys.exit('enough')")).call_event().workload("calls 100 forever"),
        expect![[r#"
        exit after 4
        --- stderr
        enough
        --- status 1
    "#]],
    );
}

#[test]
fn by_keyboard_interrupt_of_its_own() {
    ends("if n == 4: raise KeyboardInterrupt", "calls 100 forever", End { calls: 4, status: 0 });
}

#[test]
fn by_sigint_after_what_was_recorded_is_delivered() {
    ends(
        "if n == 1: os.kill(os.getpid(), signal.SIGINT)",
        "calls 100 sleep-ms 200 signal 2 forever",
        End { calls: 100, status: 0 },
    );
}

#[test]
fn by_sigterm() {
    ends("if n == 5: os.kill(os.getpid(), signal.SIGTERM)", "calls 5 forever", End { calls: 5, status: 143 });
}

#[test]
fn by_sighup() {
    ends("if n == 5: os.kill(os.getpid(), signal.SIGHUP)", "calls 5 forever", End { calls: 5, status: 129 });
}

#[test]
fn by_a_signal_while_nothing_happens() {
    ends("pass", "calls 3 sleep-ms 50 signal 15 forever", End { calls: 3, status: 143 });
}

#[test]
fn by_the_end_of_the_attached_process() {
    needs([Need::Tracefs]);
    for option in ["-p", "-t"] {
        // The target waits until its input ends before it makes its calls. So perf-prof is attached before the calls.
        let mut target = std::process::Command::new(std::env::current_exe().unwrap())
            .args([WORKLOAD, "wait-for-input", "calls", "6"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let script = counting("pass") + "\ndef __interval__(): print('ready')\n";
        let run = Run::script(&script).call_event().options([option, &target.id().to_string(), "-i", "20"]);
        let (child, mut lines) = run.start();
        assert_eq!(lines.next().unwrap(), "ready");
        drop(target.stdin.take());
        target.wait().unwrap();
        assert_eq!(lines.last().unwrap(), "exit after 6");
        let outcome = finish(child, run.dir.path());
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    }
}

#[test]
fn by_a_closed_pipe() {
    needs([Need::Tracefs]);
    let script = "
def __sample__(event): print('line', event.pid)
def __exit__(): open('exited', 'w').write('once')
";
    for (case, script) in
        [script.to_owned(), script.replace("print('line', event.pid)", "event.print()")].iter().enumerate()
    {
        let run = Run::script(script).call_event().workload("calls 20000");
        let mut child = run.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.contains(if case == 0 { "line 1" } else { "sys_enter_getpgid" }), "{line}");
        drop(stdout);
        let outcome = finish(child, run.dir.path());
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
        assert_eq!(std::fs::read_to_string(run.path("exited")).unwrap(), "once");
    }
}

#[test]
fn by_an_exit_in_an_interval() {
    let text = "
import sys
def __interval__(): sys.exit(5)
def __exit__(): print('exit')
";
    check(
        Run::script(text).call_event().workload("forever").options(["-i", "10"]),
        expect![[r#"
        exit
        --- status 5
    "#]],
    );
}

#[test]
fn exit_itself_may_raise_or_exit() {
    let text = "
import sys
def __sample__(event): pass
def __exit__(): sys.exit(6)
";
    check(
        Run::script(text).call_event().workload("calls 1"),
        expect![[r#"
        --- status 6
    "#]],
    );
    let text = "
def __sample__(event): pass
def __exit__(): raise ValueError('at the end')
";
    check(
        Run::script(text).call_event().workload("calls 1"),
        expect![[r#"
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 3, in __exit__
                def __exit__(): raise ValueError('at the end')
            ValueError: at the end
            --- status 1
        "#]],
    );
}

#[test]
fn atexit_functions_and_threads_of_the_script_end_in_their_order() {
    let text = "
import atexit, threading, time
atexit.register(lambda: print('atexit'))
exited = threading.Event()
def work():
    exited.wait()
    time.sleep(0.1)
    print('thread')
threading.Thread(target=work).start()
def __sample__(event): pass
def __exit__():
    print('exit')
    exited.set()
";
    check(
        Run::script(text).call_event().workload("calls 1"),
        expect![[r#"
        exit
        thread
        atexit
        --- status 0
    "#]],
    );
}

#[test]
fn a_command_that_cannot_start_after_init_still_ends_with_exit() {
    needs([Need::Tracefs]);
    let script = "def __init__(): print('init')\ndef __sample__(event): pass\ndef __exit__(): print('exit')\n";
    let outcome = Run::script(script).call_event().exec(["/no/such/command"]).run();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (1, "init\nexit\n"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("/no/such/command"), "{}", outcome.stderr);
}

#[test]
fn an_exit_in_exit_wins_over_the_commands_status() {
    needs([Need::Tracefs]);
    let script = "import sys\ndef __sample__(event): pass\ndef __exit__(): sys.exit(5)\n";
    assert_eq!(Run::script(script).call_event().workload("calls 1 exit 9").run().status, 5);
}

/// The kernel removes the ids of an exiting task before the task's last events. The lines of these events still contain
/// the task's comm.
#[test]
fn a_task_that_exits_is_named_in_its_last_line() {
    needs([Need::Tracefs]);
    let script = "
def sched__sched_switch(event):
    if event._tid == -1:
        event.print(timestamp=False)
        print(event.common_pid)
def __exit__(): pass
";
    let outcome = Run::script(script).event("sched:sched_switch").workload("calls 1").run();
    let mut lines = outcome.stdout.lines();
    while let (Some(line), Some(pid)) = (lines.next(), lines.next()) {
        assert!(!line.contains("<...>"), "{line}");
        assert!(line.split_whitespace().nth(1) == Some(pid), "{line} does not name task {pid}");
    }
}

#[test]
fn by_its_duration() {
    ends_with(&["--duration", "2s"], "pass", "calls 5 sleep-ms 600000", End { calls: 5, status: 0 });
}
