//! The spans that a loss of events dropped, and how long each of them can have lasted.
//!
//! The begin of a dropped span is known, but its end is lost. Spans of one key do not overlap. So the next event with the
//! span's key shows the latest time at which the span can have ended:
//!
//! * If the event ends a span: the time of the event.
//! * If the event begins a span: the time at which the last loss before the event was over.
//! * If there is no such event: the span may still be open, so that is the end of the run. For short spans, the time at
//!   which the loss that dropped the span was over.
//!
//! A span that began during the loss leaves no trace.

use perf_prof_format::spec::Nesting;
use perf_prof_system::budget::Budget;

use super::{
    key::Key,
    table::{OpenSpan, OpenSpans},
};

/// The maximum memory, in bytes, and the maximum number of dropped spans that may still be open. If there are more dropped
/// spans, they all count as ended with the loss. Dropped spans do not use the budget of open spans, so a loss never leaves
/// less memory for open spans.
pub(super) const BYTES: usize = 1 << 20;
const MOST: u32 = 4096;

/// How long spans live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// A span may outlast a loss, and end among the events of a later loss.
    Any,
    /// Spans are short. A span of which no event comes before the next loss has ended with the loss that dropped it.
    Short,
}

/// The dropped spans that may still be open.
pub(super) struct Missing {
    spans: OpenSpans,
    lifetime: Lifetime,
    /// When the last loss was over.
    until: u64,
    /// Whether another ring was losing events when the last loss was over. The two losses then count as one loss.
    goes_on: bool,
}

/// A dropped span, and the latest time at which it can have ended.
pub(super) struct MissingSpan {
    pub key: Key,
    pub begin: OpenSpan<Box<[u8]>>,
    pub until: u64,
}

impl MissingSpan {
    /// Returns the memory of the span, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<MissingSpan>() + self.key.heap_bytes() + self.begin.record.len()
    }
}

impl Missing {
    pub fn new(lifetime: Lifetime) -> Self {
        // A table of open spans takes a quarter of its budget.
        Self {
            spans: OpenSpans::new(MOST, Nesting::Nested, &Budget::new(4 * BYTES)),
            lifetime,
            until: 0,
            goes_on: false,
        }
    }

    /// Notes that a loss was over at the time `until`, and that it dropped `dropped` spans. The caller then adds these
    /// spans with [`Missing::add`]. `goes_on` is true if another ring is still losing events. Returns the spans of earlier
    /// losses that are over.
    pub fn end_loss(&mut self, until: u64, dropped: u64, goes_on: bool) -> Vec<MissingSpan> {
        let went_on = std::mem::replace(&mut self.goes_on, goes_on);
        let mut ended = if self.lifetime == Lifetime::Short && !went_on { self.take_all() } else { Vec::new() };
        self.until = until;
        if self.spans.len() + dropped > MOST.into() {
            ended.extend(self.take_all());
        }
        ended
    }

    /// Adds a span that was dropped. If there is no room for the span, returns it, as if it had ended with the last loss.
    pub fn add(&mut self, key: Key, begin: OpenSpan<Box<[u8]>>) -> Option<MissingSpan> {
        if !self.spans.has_room_for(&key, &begin.record) {
            return Some(MissingSpan { key, begin, until: self.until });
        }
        self.spans.open(&key, begin.input, &begin.record);
        None
    }

    /// Takes out the span with this key, because an end with the key came at `time`. The end may be that of the span, so
    /// `time` is the latest time at which the span can have ended. Returns `None` if no span with the key was dropped.
    pub fn end(&mut self, key: &Key, time: u64) -> Option<MissingSpan> {
        let begin = self.spans.close(key)?;
        Some(MissingSpan { key: key.clone(), begin, until: time })
    }

    /// Adds a span that was dropped although no event was lost. If the span does not fit, returns it, as if it had ended at
    /// the time `now`.
    pub fn keep(&mut self, key: &Key, begin: OpenSpan<Box<[u8]>>, now: u64) -> Option<MissingSpan> {
        self.until = now;
        self.add(key.clone(), begin)
    }

    /// Takes out the first span with this key if `is_over` returns true for the span. `until` is the latest
    /// time at which the span can have ended.
    pub fn end_first(
        &mut self,
        key: &Key,
        is_over: impl FnOnce(&OpenSpan<&[u8]>) -> bool,
        until: u64,
    ) -> Option<MissingSpan> {
        self.spans.first(key).filter(is_over)?;
        let begin = self.spans.close_first(key)?;
        Some(MissingSpan { key: key.clone(), begin, until })
    }

    /// Takes out the span with this key, because another span with the key begins at `time`. The latest time at which the
    /// old span can have ended is `time` while events are lost, and otherwise the end of the last loss.
    pub fn begin(&mut self, key: &Key, time: u64, is_losing: bool) -> Option<MissingSpan> {
        let begin = self.spans.close(key)?;
        let until = if is_losing { time } else { time.min(self.until) };
        Some(MissingSpan { key: key.clone(), begin, until })
    }

    /// Takes out the spans at the end of the run. A span of which no event came since the loss may still be open, so it may
    /// have lasted until `end`, or until the end of the last loss if no event came after that. Short spans have ended with
    /// the last loss at the latest.
    pub fn take_rest(&mut self, end: u64) -> Vec<MissingSpan> {
        if self.lifetime == Lifetime::Any {
            self.until = end.max(self.until);
        }
        self.take_all()
    }

    /// Takes out all spans. They ended with the last loss at the latest.
    fn take_all(&mut self) -> Vec<MissingSpan> {
        let until = self.until;
        let oldest = || self.spans.take_oldest_with_key();
        std::iter::from_fn(oldest).map(|(key, begin)| MissingSpan { key, begin, until }).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.len() == 0
    }
}
