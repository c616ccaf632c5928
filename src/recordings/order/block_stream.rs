//! Streams of blocks. A stream loads one block of records after another, and knows a lower bound for the times of the
//! records that it has not loaded yet.

use std::{
    io,
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Chunk, Records, Recycle, SortedRecord, record_size, record_type},
};
use perf_prof_system::mutex::Mutex;

use super::{
    gaps::{FoundGaps, Gap, GapFinder},
    rounds::Ending,
};
use crate::{
    error::{PerfDataError, unread_records, wrong_types},
    format::{
        bytes::ByteOrder,
        first_records::{AuxTrace, Rings},
        layouts::Layouts,
        swap,
    },
    index::blocks::{Block, BlockIndex, Need},
    input::{block_pool::Pool, decompress::RunDecompressor, random_access::Input},
    select::{Gaps, Selection, Wanted, is_impossible},
};

/// A source of records that is read block by block.
pub(crate) trait Stream: Send {
    /// Returns a lower bound for the times of all records that were not loaded yet; `u64::MAX` if all records were
    /// loaded.
    fn bound(&mut self) -> Result<u64, PerfDataError>;

    /// Loads the next block and appends its selected records to `records`. Returns the number of the block, and the
    /// chunk with these records. Returns `None` at the end. A block that is loaded later has a higher number.
    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError>;

    /// Returns how many bytes of the recording were read so far.
    fn consumed(&self) -> u64;

    /// Sets the eventfd that interrupts a wait for more data.
    fn set_wake(&mut self, _wake: RawFd) {}
}

/// Problems of a recording that were found while it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Problems>);

#[derive(Debug, Default)]
struct Problems {
    told: Mutex<Vec<(FoundBy, String)>>,
    /// True if records are missing.
    lacks_records: AtomicBool,
}

/// Which readers find a problem of a recording, if several readers read parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// Every reader of the recording finds the problem, regardless of the part that it reads.
    AllReaders,
    /// Only a reader of the part with the problem finds it.
    OneReader,
}

impl Warnings {
    /// Adds a warning about a problem that does not remove records.
    pub fn add(&self, found: FoundBy, warning: String) {
        self.0.told.lock().push((found, warning));
    }

    /// Adds a warning about missing records.
    pub fn add_damage(&self, found: FoundBy, warning: String) {
        self.note_damage();
        self.add(found, warning);
    }

    /// Notes that records are missing, for callers that cannot make the warning about them yet.
    pub fn note_damage(&self) {
        self.0.lacks_records.store(true, Relaxed);
    }

    /// Returns whether records are missing.
    pub fn lack_records(&self) -> bool {
        self.0.lacks_records.load(Relaxed)
    }

    pub fn take_all(&self) -> Vec<(FoundBy, String)> {
        std::mem::take(&mut self.0.told.lock())
    }
}

/// A block stays whole in memory if more than one quarter of its records, or of its bytes, are selected.
const SPARSE_DIVISOR: usize = 4;

/// The context that all streams of a replay share.
#[derive(Clone)]
pub(crate) struct ReplayContext {
    pub order: ByteOrder,
    pub layouts: Arc<Layouts>,
    pub selection: Arc<Selection>,
    pub pool: Arc<Pool>,
    /// The AUX area data that was found so far.
    pub aux: AuxTrace,
    /// The gaps that the streams find while they read.
    pub gaps: FoundGaps,
}

impl ReplayContext {
    /// Notes that records cannot be read: records after the time `begin`, up to the time `end`.
    pub fn note_unread(&self, begin: u64, end: u64) {
        if self.selection.gaps != Gaps::NotMarked {
            self.gaps.add(Gap::of_unread(begin, end));
        }
    }

    /// Appends the selected records of a block to `records`. `before` is the time of the last record before the block.
    /// Records at the start of the block that contain no time get this time.
    pub fn list(&self, bytes: &[u8], number: u32, mut before: u64, records: &mut Vec<SortedRecord>) -> Listed {
        let (mut offset, mut count, mut first) = (0, 0, u64::MAX);
        let (mut samples, mut impossible) = (0, 0);
        // This fast path handles most replays: they select all samples, or all samples of one range of time.
        let (from, to) = self.selection.sole_range().unwrap_or((u64::MAX, 0));
        for record in Records::new(bytes) {
            let time = self.layouts.time(record).unwrap_or(before);
            before = time;
            let kind = record_type(record);
            samples += u32::from(kind == PERF_RECORD_SAMPLE);
            impossible += u32::from(is_impossible(kind));
            if from <= time && time <= to && kind == PERF_RECORD_SAMPLE
                || self.selection.wants(record, time, &self.layouts) != Wanted::No
            {
                records.push(SortedRecord { time, chunk: number, offset });
                first = first.min(time);
            }
            offset += record.len() as u32;
            count += 1;
        }
        Listed { count, samples, impossible, first }
    }

