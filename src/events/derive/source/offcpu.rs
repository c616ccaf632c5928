//! `offcpu`: the time for which a task did not run.

use super::{Dependent, Field, Rule, STATE_BITS, Scope, SourceDefinition, TASK_STATES, UnseenBegin, task_state, texts};
use crate::{
    derive::span::{Change, Keep},
    event::{PartView, SpanOrigin, SpanTask, SpanView},
};

/// When a task leaves its CPU, it opens a span; the switch back to the task ends the span. A task that exits never comes
/// back, so it opens no span. Idle tasks (0) are left out.
pub(super) const OFFCPU: SourceDefinition = SourceDefinition {
    name: "offcpu",
    about: "the time for which a task did not run: blocked, and then waiting for a CPU",
    example: "offcpu/comm=make|cc*, min=10ms/stack/",
    rules: &[
        Rule::schedule("sched:sched_switch", "prev_pid+prev_state", Change::Leaves),
        Rule::schedule("sched:sched_switch", "next_pid", Change::Comes),
        Rule::end("sched:sched_switch", "next_pid"),
        Rule::begin("sched:sched_switch", "prev_pid").when("prev_pid != 0 && !(prev_state & 0x30)"),
        // Keep `sched_waking`, because it happens in the waker. `sched_wakeup` may happen in an interrupt of another CPU
        // (`ttwu_queue()` in kernel/sched/core.c), but some recordings contain no other wakeup event.
        Rule::note("sched:sched_waking", "pid", Keep::First).optional(),
        Rule::note("sched:sched_wakeup", "pid", Keep::First).only_recorded(),
    ],
    task: SpanTask::OfBeginOrKey,
    scope: Scope::Machine,
    fields: &[
        Field::text("comm", "name of the task", |span| match span.end() {
            Some(end) => end.text("next_comm").into(),
            None => span.begin().text("prev_comm").into(),
        })
        .is(SpanOrigin::End("next_comm")),
        Field::int("pid", "thread id of the task", |span| span.key(0)).is(SpanOrigin::Key(0)),
        Field::text_of_number(
            "state",
            "why it did not run: sleeping, disk, stopped, preempted, ...",
            |span| span.begin().int("prev_state") & i64::from(STATE_BITS),
            |_, state| task_state(state).as_bytes().into(),
        )
        .is(SpanOrigin::BeginBits("prev_state", STATE_BITS))
        .one_of(|| texts(TASK_STATES), ""),
        Field::time_if_known(
            "blocked",
            "ns until it was woken; the whole duration if no wakeup was seen; None if wakeups were not recorded",
            |span| Some(span.duration() - waited(span)?),
        ),
        Field::time_if_known(
            "waited",
            "ns for which it could run and waited for a CPU; None if wakeups were not recorded",
            waited,
        ),
        Field::int(
            "waker_pid",
            "thread id of the task that woke it; 0 if an interrupt did; -1 if no wakeup was seen",
            |span| match waking(span) {
                Some(waking) if waking.is_in_interrupt() => 0,
                Some(waking) => waking.tid().into(),
                None => -1,
            },
        ),
        // An interrupt of a timer or a device may wake a task. Then the interrupted task is not the waker.
        Field::text(
            "waker_comm",
            "name of the task that woke it, or (interrupt); empty if no wakeup was seen",
            |span| match waking(span) {
                Some(waking) if waking.is_in_interrupt() => b"(interrupt)".into(),
                Some(waking) => span.comm(&waking),
                None => b"".into(),
            },
        ),
    ],
    dependent: &[Dependent {
        fields: "`blocked`, `waited` and the waker",
        events: &["sched:sched_waking", "sched:sched_wakeup"],
    }],
    // Idle tasks (0) have no spans.
    unseen_begin: Some(|span| match span.key(0) {
        0 => UnseenBegin::NotReported,
        _ => UnseenBegin::Reported,
    }),
    ..SourceDefinition::EMPTY
};

/// The events of wakeups, of which one is enough.
const WAKEUPS: [&str; 2] = ["sched_waking", "sched_wakeup"];

