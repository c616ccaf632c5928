//! `softirq`: soft interrupts.

use super::{Field, Rule, Scope, SourceDefinition, texts};
use crate::{
    derive::span::Keep,
    event::{SpanOrigin, SpanTask},
};

/// The names of soft interrupts by number: `softirq_to_name` in kernel/softirq.c.
const NAMES: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// A soft interrupt may be raised several times before it runs. If it is raised while it runs, it runs once more.
pub(super) const SOFTIRQ: SourceDefinition = SourceDefinition {
    name: "softirq",
    about: "the time for which the handler of a soft interrupt ran",
    example: "softirq/name=NET_RX|NET_TX, min=1ms/",
    rules: &[
        Rule::ahead("irq:softirq_raise", "_cpu+vec", Keep::First).optional(),
        Rule::recall("irq:softirq_entry", "_cpu+vec"),
        Rule::begin("irq:softirq_entry", "_cpu+vec"),
        Rule::end("irq:softirq_exit", "_cpu+vec"),
    ],
    task: SpanTask::Interrupted,
    scope: Scope::Task,
    fields: &[
        Field::text_of_number(
            "name",
            "HI, TIMER, NET_TX, NET_RX, BLOCK, IRQ_POLL, TASKLET, SCHED, HRTIMER, RCU",
            |span| span.key(1),
            |_, number| match usize::try_from(number).ok().and_then(|number| NAMES.get(number)) {
                Some(name) => name.as_bytes().into(),
                None => number.to_string().into_bytes().into(),
            },
        )
        .is(SpanOrigin::Key(1))
        .one_of(|| texts(NAMES), ""),
        Field::int("vec", "its number", |span| span.key(1)).is(SpanOrigin::Key(1)),
        Field::time_if_known("waited", "ns from its first raise until it ran; None if no raise was seen", |span| {
            span.note("softirq_raise").map(|raise| span.begin().time().saturating_sub(raise.time()))
        }),
    ],
    ..SourceDefinition::EMPTY
};

#[cfg(test)]
mod tests {
    use super::{super::made::*, *};

    const VECTOR: &[&str] = &["unsigned int vec"];
    const EVENTS: [MadeEvent; 3] = [
        MadeEvent { name: "irq:softirq_raise", fields: VECTOR, print: "\"%u\", REC->vec" },
        MadeEvent { name: "irq:softirq_entry", fields: VECTOR, print: "\"%u\", REC->vec" },
        MadeEvent { name: "irq:softirq_exit", fields: VECTOR, print: "\"%u\", REC->vec" },
    ];

    fn sample(event: &'static str, cpu: u32, time: u64, vec: i64) -> MadeSample<'static> {
        let fields = Box::leak(Box::new([("vec", vec)]));
        MadeSample { event, tid: 5, cpu, time, fields }
    }

    #[test]
    fn the_first_raise_after_the_last_run_counts() {
        let mut run = MadeRun::start(&SOFTIRQ, "softirq", &EVENTS);
        let [raise, entry, exit] = EVENTS.map(|event| event.name);
        let spans = run.spans(&[
            sample(raise, 0, 100, 3),
            sample(raise, 0, 150, 3),
            sample(raise, 1, 160, 3),
            sample(entry, 0, 200, 3),
            // The soft interrupt is raised again while it runs.
            sample(raise, 0, 210, 3),
            sample(raise, 0, 215, 1),
            sample(exit, 0, 220, 3),
            sample(entry, 0, 230, 3),
            sample(exit, 0, 250, 3),
            sample(entry, 0, 260, 3),
            sample(exit, 0, 261, 3),
        ]);
        assert_eq!(
            spans,
            [
                "0.000020 ms name=NET_RX vec=3 waited=100",
                "0.000020 ms name=NET_RX vec=3 waited=20",
                "0.000001 ms name=NET_RX vec=3 waited=-",
            ]
        );
        assert_eq!(run.counts(), [3, 3, 0, 0]);
    }

    #[test]
    fn a_raise_before_a_loss_does_not_count() {
        let mut run = MadeRun::start(&SOFTIRQ, "softirq", &EVENTS);
        let [raise, entry, exit] = EVENTS.map(|event| event.name);
        assert!(run.spans(&[sample(raise, 0, 100, 9), sample(entry, 0, 150, 1)]).is_empty());
        run.lost();
        let spans = run.spans(&[sample(exit, 0, 190, 1), sample(entry, 0, 200, 9), sample(exit, 0, 202, 9)]);
        assert_eq!(spans, ["0.000002 ms name=RCU vec=9 waited=-"]);
        assert_eq!(run.counts(), [2, 1, 1, 1]);
    }

    #[test]
    fn a_recording_without_raises_has_the_runs() {
        let [_, entry, exit] = EVENTS;
        let (begin, end) = (entry.name, exit.name);
        let mut run = MadeRun::start(&SOFTIRQ, "softirq", &[entry, exit]);
        let spans = run.spans(&[sample(begin, 0, 1, 77), sample(end, 0, 4, 77)]);
        assert_eq!(spans, ["0.000003 ms name=77 vec=77 waited=-"]);
    }
}
