//! Tests of system calls whose end in a recording is not that of the call that the thread has entered.

use std::env::consts::ARCH;

use perf_prof_format::{abi::system_calls, tracefs::NoKernel};

use super::{
    made::{MadeEvent, MadeRun, MadeSample},
    syscall::SYSCALL,
};
use crate::event::Context;

const ENTER: &str = "raw_syscalls:sys_enter";
const EXIT: &str = "raw_syscalls:sys_exit";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Live,
    Recorded,
}

fn run(selector: &str, origin: Origin) -> MadeRun {
    let fields = &["s64 id", "u64 args", "s64 ret"];
    let events = [ENTER, EXIT].map(|name| MadeEvent { name, fields, print: "\"\"" });
    let context = Context::new(Box::new(NoKernel), 0);
    if origin == Origin::Recorded {
        context.note_recorded_since(1);
    }
    let run = MadeRun::start_in(context, &SYSCALL, selector, &events);
    run.belongs(7, 7);
    run
}

fn number(call: &str) -> i64 {
    system_calls::number(ARCH, call).unwrap()
}

/// Passes an event of a system call of thread 7 to the source.
fn call(run: &mut MadeRun, name: &str, time: u64, id: i64, ret: i64) {
    event(run, 7, (name, time), id, ret);
}

/// Passes an event of a system call to the source.
fn event(run: &mut MadeRun, tid: i32, (event, time): (&str, u64), id: i64, ret: i64) {
    run.spans(&[MadeSample { event, tid, cpu: 0, time, fields: &[("id", id), ("ret", ret)] }]);
}

/// Passes an end with the number `wrong` in place of the number of the call, and a whole call after it.
fn with_wrong_end(selector: &str, origin: Origin, wrong: i64) -> MadeRun {
    let (mut run, getppid) = (run(selector, origin), number("getppid"));
    call(&mut run, ENTER, 100, getppid, 0);
    call(&mut run, EXIT, 130, wrong, 5);
    call(&mut run, ENTER, 140, getppid, 0);
    call(&mut run, EXIT, 150, getppid, 5);
    run.finish();
    run
}

#[test]
fn a_call_that_ends_with_the_number_of_another_call_is_missing() {
    let getuid = number("getuid");
    for wrong in [number("getppid") | 1 << 20, getuid] {
        for (selector, gaps, missing) in [
            ("syscall", 1, 30),
            ("syscall/name=getppid/", 1, 30),
            ("syscall/name=getuid/", u64::from(wrong == getuid), 0),
            ("syscall/name=read/", 0, 0),
        ] {
            let run = with_wrong_end(selector, Origin::Recorded, wrong);
            let gaps: Vec<(i32, u64)> = (gaps != 0).then_some((7, gaps)).into_iter().collect();
            assert_eq!((run.gaps(), run.missing_of(7)), (gaps, missing), "{selector} {wrong}");
            assert_eq!(run.counts(), [2, 1, 1, 1]);
        }
        // Live, a call may have begun before the events were on.
        assert_eq!(with_wrong_end("syscall", Origin::Live, wrong).gaps(), []);
    }
}

/// An event that damage may change, in the middle of whole calls of a thread.
#[derive(Clone, Copy, Debug)]
enum Damage {
    EnterOfOtherCall,
    EnterOfOtherThread,
    EndOfOtherCall,
    EndOfOtherThread,
}

/// Thread 7 makes calls that return `ret`, and one of the events in the middle is damaged.
fn with_damage(name: &str, ret: i64, damage: Damage) -> MadeRun {
    let (mut run, call, other) = (run("syscall", Origin::Recorded), number(name), number("access"));
    for at in 1..=5 {
        let (mut enter, mut end) = ((7, call), (7, call));
        match damage {
            _ if at != 3 => {}
            Damage::EnterOfOtherCall => enter.1 = other,
            Damage::EnterOfOtherThread => enter.0 = 15,
            Damage::EndOfOtherCall => end.1 = other,
            Damage::EndOfOtherThread => end.0 = 15,
        }
        event(&mut run, enter.0, (ENTER, 10 * at), enter.1, 0);
        event(&mut run, end.0, (EXIT, 10 * at + 5), end.1, ret);
    }
    run.finish();
    run
}

/// A result that equals the number of the call is also that of a call that seccomp answers with a signal.
#[test]
fn one_damaged_event_of_a_call_is_a_gap() {
    use Damage::{EndOfOtherCall, EndOfOtherThread, EnterOfOtherCall, EnterOfOtherThread};
    for (name, ret) in [("pread64", number("pread64")), ("read", 0), ("write", 1), ("write", 64), ("read", -11)] {
        for damage in [EnterOfOtherCall, EnterOfOtherThread, EndOfOtherCall, EndOfOtherThread] {
            let run = with_damage(name, ret, damage);
            assert_eq!(run.gaps(), [(7, 1)], "{name} {ret} {damage:?}");
            assert_eq!(run.counts()[1], 4);
        }
    }
    // Where only the other thread's entry is left, this may also be a refused call.
    for damage in [EnterOfOtherCall, EndOfOtherCall, EndOfOtherThread] {
        assert_eq!(with_damage("write", -1, damage).gaps(), [(7, 1)], "{damage:?}");
    }
}

/// A recorder turns the begin events on first, and may turn the end events off first.
#[test]
fn entries_without_ends_at_the_start_and_at_the_end_are_not_missing() {
    let (mut run, getppid) = (run("syscall", Origin::Recorded), number("getppid"));
    for time in [100, 110, 120] {
        call(&mut run, ENTER, time, getppid, 0);
    }
    call(&mut run, EXIT, 125, getppid, 5);
    for time in [130, 140, 150] {
        call(&mut run, ENTER, time, getppid, 0);
    }
    run.finish();
    assert_eq!(run.gaps(), []);
}

