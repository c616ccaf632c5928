//! Where the records of an uncompressed run of bytes lie in time, block by block: what is known after looking at every
//! record's header and time once.
//!
//! With it records are put in order exactly, however they are mixed up in the file, while no more is in memory than blocks
//! that overlap in time; and a range of times is found without reading what lies outside of it.

use std::sync::Arc;

use super::{
    bytes::ByteOrder, error::PerfDataError, header::Section, input::Input, layouts::Layouts, select::Selection,
};
use crate::{
    abi::{PERF_RECORD_SAMPLE, perf_data::*},
    record::{RECORD_HEADER, record_size, record_type},
};

/// How many bytes a block has at most.
pub const BLOCK: usize = 128 << 10;

/// Some records, one behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes it has, all of whole records.
    pub size: u32,
    /// How many records.
    pub records: u32,
    /// How many of them are samples.
    pub samples: u32,
    /// The least time of its records.
    pub first: u64,
    /// The greatest time of its records.
    pub last: u64,
    /// The time that a record has which has none itself and is the block's first: that of the record before it.
    pub before: u64,
}

/// The blocks of a run of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIndex {
    /// In the file's order.
    pub blocks: Vec<Block>,
    /// The times of the first and of the last sample, by time; `None` without samples.
    pub samples: Option<(u64, u64)>,
}

impl BlockIndex {
    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.size)).sum()
    }

    /// How many samples there are.
    pub fn sample_count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.samples)).sum()
    }

    /// The numbers of the blocks that have to be read for what is selected, by the time at which they begin: those with
    /// wanted samples, and those with side-band of before. Stable, so that what is simultaneous keeps the file's order.
    pub fn wanted(&self, selection: &Selection) -> Vec<u32> {
        let last = selection.last_time();
        let wanted = |block: &Block| {
            let side_band = block.records > block.samples && block.first <= last;
            side_band || selection.some_time(block.first, block.last)
        };
        let mut numbers: Vec<u32> =
            (0..self.blocks.len() as u32).filter(|&number| wanted(&self.blocks[number as usize])).collect();
        numbers.sort_by_key(|&number| self.blocks[number as usize].first);
        numbers
    }
}

/// What a run of records turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// Plain records.
    Plain(Arc<BlockIndex>),
    /// Some are compressed.
    Compressed,
}

/// What stands behind a record and is no record: how many bytes, by the record's first 16 in native order. AUX area data
/// and a pipe's tracing data come like that.
pub(super) fn payload(record: &[u8]) -> u64 {
    let word = |at: usize| record.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
    match record_type(record) {
        PERF_RECORD_AUXTRACE => word(8),
        PERF_RECORD_HEADER_TRACING_DATA => {
            record.get(8..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from(u32::from_ne_bytes(*b)))
        }
        _ => 0,
    }
}

/// What ended a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// The bytes that were read hold no more whole records.
    Bytes,
    /// So many bytes follow that are no records.
    Payload(u64),
    /// What follows is no record.
    Damaged,
    /// What follows is compressed.
    Compressed,
}

/// What the records in some bytes are.
struct Looked {
    block: Block,
    end: BlockEnd,
    /// The times of the first and of the last of its samples, by time.
    samples: (u64, u64),
    /// The time of its last record.
    before: u64,
}

/// Looks at the records in some bytes, which begin where `block` says.
fn look(bytes: &mut [u8], order: ByteOrder, layouts: &Layouts, block: Block) -> Looked {
    // All of what a record changes is kept in registers.
    let (mut at, mut records, mut samples) = (0, 0, 0);
    let (mut first, mut last, mut before) = (u64::MAX, 0, block.before);
    let (mut first_sample, mut last_sample) = (u64::MAX, 0);
    let end = loop {
        let rest = &mut bytes[at..];
        let size = super::swap::record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break if size < RECORD_HEADER && rest.len() >= RECORD_HEADER {
                BlockEnd::Damaged
            } else {
                BlockEnd::Bytes
            };
        }
        let record = &mut rest[..size];
        super::swap::record(record, order, layouts);
        let kind = record_type(record);
        if kind == PERF_RECORD_COMPRESSED || kind == PERF_RECORD_COMPRESSED2 {
            break BlockEnd::Compressed;
        }
        let time = layouts.time(record).unwrap_or(before);
        before = time;
        first = first.min(time);
        last = last.max(time);
        records += 1;
        at += size;
        if kind == PERF_RECORD_SAMPLE {
            samples += 1;
            first_sample = first_sample.min(time);
            last_sample = last_sample.max(time);
        } else if let payload @ 1.. = payload(record) {
            break BlockEnd::Payload(payload);
        }
    };
    let block = Block { size: at as u32, records, samples, first, last, ..block };
    Looked { block, end, samples: (first_sample, last_sample), before }
}

/// Looks at all records of a section. A record that is cut off at its end, or damaged, ends it with a warning.
pub fn index(
    input: &dyn Input,
    name: &str,
    section: Section,
    order: ByteOrder,
    layouts: &Layouts,
    warnings: &mut Vec<String>,
) -> Result<Indexed, PerfDataError> {
    let mut found = BlockIndex::default();
    let mut buffer = vec![0; BLOCK];
    let end = section.offset.saturating_add(section.size);
    let (mut offset, mut before) = (section.offset, 0);
    while offset < end {
        let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BLOCK);
        let filled = input.read_at(&mut buffer[..room], offset).map_err(|error| PerfDataError::io(name, error))?;
        let looked = look(&mut buffer[..filled], order, layouts, Block { offset, before, ..Block::default() });
        let Looked { block, end: ended, samples, .. } = looked;
        before = looked.before;
        if ended == BlockEnd::Compressed {
            return Ok(Indexed::Compressed);
        }
        if block.samples != 0 {
            let (first, last) = found.samples.unwrap_or(samples);
            found.samples = Some((first.min(samples.0), last.max(samples.1)));
        }
        if block.size != 0 {
            found.blocks.push(block);
        }
        offset = offset.saturating_add(u64::from(block.size));
        let left = end.saturating_sub(offset);
        let why = match ended {
            BlockEnd::Payload(size) if size <= left => {
                offset += size;
                continue;
            }
            BlockEnd::Bytes if block.size != 0 => continue,
            BlockEnd::Damaged => "what follows is no record",
            BlockEnd::Bytes | BlockEnd::Payload(_) | BlockEnd::Compressed => "it is cut off",
        };
        warnings.push(format!("{name}: its last {left} bytes are left out: {why}"));
        break;
    }
    Ok(Indexed::Plain(Arc::new(found)))
}

/// The records in bytes that were looked at before.
pub(super) fn enter(bytes: &mut [u8], order: ByteOrder, layouts: &Layouts) {
    if order == ByteOrder::Native {
        return;
    }
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= RECORD_HEADER) {
        let size = super::swap::record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break;
        }
        super::swap::record(&mut rest[..size], order, layouts);
        debug_assert_eq!(record_size(rest), size);
        at += size;
    }
}
