//! Handlers that misbehave. perf-prof still keeps to the contract.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
    sync::mpsc,
    thread,
    time::Duration,
};

use expect_test::expect;

use crate::harness::{
    calls::WORKLOAD,
    machine::{Need, needs},
    run::{PATIENCE, perf_prof},
    script::{CALL, Run, check, prints},
};

fn calls(script: &str, workload: &str) -> Run {
    Run::script(script).call_event().workload(workload)
}

/// Waits until all processes with the other end of a pipe have ended.
#[track_caller]
fn assert_all_end(pipe: impl Read + Send + 'static) {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(BufReader::new(pipe).lines().count()));
    ended.recv_timeout(Duration::from_secs(PATIENCE.into())).expect("a process is left");
}

#[test]
fn a_command_ends_when_perf_prof_is_killed() {
    needs([Need::Tracefs]);
    let script = "def __sample__(event): print('event', flush=True)\n";
    let run = Run::script(script).call_event().workload("calls 1 forever");
    let mut child = run.command().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 6]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The command has the same stdout, so the pipe ends only when both have ended.
    assert_all_end(stdout);
}

#[test]
fn the_processes_of_jobs_end_when_perf_prof_is_killed() {
    needs([Need::Tracefs]);
    let script = "
import time
def __sample__(event):
    print('event', flush=True)
    time.sleep(1000)
def __partial__(): pass
def __merge__(partials): pass
";
    let run = Run::script(script).call_event();
    let own = std::env::current_exe().unwrap();
    let mut record = perf_prof(&["record", "-q", "-e", CALL, "--"]);
    record.arg(own).args([WORKLOAD, "calls", "3"]).current_dir(run.dir.path());
    assert!(record.status().unwrap().success());
    let run = run.options(["--input", "perf.data", "--jobs", "2"]);
    let mut child = run.command().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 6]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(stdout);
}

