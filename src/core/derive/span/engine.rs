//! The state of a span during a run: it takes the samples that begin and end spans, and delivers the spans.

use std::sync::Arc;

use super::{Span, table::OpenSpans};
use crate::{
    derive::Derivation,
    event::{Flow, SpanCounts, SpanFormat, SpanSamples},
    record::SampleLayout,
    spec::OpenAtEnd,
};

pub(super) struct Engine {
    span: Span,
    format: Arc<SpanFormat>,
    /// The layout of the spans' records.
    layout: SampleLayout,
    open: OpenSpans,
    counts: Arc<SpanCounts>,
    /// The time of the last sample.
    last: u64,
    /// The record of the last span that was delivered. Its memory is used again.
    record: Vec<u8>,
}

impl Engine {
    pub fn new(span: Span, format: Arc<SpanFormat>, layout: SampleLayout, counts: Arc<SpanCounts>) -> Self {
        let open = OpenSpans::new(span.spec.max_open, span.spec.nesting);
        Self { span, format, layout, open, counts, last: 0, record: Vec::new() }
    }

    /// Ends the span that this sample ends.
    fn end(&mut self, input: usize, time: u64, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let Self { span, format, open, counts, .. } = self;
        let layout = |of: usize| &format.inputs[of].layout;
        let Some(key) = span.inputs[input].end.as_ref().and_then(|plan| plan.key(layout(input), record)) else {
            return Flow::Continue(());
        };
        // A sample that is delivered late may be older than the span that is open now. It belongs to an earlier one.
        let is_later = |of: usize, begin: &[u8]| layout(of).time(begin).unwrap_or(0) <= time;
        if !open.last(&key).is_some_and(|begin| is_later(begin.input, begin.record)) {
            counts.add_without_begin(1);
            return Flow::Continue(());
        }
        let Some(begin) = open.close(&key) else { return Flow::Continue(()) };
        counts.add_ended(1);
        let duration = time - layout(begin.input).time(&begin.record).unwrap_or(0);
        if duration < span.spec.min {
            return Flow::Continue(());
        }
        if let Some(filters) = &span.filters
            && let Some(filter) = &filters[begin.input * span.inputs.len() + input]
        {
            let [of_end, of_begin] = [(input, record), (begin.input, &*begin.record)]
                .map(|(of, record)| layout(of).raw(record).unwrap_or(&[]));
            if !filter.passes_span(of_end, of_begin, duration, layout(input).cpu(record)) {
                return Flow::Continue(());
            }
        }
        let samples = SpanSamples { begin: (begin.input, &begin.record), end: Some((input, record)), duration };
        format.write(&self.layout, &samples, &mut self.record);
        counts.add_delivered(1);
        emit(&self.record)
    }

    /// Opens the span that this sample begins.
    fn begin(&mut self, input: usize, record: &[u8]) {
        let layout = &self.format.inputs[input].layout;
        let key = self.span.inputs[input].begin.as_ref().and_then(|plan| plan.key(layout, record));
        let Some(key) = key else { return };
        self.counts.add_opened(1);
        let dropped = self.open.open(key, input, record);
        self.counts.add_dropped(dropped);
    }
}

impl Derivation for Engine {
    fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let Some(role) = self.span.inputs.get(input).map(|input| input.role) else { return Flow::Continue(()) };
        let time = self.format.inputs[input].layout.time(record).unwrap_or(0);
        self.last = self.last.max(time);
        let flow = if role.ends() { self.end(input, time, record, emit) } else { Flow::Continue(()) };
        if role.begins() {
            self.begin(input, record);
        }
        flow
    }

    fn lost(&mut self, _start: u64, _end: u64) {
        // Any of the spans that are open now may have ended or begun again among the lost samples. Spans that begin
        // after this call were opened after the loss.
        let dropped = self.open.clear();
        self.counts.add_dropped(dropped);
    }

    fn finish(&mut self, emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        if self.span.spec.at_end == OpenAtEnd::Counted {
            return Flow::Continue(());
        }
        // The spans stay open in the counts.
        while let Some(begin) = self.open.take_oldest() {
            let time = self.format.inputs[begin.input].layout.time(&begin.record).unwrap_or(0);
            let duration = self.last.saturating_sub(time);
            if duration < self.span.spec.min {
                continue;
            }
            let samples = SpanSamples { begin: (begin.input, &begin.record), end: None, duration };
            self.format.write(&self.layout, &samples, &mut self.record);
            self.counts.add_delivered(1);
            emit(&self.record)?;
        }
        Flow::Continue(())
    }
}
