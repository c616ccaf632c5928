//! Spans that are added up: what their events do with open spans, which values of the begin are kept, and what the program
//! of the end reads.

mod pairs;
mod reader;
mod step;

use std::sync::Arc;

use perf_prof_events::{
    aggregate::{Definition, Plan, PlanFilter},
    derive::{Action, Filters, Span, Step},
    event::{Context, EventType, Format, SpanFormat, SpanTask},
};
use perf_prof_format::{
    abi::bpf::TASK_COMM_LEN,
    spec::{Nesting, OpenAtEnd},
    tracefs::Filter,
};

pub use self::pairs::{LoweredPairs, lower_pairs};
use self::reader::{ForFilters, InSpan, RecordOfSpan, SpanReader};
pub use self::step::{LoweredStep, StepAction};
use super::{
    Lowered, Part, PidNamespace, Unsuited, filter,
    read::{Reader, fixed},
    tracepoint,
};
use crate::expression::{Number, Test, Text};

/// The place of an open span's key on the stack. The key takes at most 32 bytes.
pub const OPEN_KEY: i16 = -160;
/// The place of an alternative key on the stack. The key takes at most 32 bytes.
pub const OTHER_KEY: i16 = -192;
/// The name of the task, in programs that write spans. These programs have no alternative keys, so they use the place of
/// such a key.
pub const COMM: Text = Text::Kept { offset: OTHER_KEY, size: TASK_COMM_LEN };
/// The error number of the call, in programs that write spans.
pub const ERROR: Number = Number::Kept { offset: OTHER_KEY + TASK_COMM_LEN as i16, is_signed: true, is_wide: true };
/// The place of an open span's value on the stack: its start time, the generation, and the kept values.
pub const KEPT: i16 = -448;
/// The place of the event's time on the stack, in programs that write spans.
pub const NOW: i16 = KEPT - 8;
/// The duration of the span. The program of the end stores it in place of the start time.
pub const DURATION: Number = Number::Kept { offset: KEPT, is_signed: false, is_wide: true };
/// The place of the generation on the stack. The generation is a number that changes with each loss of events.
pub const GENERATION: i16 = KEPT + 8;
/// Where the kept values start, and where they must end. The state of a task follows the kept values.
const FIRST_KEPT: i16 = KEPT + 16;
const LAST_KEPT: i16 = OTHER_KEY - 24;

/// The reason for spans whose task depends on more than the begin, the end and the key.
const UNKNOWN_TASK: Unsuited = Unsuited::Spans("BPF programs cannot know the task of its spans");

/// A span that is added up in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredSpan {
    /// What the events of the span do. Events without effect on the table are left out.
    pub inputs: Vec<LoweredInput>,
    /// The values that are kept from the begin, one after another.
    pub kept: Vec<Part>,
    /// The minimum duration of spans that are added up, in ns.
    pub min: u64,
    /// The task of a span when it ends; `None` if programs do not need it.
    pub task: Option<LoweredTask>,
    /// Whether events count that happen while perf-prof itself runs.
    pub own: OwnEvents,
    /// What is added up when a span ends. `selected` is the filter of the span.
    pub table: Lowered,
}

/// An event of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredInput {
    /// The index of the event in the span.
    pub input: usize,
    /// What the event does with open spans.
    pub steps: Vec<LoweredStep>,
    /// The filter of the event.
    pub selected: Option<Test>,
    /// If the event is a switch: the task that leaves the CPU and the task that comes, each with its thread id and its name.
    pub switch: Option<[(Number, Text); 2]>,
}

/// The task of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweredTask {
    /// The process id, if programs know it and need it.
    pub process: Option<Number>,
    /// The thread id.
    pub thread: Number,
}

/// Whether events count that happen while perf-prof itself runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEvents {
    /// They do not count.
    LeftOut,
    /// They count, because they are not perf-prof's own: they interrupt perf-prof, or the task of their span caused them
    /// earlier.
    Counted,
}

/// What programs need to know about the task of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskUse {
    /// Nothing.
    Unused,
    /// Whether the task is one of perf-prof's.
    Own,
    /// The thread id and the process id of the task.
    Ids,
}

