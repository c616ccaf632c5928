//! The copies and records that wait to be written into a dump. Their order lets readers sort them in bounded memory.
//!
//! Copies of the rings may have to wait while newer copies are made. Records that are not in the rings (records about
//! tasks, triggers) wait together with the copies. So the end of a round (PERF_RECORD_FINISHED_ROUND) keeps its
//! guarantee: no record after it is older than a record before the previous end of a round.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use perf_prof_capture::CopiedRing;

/// The usual maximum time from the timestamp of a record to its arrival, for records that are not in the rings. For
/// example, a trigger is delivered later than it happened.
pub const LATEST: Duration = Duration::from_secs(5);

/// The waiting pieces of a dump. `C` is the type of a ring's copy.
#[derive(Debug)]
pub struct Pieces<C> {
    waiting: VecDeque<Piece<C>>,
    /// Records that arrived since the last copies. They are not in the rings.
    beside: Vec<u8>,
    /// The memory of `waiting`, in bytes.
    memory: usize,
    /// When the copies before the last end of a round were made.
    marked: Option<Instant>,
}

/// The copies of one moment, and the records that wait with them.
#[derive(Debug)]
struct Piece<C> {
    beside: Vec<u8>,
    copies: Vec<C>,
    which: Copies,
    taken: Instant,
}

/// The piece that is written next.
#[derive(Debug)]
pub struct Part<C> {
    /// The records that were not in the rings.
    pub beside: Vec<u8>,
    /// The copies of rings.
    pub copies: Vec<C>,
    /// Whether these are the first copies of the dump.
    pub which: Copies,
    /// What is written after this piece.
    pub end: PartEnd,
}

/// What is written after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartEnd {
    /// Nothing.
    Open,
    /// The end of a round.
    Mark,
}

/// Whether copies are the first copies of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The first copies. The kernel may have overwritten the rings many times before.
    First,
    /// Later copies, which continue the copies before them.
    Later,
}

impl<C> Default for Pieces<C> {
    fn default() -> Pieces<C> {
        Pieces { waiting: VecDeque::new(), beside: Vec::new(), memory: 0, marked: None }
    }
}

/// A copy that waits in memory.
pub trait Waiting {
    /// Returns how much memory the copy takes, in bytes.
    fn memory(&self) -> usize;
}

impl Waiting for CopiedRing {
    fn memory(&self) -> usize {
        CopiedRing::memory(self)
    }
}

impl<C: Waiting> Piece<C> {
    fn memory(&self) -> usize {
        self.beside.capacity() + self.copies.iter().map(C::memory).sum::<usize>()
    }
}

impl<C: Waiting> Pieces<C> {
    /// Adds records that are not in the rings. They are written with the next copies.
    pub fn add(&mut self, records: &[u8]) {
        self.beside.extend(records);
    }

    /// Adds copies that were made at the time `taken`.
    pub fn take(&mut self, copies: Vec<C>, which: Copies, taken: Instant) {
        let beside = std::mem::take(&mut self.beside);
        let piece = Piece { beside, copies, which, taken };
        self.memory += piece.memory();
        self.waiting.push_back(piece);
    }

    /// Returns how much memory the waiting pieces take, in bytes. The result is at least 1 if anything waits.
    pub fn memory(&self) -> usize {
        self.memory.max(self.waiting.len())
    }

    /// Removes and returns the piece that is to be written next.
    pub fn next(&mut self) -> Option<Part<C>> {
        let piece = self.waiting.pop_front()?;
        self.memory -= piece.memory();
        let Piece { beside, copies, which, taken } = piece;
        let mut end = PartEnd::Open;
        if self.marked.is_none_or(|marked| taken >= marked + LATEST) {
            (self.marked, end) = (Some(taken), PartEnd::Mark);
        }
        Some(Part { beside, copies, which, end })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The times of the samples in a copy of a ring, in milliseconds.
    struct Times(Vec<u8>);

    impl Waiting for Times {
        fn memory(&self) -> usize {
            self.0.capacity()
        }
    }

    fn bytes(times: impl Iterator<Item = u16>) -> Vec<u8> {
        times.flat_map(u16::to_ne_bytes).collect()
    }

    fn times(bytes: &[u8]) -> impl Iterator<Item = u16> {
        bytes.chunks_exact(2).map(|time| u16::from_ne_bytes([time[0], time[1]]))
    }

    /// Something that happens in a dump.
    #[derive(Clone, Debug)]
    enum Step {
        /// Time passes, in milliseconds.
        Pass(u16),
        /// A record comes this many milliseconds after its timestamp.
        Late(u16),
        /// The rings are copied.
        Copy,
        /// A piece is written.
        Write,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u16..900).prop_map(Step::Pass),
            (0u16..5000).prop_map(Step::Late),
            Just(Step::Copy),
            Just(Step::Write),
        ];
        prop::collection::vec(step, 0..90)
    }

    /// A copy of which a part was overwritten has more memory than records.
    #[test]
    fn what_waits_counts_with_all_of_its_memory() {
        let (mut pieces, mut copy) = (Pieces::default(), Vec::with_capacity(1 << 20));
        copy.extend([1, 2]);
        pieces.take(vec![Times(copy)], Copies::First, Instant::now());
        assert!(pieces.memory() >= 1 << 20, "{}", pieces.memory());
        assert!(pieces.next().is_some() && pieces.memory() == 0);
    }

    proptest! {
        /// However late the pieces are written, no record after the end of a round is older than a record before the
        /// previous end of a round. No record is lost.
        #[test]
        fn marks_keep_their_promise(steps in steps()) {
            let (start, mut pieces) = (Instant::now(), Pieces::default());
            let (mut now, mut copied, mut added, mut written) = (6000u16, 1000, 0, Vec::new());
            let (mut newest, mut bounds) = (0, [0, 0]);
            let ends = [Step::Copy, Step::Write, Step::Write].into_iter().chain((0..200).map(|_| Step::Write));
            for step in steps.into_iter().chain(ends) {
                match step {
                    Step::Pass(millis) => now = now.saturating_add(millis).min(60_000),
                    Step::Late(late) => {
                        pieces.add(&bytes([now - late].into_iter()));
                        added += 1;
                    }
                    Step::Copy => {
                        let samples: Vec<u16> = (copied..now).step_by(100).collect();
                        added += 2 * samples.len();
                        let copies = vec![Times(bytes(samples.iter().copied())), Times(bytes(samples.into_iter()))];
                        let which = if copied == 1000 { Copies::First } else { Copies::Later };
                        pieces.take(copies, which, start + Duration::from_millis(now.into()));
                        copied = now;
                    }
                    Step::Write => {
                        let Some(part) = pieces.next() else { continue };
                        let of_copies = part.copies.iter().flat_map(|copied| times(&copied.0));
                        for time in times(&part.beside).chain(of_copies) {
                            prop_assert!(time >= bounds[1], "{time} after a mark that promised {}", bounds[1]);
                            newest = newest.max(time);
                            written.push(time);
                        }
                        if part.end == PartEnd::Mark {
                            bounds = [newest, bounds[0]];
                        }
                    }
                }
            }
            prop_assert_eq!((written.len(), pieces.memory()), (added, 0));
        }
    }
}
