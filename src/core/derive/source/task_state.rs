//! `task-state`: each interval of a task's life.

use super::{Field, Rule, Scope, SourceDefinition, task_state};
use crate::{event::SpanTask, spec::Nesting};

/// Each change of a task's state ends one span and opens the next one.
pub(super) const TASK_STATE: SourceDefinition = SourceDefinition {
    system: "",
    name: "task-state",
    about: "an interval of a task's life: running, waiting for a CPU, sleeping, ...",
    example: "task-state/comm=make, state=disk/",
    rules: &[
        Rule::end("sched:sched_switch", "prev_pid"),
        Rule::begin("sched:sched_switch", "prev_pid").when("prev_pid != 0 && !(prev_state & 0x30)"),
        Rule::end("sched:sched_switch", "next_pid"),
        Rule::begin("sched:sched_switch", "next_pid").when("next_pid != 0"),
        Rule::end("sched:sched_wakeup", "pid"),
        Rule::begin("sched:sched_wakeup", "pid"),
        Rule::begin("sched:sched_wakeup_new", "pid"),
    ],
    nesting: Nesting::Replaced,
    task: SpanTask::OfKey,
    scope: Scope::Machine,
    flags: &[],
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
        }),
    ],
    narrow: None,
};