    /// Returns a chunk with the selected records of a block. The block has `count` records in all; `listed` are the
    /// selected records. If few records are selected, they are copied, because otherwise each of them would keep the
    /// whole block in memory.
    fn compact_chunk(&self, bytes: Vec<u8>, count: u32, listed: &mut [SortedRecord]) -> Chunk {
        // If more than a quarter of the records are selected, the block stays whole, even if the selected records have
        // few bytes.
        if listed.len() > count as usize / SPARSE_DIVISOR {
            return self.chunk(bytes);
        }
        let record = |at: &SortedRecord| {
            let rest = &bytes[at.offset as usize..];
            &rest[..record_size(rest).min(rest.len())]
        };
        let size: usize = listed.iter().map(|at| record(at).len()).sum();
        if size > bytes.len() / SPARSE_DIVISOR {
            return self.chunk(bytes);
        }
        let mut kept = Vec::with_capacity(size);
        for at in listed {
            let offset = kept.len() as u32;
            kept.extend_from_slice(record(at));
            at.offset = offset;
        }
        self.pool.recycle(bytes);
        Chunk::new(0, kept, None)
    }

    /// Returns a chunk of these bytes. When the chunk is dropped, its memory goes back to the pool.
    pub fn chunk(&self, bytes: Vec<u8>) -> Chunk {
        let home: Arc<dyn Recycle> = self.pool.clone();
        Chunk::new(0, bytes, Some(home))
    }
}

/// The records that were found in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// The number of all records in the block.
    count: u32,
    /// The number of samples in the block.
    samples: u32,
    /// The number of records with a type that no recorder writes.
    impossible: u32,
    /// The earliest time of the selected records.
    first: u64,
}

/// The numbers of the blocks of one stream. The numbers of several streams alternate, so no two blocks have the same
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The number of the stream's first block.
    pub first: u32,
    /// The difference between the numbers of two consecutive blocks of the stream.
    pub stride: u32,
}

impl Numbers {
    /// The numbers of the blocks if there is only one stream.
    #[cfg(test)]
    pub const ALL: Numbers = Numbers { first: 0, stride: 1 };

    /// Returns the number of a block from its index in the stream.
    fn number_of_block(self, at: u32) -> u32 {
        self.first.wrapping_add(at.wrapping_mul(self.stride))
    }

    /// Returns the number of the next block, and advances to the number after it.
    pub fn next_number(&mut self) -> u32 {
        let number = self.first;
        self.first = number.wrapping_add(self.stride);
        number
    }
}

/// The parameters that every stream of a recording needs.
pub(crate) struct StreamSetup {
    /// The context of the replay, which selects records.
    pub context: ReplayContext,
    /// The numbers of the stream's blocks.
    pub numbers: Numbers,
    /// Collects warnings about damage.
    pub warnings: Warnings,
    /// The memory of the stream's decompressor, in bytes.
    pub memory: usize,
    /// How the recording ended.
    pub ending: Ending,
    /// How many rings the recording has.
    pub rings: Rings,
}

/// The blocks of an indexed file, sorted by the earliest time in each block. Because of this order, only blocks that
/// overlap in time are in memory at once.
pub(crate) struct IndexedStream {
    input: Arc<dyn Input>,
    name: String,
    context: ReplayContext,
    index: Arc<BlockIndex>,
    /// The numbers of the needed blocks, sorted by the earliest time in each block.
    wanted: Vec<u32>,
    next: usize,
    numbers: Numbers,
    consumed: u64,
    unpacker: RunDecompressor,
    /// The number of records whose headers have another type than the recorder wrote.
    wrong_types: u64,
    warnings: Warnings,
}

impl IndexedStream {
    /// Creates a stream of the blocks that contain selected records.
    pub fn new(input: Arc<dyn Input>, name: String, index: Arc<BlockIndex>, setup: StreamSetup) -> Self {
        let StreamSetup { context, numbers, warnings, memory, .. } = setup;
        let (wanted, unpacker) = (index.wanted(&context.selection), RunDecompressor::new(memory));
        Self { input, name, context, index, wanted, next: 0, numbers, consumed: 0, unpacker, wrong_types: 0, warnings }
    }