/// Returns how a span is added up. `filters` are the filters of its events. `plan` is the definition compiled for `event`,
/// the span's event type. `context` knows the names of addresses.
pub fn lower_span(
    (span, event, context): (&Span, &EventType, Option<&Arc<Context>>),
    filters: &[Option<&Filter>],
    (plan, definition): (&Plan, &Definition),
    (ids, task): (PidNamespace, TaskUse),
) -> Result<LoweredSpan, Unsuited> {
    let Format::Span(format) = &event.format else { return Err(Unsuited::NoTracepoint) };
    check(span, format)?;
    if span.selects_comms() {
        return Err(Unsuited::Spans("spans are selected by the name of their task"));
    }
    let steps: Vec<&[Step]> = span.steps().collect();
    let reader = |input: usize| -> Result<Reader<'_>, Unsuited> {
        let event = &format.inputs[input];
        Ok(Reader { event, format: tracepoint(event)?, ids })
    };
    let (begins, end) = begins_and_end(&steps)?;
    let mut inputs = Vec::new();
    for (input, steps) in steps.iter().enumerate() {
        let used: Vec<&Step> = steps.iter().filter(|step| !is_ignored(step.action)).collect();
        if used.is_empty() {
            continue;
        }
        let reader = reader(input)?;
        let filter = filters.get(input).copied().flatten();
        let selected = filter.map(|filter| filter::test(filter.node(), &mut { reader })).transpose()?;
        let steps = used.into_iter().map(|step| step::lowered(reader, step)).collect::<Result<Vec<_>, _>>()?;
        let switch = switch(reader, &steps);
        inputs.push(LoweredInput { input, steps, selected, switch });
    }
    let begin = begins.iter().map(|&input| Ok((input, reader(input)?))).collect::<Result<_, Unsuited>>()?;
    let (end_of_span, for_filters) = ((end, reader(end)?), ForFilters::Nothing);
    let mut of_span = SpanReader { event, format, begin, end: end_of_span, kept: Vec::new(), context, for_filters };
    let table = of_table(&mut of_span, span, (plan, definition), (&begins, end))?;
    let own = match format.task {
        SpanTask::OfNoted(_) | SpanTask::Interrupted => OwnEvents::Counted,
        _ => OwnEvents::LeftOut,
    };
    let task = match task {
        TaskUse::Own if own == OwnEvents::Counted => None,
        TaskUse::Unused => None,
        TaskUse::Own | TaskUse::Ids => Some(of_span.task()?),
    };
    let kept = of_span.kept;
    Ok(LoweredSpan { inputs, kept, min: span.spec().min, task, own, table })
}

/// Returns the two tasks of a switch. Returns `None` if these are not the steps of a switch.
fn switch(reader: Reader<'_>, steps: &[LoweredStep]) -> Option<[(Number, Text); 2]> {
    let task = |is: fn(StepAction) -> bool, name| {
        let thread = steps.iter().find(|step| is(step.action))?.keys.first()?.first()?;
        let text = fixed(reader.format.field(name)?.extent()).filter(|text| text.bytes() == TASK_COMM_LEN)?;
        Some((*thread, text))
    };
    let left = task(|action| matches!(action, StepAction::Leaves(_)), "prev_comm")?;
    Some([left, task(|action| action == StepAction::Comes, "next_comm")?])
}

/// Returns what is added up when a span ends. `begins` are the events that begin spans, and `end` is the event that ends
/// them.
fn of_table(
    reader: &mut SpanReader<'_>,
    span: &Span,
    (plan, definition): (&Plan, &Definition),
    (begins, end): (&[usize], usize),
) -> Result<Lowered, Unsuited> {
    let names = definition.keys.iter().map(String::as_str);
    let key = plan.keys().iter().zip(names).map(|(read, name)| reader.part(read, name)).collect::<Result<_, _>>()?;
    let name = definition.value.as_deref().unwrap_or_default();
    let added = plan.added().map(|read| reader.number(read, name)).transpose()?;
    let pair = |filters: &'_ [Option<Filter>]| -> Result<Option<Filter>, Unsuited> {
        let &[begin] = begins else { return Err(Unsuited::Spans("several events begin its spans")) };
        Ok(filters.get(begin * span.steps().count() + end).cloned().flatten())
    };
    let mut test = |filter: Option<&Filter>, record: RecordOfSpan| {
        let mut compared = InSpan { reader: &mut *reader, record };
        filter.map(|filter| filter::test(filter.node(), &mut compared)).transpose()
    };
    let selected = match span.filters() {
        None => None,
        Some(Filters::OfPairs(filters)) => test(pair(filters)?.as_ref(), RecordOfSpan::Duration)?,
        Some(Filters::OfSpan(filter)) => test(Some(filter), RecordOfSpan::Sample)?,
    };
    let filter = match plan.filter() {
        None => None,
        Some(PlanFilter::OfEvent(filter)) => test(Some(filter), RecordOfSpan::Sample)?,
        Some(PlanFilter::OfPairs(filters)) => test(pair(filters)?.as_ref(), RecordOfSpan::Span)?,
    };
    Ok(Lowered { key, added, selected, filter })
}

/// Fails if programs cannot pair the begins and ends of the span.
fn check(span: &Span, format: &SpanFormat) -> Result<(), Unsuited> {
    let spec = span.spec();
    let reason = match () {
        () if spec.nesting != Nesting::Replaced => "a key may be open several times",
        () if spec.at_end != OpenAtEnd::Counted => "spans that are open at the end count too",
        () if matches!(format.task, SpanTask::Computed(_)) => return Err(UNKNOWN_TASK),
        () => return Ok(()),
    };
    Err(Unsuited::Spans(reason))
}

/// Returns whether a step has no effect on tables in the kernel. Such a step notes what no table reads, or finds events that
/// were not delivered, which programs find in another way.
fn is_ignored(action: Action) -> bool {
    matches!(action, Action::Note(_) | Action::Ahead(_) | Action::Recall | Action::Forget | Action::Run(_))
}

/// Returns the events that begin spans, and the event that ends them.
fn begins_and_end(steps: &[&[Step]]) -> Result<(Vec<usize>, usize), Unsuited> {
    let all = |is: fn(Action) -> bool| {
        (0..steps.len()).filter(|&input| steps[input].iter().any(|step| is(step.action))).collect::<Vec<_>>()
    };
    match all(Action::ends).as_slice() {
        &[end] => Ok((all(Action::begins), end)),
        _ => Err(Unsuited::Spans("several events end its spans")),
    }
}
