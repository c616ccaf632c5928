//! `oncpu`: the time for which a task ran without a break.

use perf_prof_format::spec::Nesting;

use super::{Field, Rule, Scope, SourceDefinition, TASK_STATES, task_state, texts};
use crate::{derive::span::Change, event::SpanTask};

/// A switch ends the span of the task that leaves the CPU, and opens the span of the task that comes. The idle tasks (0)
/// are left out.
pub(super) const ONCPU: SourceDefinition = SourceDefinition {
    system: "",
    name: "oncpu",
    about: "the time for which a task ran, from the switch to it to the next switch",
    example: "oncpu/comm=make, min=10ms/",
    rules: &[
        Rule::schedule("sched:sched_switch", "prev_pid+prev_state", Change::Leaves),
        Rule::schedule("sched:sched_switch", "next_pid", Change::Comes),
        Rule::end("sched:sched_switch", "prev_pid"),
        Rule::begin("sched:sched_switch", "next_pid").when("next_pid != 0"),
    ],
    nesting: Nesting::Replaced,
    task: SpanTask::Computed(|span| {
        Some(span.end().map_or_else(|| span.task(span.key(0) as i32), |end| (end.pid(), end.tid())))
    }),
    scope: Scope::Machine,
    flags: &[],
    fields: &[
        Field::text("comm", "name of the task", |span| match span.end() {
            Some(end) => end.text("prev_comm").into(),
            None => span.begin().text("next_comm").into(),
        }),
        Field::int("pid", "thread id of the task", |span| span.key(0)),
        Field::text("why", "why it stopped: preempted, sleeping, disk, stopped, dead, ...", |span| {
            span.end().map_or("", |end| task_state(end.int("prev_state"))).as_bytes().into()
        })
        .one_of(|| texts(TASK_STATES), ""),
    ],
    ends_soon: false,
    narrow: None,
};
