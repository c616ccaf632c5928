//! `irq`: hard interrupts.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::event::{SpanOrigin, SpanTask};

/// The handlers of a shared interrupt line run one after another. Each has an entry event and an exit event
/// (`__handle_irq_event_percpu()` in kernel/irq/handle.c).
pub(super) const IRQ: SourceDefinition = SourceDefinition {
    name: "irq",
    about: "the time for which the handler of a hard interrupt ran",
    example: "irq/name=eth0*, min=100us/",
    rules: &[Rule::begin("irq:irq_handler_entry", "_cpu+irq"), Rule::end("irq:irq_handler_exit", "_cpu+irq")],
    task: SpanTask::Interrupted,
    scope: Scope::Task,
    fields: &[
        Field::text("name", "name of the handler, which is often that of the device", |span| {
            span.begin().text("name").into()
        }),
        Field::int("irq", "number of the interrupt, as in /proc/interrupts", |span| span.key(1)).is(SpanOrigin::Key(1)),
        Field::text(
            "ret",
            "`handled`, or `unhandled` if its device did not raise it; empty if it has not ended",
            |span| span.end().map_or(b"".into(), |end| span.shown(&end, "ret")),
        ),
    ],
    ..SourceDefinition::EMPTY
};
