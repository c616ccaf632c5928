//! The end of a run: spans that have not ended.

use perf_prof_format::spec::OpenAtEnd;

use super::Engine;
use crate::event::{Flow, Incomplete, SpanSamples};

impl Engine {
    /// Counts what is missing at the end of the run, and delivers the spans that have not ended, or counts them.
    pub(super) fn end_run(&mut self, emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let end = self.end.max(self.last);
        if self.lossy_rings != 0 {
            // The ends of open spans may be missing.
            self.drop_open(end);
        }
        self.count_last_unended();
        let dropped = self.missing.take_rest(end);
        self.count_missing(dropped);
        let waits = self.missing_waits.take_rest(end);
        self.count_missing(waits);
        *self.counts.overdue() = Incomplete::default();
        self.count_overdue();
        if self.span.spec.at_end == OpenAtEnd::Delivered {
            let counts = self.counts.clone();
            return self.deliver_open(end, &mut |record| {
                counts.add_unfinished(1);
                emit(record)
            });
        }
        if self.span.definition.is_some_and(|definition| definition.outlasting.is_some()) {
            let mut number = 0;
            let count = &mut |_: &[u8]| {
                number += 1;
                Flow::Continue(())
            };
            let flow = self.deliver_open(end, count);
            self.not_ended = Some(number);
            return flow;
        }
        Flow::Continue(())
    }

    /// Delivers the open spans, which last until `end`. They still count as open.
    fn deliver_open(&mut self, end: u64, emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        while let Some((key, begin)) = self.open.take_oldest_with_key() {
            let key = key.numbers();
            let (begin_record, notes) = begin.split();
            let time = self.format.inputs[begin.input].layout.time(begin_record).unwrap_or(0);
            let duration = end.saturating_sub(time);
            if duration < self.span.spec.min {
                continue;
            }
            let begin = (begin.input, begin_record);
            self.deliver(&SpanSamples { begin, end: None, notes, key, duration, ran: None }, emit)?;
        }
        Flow::Continue(())
    }
}
