//! The counters of the programs of spans.

use crate::table::Counters;

/// The counters of the programs of spans, in the words after [`Counters`]. `opened` is the sum of `ended`, `dropped` and the
/// spans that are still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounters {
    /// The spans that were opened.
    pub opened: u64,
    /// The spans that ended, added to the table or not.
    pub ended: u64,
    /// The spans that were dropped: their key began again, the hash was full, or events were lost.
    pub dropped: u64,
    /// The spans that were dropped because their key began again, if this shows that an end is missing.
    pub replaced: u64,
    /// The ends without a begin.
    pub without_begin: u64,
    /// The spans that were dropped because the hash was full.
    pub without_room: u64,
    /// The spans that were dropped because events were lost.
    pub lost: u64,
}

impl SpanCounters {
    /// The number of these counters. The next word is the generation. If the generation changes, all spans that are open at
    /// this time are dropped when they end. A witness changes the generation when a program has missed an event.
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
    /// How many events the programs missed: the word after the generation.
    pub(super) const MISSED: i16 = SpanCounters::FIRST + 64;
    /// How many events must be missing although no witness noticed: see [`super::chain`].
    pub(super) const UNSEEN: i16 = SpanCounters::FIRST + 72;
    /// How many calls ended while their event was disabled. Their begins were counted, but the calls do not belong to the
    /// run.
    pub(super) const OFF: i16 = SpanCounters::FIRST + 80;
    /// The index of the generation among all words.
    pub const GENERATION_WORD: usize = Counters::WORDS + SpanCounters::WORDS;
    /// The index of the number of events that the programs missed.
    pub const MISSED_WORD: usize = SpanCounters::GENERATION_WORD + 1;
    /// The index of the number of events that no tracepoint reported.
    pub const UNSEEN_WORD: usize = SpanCounters::MISSED_WORD + 1;
    /// The index of the number of calls that ended while their event was disabled.
    pub const OFF_WORD: usize = SpanCounters::UNSEEN_WORD + 1;
    /// The number of all words, with those of [`Counters`].
    pub const ALL_WORDS: usize = SpanCounters::OFF_WORD + 1;
}

impl SpanCounters {
    /// Returns what was counted since `before`.
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