    /// Returns the gaps of the section. All copies of the index share the result of one search.
    pub fn gaps(&mut self) -> Result<Arc<Vec<Gap>>, PerfDataError> {
        let index = self.index.clone();
        let of_damaged =
            || index.damaged.iter().map(|&number| &index.blocks[number]).filter(|block| block.samples != 0);
        let to_end = index.missing_from.map(|begin| Gap::of_unread(begin, u64::MAX));
        let unread = of_damaged().map(Gap::of_block).chain(to_end);
        if self.context.selection.gaps == Gaps::Unread {
            return Ok(Arc::new(unread.collect()));
        }
        if let Some(gaps) = index.gaps.get() {
            return Ok(gaps.clone());
        }
        let layouts = self.context.layouts.clone();
        let read = |block: usize| self.read(&index.blocks[block]).map_err(|error| PerfDataError::io(&self.name, error));
        let mut found = GapFinder::new(&index, &layouts, read).find()?;
        found.extend(unread);
        Ok(index.gaps.get_or_init(|| Arc::new(found)).clone())
    }

    /// Reads the records of a block and converts them to native order.
    fn read(&mut self, block: &Block) -> io::Result<Vec<u8>> {
        let ReplayContext { order, layouts, pool, .. } = &self.context;
        let mut bytes = pool.buffer(block.size as usize);
        let filled = self.input.read_at(&mut bytes, block.offset)?;
        // The file may have been truncated since it was indexed.
        bytes.truncate(filled);
        if block.unpacked != 0 {
            let mut unpacked = vec![0; block.unpacked as usize];
            let size = self.unpacker.unpack(&mut bytes, *order, layouts, &mut unpacked)?;
            unpacked.truncate(size);
            pool.recycle(std::mem::replace(&mut bytes, unpacked));
        }
        swap::records(&mut bytes, *order, layouts);
        Ok(bytes)
    }
}

impl Stream for IndexedStream {
    fn bound(&mut self) -> Result<u64, PerfDataError> {
        Ok(self.wanted.get(self.next).map_or(u64::MAX, |&block| self.index.blocks[block as usize].first))
    }

    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
        let Some(&number) = self.wanted.get(self.next) else { return Ok(None) };
        self.next += 1;
        let (at, block) = (number as usize, self.index.blocks[number as usize]);
        let need = self.index.need(&block, &self.context.selection);
        let number = self.numbers.number_of_block(number);
        if need == Need::Kept {
            self.tell_wrong_types();
            return Ok(Some((number, self.index.side_band.list(&block, number, &self.context, records))));
        }
        let bytes = self.read(&block).map_err(|error| PerfDataError::io(&self.name, error))?;
        self.consumed += u64::from(block.size);
        let before = records.len();
        let listed = self.context.list(&bytes, number, block.before, records);
        self.check(at, listed);
        Ok(Some((number, self.context.compact_chunk(bytes, block.records, &mut records[before..]))))
    }

    fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl IndexedStream {
    /// Compares the records of a block with the index, and warns if they differ.
    fn check(&mut self, number: usize, listed: Listed) {
        let Listed { count, samples, impossible, first } = listed;
        let (index, name) = (self.index.clone(), &self.name);
        let block = &index.blocks[number];
        // The whole recording was warned about these blocks already, and `gaps()` has their gaps.
        let is_known = index.damaged.binary_search(&number).is_ok();
        if !is_known && block.samples != 0 && block.lacks(count, samples, impossible.into()) {
            let Gap { begin, end, .. } = Gap::of_block(block);
            self.context.note_unread(begin, end);
        }
        // If the records differ from the index, somebody changed the file after it was indexed or recorded. Records
        // that are earlier than the index states can no longer be sorted.
        let &Block { offset, size, records, .. } = block;
        let differs = match unread_records(name, block, count) {
            Some(_) if is_known => None,
            None if first < block.first => Some(format!(
                "{name} is damaged: a time in the {records} records from byte {offset} to {} is not what was recorded",
                offset + u64::from(size)
            )),
            unread => unread,
        };
        differs.into_iter().for_each(|warning| self.warnings.add_damage(FoundBy::OneReader, warning));
        // A block that is read only for its side-band records is counted by the reader of its samples.
        let is_own = block.samples == 0 || self.context.selection.some_time(block.sampled.0, block.sampled.1);
        if count == block.records && is_own {
            // If the index was made by reading all records, a warning about their wrong types was already added.
            let impossible = if self.index.impossible == 0 { impossible } else { 0 };
            self.wrong_types += u64::from(block.samples.saturating_sub(samples).max(impossible));
        }
        if self.wrong_types != 0 {
            self.warnings.note_damage();
        }
        self.tell_wrong_types();
    }

    /// Adds the warning about wrong types after the last block, so that it contains their total number.
    fn tell_wrong_types(&self) {
        if self.wrong_types != 0 && self.next == self.wanted.len() {
            self.warnings.add(FoundBy::OneReader, wrong_types(&self.name, self.wrong_types));
        }
    }
}
