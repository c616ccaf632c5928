//! Where blocks of records come from, one after the other, and what is known of those that did not come yet.

use std::{
    io,
    os::fd::RawFd,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    bytes::ByteOrder,
    error::PerfDataError,
    index::{Block, BlockIndex, Need, enter},
    input::Input,
    layouts::Layouts,
    pool::Pool,
    select::{Selection, Wanted},
    unpack::RunUnpacker,
};
use crate::{
    abi::PERF_RECORD_SAMPLE,
    record::{Chunk, Records, Recycle, SortedRecord, record_size, record_type},
};

/// A run of records that is read block by block.
pub(super) trait Stream: Send {
    /// No record that comes later is older than this; `u64::MAX` when none comes any more.
    fn bound(&mut self) -> Result<u64, PerfDataError>;

    /// The next block, and its wanted records, which are appended to `records` with the block's number; `None` at the
    /// end. Blocks of a stream have numbers in the order in which they lie in it.
    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError>;

    /// How many bytes of the recording were read.
    fn consumed(&self) -> u64;

    /// The eventfd that interrupts a wait for more.
    fn set_wake(&mut self, _wake: RawFd) {}
}

/// What is wrong with a recording, as it is found while it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<(Found, String)>>>);

/// Who finds what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Whoever reads the recording, whatever part of it.
    ByAll,
    /// Who reads the part that it is in.
    ByReader,
}

impl Warnings {
    pub fn add(&self, found: Found, warning: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((found, warning));
    }

    pub fn take(&self) -> Vec<(Found, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A block is kept as it is if more than one of so many records in it are wanted, or more than one of so many bytes.
const SPARSE: usize = 4;

/// What all streams of a replay share.
#[derive(Clone)]
pub(super) struct Gate {
    pub order: ByteOrder,
    pub layouts: Arc<Layouts>,
    pub selection: Arc<Selection>,
    pub pool: Arc<Pool>,
}

impl Gate {
    /// Lists the wanted records of a block, and gives how many there are in it, with the least time of those that are
    /// wanted. `before` is the time of records without one at the block's begin.
    pub fn list(&self, bytes: &[u8], number: u32, mut before: u64, records: &mut Vec<SortedRecord>) -> (u32, u64) {
        let (mut offset, mut count, mut first) = (0, 0, u64::MAX);
        let takes_all = self.selection.takes_all();
        for record in Records::new(bytes) {
            let time = self.layouts.time(record).unwrap_or(before);
            before = time;
            if takes_all && record_type(record) == PERF_RECORD_SAMPLE
                || self.selection.wants(record, time, &self.layouts) != Wanted::No
            {
                records.push(SortedRecord { time, chunk: number, offset });
                first = first.min(time);
            }
            offset += record.len() as u32;
            count += 1;
        }
        (count, first)
    }

    /// The chunk for a block that holds so many records, of which these were listed. Few of them are copied out of it: a
    /// whole block would stay in memory for each of them.
    pub fn keep(&self, bytes: Vec<u8>, count: u32, listed: &mut [SortedRecord]) -> Chunk {
        // Where many are wanted, none is looked at once more.
        if listed.len() > count as usize / SPARSE {
            return self.chunk(bytes);
        }
        let record = |at: &SortedRecord| {
            let rest = &bytes[at.offset as usize..];
            &rest[..record_size(rest).min(rest.len())]
        };
        let size: usize = listed.iter().map(|at| record(at).len()).sum();
        if size > bytes.len() / SPARSE {
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

    /// The chunk for these bytes, whose memory is used again afterwards.
    pub fn chunk(&self, bytes: Vec<u8>) -> Chunk {
        let home: Arc<dyn Recycle> = self.pool.clone();
        Chunk::new(0, bytes, Some(home))
    }
}

/// Blocks of a file that was indexed, those that begin earliest first: so no more of them is in memory than overlap.
pub(super) struct IndexedStream {
    input: Arc<dyn Input>,
    name: String,
    gate: Gate,
    index: Arc<BlockIndex>,
    /// Numbers of blocks, by their first time.
    wanted: Vec<u32>,
    next: usize,
    /// The number of its first block, and the distance between numbers: streams number theirs in turns.
    number: u32,
    stride: u32,
    consumed: u64,
    unpacker: RunUnpacker,
    warnings: Warnings,
}

impl IndexedStream {
    /// Of what is selected of some blocks, which have numbers from this one on.
    pub fn new(
        input: Arc<dyn Input>,
        name: String,
        gate: Gate,
        index: Arc<BlockIndex>,
        numbers: (u32, u32),
        warnings: Warnings,
    ) -> Self {
        let wanted = index.wanted(&gate.selection);
        let ((number, stride), unpacker) = (numbers, RunUnpacker::default());
        Self { input, name, gate, index, wanted, next: 0, number, stride, consumed: 0, unpacker, warnings }
    }

    /// The records of a block, in native order.
    fn read(&mut self, block: &Block) -> io::Result<Vec<u8>> {
        let Gate { order, layouts, pool, .. } = &self.gate;
        let mut bytes = pool.take(block.size as usize);
        let filled = self.input.read_at(&mut bytes, block.offset)?;
        // It was truncated since it was indexed.
        bytes.truncate(filled);
        if block.unpacked != 0 {
            let mut unpacked = vec![0; block.unpacked as usize];
            let size = self.unpacker.unpack(&mut bytes, (*order, layouts), &mut unpacked)?;
            unpacked.truncate(size);
            pool.recycle(std::mem::replace(&mut bytes, unpacked));
        }
        enter(&mut bytes, *order, layouts);
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
        let block = self.index.blocks[number as usize];
        let need = self.index.need(&block, &self.gate.selection);
        let number = self.number.wrapping_add(number.wrapping_mul(self.stride));
        if need == Need::Kept {
            return Ok(Some((number, self.index.side_band.list(&block, number, &self.gate, records))));
        }
        let bytes = self.read(&block).map_err(|error| PerfDataError::io(&self.name, error))?;
        self.consumed += u64::from(block.size);
        let before = records.len();
        let (count, first) = self.gate.list(&bytes, number, block.before, records);
        // It was written to since it was looked at, or recorded. What is earlier than it was cannot be put in order any more.
        if count != block.records || first < block.first {
            let Block { offset, size, records, .. } = block;
            let (name, end) = (&self.name, offset + u64::from(size));
            let what =
                format!("{name} is damaged: of the {records} records from byte {offset} to {end} {count} can be read");
            self.warnings.add(Found::ByReader, what);
        }
        Ok(Some((number, self.gate.keep(bytes, block.records, &mut records[before..]))))
    }

    fn consumed(&self) -> u64 {
        self.consumed
    }
}
