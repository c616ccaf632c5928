//! `hrtimer`: functions of high-resolution timers.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::{
    derive::span::Keep,
    event::{PartView, SpanOrigin, SpanTask, SpanView},
};

/// The CPU is part of the key, because functions of two timers at the same address may run at once. A sleeping task has its
/// timer on its stack. The task may run on another CPU, and start a timer at the same address, before the function of the
/// first timer has returned.
///
/// A timer may be started several times before it expires. Each start sets a new expiry time, so the last start counts.
pub(super) const HRTIMER: SourceDefinition = SourceDefinition {
    name: "hrtimer",
    about: "the time for which the function of a high-resolution timer ran",
    example: "hrtimer/function=tick_*, min=50us/",
    rules: &[
        Rule::ahead("timer:hrtimer_start", "hrtimer", Keep::Last).optional(),
        Rule::forget("timer:hrtimer_cancel", "hrtimer").optional(),
        Rule::recall("timer:hrtimer_expire_entry", "hrtimer"),
        Rule::begin("timer:hrtimer_expire_entry", "_cpu+hrtimer"),
        Rule::end("timer:hrtimer_expire_exit", "_cpu+hrtimer"),
    ],
    task: SpanTask::OfNoted("hrtimer_start"),
    scope: Scope::Machine,
    fields: &[
        Field::function(),
        Field::address("timer", "its address", |span| span.key(1) as u64).is(SpanOrigin::Key(1)),
        Field::time_if_known("waited", "ns from its start until the function ran; None if no start was seen", |span| {
            start(span).map(|start| span.begin().time().saturating_sub(start.time()))
        }),
        // `now` and `expires` are times of the timer's clock, which may not be the perf clock.
        Field::time_if_known(
            "late",
            "ns after its time at which the function ran; None if no start was seen",
            |span| start(span).map(|start| span.begin().int("now").saturating_sub(start.int("expires")).max(0) as u64),
        ),
        Field::int("starter_pid", "thread id of the task that started it; -1 if this is not known", |span| {
            starter(span).map_or(-1, |start| start.tid().into())
        }),
        Field::text("starter_comm", "name of the task that started it; empty if this is not known", |span| {
            starter(span).map_or(b"".into(), |start| span.comm(&start))
        }),
    ],
    ..SourceDefinition::EMPTY
};

fn start<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.note("hrtimer_start")
}

/// Returns the start of the timer if a task started it. Returns `None` if an interrupt did: the sample's task is then only
/// the interrupted task.
fn starter<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.noted_in_task("hrtimer_start")
}

#[cfg(test)]
mod tests {
    use super::{super::made::*, *};

    const EVENTS: [MadeEvent; 4] = [
        MadeEvent {
            name: "timer:hrtimer_start",
            fields: &["void * hrtimer", "void * function", "s64 expires"],
            print: "\"%ps\", REC->function",
        },
        MadeEvent { name: "timer:hrtimer_cancel", fields: &["void * hrtimer"], print: "\"%p\", REC->hrtimer" },
        MadeEvent {
            name: "timer:hrtimer_expire_entry",
            fields: &["void * hrtimer", "s64 now", "void * function"],
            print: "\"function=%ps\", REC->function",
        },
        MadeEvent { name: "timer:hrtimer_expire_exit", fields: &["void * hrtimer"], print: "\"%p\", REC->hrtimer" },
    ];

    #[test]
    fn the_last_start_counts_unless_the_timer_was_cancelled() {
        let mut run = MadeRun::start(&HRTIMER, "hrtimer", &EVENTS);
        let [start, cancel, entry, exit] = EVENTS.map(|event| event.name);
        let sample = |event, tid, cpu, time, fields| MadeSample { event, tid, cpu, time, fields };
        let spans = run.spans(&[
            sample(start, 5_000_007, 0, 100, &[("hrtimer", 0x10), ("expires", 5_000)]),
            sample(start, 5_000_007, 0, 110, &[("hrtimer", 0x10), ("expires", 6_000)]),
            sample(start, 5_000_007, 0, 120, &[("hrtimer", 0x20), ("expires", 6_000)]),
            sample(cancel, 5_000_007, 0, 130, &[("hrtimer", 0x20)]),
            sample(entry, 0, 1, 200, &[("hrtimer", 0x10), ("now", 6_040), ("function", 0xabc)]),
            // The task starts a timer at the same address before the function returns.
            sample(start, 5_000_008, 0, 210, &[("hrtimer", 0x10), ("expires", 7_000)]),
            sample(entry, 0, 0, 220, &[("hrtimer", 0x10), ("now", 7_001), ("function", 0xdef)]),
            sample(exit, 0, 1, 230, &[("hrtimer", 0x10)]),
            sample(exit, 0, 0, 240, &[("hrtimer", 0x10)]),
            sample(entry, 0, 0, 250, &[("hrtimer", 0x20), ("now", 1), ("function", 0xdef)]),
            sample(exit, 0, 0, 251, &[("hrtimer", 0x20)]),
        ]);
        assert_eq!(
            spans,
            [
                "0.000030 ms function=0xabc timer=0x10 waited=90 late=40 starter_pid=5000007 starter_comm=<...>",
                "0.000020 ms function=0xdef timer=0x10 waited=10 late=1 starter_pid=5000008 starter_comm=<...>",
                "0.000001 ms function=0xdef timer=0x20 waited=- late=- starter_pid=-1 starter_comm=",
            ]
        );
        assert_eq!(run.counts(), [3, 3, 0, 0]);
    }
}