/// Another thread's ends show that the end events were on.
#[test]
fn an_entry_without_end_is_missing_if_ends_of_other_threads_go_on() {
    let (mut run, getppid) = (run("syscall", Origin::Recorded), number("getppid"));
    call(&mut run, ENTER, 100, getppid, 0);
    call(&mut run, EXIT, 110, getppid, 5);
    call(&mut run, ENTER, 120, getppid, 0);
    call(&mut run, ENTER, 130, number("wait4"), 0);
    event(&mut run, 8, (ENTER, 140), getppid, 0);
    event(&mut run, 8, (EXIT, 1_000_000_000), getppid, 5);
    run.finish();
    assert_eq!((run.gaps(), run.missing_of(7)), (vec![(7, 1)], 10));
}

/// The calls exit() and, in a thread that becomes its process, execve() have no end with the id of their thread. A new thread
/// returns from clone(), and a helper that the kernel starts from a call with the number 0.
#[test]
fn a_call_of_an_earlier_thread_with_the_same_id_is_not_missing() {
    for (last, first) in ["exit", "exit_group", "execve"].into_iter().flat_map(|last| [(last, "clone"), (last, "read")])
    {
        let (mut run, getppid) = (run("syscall", Origin::Recorded), number("getppid"));
        run.created(7, 90);
        call(&mut run, ENTER, 100, getppid, 0);
        call(&mut run, EXIT, 110, getppid, 5);
        call(&mut run, ENTER, 120, number(last), 0);
        if last.starts_with("exit") {
            run.exited(7, 125);
        }
        run.created(7, 130);
        // A part of a recording reports earlier threads too.
        run.created(7, 90);
        call(&mut run, EXIT, 140, number(first), 0);
        for time in [150, 170] {
            call(&mut run, ENTER, time, number("read"), 0);
            call(&mut run, EXIT, time + 10, number("read"), 0);
        }
        run.finish();
        assert_eq!(run.gaps(), [], "{last} {first}");
    }
}

/// The other threads of a process end when a thread executes a program. It gets the id of the first one, which may have ended.
#[test]
fn a_program_goes_on_with_the_id_of_a_thread_that_has_exited() {
    let mut run = run("syscall", Origin::Recorded);
    call(&mut run, EXIT, 90, number("read"), 5);
    call(&mut run, ENTER, 100, number("exit"), 0);
    run.exited(7, 110);
    event(&mut run, 8, (ENTER, 120), number("execve"), 0);
    call(&mut run, EXIT, 130, number("execve"), 0);
    call(&mut run, ENTER, 140, number("brk"), 0);
    call(&mut run, EXIT, 150, number("brk"), 7);
    run.finish();
    assert_eq!(run.gaps(), []);
}

/// The thread goes on with its handler, and later makes calls that are allowed.
#[test]
fn a_call_that_seccomp_refuses_is_not_missing() {
    let openat = number("openat");
    for ret in [openat, -1, -13, -38] {
        let mut run = run("syscall", Origin::Recorded);
        for time in [100, 200] {
            call(&mut run, ENTER, time, number("read"), 0);
            call(&mut run, EXIT, time + 10, number("read"), 5);
            call(&mut run, EXIT, time + 20, openat, ret);
        }
        call(&mut run, ENTER, 300, number("read"), 0);
        call(&mut run, EXIT, 310, number("read"), 5);
        run.finish();
        assert_eq!(run.gaps(), [], "{ret}");
    }
}

/// A helper that the kernel starts returns from a call that it has not made.
#[test]
fn the_first_end_of_a_new_thread_is_not_missing() {
    let mut run = run("syscall", Origin::Recorded);
    run.created(7, 90);
    call(&mut run, EXIT, 100, number("read"), 0);
    for time in [110, 130] {
        call(&mut run, ENTER, time, number("read"), 0);
        call(&mut run, EXIT, time + 10, number("read"), 5);
    }
    run.finish();
    assert_eq!((run.gaps(), run.before()), (vec![], (0, 0)));
}

/// The kernel reports these ends without their begins, also while an older call of a thread with this id is open.
#[test]
fn an_end_whose_begin_the_kernel_does_not_report_contradicts_nothing() {
    for (id, ret) in
        [(number("execve"), 0), (number("clone"), 0), (number("clone3"), 0), (number("rt_sigreturn"), 9), (-1, 9)]
    {
        let mut run = run("syscall", Origin::Recorded);
        call(&mut run, ENTER, 100, number("read"), 0);
        call(&mut run, EXIT, 130, id, ret);
        call(&mut run, EXIT, 140, number("read"), 1);
        run.finish();
        assert_eq!((run.gaps(), run.counts()), (vec![], [1, 1, 0, 1]), "{id} {ret}");
    }
}

#[test]
fn calls_under_way_at_the_start_and_returns_from_signals_contradict_nothing() {
    let mut run = run("syscall", Origin::Recorded);
    call(&mut run, EXIT, 90, number("read"), 1);
    call(&mut run, ENTER, 100, number("rt_sigreturn"), 0);
    call(&mut run, EXIT, 110, -1, 7);
    call(&mut run, ENTER, 120, number("read"), 0);
    call(&mut run, EXIT, 130, number("read"), 1);
    assert_eq!((run.gaps(), run.counts()), (vec![], [2, 2, 0, 1]));
}
