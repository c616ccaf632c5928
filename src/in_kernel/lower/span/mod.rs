//! Spans that are added up: the values that the program of the begin keeps, the key by which both programs find the open
//! span, and the values that the program of the end reads.

mod pairs;
mod reader;

use perf_prof_events::{
    aggregate::{Definition, Plan, PlanFilter},
    derive::{Action, Filters, KeyPart, KeyPlan, Span, Step},
    event::{EventType, Format, SpanFormat, SpanTask, reader::Read},
};
use perf_prof_format::{
    spec::{Nesting, OpenAtEnd},
    tracefs::{Field, Filter},
};

pub use self::pairs::{LoweredPairs, lower_pairs};
use self::reader::{InSpan, RecordOfSpan, SpanReader};
use super::{Lowered, Part, PidNamespace, Unsuited, filter, read::Reader, tracepoint};
use crate::expression::{Number, Test};

/// The place on the stack of the key of an open span: at most 32 bytes.
pub const OPEN_KEY: i16 = -160;
/// The place on the stack of an alternative key: at most 32 bytes.
pub const OTHER_KEY: i16 = -192;
/// The place on the stack of the value of an open span: its start time, the generation, and the kept values.
pub const KEPT: i16 = -448;
/// The duration, which the program of the end puts in place of the start time.
pub const DURATION: Number = Number::Kept { offset: KEPT, is_signed: false, is_wide: true };
/// The place on the stack of the generation: a number that would change with each loss of events.
pub const GENERATION: i16 = KEPT + 8;
/// The place on the stack of the first kept value. The last one ends before `OTHER_KEY`.
const FIRST_KEPT: i16 = KEPT + 16;
const MOST_KEY_PARTS: usize = 4;

/// A span that is added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredSpan {
    /// The steps of the event that begins spans.
    pub begin: Vec<LoweredStep>,
    /// The steps of the event that ends spans; empty if one event begins and ends them.
    pub end: Vec<LoweredStep>,
    /// The filters of the events that begin and end spans.
    pub selected: [Option<Test>; 2],
    /// The kept values, one behind the other.
    pub kept: Vec<Part>,
    /// The shortest span that is added, in ns.
    pub min: u64,
    /// The key and the number that are added when a span ends. `selected` is the filter of the span.
    pub table: Lowered,
}

/// A step of an event: it begins or ends the span of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredStep {
    /// Whether the step begins or ends a span.
    pub action: StepAction,
    /// The key, and alternatives to it.
    pub keys: Vec<Vec<Number>>,
    /// The step is taken only if this test holds; `None`: always.
    pub when: Option<Test>,
}

/// Whether a step begins or ends a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StepAction {
    Begin,
    End,
}

/// Returns the steps and the table of spans that are added up. `filters` are the filters of the events that begin and end
/// spans. `plan` is the plan of the definition for `event`, the type of the span's event.
pub fn lower_span(
    span: &Span,
    event: &EventType,
    filters: [Option<&Filter>; 2],
    (plan, definition): (&Plan, &Definition),
    ids: PidNamespace,
) -> Result<LoweredSpan, Unsuited> {
    let Format::Span(format) = &event.format else { return Err(Unsuited::NoTracepoint) };
    check(span, format)?;
    if span.selects_comms() {
        return Err(Unsuited::Spans("spans are selected by the name of their task"));
    }
    let steps: Vec<&[Step]> = span.steps().collect();
    let [begin, end] = inputs(&steps)?;
    let reader = |input: usize| -> Result<Reader<'_>, Unsuited> {
        let event = &format.inputs[input];
        Ok(Reader { event, format: tracepoint(event)?, ids })
    };
    let (of_begin, of_end) = (reader(begin)?, reader(end)?);
    let of_step =
        |of: Reader<'_>, steps: &[Step]| steps.iter().map(|step| lowered_step(of, step)).collect::<Result<Vec<_>, _>>();
    let pair = begin * steps.len() + end;
    let mut reader = SpanReader { event, format, begin: (begin, of_begin), end: (end, of_end), kept: Vec::new() };
    let names = definition.keys.iter().map(String::as_str);
    let key = plan.keys().iter().zip(names).map(|(read, name)| reader.part(read, name)).collect::<Result<_, _>>()?;
    let name = definition.value.as_deref().unwrap_or_default();
    let added = plan.added().map(|read| reader.number(read, name)).transpose()?;
    let mut test = |filter: Option<&Filter>, record: RecordOfSpan| {
        let mut compared = InSpan { reader: &mut reader, record };
        filter.map(|filter| filter::test(filter.node(), &mut compared)).transpose()
    };
    let selected = match span.filters() {
        None => None,
        Some(Filters::OfPairs(filters)) => test(filters.get(pair).and_then(Option::as_ref), RecordOfSpan::Duration)?,
        Some(Filters::OfSpan(filter)) => test(Some(filter), RecordOfSpan::Sample)?,
    };
    let filter = match plan.filter() {
        None => None,
        Some(PlanFilter::OfEvent(filter)) => test(Some(filter), RecordOfSpan::Sample)?,
        Some(PlanFilter::OfPairs(filters)) => test(filters.get(pair).and_then(Option::as_ref), RecordOfSpan::Span)?,
    };
    let kept = reader.kept;
    let of_end_reader = of_end;
    let of_end = if begin == end { Vec::new() } else { of_step(of_end, steps[end])? };
    let of_event = |filter: Option<&Filter>, mut reader: Reader<'_>| {
        filter.map(|filter| filter::test(filter.node(), &mut reader)).transpose()
    };
    let filters = [of_event(filters[0], of_begin)?, of_event(filters[1], of_end_reader)?];
    let table = Lowered { key, added, selected, filter };
    Ok(LoweredSpan {
        begin: of_step(of_begin, steps[begin])?,
        end: of_end,
        selected: filters,
        kept,
        min: span.spec().min,
        table,
    })
}

