//! Open spans that should have ended: they are open for much longer than others were, or their task waited for their end and has
//! exited.

use super::Engine;
use crate::{
    derive::span::{key::Key, overdue::Open, table::OpenSpan},
    event::{Incomplete, SpanSamples},
};

impl Engine {
    /// Tells which open spans should have ended long before `now`. While a ring loses events, the loss explains them.
    pub(super) fn tell_overdue(&self, now: u64) {
        let mut told = Incomplete::default();
        if let Some(overdue) = self.overdue.as_ref().filter(|_| self.lossy_rings == 0) {
            let is_told = |begin: &OpenSpan<&[u8]>| overdue.is_told(now.saturating_sub(self.time_of(begin)));
            let spans = self.open.iter().filter(|(_, begin)| is_told(begin));
            let tasks = spans.filter_map(|(key, begin)| self.lacking_task(key.numbers(), &begin, now));
            tasks.for_each(|task| told.add(task, now));
        }
        *self.counts.overdue() = told;
    }

    /// Counts spans that are open at the end of the run, but should have ended.
    pub(super) fn count_overdue(&self) {
        let Some(overdue) = self.overdue.as_ref().filter(|_| self.lossy_rings == 0) else { return };
        let until = self.end.max(self.last);
        let open = |begin: &OpenSpan<&[u8]>| {
            let (record, notes) = begin.split();
            let begin_sample = (begin.input, record);
            let samples = SpanSamples { begin: begin_sample, end: None, notes, key: [0; 2], duration: 0, ran: None };
            Open { kind: self.kind(&samples), age: until.saturating_sub(self.time_of(begin)) }
        };
        let is_overdue = overdue.at_end(self.open.iter().map(|(_, begin)| open(&begin)));
        let is_missing =
            |key: &Key, begin: &OpenSpan<&[u8]>| is_overdue(open(begin)) || self.waiter_has_exited(key, begin);
        for (key, begin) in self.open.iter().filter(|(key, begin)| is_missing(key, begin)) {
            self.counts.add_unended(1);
            self.add_gap_of(key.numbers(), &begin, until);
        }
    }

    /// Returns the kind of a span, whose spans last about equally long.
    pub(super) fn kind(&self, samples: &SpanSamples<'_>) -> u64 {
        let kind = self.span.definition.and_then(|definition| definition.ends_soon);
        kind.map_or(0, |kind| kind(&self.format.view(samples, None)))
    }

    /// Notes when a task exited, if the source's tasks wait for their spans.
    pub(super) fn note_exit_of_waiter(&mut self, tid: i32, time: u64) {
        if self.span.definition.is_some_and(|definition| definition.is_awaited.is_some())
            && let Some(overdue) = &mut self.overdue
        {
            overdue.exited(tid, time);
        }
    }

    /// Returns whether the task of an open span waited for its end and has exited.
    fn waiter_has_exited(&self, key: &Key, begin: &OpenSpan<&[u8]>) -> bool {
        let is_awaited = self.span.definition.and_then(|definition| definition.is_awaited);
        let (Some(is_awaited), Some(overdue)) = (is_awaited, &self.overdue) else { return false };
        let (record, notes) = begin.split();
        let begin_sample = (begin.input, record);
        let samples = SpanSamples { begin: begin_sample, end: None, notes, key: key.numbers(), duration: 0, ran: None };
        let exit = overdue.exit_of(self.format.thread(&samples));
        exit.is_some_and(|exit| self.time_of(begin) <= exit) && is_awaited(&self.format.view(&samples, None))
    }
}
