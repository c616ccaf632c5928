//! `workqueue`: work that tasks give to workers of the kernel.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::{
    derive::span::Keep,
    event::{PartView, SpanOrigin, SpanTask, SpanView},
};

/// The worker is part of the key. The function may free its work item. Another worker can then start a new item at the same
/// address before the function returns (`process_one_work()` in kernel/workqueue.c).
///
/// No event reports that work is cancelled, so work may be queued several times before it runs. The last time counts.
pub(super) const WORKQUEUE: SourceDefinition = SourceDefinition {
    name: "workqueue",
    about: "the time for which a worker of the kernel ran the function of some work",
    example: "workqueue/workqueue=writeback, min=10ms/",
    rules: &[
        Rule::ahead("workqueue:workqueue_queue_work", "work", Keep::Last).optional(),
        Rule::recall("workqueue:workqueue_execute_start", "work"),
        Rule::begin("workqueue:workqueue_execute_start", "_tid+work"),
        Rule::end("workqueue:workqueue_execute_end", "_tid+work"),
    ],
    task: SpanTask::OfNoted("workqueue_queue_work"),
    scope: Scope::Machine,
    fields: &[
        Field::function(),
        Field::text("workqueue", "name of the work queue; empty if it was not seen how the work was queued", |span| {
            queued(span).map_or(b"".into(), |queued| queued.text("workqueue").into())
        }),
        Field::time_if_known("waited", "ns for which it was queued; None if this was not seen", |span| {
            queued(span).map(|queued| span.begin().time().saturating_sub(queued.time()))
        }),
        Field::int("queuer_pid", "thread id of the task that queued it; -1 if this is not known", |span| {
            queuer(span).map_or(-1, |queued| queued.tid().into())
        }),
        Field::text("queuer_comm", "name of the task that queued it; empty if this is not known", |span| {
            queuer(span).map_or(b"".into(), |queued| span.comm(&queued))
        }),
        Field::address("work", "address of the work", |span| span.key(1) as u64).is(SpanOrigin::Key(1)),
    ],
    ..SourceDefinition::EMPTY
};

fn queued<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.note("workqueue_queue_work")
}

fn queuer<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.noted_in_task("workqueue_queue_work")
}
