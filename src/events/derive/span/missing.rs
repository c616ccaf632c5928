//! The spans that a loss of events dropped, and how long each of them can have lasted.
//!
//! The begin of a dropped span is known, but its end is lost. So the span ended at the latest when the loss was over. There
//! is one exception: if the next event with its key is an end, the span may have lasted until this end. A span that began
//! during the loss leaves no trace.

use perf_prof_format::spec::Nesting;
use perf_prof_system::budget::Budget;

use super::{
    key::Key,
    table::{OpenSpan, OpenSpans},
};

/// The maximum memory, in bytes, and the maximum number of dropped spans that may still be open. If there are more, all of
/// them count as ended with the loss. They do not use the budget of open spans, so a loss never leaves less memory for open
/// spans.
const BYTES: usize = 1 << 20;
const MOST: u32 = 4096;

/// The dropped spans that may still be open.
pub(super) struct Missing {
    spans: OpenSpans,
    /// When the last loss was over.
    until: u64,
}

/// A dropped span, and the latest time at which it can have ended.
pub(super) struct MissingSpan {
    pub key: Key,
    pub begin: OpenSpan<Box<[u8]>>,
    pub until: u64,
}

impl Default for Missing {
    fn default() -> Self {
        // A table of open spans takes a quarter of its budget.
        Self { spans: OpenSpans::new(MOST, Nesting::Nested, &Budget::new(4 * BYTES)), until: 0 }
    }
}

impl Missing {
    /// Adds the spans that a loss dropped. The loss was over at the time `until`. Spans that do not fit go to `ended`, as if
    /// they had ended with the loss.
    pub fn add(&mut self, mut dropped: OpenSpans, until: u64, ended: &mut Vec<MissingSpan>) {
        self.until = until;
        if self.spans.len() + dropped.len() > MOST.into() {
            self.end_all(ended);
        }
        let has_room = dropped.len() <= MOST.into();
        while let Some((key, begin)) = dropped.take_oldest_with_key() {
            let (_, without_room) = match has_room {
                true => self.spans.open(key.clone(), begin.input, &begin.record),
                false => (0, 1),
            };
            if without_room != 0 {
                ended.push(MissingSpan { key, begin, until });
            }
        }
    }

    /// Takes out the span with this key, because an end with the key came at `time`. This may be its own end, so `time` is
    /// the latest time at which it can have ended. Returns `None` if no span with the key was dropped.
    pub fn end(&mut self, key: &Key, time: u64) -> Option<MissingSpan> {
        let begin = self.spans.close(key)?;
        Some(MissingSpan { key: key.clone(), begin, until: time })
    }

    /// Adds a span that was dropped although no event was lost. If it does not fit, returns it, as if it had ended now.
    pub fn keep(&mut self, key: &Key, begin: OpenSpan<Box<[u8]>>, now: u64) -> Option<MissingSpan> {
        self.until = now;
        let has_room =
            self.spans.len() < MOST.into() && self.spans.open(key.clone(), begin.input, &begin.record).1 == 0;
        (!has_room).then(|| MissingSpan { key: key.clone(), begin, until: now })
    }

    /// Takes out the first span with this key if `is_over` returns true for it. It was over at the time `until`.
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

    /// Takes out the span with this key, because another span with the key begins. `until` is the latest time at which the
    /// old span can have ended: during a loss, the time of the new begin. `None` stands for the end of the last loss.
    pub fn begin(&mut self, key: &Key, until: Option<u64>) -> Option<MissingSpan> {
        let begin = self.spans.close(key)?;
        Some(MissingSpan { key: key.clone(), begin, until: until.unwrap_or(self.until) })
    }

    /// Takes out all spans. They ended at the time `until` at the latest.
    pub fn take_all_until(&mut self, until: u64) -> Vec<MissingSpan> {
        self.until = until;
        self.take_all()
    }

    /// Takes out all spans, because no more events come.
    pub fn take_all(&mut self) -> Vec<MissingSpan> {
        let mut ended = Vec::new();
        self.end_all(&mut ended);
        ended
    }

    fn end_all(&mut self, ended: &mut Vec<MissingSpan>) {
        let until = self.until;
        while let Some((key, begin)) = self.spans.take_oldest_with_key() {
            ended.push(MissingSpan { key, begin, until });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.len() == 0
    }
}
