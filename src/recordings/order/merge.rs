//! Merges the records of several streams in time order. Knows nothing of files.
//!
//! Each stream has a bound: the earliest time that its unloaded records can have. All records that are older than the
//! lowest bound of all streams are already in memory. These records are sorted and released. The order is exact if the
//! bounds are exact.
//!
//! ```text
//!   stream 0   [ a  c  e ]                [ g  h ]           bound: g
//!   stream 1   [   b  d     f   i ]                 [ k ]    bound: k
//!                                      ^
//!                                      a..f are released, i waits
//! ```

use std::{collections::VecDeque, os::fd::RawFd, sync::Arc};

use perf_prof_format::record::{Chunk, Sorted, SortedRecord};

use super::block_stream::Stream;
use crate::{error::PerfDataError, limits::MemoryLimit};

/// The maximum number of records in a batch. The run loop should need no more than a few milliseconds for a batch.
const BATCH: usize = 4096;

/// The number of records that are loaded before records are released, unless the consumer waits for each record. The
/// number is small, so that the records are still in the CPU's cache when the consumer uses them.
const ROUND: usize = 1 << 10;

/// The number of bytes of blocks that are loaded before records are released, even if fewer than [`ROUND`] records are
/// selected. The limit is necessary because records that are not selected use memory too.
const ROUND_BYTES: usize = 1 << 20;

/// The maximum size, in bytes, of the blocks that are loaded between two releases. Up to this maximum, the merger loads
/// as many bytes as remained in memory after the last release. But if a quarter of the remaining bytes is more than the
/// maximum, the merger loads a quarter of the remaining bytes. So the memory use stays close to the size of the blocks
/// that overlap in time.
const LARGE_LEFT_OVER: usize = 16 << 20;

/// The number of bytes of the recording that are read before control returns to the caller. If there are records by
/// then, the caller gets them. If there are none, the caller can do other work.
pub(crate) const BYTES_PER_CALL: u64 = 8 << 20;

/// The maximum number of sorted piles (see [`Pending`]).
const PILES: usize = 64;

/// The memory that a pending record takes in addition to its block, in bytes: an entry in a pile, an entry in the list
/// of released records, and space for sorting this list. A pile may have space for twice as many entries as it has.
const INDEX_PER_RECORD: usize = 3 * size_of::<SortedRecord>();

/// The minimum memory that is counted for a block, in bytes. Even a block with one short record takes a page.
const SMALLEST_BLOCK: usize = 4096;

/// Determines when records are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseTime {
    /// When enough records were loaded (see [`ROUND`]).
    InRounds,
    /// Immediately, because the recording is still being made.
    AtOnce,
}

/// Merges the records of several streams.
pub(crate) struct Merger {
    streams: Vec<Box<dyn Stream>>,
    release: ReleaseTime,
    limit: MemoryLimit,
    /// The selected records of the block that was loaded last.
    loaded: Vec<SortedRecord>,
    /// Records that are not released yet.
    pending: Pending,
    /// The number of pending records, and the bytes of blocks in memory, when loading started after the last release.
    /// `None` if loading has not started since then.
    left_over: Option<(usize, usize)>,
    /// The blocks with records that were not delivered yet. The element at index 0 is the block with the number
    /// `first`. The numbers of consecutive blocks of a stream differ by [`stride`]. The numbers of all streams
    /// alternate, so the numbers of the blocks in memory are never far apart.
    chunks: VecDeque<Option<Loaded>>,
    first: u32,
    /// The number of bytes of the blocks in `chunks`, and the number of these blocks.
    bytes: usize,
    blocks: usize,
    /// Released records in time order. The records from index `next` on were not delivered yet.
    ready: Vec<SortedRecord>,
    next: usize,
    /// The time of the last released record.
    released: u64,
    late: u64,
}

/// A block in memory.
struct Loaded {
    chunk: Arc<Chunk>,
    /// The number of the block's selected records that were not delivered yet.
    left: usize,
    /// The index of the block's chunk in the batch that is being made. [`NOT_IN_BATCH`] if the chunk is not in this
    /// batch.
    place: u32,
}

/// Pending records in sorted piles. The records of a ring are nearly sorted, so the piles are few and long. Merging the
/// piles takes much less time than sorting all records.
#[derive(Debug, Default)]
struct Pending {
    /// The piles. Each pile is sorted.
    piles: Vec<Vec<SortedRecord>>,
    /// The index of the pile that the last run of records was appended to.
    at: usize,
    /// Records that could not be appended to any pile, in any order.
    loose: Vec<SortedRecord>,
    count: usize,
    by: SortOrder,
}

/// Returns the difference between the numbers of two consecutive blocks of a stream. The difference is a power of two,
/// so the lowest bits of a block's number contain the index of the stream.
pub(crate) fn stride(streams: usize) -> u32 {
    u32::try_from(streams.next_power_of_two()).unwrap_or(1 << 31)
}

