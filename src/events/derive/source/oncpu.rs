//! `oncpu`: the time for which a task ran without a break.

use super::{Field, Rule, STATE_BITS, Scope, SourceDefinition, TASK_STATES, task_state, texts};
use crate::{
    derive::span::Change,
    event::{SpanOrigin, SpanTask},
};

/// A switch ends the span of the task that leaves the CPU, and opens a span for the task that comes. Idle tasks (0) are left
/// out.
pub(super) const ONCPU: SourceDefinition = SourceDefinition {
    name: "oncpu",
    about: "the time for which a task ran, from the switch to it to the next switch",
    example: "oncpu/comm=make, min=10ms/",
    rules: &[
        Rule::schedule("sched:sched_switch", "prev_pid+prev_state", Change::Leaves),
        Rule::schedule("sched:sched_switch", "next_pid", Change::Comes),
        Rule::end("sched:sched_switch", "prev_pid"),
        Rule::begin("sched:sched_switch", "next_pid").when("next_pid != 0"),
    ],
    task: SpanTask::OfEndOrKey,
    scope: Scope::Machine,
    fields: &[
        Field::text("comm", "name of the task", |span| match span.end() {
            Some(end) => end.text("prev_comm").into(),
            None => span.begin().text("next_comm").into(),
        })
        .is(SpanOrigin::End("prev_comm")),
        Field::int("pid", "thread id of the task", |span| span.key(0)).is(SpanOrigin::Key(0)),
        Field::text_of_number(
            "why",
            "why it stopped: preempted, sleeping, disk, stopped, dead, ...",
            |span| span.end().map_or(-1, |end| end.int("prev_state") & i64::from(STATE_BITS)),
            |_, state| if state < 0 { b"".into() } else { task_state(state).as_bytes().into() },
        )
        .is(SpanOrigin::EndBits("prev_state", STATE_BITS))
        .one_of(|| texts(TASK_STATES), ""),
    ],
    ..SourceDefinition::EMPTY
};