/// Returns an error if programs cannot pair the begins and ends of the span.
fn check(span: &Span, format: &SpanFormat) -> Result<(), Unsuited> {
    let spec = span.spec();
    let reason = match () {
        () if spec.nesting != Nesting::Replaced => "a key may be open several times",
        () if spec.at_end != OpenAtEnd::Counted => "spans that are open at the end count too",
        () if !matches!(format.task, SpanTask::OfEnd) => "its spans belong to a task in which they do not end",
        () => return Ok(()),
    };
    Err(Unsuited::Spans(reason))
}

/// Returns the index of the event that begins spans, and of the event that ends them.
fn inputs(steps: &[&[Step]]) -> Result<[usize; 2], Unsuited> {
    let only = |is: fn(Action) -> bool| {
        let mut found = (0..steps.len()).filter(|&input| steps[input].iter().any(|step| is(step.action)));
        found.next().filter(|_| found.next().is_none()).ok_or(Unsuited::Spans("several events begin or end its spans"))
    };
    let both = [only(Action::begins)?, only(Action::ends)?];
    let is_one = |input: usize| both.contains(&input);
    if (0..steps.len()).all(is_one) { Ok(both) } else { Err(Unsuited::Spans("it needs events between begin and end")) }
}

fn lowered_step(reader: Reader<'_>, step: &Step) -> Result<LoweredStep, Unsuited> {
    let action = match step.action {
        Action::Begin => StepAction::Begin,
        Action::End => StepAction::End,
        _ => return Err(Unsuited::Spans("its events do more than to begin and end spans")),
    };
    if step.after.is_some() {
        return Err(Unsuited::Spans("its events have conditions on open spans"));
    }
    let key = |plan: &KeyPlan| plan.parts().iter().map(|part| key_part(reader, part)).collect::<Result<Vec<_>, _>>();
    let keys: Vec<Vec<Number>> = [&step.key].into_iter().chain(&step.other_keys).map(key).collect::<Result<_, _>>()?;
    if keys.iter().any(|key| key.len() > MOST_KEY_PARTS) {
        return Err(Unsuited::Spans("its key has too many parts"));
    }
    let when = step.when.as_ref().map(|filter| filter::test(filter.node(), &mut { reader })).transpose()?;
    Ok(LoweredStep { action, keys, when })
}

fn key_part(reader: Reader<'_>, part: &KeyPart) -> Result<Number, Unsuited> {
    match part {
        KeyPart::Tid => reader.number(&Read::Tid, "_tid"),
        KeyPart::Pid => reader.number(&Read::Pid, "_pid"),
        KeyPart::Cpu => Ok(Number::Cpu),
        KeyPart::Number(number) => Ok(Number::Constant(*number)),
        KeyPart::Field(field) if field.kind.element().is_none() => of_field(reader, field),
        KeyPart::Field(_) => Err(Unsuited::Spans("its key has text")),
        KeyPart::Sum(..) => Err(Unsuited::Spans("its key has a sum")),
    }
}

fn of_field(reader: Reader<'_>, field: &Field) -> Result<Number, Unsuited> {
    reader.number(&Read::Field(field.clone()), &field.name)
}
