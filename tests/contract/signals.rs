//! Ctrl-C or SIGTERM, sent once, twice and three times; an ignored signal; the script's threads while no event happens.

use std::process::{Child, Command};

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    recording::Folder,
    run::{perf_prof, stdout},
    script::{Run, check, finish, start},
    wait,
};

/// Sends a signal and waits until the process has received it. The kernel merges equal signals that are pending.
fn send(child: &Child, signal: i32) {
    // SAFETY: sends a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    let waits = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let pending = status.lines().filter_map(|line| line.strip_prefix("ShdPnd:").or(line.strip_prefix("SigPnd:")));
        pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask >> (signal - 1) & 1 == 1)
    };
    wait::until("the signal is taken", || !waits());
}

/// A handler that prints a line and never returns.
const BUSY: &str = "
def __sample__(event):
    print('busy', flush=True)
    while True: pass
def __exit__(): print('exit')
";

/// A handler that catches every KeyboardInterrupt.
const INSISTENT: &str = "
def __sample__(event):
    print('busy', flush=True)
    while True:
        try:
            n = 0
            while True: n += 1
        except KeyboardInterrupt: print('caught', flush=True)
";

/// Runs the script, and sends the signal twice when it has printed its first line. Returns the lines after it.
#[track_caller]
fn signalled_twice(script: &str, signal: i32, status: i32) -> Vec<String> {
    needs([Need::Tracefs]);
    let run = Run::script(script).call_event().workload("calls 3");
    let (mut child, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "busy");
    send(&child, signal);
    // The first signal does not interrupt the callback.
    assert!(child.try_wait().unwrap().is_none());
    send(&child, signal);
    let lines = lines.collect();
    let outcome = finish(child, run.dir.path());
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", status));
    lines
}

#[test]
fn a_second_ctrl_c_interrupts_a_callback_that_does_not_return() {
    assert_eq!(signalled_twice(BUSY, libc::SIGINT, 0), ["exit"]);
}

/// A supervisor sends SIGTERM. A callback that does not return must not make perf-prof ignore it for ever.
#[test]
fn a_second_sigterm_interrupts_a_callback_that_does_not_return() {
    assert_eq!(signalled_twice(BUSY, libc::SIGTERM, 128 + libc::SIGTERM), ["exit"]);
}

#[test]
fn a_second_ctrl_c_interrupts_a_callback_that_sleeps() {
    let text = BUSY.replace("while True: pass", "import time; time.sleep(1000)");
    assert_eq!(signalled_twice(&text, libc::SIGINT, 0), ["exit"]);
}

#[test]
fn a_callback_may_clean_up_when_it_is_interrupted() {
    // The signals may arrive right after the line is printed. So it is printed where the callback's cleanup already
    // applies.
    let text = BUSY.replace(
        "print('busy', flush=True)\n    while True: pass",
        "\n    try:\n        print('busy', flush=True)\n        while True: pass\n    finally: print('cleaned')",
    );
    assert_eq!(signalled_twice(&text, libc::SIGINT, 0), ["cleaned", "exit"]);
}

#[track_caller]
fn the_third_signal_ends_the_process(signal: i32) {
    needs([Need::Tracefs]);
    let run = Run::script(INSISTENT).call_event().workload("calls 3");
    let (child, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "busy");
    send(&child, signal);
    send(&child, signal);
    assert_eq!(lines.next().unwrap(), "caught");
    send(&child, signal);
    assert_eq!(lines.count(), 0);
    assert_eq!(finish(child, run.dir.path()).status, 128 + signal);
}

#[test]
fn a_third_ctrl_c_ends_the_process() {
    the_third_signal_ends_the_process(libc::SIGINT);
}

#[test]
fn a_third_sigterm_ends_the_process() {
    the_third_signal_ends_the_process(libc::SIGTERM);
}

/// A program that does what `timeout` does, a bit more slowly: it makes itself the leader of a process group, and sends SIGINT to its
/// command, which has printed a line, and then to the group. It prints the other lines.
const TIMEOUT: &str = "
import os, signal, subprocess, sys, time
os.setpgid(0, 0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
child.send_signal(signal.SIGINT)
time.sleep(0.05)
os.killpg(0, signal.SIGINT)
print(child.stdout.read(), end='')
sys.exit(child.wait())
";

#[test]
fn a_signal_that_timeout_sends_to_the_command_and_to_its_group_is_one_request() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let script = folder.path("slow.py");
    let text = "
import time
def __sample__(event):
    print('busy', flush=True)
    time.sleep(0.3)
    print('whole')
def __exit__(): print('exit')
";
    std::fs::write(&script, text).unwrap();
    let command = perf_prof(&["python", "-q", "-e", "sched:sched_process_exec", script.to_str().unwrap(), "--exec"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let output = Command::new("python3").args(["-c", TIMEOUT]).args(words).args(["true"]).output();
    let output = output.unwrap();
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), ["whole", "exit"], "{output:?}");
}

