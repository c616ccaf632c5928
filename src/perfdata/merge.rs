//! Puts the records of several streams in the order of their time. Knows nothing of files.
//!
//! Each stream says how old a record can be at the least that did not come yet. What is older than the least of these
//! bounds is complete, and is released. So order is exact where the bounds are.
//!
//! ```text
//!   stream 0   [ a  c  e ]                [ g  h ]           bound: g
//!   stream 1   [   b  d     f   i ]                 [ k ]    bound: k
//!                                      ^
//!                                      a..f are released, i waits
//! ```

use std::{collections::VecDeque, os::fd::RawFd, sync::Arc};

use super::{error::PerfDataError, stream::Stream};
use crate::record::{Chunk, Sorted, SortedRecord};

/// Records per batch: a batch should take the run loop no more than a few milliseconds.
const BATCH: usize = 4096;

/// So many records are loaded before some are released, if nobody waits for them: few, so that they are still in the CPU's
/// cache when they are looked at again.
const ROUND: usize = 1 << 10;

/// So many bytes of blocks are enough, too, however few of their records are waited for: the others keep memory as well.
const ROUND_BYTES: usize = 1 << 20;

/// Of more than so many bytes that were left over, only a part as large again is loaded: what is in memory stays near what
/// overlaps.
const MUCH: usize = 16 << 20;

/// So many bytes of the recording are read before the caller is asked whether it wants more: with records, if there are
/// some; else it may have others to attend to.
pub(super) const TURN: u64 = 8 << 20;

/// How many runs are told apart.
const PILES: usize = 64;

/// When what is complete is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// When there is much of it.
    InRounds,
    /// At once: the recording is still being made.
    AtOnce,
}

/// Merges streams.
pub(super) struct Merger {
    streams: Vec<Box<dyn Stream>>,
    release: Release,
    /// Records of the block that was loaded last.
    loaded: Vec<SortedRecord>,
    /// Records that wait.
    pending: Pending,
    /// How many of them waited, and how many bytes of blocks were in memory, when loading began after the last release.
    left_over: Option<(usize, usize)>,
    /// The blocks that waiting or released records lie in, by number, counted from `first`. Numbers are never far from
    /// each other: they count the blocks of the recording, with one of each stream in turn, [`stride`] apart.
    chunks: VecDeque<Option<Loaded>>,
    first: u32,
    /// Bytes of them.
    bytes: usize,
    /// Released records in order, from `next` on not handed out yet.
    ready: Vec<SortedRecord>,
    next: usize,
    /// Everything up to here was released.
    released: u64,
    late: u64,
}

/// A block in memory.
struct Loaded {
    chunk: Arc<Chunk>,
    /// How many of its records were not handed out yet.
    left: usize,
    /// Its place among the chunks of the batch that is made, while one is.
    place: u32,
}

/// Records that wait, in runs that are in order: what came out of one ring is, nearly. To merge a few long runs takes much
/// less than to sort what they are made of.
#[derive(Debug, Default)]
struct Pending {
    /// Each is in order.
    piles: Vec<Vec<SortedRecord>>,
    /// The pile that got the last run.
    at: usize,
    /// What fitted on none of them.
    loose: Vec<SortedRecord>,
    count: usize,
    by: Order,
}

/// How far apart the numbers of a stream's blocks are, if there are so many streams: a stream's own place among them is
/// told by the lowest bits.
pub(super) fn stride(streams: usize) -> u32 {
    u32::try_from(streams.next_power_of_two()).unwrap_or(1 << 31)
}

/// What stands before what.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// How many bits of a block's number are those of its stream.
    bits: u32,
}

impl Order {
    fn of(streams: usize) -> Order {
        Order { bits: stride(streams).trailing_zeros() }
    }

    /// Of what is simultaneous, that of the first stream comes first, and what lies first in it: however much of a stream
    /// is a block.
    #[inline]
    fn key(self, record: &SortedRecord) -> u128 {
        let place = record.chunk.rotate_right(self.bits);
        u128::from(record.time) << 64 | u128::from(place) << 32 | u128::from(record.offset)
    }
}

impl Pending {
    fn len(&self) -> usize {
        self.count
    }

    /// Takes the records of a block, as they lie in it.
    fn add(&mut self, records: &[SortedRecord]) {
        self.count += records.len();
        for run in records.chunk_by(|one, next| one.time <= next.time) {
            self.add_run(run);
        }
    }

