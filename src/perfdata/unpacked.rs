//! What is known of records that can be read from front to back only, compressed ones and those of a pipe that was kept in a
//! file, after all of them were unpacked once: where their samples lie in time, and which runs of them can be read without
//! the others.

use std::sync::Arc;

use super::{
    error::PerfDataError,
    feed::{Next, Records},
    index::{BLOCK, Block, BlockIndex, payload},
    layouts::Layouts,
    select::is_side_band,
    swap,
    unpack::Unpacker,
};
use crate::{
    abi::{
        PERF_RECORD_SAMPLE,
        perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2},
    },
    record::record_type,
};

/// How much a run may unpack to: all of it is in memory at once. One frame of zstd for the whole file, as perf writes it, is
/// no run.
const RUN: u32 = 16 << 20;

/// What unpacking has shown.
#[derive(Clone)]
pub(super) struct Unpacked {
    /// Where samples lie in time. Its blocks are nowhere in the file.
    pub samples: Arc<BlockIndex>,
    /// Runs that begin with a frame of zstd, or with a plain record, and end where nothing is left over; `None` where
    /// records cannot be read so.
    pub runs: Option<Arc<BlockIndex>>,
}

/// An index while it is made.
struct Growing {
    found: BlockIndex,
    block: Block,
    /// How many bytes of side-band are kept at most.
    room: usize,
}

impl Growing {
    fn new(offset: u64, room: usize) -> Growing {
        let mut growing = Growing { found: BlockIndex::default(), block: Block::default(), room };
        growing.begin(offset, 0);
        growing
    }

    fn begin(&mut self, offset: u64, before: u64) {
        let side_band_from = self.found.side_band.met();
        let sampled = (u64::MAX, 0);
        self.block = Block { offset, before, side_band_from, sampled, first: u64::MAX, ..Block::default() };
    }

    fn add(&mut self, record: &[u8], time: u64) {
        let (kind, block) = (record_type(record), &mut self.block);
        block.records += 1;
        block.first = block.first.min(time);
        if kind == PERF_RECORD_SAMPLE {
            block.samples += 1;
            block.sampled = (block.sampled.0.min(time), block.sampled.1.max(time));
        } else if is_side_band(kind) {
            block.side_band += 1;
            self.found.side_band.add(record, time, self.room);
        }
    }
}

/// Both indexes while they are made.
struct Seen<'a> {
    layouts: &'a Layouts,
    samples: Growing,
    runs: Option<Growing>,
    /// The time of the last record.
    before: u64,
}

impl Seen<'_> {
    fn add(&mut self, record: &[u8]) {
        let time = self.layouts.time(record).unwrap_or(self.before);
        self.before = time;
        self.samples.block.size += record.len() as u32;
        self.samples.add(record, time);
        if self.samples.block.size as usize >= BLOCK {
            self.finish_samples();
        }
        if let Some(runs) = &mut self.runs {
            runs.block.unpacked += record.len() as u32;
            runs.add(record, time);
            if runs.block.unpacked > RUN {
                self.runs = None;
            }
        }
    }

    fn finish_samples(&mut self) {
        if self.samples.block.samples != 0 {
            self.samples.found.add(self.samples.block);
        }
        self.samples.begin(0, self.before);
    }

    /// Ends a run before what lies at `end` of the file; another one begins at `next`.
    fn finish_run(&mut self, end: u64, next: u64, packing: Packing) {
        let Some(Growing { found, block, .. }) = &mut self.runs else { return };
        if packing == Packing::Plain {
            block.unpacked = 0;
        }
        match u32::try_from(end - block.offset) {
            Err(_) => self.runs = None,
            Ok(0) => {}
            Ok(size) => {
                found.add(Block { size, ..*block });
                let before = self.before;
                self.runs.iter_mut().for_each(|runs| runs.begin(next, before));
            }
        }
    }

    fn found(mut self) -> Unpacked {
        self.finish_samples();
        Unpacked { samples: Arc::new(self.samples.found), runs: self.runs.map(|runs| Arc::new(runs.found)) }
    }
}

/// Whether something of a run is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Packed,
}

/// Looks at all records, the compressed ones among them, the first of which lies at `offset`; keeps so many bytes of
/// side-band. What is damaged ends it: who reads the records says so.
pub(super) fn index(
    mut records: Records,
    offset: u64,
    layouts: &Layouts,
    room: usize,
) -> Result<Unpacked, PerfDataError> {
    let order = records.order;
    let mut unpacker = Unpacker::new().map_err(|error| PerfDataError::io("zstd", error))?;
    let (samples, runs) = (Growing::new(0, 0), Some(Growing::new(offset, room)));
    let mut seen = Seen { layouts, samples, runs, before: 0 };
    let mut packing = Packing::Plain;
    let (end, at) = loop {
        let at = offset + records.consumed();
        let size = match records.next()? {
            Next::Record(size) => size,
            end => break (end, at),
        };
        let begin = offset + records.consumed();
        if begin != at && packing == Packing::Plain {
            // What was no record was left out.
            seen.finish_run(at, begin, packing);
        }
        let record = records.peek(size);
        swap::record(record, order, layouts);
        let mut skip = 0;
        if matches!(record_type(record), PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2) {
            packing = Packing::Packed;
            unpacker.take(record);
            while unpacker.has_packed() {
                if unpacker.step(order).is_err() {
                    seen.runs = None;
                    return Ok(seen.found());
                }
                while let Some(record) = unpacker.next(order) {
                    swap::record(record, order, layouts);
                    seen.add(record);
                }
            }
        } else {
            skip = payload(record);
            seen.add(record);
            if unpacker.left() != 0 {
                // It stands within another one.
                seen.runs = None;
            }
        }
        records.take(size);
        records.skip(skip);
        let unpacked = seen.runs.as_ref().map_or(0, |runs| runs.block.unpacked);
        if unpacked as usize >= BLOCK && unpacker.is_between_frames() && skip == 0 {
            let at = offset + records.consumed();
            seen.finish_run(at, at, packing);
            packing = Packing::Plain;
        }
    };
    seen.finish_run(at, at, packing);
    if end != Next::End || unpacker.left() != 0 {
        seen.runs = None;
    }
    Ok(seen.found())
}
