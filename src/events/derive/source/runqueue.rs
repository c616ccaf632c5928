//! `runqueue`: the time for which a task could run and waited for a CPU.

use std::borrow::Cow;

use super::{Field, Rule, Scope, SourceDefinition};
use crate::{
    derive::span::Change,
    event::{Ran, SpanOrigin, SpanTask, SpanView},
};

/// A wakeup opens a span. A switch away from a task that could go on running also opens a span. The switch to the task ends
/// the span.
pub(super) const RUNQUEUE: SourceDefinition = SourceDefinition {
    name: "runqueue",
    about: "the time for which a task could run and waited for a CPU",
    example: "runqueue/min=5ms/",
    rules: &[
        Rule::schedule("sched:sched_switch", "prev_pid+prev_state", Change::Leaves),
        Rule::schedule("sched:sched_switch", "next_pid", Change::ComesAfterWakeup),
        Rule::schedule("sched:sched_wakeup", "pid", Change::Wakes),
        Rule::schedule("sched:sched_wakeup_new", "pid", Change::Wakes),
        Rule::end("sched:sched_switch", "next_pid"),
        Rule::run("sched:sched_switch", "next_comm", "next_pid"),
        // A task that leaves its CPU was running. If its span is still open, the switch to it was not delivered.
        Rule::discard("sched:sched_switch", "prev_pid"),
        Rule::begin("sched:sched_switch", "prev_pid").when("prev_pid != 0 && !(prev_state & 0xff)"),
        // A task that is woken twice has run between the two wakeups. The end of its first wait is unknown.
        Rule::discard_woken_again("sched:sched_wakeup", "pid"),
        Rule::discard_woken_again("sched:sched_wakeup_new", "pid"),
        // A task that is preempted while it prepares to sleep can be woken while it waits for a CPU (`ttwu_runnable()` in
        // kernel/sched/core.c). Its wait goes on.
        Rule::begin_unless_open("sched:sched_wakeup", "pid"),
        Rule::begin_unless_open("sched:sched_wakeup_new", "pid"),
    ],
    task: SpanTask::OfKey,
    scope: Scope::Machine,
    fields: &[
        Field::text("comm", "name of the task", |span| match (span.end(), span.begin()) {
            (Some(end), _) => end.text("next_comm").into(),
            (None, begin) if begin.is("sched_switch") => begin.text("prev_comm").into(),
            (None, begin) => begin.text("comm").into(),
        })
        .is(SpanOrigin::End("next_comm")),
        Field::int("pid", "thread id of the task", |span| span.key(0)).is(SpanOrigin::Key(0)),
        Field::text("prev_comm", "name of the task that left the CPU for it", |span| {
            span.end().map_or(b"".into(), |end| end.text("prev_comm").into())
        })
        .is(SpanOrigin::End("prev_comm")),
        Field::text(
            "ran",
            "the tasks that ran meanwhile on the CPU on which the wait ended, each with its ns, the longest first: \
             `make 1500000, cc1 20000`",
            |span| text(&by_name(&ran(span)), |ran| ran.comm.to_vec()),
        ),
        Field::text(
            "ran_threads",
            "the same for each thread, with its id behind the name: `make 4711 1500000, cc1 4712 20000`",
            |span| text(&ran(span), |ran| [&ran.comm, format!(" {}", ran.tid).as_bytes()].concat()),
        ),
        Field::uint("preempted", "1 if the task ran before and could go on; 0 if it was woken", |span| {
            span.begin().is("sched_switch").into()
        }),
        Field::text("preempted_by", "name of the task that took the CPU from it; empty if it was woken", |span| {
            let begin = span.begin();
            if begin.is("sched_switch") { begin.text("next_comm").into() } else { b"".into() }
        }),
        Field::int("preempted_by_pid", "thread id of this task; -1 if it was woken", |span| {
            let begin = span.begin();
            if begin.is("sched_switch") { begin.int("next_pid") } else { -1 }
        }),
        Field::uint("migrated", "1 if it ran on another CPU than the one on which it began to wait", |span| {
            let begin = span.begin();
            let cpu = if begin.is("sched_switch") { begin.cpu().into() } else { begin.int("target_cpu") };
            span.end().is_some_and(|end| i64::from(end.cpu()) != cpu).into()
        }),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns the threads that ran during a wait, on the CPU on which the wait ended.
fn ran<'a>(span: &SpanView<'a>) -> Cow<'a, [Ran]> {
    match (span.ran(), span.end()) {
        (Some(ran), _) => ran.into(),
        // If the runs were not observed, the sample of the end still names the task that ran last.
        (None, Some(end)) => {
            vec![Ran { comm: end.text("prev_comm").into(), tid: end.int("prev_pid"), time: span.duration() }].into()
        }
        (None, None) => Vec::new().into(),
    }
}

