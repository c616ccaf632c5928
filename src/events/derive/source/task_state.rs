//! `task-state`: the intervals of a task's life, one for each state.

use super::{Field, Rule, Scope, SourceDefinition, TASK_STATES, task_state, texts};
use crate::{
    derive::span::Change,
    event::{SpanTask, SpanView},
};

/// Each change of a task's state ends one span and opens the next one.
pub(super) const TASK_STATE: SourceDefinition = SourceDefinition {
    name: "task-state",
    about: "an interval of a task's life: running, waiting for a CPU, sleeping, ...",
    example: "task-state/comm=make, state=disk/",
    rules: &[
        Rule::schedule("sched:sched_switch", "prev_pid+prev_state", Change::Leaves),
        Rule::schedule("sched:sched_switch", "next_pid", Change::ComesAfterWakeup),
        Rule::schedule("sched:sched_wakeup", "pid", Change::Wakes),
        Rule::schedule("sched:sched_wakeup_new", "pid", Change::Wakes),
        // A task that leaves its CPU was running. If its open span says something else, events were not delivered, so drop
        // the span.
        Rule::end("sched:sched_switch", "prev_pid").after(is_running),
        Rule::discard("sched:sched_switch", "prev_pid"),
        Rule::begin("sched:sched_switch", "prev_pid").when("prev_pid != 0 && !(prev_state & 0x30)"),
        Rule::end("sched:sched_switch", "next_pid").after(is_runnable),
        Rule::discard("sched:sched_switch", "next_pid"),
        Rule::begin("sched:sched_switch", "next_pid").when("next_pid != 0"),
        // A task that is woken twice has run between the two wakeups, so its first wait for a CPU is over.
        Rule::discard_woken_again("sched:sched_wakeup", "pid"),
        // A task that prepares to sleep can be woken while it still runs (`ttwu_runnable()` in kernel/sched/core.c). Such a
        // wakeup does not end the span.
        Rule::end("sched:sched_wakeup", "pid").after(is_blocked),
        Rule::begin("sched:sched_wakeup", "pid").after(is_blocked),
        Rule::begin("sched:sched_wakeup_new", "pid"),
    ],
    task: SpanTask::OfKey,
    scope: Scope::Machine,
    fields: &[
        Field::text("comm", "name of the task", |span| {
            let begin = span.begin();
            match (begin.is("sched_switch"), begin.int("next_pid") == span.key(0)) {
                (false, _) => begin.text("comm").into(),
                (true, true) => begin.text("next_comm").into(),
                (true, false) => begin.text("prev_comm").into(),
            }
        }),
        Field::int("pid", "thread id of the task", |span| span.key(0)),
        Field::text("state", "running, runnable (it waits for a CPU), sleeping, disk, stopped, ...", |span| {
            let begin = span.begin();
            let state = match (begin.is("sched_switch"), begin.int("next_pid") == span.key(0)) {
                (true, true) => "running",
                (true, false) if task_state(begin.int("prev_state")) != "preempted" => {
                    task_state(begin.int("prev_state"))
                }
                _ => "runnable",
            };
            state.as_bytes().into()
        })
        .one_of(|| texts(TASK_STATES.into_iter().chain(["running", "runnable"])), ""),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns whether the span is an interval in which its task runs.
fn is_running(span: &SpanView<'_>) -> bool {
    let begin = span.begin();
    begin.is("sched_switch") && begin.int("next_pid") == span.key(0)
}

/// Returns whether the span is an interval in which its task waits for a CPU.
fn is_runnable(span: &SpanView<'_>) -> bool {
    !is_running(span) && !is_blocked(span)
}

/// Returns whether the span is an interval in which its task is blocked.
fn is_blocked(span: &SpanView<'_>) -> bool {
    let begin = span.begin();
    begin.is("sched_switch")
        && begin.int("prev_pid") == span.key(0)
        && task_state(begin.int("prev_state")) != "preempted"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::source::made::{MadeEvent, MadeRun, MadeSample};

    const SWITCH: &str = "sched:sched_switch";
    const WAKEUP: &str = "sched:sched_wakeup";
    const EVENTS: &[MadeEvent] = &[
        MadeEvent { name: SWITCH, fields: &["int prev_pid", "int prev_state", "int next_pid"], print: "\"\"" },
        MadeEvent { name: WAKEUP, fields: &["int pid"], print: "\"\"" },
        MadeEvent { name: "sched:sched_wakeup_new", fields: &["int pid"], print: "\"\"" },
    ];

    #[test]
    fn a_task_that_is_woken_on_its_cpu_goes_on_running() {
        let switch = |time, prev, state, next| {
            (SWITCH, time, vec![("prev_pid", prev), ("prev_state", state), ("next_pid", next)])
        };
        let wakeup = |time| (WAKEUP, time, vec![("pid", 7)]);
        let samples =
            [switch(10, 0, 0, 7), wakeup(20), switch(30, 7, 1, 0), wakeup(40), wakeup(45), switch(50, 0, 0, 7)];
        let made =
            samples.each_ref().map(|(event, time, fields)| MadeSample { event, tid: 1, cpu: 0, time: *time, fields });
        let lines = MadeRun::start(&TASK_STATE, "task-state", EVENTS).spans(&made);
        let states: Vec<&str> =
            lines.iter().filter_map(|line| line.rsplit_once("state=").map(|(_, state)| state)).collect();
        assert_eq!(states, ["running", "sleeping", "runnable"], "{lines:?}");
    }
}