/// The sort order of records.
#[derive(Clone, Copy, Debug, Default)]
struct SortOrder {
    /// How many of the lowest bits of a block's number contain the index of the stream.
    bits: u32,
}

impl SortOrder {
    fn for_streams(streams: usize) -> SortOrder {
        SortOrder { bits: stride(streams).trailing_zeros() }
    }

    /// Returns the sort key of a record. Records of the same time are sorted by stream, then by their position in the
    /// stream. So the order does not depend on the size of blocks.
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

    /// Adds the selected records of a block, in the order of the block.
    fn add(&mut self, records: &[SortedRecord]) {
        self.count += records.len();
        for run in records.chunk_by(|one, next| one.time <= next.time) {
            self.add_run(run);
        }
    }

    fn add_run(&mut self, run: &[SortedRecord]) {
        let by = self.by;
        let Some(first) = run.first().map(|first| by.key(first)) else { return };
        // The blocks of the rings come in the same order again and again. So the run usually fits at the end of the
        // pile that was used last, or at the end of the pile after it.
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

    /// Appends the records that are older than `bound` to `ready`, in time order. Returns the number of these records.
    fn release(&mut self, bound: u64, ready: &mut Vec<SortedRecord>) -> usize {
        let (from, by) = (ready.len(), self.by);
        self.loose.sort_unstable_by_key(|record| by.key(record));
        for pile in self.piles.iter_mut().chain([&mut self.loose]) {
            let count = pile.partition_point(|record| record.time < bound);
            ready.extend(pile.drain(..count));
        }
        // This sort detects the sorted piles and merges them.
        ready[from..].sort_by_key(|record| by.key(record));
        self.count -= ready.len() - from;
        ready.len() - from
    }
}

/// The value of [`Loaded::place`] if the block's chunk is not in the current batch.
const NOT_IN_BATCH: u32 = u32::MAX;

impl Merger {
    /// Creates a merger of these streams. `limit` is the maximum memory of the records that are in memory at the same
    /// time.
    pub fn new(streams: Vec<Box<dyn Stream>>, release: ReleaseTime, limit: MemoryLimit) -> Self {
        let pending = Pending { by: SortOrder::for_streams(streams.len()), ..Pending::default() };
        Self {
            streams,
            release,
            limit,
            loaded: Vec::new(),
            pending,
            left_over: None,
            chunks: VecDeque::new(),
            first: 0,
            bytes: 0,
            blocks: 0,
            ready: Vec::new(),
            next: 0,
            released: 0,
            late: 0,
        }
    }

    /// Returns the next records in order; `None` at the end. Returns [`PerfDataError::Interrupted`] if no records are
    /// ready yet; the next call continues.
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
        // Consecutive records are mostly in the same block.
        for run in records.chunk_by_mut(|one, next| one.chunk == next.chunk) {
            let number = run[0].chunk.wrapping_sub(self.first) as usize;
            let Some(Some(loaded)) = self.chunks.get_mut(number) else { continue };
            if loaded.place == NOT_IN_BATCH {
                loaded.place = chunks.len() as u32;
                chunks.push(loaded.chunk.clone());
                used.push(number);
            }
            loaded.left -= run.len();
            run.iter_mut().for_each(|record| record.chunk = loaded.place);
        }
        for number in used {
            let Some(loaded) = &mut self.chunks[number] else { continue };
            loaded.place = NOT_IN_BATCH;
            if loaded.left == 0 {
                self.bytes -= loaded.chunk.bytes().len();
                self.blocks -= 1;
                self.chunks[number] = None;
            }
        }
        while let Some(None) = self.chunks.front() {
            self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Ok(Some(Sorted { chunks, first: 0, records }))
    }

    /// Returns how many records were loaded after newer records had been released. This number is 0 if the bounds are
    /// exact.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns how many bytes of the recording were read.
    pub fn consumed(&self) -> u64 {
        self.streams.iter().map(|stream| stream.consumed()).sum()
    }

    /// Returns how many bytes of blocks are in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the eventfd that interrupts a wait for more data.
    pub fn set_wake(&mut self, wake: RawFd) {
        self.streams.iter_mut().for_each(|stream| stream.set_wake(wake));
    }