/// Adds up the times of threads with the same name.
fn by_name(threads: &[Ran]) -> Vec<Ran> {
    let mut names: Vec<Ran> = Vec::new();
    for thread in threads {
        match names.iter_mut().find(|ran| ran.comm == thread.comm) {
            Some(ran) => ran.time += thread.time,
            None => names.push(thread.clone()),
        }
    }
    names.sort_by_key(|ran| std::cmp::Reverse(ran.time));
    names
}

/// Returns runs as text, each with its time in ns. `who` returns what comes before the time: a thread or a name.
fn text<'a>(ran: &[Ran], who: fn(&Ran) -> Vec<u8>) -> Cow<'a, [u8]> {
    let texts = ran.iter().map(|ran| [who(ran), format!(" {}", ran.time).into_bytes()].concat());
    texts.collect::<Vec<_>>().join(&b", "[..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::source::made::{MadeEvent, MadeRun, MadeSample};

    const SWITCH: &str = "sched:sched_switch";
    const WAKEUP: &str = "sched:sched_wakeup";
    const EVENTS: &[MadeEvent] = &[
        MadeEvent {
            name: SWITCH,
            fields: &["int prev_pid", "int prev_state", "int next_pid", "char prev_comm[8]", "char next_comm[8]"],
            print: "\"\"",
        },
        MadeEvent { name: WAKEUP, fields: &["int pid", "int target_cpu", "char comm[8]"], print: "\"\"" },
        MadeEvent {
            name: "sched:sched_wakeup_new",
            fields: &["int pid", "int target_cpu", "char comm[8]"],
            print: "\"\"",
        },
    ];

    /// The span belongs to neither the waker nor the task that leaves the CPU.
    #[test]
    fn the_process_of_a_span_is_that_of_the_task_that_waited() {
        let mut run = MadeRun::start(&RUNQUEUE, "runqueue", EVENTS);
        // No task of this machine has such an id.
        let [first, other, unknown]: [i64; 3] = [1 << 30, (1 << 30) + 1, (1 << 30) + 2];
        run.belongs(first as i32, 7);
        let wakeup = |time, pid| (WAKEUP, 1, time, vec![("pid", pid)]);
        let switch = |time, prev, state, next| {
            (SWITCH, prev as i32, time, vec![("prev_pid", prev), ("prev_state", state), ("next_pid", next)])
        };
        let samples = [
            wakeup(10, first),
            switch(20, other, 0, first),
            // This sample happens in the thread `first`, so the process of `first` is known.
            switch(30, first, 1, other),
            wakeup(40, unknown),
            switch(50, other, 1, unknown),
        ];
        let made = samples.each_ref().map(|(event, tid, time, fields)| MadeSample {
            event,
            tid: *tid,
            cpu: 0,
            time: *time,
            fields,
        });
        assert_eq!(run.spans(&made).len(), 3);
        let other = other as i32;
        let tasks: Vec<_> = run.delivered.iter().map(|span| span.task).collect();
        assert_eq!(tasks, [(7, first as i32), (other, other), (-1, unknown as i32)]);
    }
}