#[test]
fn a_handler_that_closes_stdout() {
    let text = "
import sys
def __sample__(event):
    if event.pid == 1:
        print('last words')
        sys.stdout.close()
def __exit__(): print('exit', file=sys.stderr)
";
    check(
        calls(text, "calls 3"),
        expect![[r#"
        last words
        --- stderr
        exit
        --- status 0
    "#]],
    );
}

#[test]
fn a_handler_that_prints_to_a_stdout_that_it_closed() {
    let text = "
import sys
def __sample__(event):
    sys.stdout.close()
    event.print()
def __exit__(): print('exit', file=sys.stderr)
";
    needs([Need::Tracefs]);
    let outcome = calls(text, "calls 1").run();
    outcome.assert_civil();
    assert!(outcome.stderr.contains("ValueError: I/O operation on closed file"), "{}", outcome.stderr);
    // `__exit__` prints to stderr, which is still open.
    assert!(outcome.stderr.ends_with("exit\n"), "{}", outcome.stderr);
    assert_eq!(outcome.status, 1);
}

#[test]
fn a_handler_that_deletes_stdout() {
    let text = "
import sys
def __sample__(event):
    if event.pid == 1: del sys.stdout
    event.print()
def __exit__(): print('exit', file=sys.stderr)
";
    needs([Need::Tracefs]);
    let outcome = calls(text, "calls 2").run();
    outcome.assert_civil();
    // The number of repetitions of the exception follows.
    assert!(outcome.stderr.contains("\nexit\n"), "{}", outcome.stderr);
    assert_eq!(outcome.status, 1);
}

#[test]
fn a_handler_that_puts_another_stdout_in_place() {
    let text = "
import io, sys
sys.stdout = io.StringIO()
def __sample__(event): event.print(timestamp=False)
def __exit__(): print(len(sys.stdout.getvalue().splitlines()), 'lines', file=sys.__stdout__)
";
    prints(
        calls(text, "calls 2"),
        expect![[r#"
        2 lines
    "#]],
    );
}

#[test]
fn a_handler_that_deletes_its_module() {
    let text = "
import sys
seen = []
def __sample__(event):
    seen.append(event.pid)
    sys.modules.pop(__name__, None)
    globals().pop('__sample__', None)
def __exit__(): print(seen)
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        [1, 2, 3]
    "#]],
    );
}

#[test]
fn a_handler_that_clears_its_globals() {
    let text = "
import sys
def __sample__(event): globals().clear()
def __exit__(): print('exit', globals())
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        exit {}
    "#]],
    );
}

#[test]
fn a_handler_that_forks() {
    let text = "
import os, perf_prof
n = 0
def __sample__(event):
    global n
    n += 1
    pid = os.fork()
    if pid == 0:
        print('child')
        return
    os.waitpid(pid, 0)
def __exit__(): print('parent', n, perf_prof.stats()['delivered'])
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        child
        child
        child
        parent 3 3
    "#]],
    );
}

#[test]
fn a_child_that_exits_or_raises_ends_with_its_own_status() {
    let text = "
import os, sys
def __sample__(event):
    pid = os.fork()
    if pid == 0:
        if event.pid == 1: sys.exit(5)
        if event.pid == 2: raise ValueError('in the child')
        if event.pid == 3: os._exit(6)
        return
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
def __exit__(): print('exit')
";
    check(
        calls(text, "calls 4"),
        expect![[r#"
            5
            1
            6
            0
            exit
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 7, in __sample__
                if event.pid == 2: raise ValueError('in the child')
            ValueError: in the child
            --- status 0
        "#]],
    );
}

#[test]
fn a_child_forked_while_loading_ends_quietly() {
    let text = "
import os
pid = os.fork()
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
n = 0
def __sample__(event):
    global n
    n += 1
def __exit__(): print(n)
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        3
    "#]],
    );
}

#[test]
fn a_child_forked_in_init_that_returns_does_not_become_a_second_run() {
    let text = "
import os
n = 0
def __init__():
    pid = os.fork()
    if pid: os.waitpid(pid, 0)
def __sample__(event):
    global n
    n += 1
def __exit__(): print(n)
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        3
    "#]],
    );
}

#[test]
fn subprocesses_of_a_handler_work() {
    let text = "
import subprocess
def __sample__(event): print(subprocess.run(['echo', str(event.pid)], capture_output=True, text=True).stdout.strip())
";
    prints(
        calls(text, "calls 2"),
        expect![[r#"
        1
        2
    "#]],
    );
}

#[test]
fn a_script_may_replace_a_signal_handler() {
    let text = "
import signal
signal.signal(signal.SIGUSR1, signal.SIG_DFL)
def __sample__(event): pass
def __exit__(): print('exit')
";
    prints(
        calls(text, "calls 2"),
        expect![[r#"
        exit
    "#]],
    );
}

#[test]
fn a_handler_that_ends_the_process_at_once() {
    let text = "
import os
def __sample__(event):
    print('now', flush=True)
    os._exit(3)
def __exit__(): print('never')
";
    check(
        calls(text, "calls 2"),
        expect![[r#"
        now
        --- status 3
    "#]],
    );
}

#[test]
fn a_handler_that_changes_the_folder_and_the_environment() {
    let text = "
import os
def __sample__(event):
    os.chdir('/')
    os.environ.clear()
    event.print(timestamp=False)
def __exit__(): print('exit', os.getcwd())
";
    needs([Need::Tracefs]);
    let outcome = calls(text, "calls 2").run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    assert!(outcome.stdout.ends_with("exit /\n"), "{}", outcome.stdout);
}

#[test]
fn a_handler_that_takes_the_wrong_number_of_arguments() {
    let text = "
def __sample__(): pass
def __exit__(): print('exit')
";
    check(
        calls(text, "calls 2"),
        expect![[r#"
        exit
        --- stderr
        TypeError: __sample__() takes 0 positional arguments but 1 was given
        perf-prof: __sample__: TypeError in the call of __sample__() again; from now on, this exception is only counted
        perf-prof: TypeError in the call of __sample__(): 2 times in total
        --- status 1
    "#]],
    );
}

#[test]
fn a_handler_that_keeps_all_events_loses_none() {
    // The script keeps all events until the end of the run, and releases them then.
    let text = "
kept = []
def __sample__(event): kept.append(event)
def __exit__():
    pids = [event.pid for event in kept]
    print(len(pids), sum(pids), min(pids), max(pids))
    kept.clear()
";
    prints(
        calls(text, "calls 20000"),
        expect![[r#"
        20000 200010000 1 20000
    "#]],
    );
}

#[test]
fn events_can_be_kept_in_reference_cycles_and_by_threads() {
    let text = "
import gc, threading
kept = []
class Node: pass
def __sample__(event):
    node = Node()
    node.self, node.event = node, event
    if event.pid == 2: kept.append(event)
    thread = threading.Thread(target=lambda: kept.append(event))
    if event.pid == 3:
        thread.start()
        thread.join()
    gc.collect()
def __exit__(): print([event.pid for event in kept])
";
    prints(
        calls(text, "calls 4"),
        expect![[r#"
        [2, 3]
    "#]],
    );
}

#[test]
fn a_handler_that_waits_for_any_child_may_take_the_commands_status() {
    let text = "
import os
def __sample__(event): print(os.waitstatus_to_exitcode(os.wait()[1]))
def __exit__(): print('exit')
";
    check(
        calls(text, "calls 1 exit 9"),
        expect![[r#"
        9
        exit
        --- status 0
    "#]],
    );
}

#[test]
fn a_child_forked_while_loading_that_goes_on_does_not_become_a_second_run() {
    let text = "
import os, sys
pid = os.fork()
if pid: os.waitpid(pid, 0)
elif len(sys.argv) > 1: raise SystemExit(5)
else: print('child')
def __sample__(event): print(event.pid)
";
    prints(
        calls(text, "calls 1"),
        expect![[r#"
        child
        1
    "#]],
    );
    prints(
        calls(text, "calls 1").args(["x"]),
        expect![[r#"
        1
    "#]],
    );
}

#[test]
fn a_forked_child_ends_when_it_is_told_to() {
    let text = "
import os, signal, time
def __sample__(event):
    number = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT][event.pid - 1]
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(told, b'x')
            time.sleep(50)
        except KeyboardInterrupt: os._exit(7)
        os._exit(6)
    os.read(ready, 1)
    os.kill(pid, number)
    print(number.name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
def __exit__(): print('exit')
";
    check(
        calls(text, "calls 5"),
        expect![[r#"
        SIGTERM -15
        SIGHUP -1
        SIGUSR1 -10
        SIGUSR2 -12
        SIGINT 7
        exit
        --- status 0
    "#]],
    );
}
