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

#[cfg(test)]
mod tests {
    use super::{
        super::{made::*, offcpu::OFFCPU},
        *,
    };

    const SWITCH: MadeEvent = MadeEvent {
        name: "sched:sched_switch",
        fields: &["int prev_pid", "int prev_state", "int next_pid", "char prev_comm[8]", "char next_comm[8]"],
        print: "\"\"",
    };

    /// The kernel takes the ids of a task away while the task still runs, so its last samples have the ids -1.
    #[test]
    fn spans_of_a_task_that_has_exited_have_its_thread() {
        let switch = |tid, time, fields| MadeSample { event: SWITCH.name, tid, cpu: 0, time, fields };
        let samples = [
            switch(0, 10, &[("prev_pid", 0), ("prev_state", 0), ("next_pid", 7)]),
            switch(-1, 20, &[("prev_pid", 7), ("prev_state", 0), ("next_pid", 8)]),
            switch(8, 30, &[("prev_pid", 8), ("prev_state", 1), ("next_pid", 7)]),
            switch(-1, 40, &[("prev_pid", 7), ("prev_state", 0x80), ("next_pid", 0)]),
        ];
        for (source, spans) in [(&ONCPU, &[(10, 20, 7), (20, 30, 8), (30, 40, 7)][..]), (&OFFCPU, &[(20, 30, 7)])] {
            let mut run = MadeRun::start(source, source.name, &[SWITCH]);
            run.belongs(7, 5);
            run.spans(&samples);
            let found: Vec<_> = run.delivered.iter().map(|span| (span.begin, span.end, span.task.1)).collect();
            assert_eq!(found, spans, "{}", source.name);
            assert!(run.delivered.iter().all(|span| span.task.1 != 7 || span.task.0 == 5), "{}", source.name);
        }
    }
}