    fn add_run(&mut self, run: &[SortedRecord]) {
        let by = self.by;
        let Some(first) = run.first().map(|first| by.key(first)) else { return };
        // The rings' turns come again in the same order, so it is mostly the next pile's.
        for step in 0..self.piles.len() {
            let at = (self.at + step) % self.piles.len();
            if self.piles[at].last().is_none_or(|last| by.key(last) < first) {
                self.piles[at].extend_from_slice(run);
                self.at = at;
                return;
            }
        }
        if self.piles.len() < PILES {
            self.at = self.piles.len();
            self.piles.push(run.to_vec());
        } else {
            self.loose.extend_from_slice(run);
        }
    }

    /// Appends what is older than the bound to `ready`, in order; gives how many those are.
    fn release(&mut self, bound: u64, ready: &mut Vec<SortedRecord>) -> usize {
        let (from, by) = (ready.len(), self.by);
        self.loose.sort_unstable_by_key(|record| by.key(record));
        for pile in self.piles.iter_mut().chain([&mut self.loose]) {
            let count = pile.partition_point(|record| record.time < bound);
            ready.extend(pile.drain(..count));
        }
        // This sort finds the runs, and merges them.
        ready[from..].sort_by_key(|record| by.key(record));
        self.count -= ready.len() - from;
        ready.len() - from
    }
}

/// No place yet.
const NOWHERE: u32 = u32::MAX;

impl Merger {
    pub fn new(streams: Vec<Box<dyn Stream>>, release: Release) -> Self {
        let pending = Pending { by: Order::of(streams.len()), ..Pending::default() };
        Self {
            streams,
            release,
            loaded: Vec::new(),
            pending,
            left_over: None,
            chunks: VecDeque::new(),
            first: 0,
            bytes: 0,
            ready: Vec::new(),
            next: 0,
            released: 0,
            late: 0,
        }
    }

