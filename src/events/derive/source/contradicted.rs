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
fn call(run: &mut MadeRun, event: &str, time: u64, id: i64, ret: i64) {
    run.spans(&[MadeSample { event, tid: 7, cpu: 0, time, fields: &[("id", id), ("ret", ret)] }]);
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

/// The kernel reports these ends without their begins, also while an older call of a thread with this id is open.
#[test]
fn an_end_whose_begin_the_kernel_does_not_report_contradicts_nothing() {
    let getppid = number("getppid");
    for (id, ret) in [
        (number("execve"), 0),
        (number("clone"), 0),
        (number("clone3"), 0),
        (number("rt_sigreturn"), 9),
        (-1, 9),
        (getppid, getppid),
        (getppid, -1),
        (1 << 20, -38),
    ] {
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
