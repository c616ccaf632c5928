//! Spans that are added up. Says what the programs of their events do with open spans, which values they keep of the event
//! that begins a span, and what the program of the end reads from both events.

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

/// The place on the stack of the key of an open span: at most 32 bytes.
pub const OPEN_KEY: i16 = -160;
/// The place on the stack of an alternative key: at most 32 bytes.
pub const OTHER_KEY: i16 = -192;
/// Where programs that write spans put the name of the task and the number of the error. These programs have no alternative
/// keys, so they use the same place.
pub const COMM: Text = Text::Kept { offset: OTHER_KEY, size: TASK_COMM_LEN };
/// See [`COMM`].
pub const ERROR: Number = Number::Kept { offset: OTHER_KEY + TASK_COMM_LEN as i16, is_signed: true, is_wide: true };
/// The place on the stack of the value of an open span: its start time, the generation, and the kept values.
pub const KEPT: i16 = -448;
/// Where programs that write spans put the time of the event.
pub const NOW: i16 = KEPT - 8;
/// The duration. The program of the end stores it in place of the start time.
pub const DURATION: Number = Number::Kept { offset: KEPT, is_signed: false, is_wide: true };
/// The place on the stack of the generation: a number that would change with each loss of events.
pub const GENERATION: i16 = KEPT + 8;
/// The offset at which the kept values start, and the limit of their end. After the limit, there is room for the state of a
/// task.
const FIRST_KEPT: i16 = KEPT + 16;
const LAST_KEPT: i16 = OTHER_KEY - 24;

/// The task of a span depends on more than its begin, its end and its key.
const UNKNOWN_TASK: Unsuited = Unsuited::Spans("BPF programs cannot know the task of its spans");

/// A span that is added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredSpan {
    /// What the events of the span do. Events that do nothing for the table are left out.
    pub inputs: Vec<LoweredInput>,
    /// The kept values, one behind the other.
    pub kept: Vec<Part>,
    /// The shortest span that is added, in ns.
    pub min: u64,
    /// The task of a span, when it ends; `None` if programs need not know it.
    pub task: Option<LoweredTask>,
    /// The events that happen while perf-prof itself runs.
    pub own: OwnEvents,
    /// The key and the number that are added when a span ends. `selected` is the filter of the span.
    pub table: Lowered,
}

/// An event of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredInput {
    /// The index of the event among those of the span.
    pub input: usize,
    /// What it does with open spans.
    pub steps: Vec<LoweredStep>,
    /// Its filter.
    pub selected: Option<Test>,
    /// The tasks of a switch: the one that leaves the CPU, and the one that comes. Each has its thread id and its name.
    pub switch: Option<[(Number, Text); 2]>,
}

/// The task of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweredTask {
    /// The process of the task, if programs know it and need it.
    pub process: Option<Number>,
    /// The thread.
    pub thread: Number,
}

/// Whether the events that happen while perf-prof itself runs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEvents {
    /// They are left out.
    LeftOut,
    /// They count, because they are not perf-prof's: the task of their span is the one that caused it before.
    Counted,
}

/// What programs have to know of a span's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskUse {
    /// Nothing.
    Unused,
    /// Whether it is perf-prof itself.
    Own,
    /// Its ids.
    Ids,
}

/// Returns how spans are added up. `filters` are those of its events, and `plan` is the definition for the type of the span's
/// event, `event`. `context` has the names of addresses.
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
    let begin = begins.iter().map(|&input| Ok((input, reader(input)?))).collect::<Result<_, Unsuited>>()?;
    let (end_of_span, for_filters) = ((end, reader(end)?), ForFilters::Nothing);
    let mut of_span = SpanReader { event, format, begin, end: end_of_span, kept: Vec::new(), context, for_filters };
    let table = of_table(&mut of_span, span, (plan, definition), (&begins, end))?;
    let own = match format.task {
        SpanTask::OfNoted(_) => OwnEvents::Counted,
        _ => OwnEvents::LeftOut,
    };
    let task = match task {
        TaskUse::Own if own == OwnEvents::Counted => None,
        TaskUse::Unused => None,
        TaskUse::Own | TaskUse::Ids => Some(of_span.task()?),
    };
    let kept = of_span.kept;
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
    Ok(LoweredSpan { inputs, kept, min: span.spec().min, task, own, table })
}

/// Returns the tasks of a switch, if the steps are those of one.
fn switch(reader: Reader<'_>, steps: &[LoweredStep]) -> Option<[(Number, Text); 2]> {
    let task = |is: fn(StepAction) -> bool, name| {
        let thread = steps.iter().find(|step| is(step.action))?.keys.first()?.first()?;
        let text = fixed(reader.format.field(name)?.extent()).filter(|text| text.bytes() == TASK_COMM_LEN)?;
        Some((*thread, text))
    };
    let left = task(|action| matches!(action, StepAction::Leaves(_)), "prev_comm")?;
    Some([left, task(|action| action == StepAction::Comes, "next_comm")?])
}

/// Returns what is added at the end of a span. `ends` are the events that begin spans, and the one that ends them.
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

/// Returns an error if programs cannot pair the begins and ends of the span.
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

/// Returns whether a step has no effect on tables of programs. Such a step reports something that no table reads, or events
/// that were not delivered, which programs notice by themselves.
fn is_ignored(action: Action) -> bool {
    matches!(action, Action::Note(_) | Action::Ahead(_) | Action::Recall | Action::Forget | Action::Run(_))
}

/// Returns the events that begin spans, and the one that ends them.
fn begins_and_end(steps: &[&[Step]]) -> Result<(Vec<usize>, usize), Unsuited> {
    let all = |is: fn(Action) -> bool| {
        (0..steps.len()).filter(|&input| steps[input].iter().any(|step| is(step.action))).collect::<Vec<_>>()
    };
    match all(Action::ends).as_slice() {
        &[end] => Ok((all(Action::begins), end)),
        _ => Err(Unsuited::Spans("several events end its spans")),
    }
}
