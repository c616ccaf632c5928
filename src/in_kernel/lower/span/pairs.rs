//! Spans that are written as records when they end: what the program of the end tests before it writes one.

use perf_prof_events::{
    derive::{Filters, Span},
    event::{EventType, Format, SpanOrigin},
};
use perf_prof_format::tracefs::{Filter, FilterNode};

use super::{ForFilters, InSpan, RecordOfSpan, SpanReader, begins_and_end, check, filter, tracepoint};
use crate::{
    expression::Test,
    lower::{PidNamespace, Unsuited, read::Reader},
};

/// What programs test before they write a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredPairs {
    /// The filters of the event that begins spans and of the event that ends them.
    pub selected: [Option<Test>; 2],
    /// The minimum duration of spans that are written, in ns.
    pub min: u64,
    /// The parts of the span's filter that programs can test. A span must pass all of them to be written. Whoever receives
    /// the span tests the whole filter.
    pub tests: Vec<Test>,
    /// Whether a test reads [`COMM`](super::COMM).
    pub reads_comm: bool,
    /// Whether a test reads [`ERROR`](super::ERROR).
    pub reads_error: bool,
}

/// Returns what programs test. `filters` are the filters of the events that begin and end spans, and `event` is the span's
/// event type.
pub fn lower_pairs(
    span: &Span,
    event: &EventType,
    filters: [Option<&Filter>; 2],
    ids: PidNamespace,
) -> Result<LoweredPairs, Unsuited> {
    let Format::Span(format) = &event.format else { return Err(Unsuited::NoTracepoint) };
    check(span, format)?;
    let steps: Vec<_> = span.steps().collect();
    let (begins, end) = begins_and_end(&steps)?;
    let [begin] = begins[..] else { return Err(Unsuited::Spans("several events begin its spans")) };
    let reader = |input: usize| -> Result<Reader<'_>, Unsuited> {
        let event = &format.inputs[input];
        Ok(Reader { event, format: tracepoint(event)?, ids })
    };
    let (of_begin, of_end) = (reader(begin)?, reader(end)?);
    let of_event = |filter: Option<&Filter>, mut reader: Reader<'_>| {
        filter.map(|filter| filter::test(filter.node(), &mut reader)).transpose()
    };
    let selected = [of_event(filters[0], of_begin)?, of_event(filters[1], of_end)?];
    let mut tests = Vec::new();
    if let Some(Filters::OfSpan(filter)) = span.filters() {
        for node in conditions(filter.node()) {
            let (begin, end) = (vec![(begin, of_begin)], (end, of_end));
            let for_filters = ForFilters::CommAndError;
            let mut reader = SpanReader { event, format, begin, end, kept: Vec::new(), context: None, for_filters };
            let test = filter::test(node, &mut InSpan { reader: &mut reader, record: RecordOfSpan::Sample });
            // Leave out tests that need a kept value: programs that write spans have no place for kept values.
            tests.extend(test.ok().filter(|_| reader.kept.is_empty()));
        }
    }
    let read = match span.filters() {
        Some(Filters::OfSpan(filter)) => format.fields_of(filter),
        _ => Vec::new(),
    };
    let reads = |is: fn(SpanOrigin) -> bool| {
        format.fields.iter().zip(&read).any(|(field, read)| *read && field.origin.is_some_and(is))
    };
    let reads_comm = reads(|origin| matches!(origin, SpanOrigin::Comm));
    let reads_error = reads(|origin| matches!(origin, SpanOrigin::Error(_)));
    Ok(LoweredPairs { selected, min: span.spec().min, tests, reads_comm, reads_error })
}

/// Splits a filter into conditions that must all hold.
fn conditions(node: &FilterNode) -> Vec<&FilterNode> {
    match node {
        FilterNode::All(nodes) => nodes.iter().flat_map(conditions).collect(),
        node => vec![node],
    }
}