    /// The next records in order; `None` at the end. [`PerfDataError::Interrupted`] where there are none yet: it goes on
    /// when it is asked again.
    pub fn next_batch(&mut self) -> Result<Option<Sorted>, PerfDataError> {
        while self.next == self.ready.len() {
            self.ready.clear();
            self.next = 0;
            if !self.fill()? {
                return Ok(None);
            }
        }
        let end = self.ready.len().min(self.next + BATCH);
        let mut records = match end - self.next == self.ready.len() {
            true => std::mem::take(&mut self.ready),
            false => self.ready[self.next..end].to_vec(),
        };
        self.next = end.min(self.ready.len());
        let mut chunks: Vec<Arc<Chunk>> = Vec::new();
        let mut used = Vec::new();
        // Records that follow each other mostly lie in the same block.
        for run in records.chunk_by_mut(|one, next| one.chunk == next.chunk) {
            let number = run[0].chunk.wrapping_sub(self.first) as usize;
            let Some(Some(loaded)) = self.chunks.get_mut(number) else { continue };
            if loaded.place == NOWHERE {
                loaded.place = chunks.len() as u32;
                chunks.push(loaded.chunk.clone());
                used.push(number);
            }
            loaded.left -= run.len();
            run.iter_mut().for_each(|record| record.chunk = loaded.place);
        }
        for number in used {
            let Some(loaded) = &mut self.chunks[number] else { continue };
            loaded.place = NOWHERE;
            if loaded.left == 0 {
                self.bytes -= loaded.chunk.bytes().len();
                self.chunks[number] = None;
            }
        }
        while let Some(None) = self.chunks.front() {
            self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Ok(Some(Sorted { chunks, first: 0, records }))
    }

    /// How many samples came when newer ones had been released: none where the bounds are exact.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How many bytes of the recording were read.
    pub fn consumed(&self) -> u64 {
        self.streams.iter().map(|stream| stream.consumed()).sum()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The eventfd that interrupts a wait for more.
    pub fn set_wake(&mut self, wake: RawFd) {
        self.streams.iter_mut().for_each(|stream| stream.set_wake(wake));
    }

    /// Loads blocks and releases what is complete by then. Gives `false` at the end.
    fn fill(&mut self) -> Result<bool, PerfDataError> {
        let (left_over, left_bytes) = *self.left_over.get_or_insert((self.pending.len(), self.bytes));
        // As many as were left over, at least: so a record is sorted again and again only as the pile grows.
        let (enough, enough_bytes) = match self.release {
            Release::InRounds => {
                let bytes = left_bytes.clamp(ROUND_BYTES, MUCH).max(left_bytes / 4);
                (left_over + left_over.max(ROUND), left_bytes + bytes)
            }
            Release::AtOnce => (left_over, left_bytes),
        };
        let turn = self.consumed() + TURN;
        let mut interrupted = false;
        let bound = loop {
            let (at, bound) = self.least()?;
            let count = self.pending.len();
            let is_enough = count >= enough || self.bytes >= enough_bytes || (interrupted && count >= 2 * left_over);
            if bound == u64::MAX || (is_enough && count > left_over) {
                break bound;
            }
            if interrupted {
                return Err(PerfDataError::Interrupted);
            }
            interrupted = self.consumed() >= turn;
            if !interrupted {
                match self.load(at) {
                    Err(PerfDataError::Interrupted) => interrupted = true,
                    result => result?,
                }
            }
        };
        self.left_over = None;
        // Not those of the bound's own time: one may come that stands before them in the file.
        let count = self.pending.release(bound, &mut self.ready);
        if let Some(last) = self.ready.last() {
            self.released = last.time;
        }
        if interrupted && count == 0 && bound != u64::MAX {
            return Err(PerfDataError::Interrupted);
        }
        Ok(bound != u64::MAX || count > 0)
    }

    /// Loads a block of a stream.
    fn load(&mut self, at: usize) -> Result<(), PerfDataError> {
        self.loaded.clear();
        let Some((number, chunk)) = self.streams[at].load(&mut self.loaded)? else { return Ok(()) };
        let new = &self.loaded[..];
        self.late += new.iter().filter(|record| record.time < self.released).count() as u64;
        self.pending.add(new);
        if !new.is_empty() {
            if self.chunks.is_empty() {
                self.first = number;
            }
            // Blocks come by their times, not by their numbers.
            for _ in number..self.first {
                self.chunks.push_front(None);
            }
            self.first = self.first.min(number);
            let at = (number - self.first) as usize;
            if self.chunks.len() <= at {
                self.chunks.resize_with(at + 1, || None);
            }
            self.bytes += chunk.bytes().len();
            let (chunk, left) = (Arc::new(chunk), new.len());
            self.chunks[at] = Some(Loaded { chunk, left, place: NOWHERE });
        }
        Ok(())
    }

    /// The stream that holds the others up, and its bound.
    fn least(&mut self) -> Result<(usize, u64), PerfDataError> {
        let mut least = (0, u64::MAX);
        for (at, stream) in self.streams.iter_mut().enumerate() {
            let bound = stream.bound()?;
            if bound < least.1 {
                least = (at, bound);
            }
        }
        Ok(least)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        perfdata::{ahead::Batches, index::BLOCK},
        record::{RECORD_HEADER, Recycle, record_size},
    };

    /// A stream of blocks that are in memory, whose bounds are exact. A record holds its time and a number.
    struct InMemory {
        blocks: Vec<(u32, Vec<(u64, u64)>)>,
        next: usize,
    }

    impl InMemory {
        fn new(number: u32, stride: u32, blocks: Vec<Vec<(u64, u64)>>) -> Self {
            let mut blocks: Vec<_> =
                blocks.into_iter().enumerate().map(|(n, block)| (number + n as u32 * stride, block)).collect();
            blocks.sort_by_key(|(_, block)| block.iter().map(|record| record.0).min());
            Self { blocks, next: 0 }
        }
    }

    impl Stream for InMemory {
        fn bound(&mut self) -> Result<u64, PerfDataError> {
            let times = |(_, block): &(u32, Vec<(u64, u64)>)| block.iter().map(|record| record.0).min().unwrap_or(0);
            Ok(self.blocks.get(self.next).map_or(u64::MAX, times))
        }

        fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
            let Some((number, block)) = self.blocks.get(self.next) else { return Ok(None) };
            self.next += 1;
            let mut bytes = Vec::new();
            for &(time, tag) in block {
                records.push(SortedRecord { time, chunk: *number, offset: bytes.len() as u32 });
                bytes.extend(9u32.to_ne_bytes());
                bytes.extend([0, 0, 24, 0]);
                bytes.extend([time, tag].iter().flat_map(|word| word.to_ne_bytes()));
            }
            Ok(Some((*number, Chunk::new(0, bytes, None))))
        }

        fn consumed(&self) -> u64 {
            0
        }
    }

    fn all(streams: Vec<Box<dyn Stream>>, release: Release) -> (Vec<(u64, u64)>, u64) {
        let mut merger = Merger::new(streams, release);
        let mut found = Vec::new();
        while let Some(sorted) = merger.next_batch().unwrap() {
            for (_, record) in sorted.in_order() {
                assert_eq!(record_size(record), RECORD_HEADER + 16);
                let word = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
                found.push((word(8), word(16)));
            }
        }
        assert_eq!(merger.bytes(), 0);
        (found, merger.late())
    }

    /// A record in each block, the rest of which nobody wants; in order. Says how many bytes of blocks are in memory.
    struct OneOfABlock {
        blocks: std::ops::Range<u32>,
        held: Arc<Held>,
    }

    #[derive(Default)]
    struct Held {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Recycle for Held {
        fn recycle(&self, memory: Vec<u8>) {
            self.now.fetch_sub(memory.len(), Relaxed);
        }
    }

    impl Stream for OneOfABlock {
        fn bound(&mut self) -> Result<u64, PerfDataError> {
            Ok(if self.blocks.is_empty() { u64::MAX } else { self.blocks.start.into() })
        }

        fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
            let Some(number) = self.blocks.next() else { return Ok(None) };
            records.push(SortedRecord { time: number.into(), chunk: number, offset: 0 });
            let now = self.held.now.fetch_add(BLOCK, Relaxed) + BLOCK;
            self.held.most.fetch_max(now, Relaxed);
            let home: Arc<dyn Recycle> = self.held.clone();
            Ok(Some((number, Chunk::new(0, vec![0; BLOCK], Some(home)))))
        }

        fn consumed(&self) -> u64 {
            u64::from(self.blocks.start) * BLOCK as u64
        }
    }

    /// A round waited for 1024 records, however much memory they kept: 128 MiB, and a thread that read ahead had four.
    #[test]
    fn few_wanted_records_in_many_blocks_filled_the_memory() {
        const BLOCKS: u32 = 1500;
        let run = |by_thread: bool| {
            let held = Arc::new(Held::default());
            let stream = OneOfABlock { blocks: 0..BLOCKS, held: held.clone() };
            let mut batches = Batches::new(Merger::new(vec![Box::new(stream)], Release::InRounds));
            if by_thread {
                batches.read_ahead();
            }
            let mut found = 0;
            loop {
                match batches.next() {
                    Ok(Some(sorted)) => found += sorted.records.len(),
                    Ok(None) => break,
                    Err(PerfDataError::Interrupted) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!((found, held.now.load(Relaxed)), (BLOCKS as usize, 0));
            held.most.load(Relaxed)
        };
        assert!(run(false) <= 2 * ROUND_BYTES);
        // One that is being made, two that wait, and one that is read.
        assert!(run(true) <= 4 * 2 * ROUND_BYTES);
    }

    #[test]
    fn more_runs_than_are_told_apart() {
        let blocks = (0..5).map(|_| (0..10 * PILES as u64).rev().map(|time| (time, 0)).collect()).collect();
        let (found, late) = all(vec![Box::new(InMemory::new(0, 1, blocks))], Release::InRounds);
        assert!(found.is_sorted());
        assert_eq!((found.len(), late), (50 * PILES, 0));
    }

    proptest! {
        #[test]
        fn any_disorder_is_put_in_order_and_the_simultaneous_stay_as_they_are(
            streams in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(0u64..50, 0..20), 0..8), 0..4),
            at_once: bool,
        ) {
            let mut tag = 0;
            let stride = stride(streams.len());
            let mut expected = Vec::new();
            let mut boxed: Vec<Box<dyn Stream>> = Vec::new();
            for (number, blocks) in (0..).zip(streams) {
                let mut tagged = Vec::new();
                for block in blocks {
                    let records: Vec<_> = block.into_iter().map(|time| { tag += 1; (time, tag) }).collect();
                    expected.extend(records.iter().copied());
                    tagged.push(records);
                }
                boxed.push(Box::new(InMemory::new(number, stride, tagged)));
            }
            expected.sort_by_key(|record| record.0);
            let release = if at_once { Release::AtOnce } else { Release::InRounds };
            let (found, late) = all(boxed, release);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(late, 0);
        }
    }
}
