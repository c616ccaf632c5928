//! Spans whose begins were not seen, such as those from before the run: what other events tell about them.

use super::{Engine, Output};
use crate::{
    derive::{
        source::BegunBefore,
        span::{Keep, key::Key},
    },
    event::{SpanFieldAt, SpanSamples},
};

impl Engine {
    /// Keeps a sample with the open span that has this key.
    pub(super) fn note(&mut self, key: &Key, of: (usize, usize), record: &[u8], keep: Keep) {
        match self.span.definition.and_then(|of| of.begun_before) {
            Some(unseen) if !self.open.is_open(key) => self.count_event_before(&unseen, key, (of.0, record)),
            _ => {
                let dropped = self.open.note(key, of, record, keep);
                self.drop_without_room(dropped);
            }
        }
    }

    /// Counts a sample of a span whose begin was not seen, if the source tells the number of such samples.
    #[cold]
    fn count_event_before(&mut self, unseen: &BegunBefore, key: &Key, sample: (usize, &[u8])) {
        let samples = SpanSamples { begin: sample, end: None, notes: &[], key: key.numbers(), duration: 0, ran: None };
        let is_counted = self.format.view(&samples, None).begin().is(unseen.counted);
        if !is_counted || !self.may_be_selected(unseen, &samples) {
            return;
        }
        self.counts.add_begun_before_events(1);
        if self.unseen.len() < self.span.spec.max_open as usize && self.unseen.insert(key.hash()) {
            self.counts.add_begun_before_open(1);
        }
    }

    /// Counts the end of a span that began before the run, or before the recording, if the source's ends show that.
    pub(super) fn count_begun_before(&mut self, key: &Key, time: u64, end: (usize, &[u8])) {
        let Some(unseen) = self.span.definition.and_then(|of| of.begun_before) else { return };
        let duration = self.context.recorded_since().map_or(0, |since| time.saturating_sub(since));
        let samples = SpanSamples { begin: end, end: Some(end), notes: &[], key: key.numbers(), duration, ran: None };
        let are_begins_seen = !self.has_lost && self.counts.without_room() == 0;
        let is_certain = are_begins_seen && (unseen.is_end)(&self.format.view(&samples, None));
        if is_certain && self.may_be_selected(&unseen, &samples) {
            self.counts.add_begun_before(1);
            self.counts.add_time_before(duration);
        }
    }

    /// Returns whether the user may have selected the span of this sample. Without a begin, the task of the span and some of
    /// its fields may not be known.
    fn may_be_selected(&self, unseen: &BegunBefore, samples: &SpanSamples<'_>) -> bool {
        let is_known = |offset| match self.format.field_at(offset) {
            Some(SpanFieldAt::Field(at)) => {
                self.format.fields.get(at).is_some_and(|field| unseen.known.contains(&&*field.name))
            }
            _ => false,
        };
        self.output == Output::Delivered
            && (self.format.lacks_task(samples) || self.selects_task(samples))
            && self.may_pass(samples, &is_known)
    }
}