fn waking<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    WAKEUPS.iter().find_map(|wakeup| span.note(wakeup))
}

fn waited(span: &SpanView<'_>) -> Option<u64> {
    match (task_state(span.begin().int("prev_state")), waking(span)) {
        ("preempted", _) => Some(span.duration()),
        (_, Some(waking)) => Some(span.duration().saturating_sub(waking.time().saturating_sub(span.begin().time()))),
        (_, None) => WAKEUPS.iter().any(|wakeup| span.has_input(wakeup)).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::tracefs::NoKernel;

    use super::*;
    use crate::{
        derive::source::made::{MadeEvent, MadeRun, MadeSample},
        event::{Context, SpansOf, Targets},
    };

    const SWITCH: &str = "sched:sched_switch";
    const FIELDS: &[&str] =
        &["int prev_pid", "int prev_state", "int next_pid", "char prev_comm[8]", "char next_comm[8]"];

    /// Passes a switch from one task to another to the source.
    fn switch(run: &mut MadeRun, time: u64, prev: i64, next: i64) {
        let fields = [("prev_pid", prev), ("prev_state", 1), ("next_pid", next)];
        run.spans(&[MadeSample { event: SWITCH, tid: prev as i32, cpu: 0, time, fields: &fields }]);
    }

    fn recorded(selector: &str, context: Context) -> MadeRun {
        context.note_recorded_since(1);
        let events = [MadeEvent { name: SWITCH, fields: FIELDS, print: "\"\"" }];
        MadeRun::start_in(context, &OFFCPU, selector, &events)
    }

    /// Task 8 leaves its CPU to tasks that come for the first time. Their waits are not its own.
    #[test]
    fn a_wait_from_before_the_recording_is_that_of_the_task_that_comes() {
        for (selected, before) in [(7, (1, 59)), (8, (0, 0)), (9, (1, 79))] {
            let context = Context::new(Box::new(NoKernel), 0)
                .with_targets(Some(Targets::recorded(&[], &[selected])), SpansOf::SelectedTasks);
            let mut run = recorded("offcpu", context);
            [7, 8, 9].into_iter().for_each(|task| run.belongs(task, task));
            for (time, prev, next) in [(60, 8, 7), (70, 7, 8), (80, 8, 9)] {
                switch(&mut run, time, prev, next);
            }
            run.finish();
            assert_eq!(run.before(), before, "{selected}");
        }
    }

    /// The first task 7 exits before it has waited.
    #[test]
    fn a_new_task_with_the_id_of_an_earlier_one_has_no_wait_from_before() {
        for (created, before) in [(0, (1, 79)), (50, (0, 0))] {
            let mut run = recorded("offcpu", Context::new(Box::new(NoKernel), 0));
            run.belongs(7, 7);
            run.exited(7, 40);
            run.created(7, created);
            [(80, 8, 7), (90, 7, 8), (100, 8, 7)]
                .into_iter()
                .for_each(|(time, prev, next)| switch(&mut run, time, prev, next));
            assert_eq!(run.before(), before, "{created}");
        }
    }

    /// Task 7 exists when the recording begins, task 8 begins in it.
    #[test]
    fn a_wait_is_from_before_the_recording_if_its_task_is() {
        for (selector, before) in [
            ("offcpu", (1, 49)),
            ("offcpu/pid == 7/", (1, 49)),
            ("offcpu/pid == 8/", (0, 0)),
            // The end does not show it.
            ("offcpu/state == \"sleeping\"/", (0, 0)),
        ] {
            let mut run = recorded(selector, Context::new(Box::new(NoKernel), 0));
            [7, 9].into_iter().for_each(|task| run.belongs(task, task));
            for (time, prev, next) in [(40, 9, 0), (50, 0, 7), (60, 7, 8), (70, 8, 7), (80, 7, 9)] {
                switch(&mut run, time, prev, next);
            }
            run.finish();
            assert_eq!((run.before(), run.gaps()), (before, vec![]), "{selector}");
        }
    }
}
