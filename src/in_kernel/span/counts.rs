//! The counters of the programs of spans.

use crate::table::Counters;

/// The counters of the programs of spans. They are in the words after [`Counters`]. `opened` is the sum of `ended`, `dropped`
/// and the number of open spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounters {
    /// The spans that began.
    pub opened: u64,
    /// The spans that ended, whether they were added to the table or not.
    pub ended: u64,
    /// The spans that were dropped: their key began again, there was no room, or events were lost.
    pub dropped: u64,
    /// The dropped spans whose key began again, if that means that an end is missing.
    pub replaced: u64,
    /// The ends without a begin.
    pub without_begin: u64,
    /// The dropped spans for which there was no room.
    pub without_room: u64,
    /// The dropped spans that were open during a loss.
    pub lost: u64,
}

impl SpanCounters {
    /// The number of these counters. The word after them is the generation. When it changes, all spans that are open then are
    /// dropped at their end. A witness changes it when a program has missed an event.
    pub const WORDS: usize = 7;
    const FIRST: i16 = 8 * Counters::WORDS as i16;
    pub(super) const OPENED: i16 = SpanCounters::FIRST;
    pub(super) const ENDED: i16 = SpanCounters::FIRST + 8;
    pub(super) const DROPPED: i16 = SpanCounters::FIRST + 16;
    pub(super) const REPLACED: i16 = SpanCounters::FIRST + 24;
    pub(super) const WITHOUT_BEGIN: i16 = SpanCounters::FIRST + 32;
    pub(super) const WITHOUT_ROOM: i16 = SpanCounters::FIRST + 40;
    pub(super) const LOST: i16 = SpanCounters::FIRST + 48;
    pub(super) const GENERATION: i16 = SpanCounters::FIRST + 56;
    /// The word after the generation: the number of events that the programs missed.
    pub(super) const MISSED: i16 = SpanCounters::FIRST + 64;
    /// The number of events that must be missing although no witness noticed a miss: see [`super::chain`].
    pub(super) const UNSEEN: i16 = SpanCounters::FIRST + 72;
    /// The number of calls that ended while their event was off. Their begins were counted, but they belong to no run.
    pub(super) const OFF: i16 = SpanCounters::FIRST + 80;
    /// The index of the word with the generation among all words.
    pub const GENERATION_WORD: usize = Counters::WORDS + SpanCounters::WORDS;
    /// The index of the word with the number of events that the programs missed.
    pub const MISSED_WORD: usize = SpanCounters::GENERATION_WORD + 1;
    /// The index of the word with the number of events that no tracepoint reported.
    pub const UNSEEN_WORD: usize = SpanCounters::MISSED_WORD + 1;
    /// The index of the word with the number of calls that ended while their event was off.
    pub const OFF_WORD: usize = SpanCounters::UNSEEN_WORD + 1;
    /// The number of all words, including those of [`Counters`].
    pub const ALL_WORDS: usize = SpanCounters::OFF_WORD + 1;
}

impl SpanCounters {
    /// Returns the counts since `before`.
    pub fn since(self, before: SpanCounters) -> SpanCounters {
        let difference = |now: u64, before: u64| now.wrapping_sub(before);
        SpanCounters {
            opened: difference(self.opened, before.opened),
            ended: difference(self.ended, before.ended),
            dropped: difference(self.dropped, before.dropped),
            replaced: difference(self.replaced, before.replaced),
            without_begin: difference(self.without_begin, before.without_begin),
            without_room: difference(self.without_room, before.without_room),
            lost: difference(self.lost, before.lost),
        }
    }
}

impl From<[u64; SpanCounters::WORDS]> for SpanCounters {
    fn from(words: [u64; SpanCounters::WORDS]) -> SpanCounters {
        let [opened, ended, dropped, replaced, without_begin, without_room, lost] = words;
        SpanCounters { opened, ended, dropped, replaced, without_begin, without_room, lost }
    }
}