    /// Loads blocks, then releases the records that are older than all unloaded records. Returns `false` at the end.
    fn fill(&mut self) -> Result<bool, PerfDataError> {
        let (left_over, left_bytes) = *self.left_over.get_or_insert((self.pending.len(), self.bytes));
        // The next release sorts the remaining records again. So the release waits until there are at least as many new
        // records as remaining records, unless the new records use much memory.
        let (enough, enough_bytes) = match self.release {
            ReleaseTime::InRounds => {
                let bytes = left_bytes.clamp(ROUND_BYTES, LARGE_LEFT_OVER).max(left_bytes / 4);
                (left_over + left_over.max(ROUND), left_bytes + bytes)
            }
            ReleaseTime::AtOnce => (left_over, left_bytes),
        };
        let turn = self.consumed() + BYTES_PER_CALL;
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
        // Records whose time equals the bound are not released, because a record with the same time and an earlier
        // position in the file may still be loaded.
        let count = self.pending.release(bound, &mut self.ready);
        if let Some(last) = self.ready.last() {
            self.released = last.time;
        }
        if interrupted && count == 0 && bound != u64::MAX {
            return Err(PerfDataError::Interrupted);
        }
        Ok(bound != u64::MAX || count > 0)
    }

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
            // Blocks are loaded in the order of their times, so this block may have a lower number than all blocks in
            // memory.
            for _ in number..self.first {
                self.chunks.push_front(None);
            }
            self.first = self.first.min(number);
            let at = (number - self.first) as usize;
            if self.chunks.len() <= at {
                self.chunks.resize_with(at + 1, || None);
            }
            self.bytes += chunk.bytes().len();
            self.blocks += 1;
            let (chunk, left) = (Arc::new(chunk), new.len());
            self.chunks[at] = Some(Loaded { chunk, left, place: NOT_IN_BATCH });
        }
        // The limit is checked because blocks that overlap in time are in memory together, and a file may state any
        // times.
        let blocks = self.bytes.max(self.blocks * SMALLEST_BLOCK);
        self.limit.check((blocks + self.pending.len() * INDEX_PER_RECORD) as u64)
    }

    /// Returns the index of the stream with the lowest bound, and this bound.
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

    use perf_prof_format::record::{RECORD_HEADER, Recycle, record_size};
    use proptest::prelude::*;

    use super::*;
    use crate::{ReadLimits, index::blocks::BLOCK, order::read_ahead::Batches};

    /// A stream of blocks in memory, with exact bounds. A record consists of its time and a number.
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

    fn limit(bytes: usize) -> MemoryLimit {
        ReadLimits { memory: Some(bytes), ..ReadLimits::default() }.limit("x")
    }

    fn all(streams: Vec<Box<dyn Stream>>, release: ReleaseTime) -> (Vec<(u64, u64)>, u64) {
        let mut merger = Merger::new(streams, release, limit(usize::MAX));
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

    /// A stream of blocks, each with one selected record, in time order. The stream counts the bytes of blocks in
    /// memory.
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

    /// If several blocks have records with the same time, none of these blocks can be released before the last of them
    /// is loaded.
    #[test]
    fn blocks_that_overlap_in_time_are_loaded_up_to_the_limit() {
        let overlapping = || InMemory::new(0, 1, (0..1000).map(|tag| vec![(7, tag); 1000]).collect());
        let needed = 1000 * 1000 * (24 + INDEX_PER_RECORD);
        for (bytes, fits) in [(needed, true), (needed / 2, false), (0, false)] {
            let mut merger = Merger::new(vec![Box::new(overlapping())], ReleaseTime::InRounds, limit(bytes));
            match merger.next_batch() {
                Ok(Some(_)) => assert!(fits, "{bytes}"),
                Err(PerfDataError::TooMuchMemory { name, .. }) => assert!(!fits && name == "x", "{bytes}"),
                other => panic!("{bytes}: {:?}", other.err()),
            }
            assert!(merger.bytes() <= bytes.max(1000 * 24));
        }
        // A block with a single short record takes at least a page.
        let tiny = InMemory::new(0, 1, vec![vec![(7, 0)]; 1000]);
        let mut merger = Merger::new(vec![Box::new(tiny)], ReleaseTime::InRounds, limit(1000 * SMALLEST_BLOCK));
        assert!(matches!(merger.next_batch(), Err(PerfDataError::TooMuchMemory { .. })));
    }

    /// A batch used to wait for 1024 selected records, even if their blocks used 128 MiB of memory. A reading thread
    /// had four such batches in memory.
    #[test]
    fn few_selected_records_in_many_blocks_use_little_memory() {
        const BLOCKS: u32 = 1500;
        let run = |by_thread: bool| {
            let held = Arc::new(Held::default());
            let stream = OneOfABlock { blocks: 0..BLOCKS, held: held.clone() };
            let mut batches =
                Batches::new(Merger::new(vec![Box::new(stream)], ReleaseTime::InRounds, limit(usize::MAX)));
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
        // One batch is being made, two wait, and one is in use.
        assert!(run(true) <= 4 * 2 * ROUND_BYTES);
    }

    #[test]
    fn more_runs_than_piles_are_sorted() {
        let blocks = (0..5).map(|_| (0..10 * PILES as u64).rev().map(|time| (time, 0)).collect()).collect();
        let (found, late) = all(vec![Box::new(InMemory::new(0, 1, blocks))], ReleaseTime::InRounds);
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
            let release = if at_once { ReleaseTime::AtOnce } else { ReleaseTime::InRounds };
            let (found, late) = all(boxed, release);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(late, 0);
        }
    }
}
