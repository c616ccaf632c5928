//! The filter of an aggregator, `where=`, compiled for one event type.

use perf_prof_format::tracefs::{Filter, FilterError};

use super::plan::{PlanError, similar};
use crate::event::{EventType, Format, Sample, SpanFormat, SpanPart};

/// A filter for the samples of one event type.
#[derive(Clone, Debug)]
pub enum PlanFilter {
    /// The filter uses fields of the event itself.
    OfEvent(Filter),
    /// The filter uses fields of the events that begin and end a span. The span has several input event types: the
    /// filter for the pair (`begin`, `end`) is at index `begin * inputs + end`. It is `None` if the pair lacks a field
    /// of the filter.
    OfPairs(Vec<Option<Filter>>),
}

impl PlanFilter {
    pub(super) fn new(text: &str, event: &EventType) -> Result<PlanFilter, PlanError> {
        let Some(format) = event.format.tracepoint() else {
            return Err(PlanError::NoFields { text: text.to_owned(), event: event.shown_name() });
        };
        let found = match (Filter::parse(text, format), &event.format) {
            (Err(FilterError::Field { .. }), Format::Span(span)) => of_pairs(text, span).map(PlanFilter::OfPairs),
            (found, _) => found.map(PlanFilter::OfEvent),
        };
        found.map_err(|error| {
            let similar = match &error {
                FilterError::Field { field } => similar(field, event),
                _ => Vec::new(),
            };
            PlanError::Filter { text: text.to_owned(), error, similar }
        })
    }

    #[inline]
    pub(super) fn passes(&self, sample: &Sample<'_>) -> bool {
        match self {
            PlanFilter::OfEvent(filter) => filter.passes(sample.raw(), sample.event.layout.cpu(sample.record)),
            PlanFilter::OfPairs(filters) => passes_pair(filters, sample).unwrap_or(false),
        }
    }
}

/// Compiles a filter for each pair of a begin event type and an end event type. Fails if the filter fits no pair.
fn of_pairs(text: &str, span: &SpanFormat) -> Result<Vec<Option<Filter>>, FilterError> {
    let formats = || span.inputs.iter().filter_map(|input| input.format.tracepoint());
    let pairs = formats().flat_map(|begin| formats().map(move |end| (begin, end)));
    let found: Vec<Result<Filter, FilterError>> =
        pairs.map(|(begin, end)| Filter::parse_for_span_record(text, &span.format, end, begin)).collect();
    if found.iter().any(Result::is_ok) {
        return Ok(found.into_iter().map(Result::ok).collect());
    }
    // Prefer any other error to "no such field". A missing field may be missing only from a pair that never forms a
    // span.
    let errors = found.into_iter().filter_map(Result::err);
    let unknown = FilterError::Field { field: text.to_owned() };
    Err(errors.max_by_key(|error| !matches!(error, FilterError::Field { .. })).unwrap_or(unknown))
}

/// Returns whether a span passes the filter for its begin and end events. An open span has no end event, so comparisons
/// with fields of the end are false.
fn passes_pair(filters: &[Option<Filter>], sample: &Sample<'_>) -> Option<bool> {
    let Format::Span(span) = &sample.event.format else { return None };
    let (begin, _) = span.part(SpanPart::Begin, sample.raw())?;
    let of_begin = filters.get(begin * span.inputs.len()..)?.get(..span.inputs.len())?;
    let filter = match span.part(SpanPart::End, sample.raw()) {
        Some((end, _)) => of_begin.get(end)?,
        None => of_begin.iter().find(|filter| filter.is_some())?,
    };
    let raw = |part| span.sample(part, sample.raw()).map_or(&[][..], |sample| sample.raw());
    let cpu = sample.event.layout.cpu(sample.record);
    Some(filter.as_ref()?.passes_span_record(sample.raw(), raw(SpanPart::End), raw(SpanPart::Begin), cpu))
}
