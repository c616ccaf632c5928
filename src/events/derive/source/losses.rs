//! Tests of the maximum missing time: the spans that losses dropped can have lasted that long, and no longer.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    block_io::BLOCK_IO,
    made::{MadeEvent, MadeRun, MadeSample},
    syscall::SYSCALL,
};

const ENTER: &str = "raw_syscalls:sys_enter";
const EXIT: &str = "raw_syscalls:sys_exit";
const CALL_FIELDS: &[&str] = &["s64 id", "u64 args", "s64 ret"];

fn calls() -> MadeRun {
    calls_selected("syscall")
}

fn calls_selected(selector: &str) -> MadeRun {
    let events = [ENTER, EXIT].map(|name| MadeEvent { name, fields: CALL_FIELDS, print: "\"\"" });
    let run = MadeRun::start(&SYSCALL, selector, &events);
    [7, 8].into_iter().for_each(|task| run.belongs(task, task));
    run
}

/// Passes an event of a system call to the source.
fn call(run: &mut MadeRun, event: &str, task: i32, time: u64, id: i64) {
    run.spans(&[MadeSample { event, tid: task, cpu: 0, time, fields: &[("id", id)] }]);
}

#[test]
fn a_call_is_over_when_its_thread_makes_another_call() {
    let mut run = calls();
    call(&mut run, ENTER, 7, 100, 17);
    run.loss_begins();
    call(&mut run, ENTER, 8, 105, 17);
    run.lost_until(110);
    // Call 17 of thread 7 has ended by 110. Call 17 of thread 8 has ended by 130, because the event at 130 ends a later
    // call.
    call(&mut run, ENTER, 7, 120, 1);
    call(&mut run, EXIT, 8, 130, 2);
    call(&mut run, EXIT, 7, 140, 1);
    // Another loss, far later.
    run.loss_begins();
    run.lost_until(9000);
    run.finish();
    assert_eq!((run.missing_of(7), run.missing_of(8)), (10, 25));
}

/// Thread 7 makes calls of two numbers, and thread 8 one of another. What the lost ends say is not known.
#[test]
fn a_call_that_its_begin_shows_not_to_be_selected_is_not_missing() {
    for (selector, gaps) in [
        ("syscall", vec![(7, 2), (8, 1)]),
        ("syscall/nr == 17/", vec![(7, 1)]),
        ("syscall/nr == 17 && ret < 0/", vec![(7, 1)]),
        ("syscall/!(nr == 17 || ret < 0)/", vec![(7, 1), (8, 1)]),
        ("syscall/duration < 5/", vec![(7, 2), (8, 1)]),
    ] {
        let mut run = calls_selected(selector);
        call(&mut run, ENTER, 8, 99, 19);
        for (time, id) in [(100, 17), (200, 18)] {
            call(&mut run, ENTER, 7, time, id);
            run.loss_begins();
            run.lost_until(time + 10);
        }
        run.finish();
        assert_eq!(run.gaps().into_iter().collect::<BTreeSet<_>>(), gaps.into_iter().collect(), "{selector}");
    }
}

/// The loss lasts until the end of the run, for example because the last records of a file cannot be read.
#[test]
fn a_call_whose_end_may_be_lost_is_not_shown_as_open() {
    for (is_lossy, shown, counts, missing) in [(false, 2, [2, 0, 0, 0], 0), (true, 0, [2, 0, 2, 0], 30)] {
        let mut run = calls_selected("syscall/open/");
        call(&mut run, ENTER, 7, 100, 17);
        if is_lossy {
            run.loss_begins();
        }
        call(&mut run, ENTER, 8, 130, 17);
        run.finish();
        assert_eq!((run.delivered.len(), run.counts()), (shown, counts));
        assert_eq!(run.missing_of(7), missing);
    }
}

#[test]
fn while_events_are_lost_a_call_ends_with_the_next_event_of_its_thread() {
    let mut run = calls();
    call(&mut run, ENTER, 7, 100, 17);
    run.loss_begins();
    call(&mut run, EXIT, 7, 103, 3);
    call(&mut run, ENTER, 7, 104, 18);
    call(&mut run, ENTER, 7, 106, 19);
    run.lost_until(9000);
    call(&mut run, EXIT, 7, 9001, 19);
    // 3 for the call 17, 2 for the call 18, and 8895 for the call 19.
    assert_eq!(run.missing_of(7), 8900);
    assert_eq!(run.counts(), [3, 0, 3, 2]);
}

#[test]
fn a_request_ends_in_the_loss_that_dropped_it() {
    const FIELDS: &[&str] =
        &["unsigned int dev", "u64 sector", "unsigned int nr_sector", "int error", "char rwbs[8]", "char comm[8]"];
    let names = ["block:block_io_start", "block:block_rq_complete"];
    let events = names.map(|name| MadeEvent { name, fields: FIELDS, print: "\"\"" });
    let mut run = MadeRun::start(&BLOCK_IO, "block-io", &events);
    run.belongs(7, 7);
    let request = |run: &mut MadeRun, event: usize, time, sector| {
        let fields = [("dev", 1), ("sector", sector), ("nr_sector", 8)];
        run.spans(&[MadeSample { event: names[event], tid: 7, cpu: 0, time, fields: &fields }]);
    };
    for round in 0..10 {
        // The first request has no further event. The second request ends after the loss.
        request(&mut run, 0, 1000 * round + 100, 16 * round as i64);
        request(&mut run, 0, 1000 * round + 101, 16 * round as i64 + 8);
        run.loss_begins();
        run.lost_until(1000 * round + 120);
        request(&mut run, 1, 1000 * round + 131, 16 * round as i64 + 8);
    }
    run.finish();
    assert_eq!(run.missing_of(7), 10 * (20 + 30));
}

proptest! {
    /// A thread makes one call after another. Whatever is lost, its calls with a delivered begin take at most the time of
    /// its delivered spans and the missing time, and both together are at most the time for which the thread lived.
    #[test]
    fn the_calls_of_a_thread_take_no_more_time_than_there_is(
        steps in prop::collection::vec((7..9i32, 1..50u64, 0..12u8, 1..4i64), 1..150)
    ) {
        let mut run = calls();
        let (mut time, mut is_losing) = (0, false);
        let mut open: [Option<(u64, i64, bool)>; 2] = [None; 2];
        let mut truth = [0; 2];
        for (task, later, what, id) in steps {
            time += later;
            match what {
                0 if !is_losing => run.loss_begins(),
                1 if is_losing => run.lost_until(time),
                _ => {
                    let is_delivered = !is_losing || what % 2 == 0;
                    let of_task = &mut open[task as usize - 7];
                    let (event, id) = match of_task.take() {
                        Some((begin, id, was_delivered)) => {
                            truth[task as usize - 7] += if was_delivered { time - begin } else { 0 };
                            (EXIT, id)
                        }
                        None => {
                            *of_task = Some((time, id, is_delivered));
                            (ENTER, id)
                        }
                    };
                    if is_delivered {
                        call(&mut run, event, task, time, id);
                    }
                }
            }
            is_losing = if what < 2 { what == 0 } else { is_losing };
        }
        if is_losing {
            run.lost_until(time);
        }
        run.finish();
        for task in 7..9 {
            let of_task = run.delivered.iter().filter(|span| span.task.1 == task);
            let found: u64 = of_task.map(|span| span.end - span.begin).sum();
            let bound = found + run.missing_of(task);
            prop_assert!(truth[task as usize - 7] <= bound && bound <= time, "{:?} {} {}", truth, bound, time);
        }
    }
}