#[test]
fn a_second_ctrl_c_ends_the_delivery_of_what_was_recorded() {
    needs([Need::Tracefs]);
    let text = "
import time
n = 0
def __sample__(event):
    global n
    n += 1
    if n == 1: print('busy', flush=True)
    time.sleep(0.01)
def __exit__(): print('all' if n == 100000 else 'some')
";
    let run = Run::script(text).call_event().workload("calls 100000 forever");
    let (child, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "busy");
    send(&child, libc::SIGINT);
    send(&child, libc::SIGINT);
    assert_eq!(lines.collect::<Vec<_>>(), ["some"]);
    let outcome = finish(child, run.dir.path());
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
}

#[test]
fn a_second_ctrl_c_interrupts_exit() {
    needs([Need::Tracefs]);
    let text = "
import time
def __interval__(): print('ready')
def __exit__():
    print('exit', flush=True)
    time.sleep(1000)
";
    let run = Run::script(text).call_event().workload("forever").options(["-i", "20"]);
    let (child, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "ready");
    send(&child, libc::SIGINT);
    assert!(lines.any(|line| line == "exit"));
    send(&child, libc::SIGINT);
    assert_eq!(lines.count(), 0);
    assert_eq!(finish(child, run.dir.path()).status, 0);
}

/// Starts a run with these signals ignored, as a shell starts a background job or as nohup starts a command.
fn start_ignoring(run: &Run, ignored: &'static [i32]) -> (Child, impl Iterator<Item = String>) {
    let mut command = run.command();
    // SAFETY: signal is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            ignored.iter().for_each(|&signal| {
                libc::signal(signal, libc::SIG_IGN);
            });
            Ok(())
        });
    }
    start(&mut command)
}

#[test]
fn a_sigint_that_was_ignored_at_the_start_ends_the_run() {
    needs([Need::Tracefs]);
    let text = "def __sample__(event): print('event')\ndef __exit__(): print('exit')\n";
    let run = Run::script(text).call_event().workload("calls 1 forever");
    let (child, mut lines) = start_ignoring(&run, &[libc::SIGINT, libc::SIGQUIT]);
    assert_eq!(lines.next().unwrap(), "event");
    send(&child, libc::SIGINT);
    assert_eq!(lines.collect::<Vec<_>>(), ["exit"]);
    assert_eq!(finish(child, run.dir.path()).status, 0);
}

#[test]
fn a_second_signal_interrupts_a_callback_also_if_sigint_was_ignored_at_the_start() {
    needs([Need::Tracefs]);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let run = Run::script(BUSY).call_event().workload("calls 3");
        let (child, mut lines) = start_ignoring(&run, &[libc::SIGINT]);
        assert_eq!(lines.next().unwrap(), "busy");
        send(&child, signal);
        send(&child, signal);
        assert_eq!(lines.collect::<Vec<_>>(), ["exit"]);
        let status = if signal == libc::SIGINT { 0 } else { 128 + signal };
        assert_eq!(finish(child, run.dir.path()).status, status);
    }
}

#[test]
fn a_command_ignores_what_was_ignored_at_the_start() {
    needs([Need::Tracefs]);
    let run = Run::script("def __sample__(event): pass\n").call_event();
    let run = run.exec(["grep", "SigIgn", "/proc/self/status"]);
    let (child, lines) = start_ignoring(&run, &[libc::SIGINT, libc::SIGHUP]);
    let mask = lines.last().unwrap().split_whitespace().last().map(|mask| u64::from_str_radix(mask, 16).unwrap());
    // The C library uses the signals 32 and 33. A shell may ignore them, and its commands inherit this.
    let mask = mask.map(|mask| mask & 0x7fff_ffff);
    assert_eq!(mask, Some(1 << (libc::SIGINT - 1) | 1 << (libc::SIGHUP - 1)));
    assert_eq!(finish(child, run.dir.path()).status, 0);
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    // nohup starts commands with SIGHUP ignored.
    let text = "
import os, signal
def __sample__(event): os.kill(os.getpid(), signal.SIGHUP)
def __exit__(): print('exit')
";
    needs([Need::Tracefs]);
    let run = Run::script(text).call_event().workload("calls 3 exit 4");
    let (child, lines) = start_ignoring(&run, &[libc::SIGHUP]);
    assert_eq!(lines.collect::<Vec<_>>(), ["exit"]);
    assert_eq!(finish(child, run.dir.path()).status, 4);
}

#[test]
fn threads_of_the_script_run_while_no_event_is_there() {
    // If perf-prof held the GIL while it waits, neither the thread nor the run would end.
    let text = "
import os, signal, threading
def work():
    n = 0
    while n < 1_000_000: n += 1
    print('counted')
    os.kill(os.getpid(), signal.SIGINT)
def __init__(): threading.Thread(target=work).start()
def __sample__(event): pass
def __exit__(): print('exit')
";
    check(
        Run::script(text).call_event().workload("forever"),
        expect![[r#"
        counted
        exit
        --- status 0
    "#]],
    );
}
