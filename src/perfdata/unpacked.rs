//! Where samples of compressed records lie in time: known only after all of them were unpacked once.

use super::{
    error::PerfDataError,
    feed::{Next, Records},
    index::{BLOCK, Block, BlockIndex, payload},
    layouts::Layouts,
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

/// The index so far, of what is unpacked; its blocks are nowhere in the file.
struct Seen<'a> {
    layouts: &'a Layouts,
    found: BlockIndex,
    block: Block,
    /// The time of the last record.
    before: u64,
}

impl Seen<'_> {
    fn add(&mut self, record: &[u8]) {
        let time = self.layouts.time(record).unwrap_or(self.before);
        self.before = time;
        let block = &mut self.block;
        block.size += record.len() as u32;
        block.records += 1;
        if record_type(record) == PERF_RECORD_SAMPLE {
            block.samples += 1;
            (block.first, block.last) = (block.first.min(time), block.last.max(time));
            let (first, last) = self.found.samples.unwrap_or((time, time));
            self.found.samples = Some((first.min(time), last.max(time)));
        }
        if block.size as usize >= BLOCK {
            self.finish_block();
        }
    }

    fn finish_block(&mut self) {
        let block = std::mem::replace(&mut self.block, EMPTY);
        if block.samples != 0 {
            self.found.blocks.push(block);
        }
    }
}

const EMPTY: Block =
    Block { offset: 0, size: 0, records: 0, samples: 0, side_band: 0, first: u64::MAX, last: 0, before: 0 };

/// Looks at the times of all records, the compressed ones among them. What is damaged ends it: who reads the records says so.
pub(super) fn index(mut records: Records, layouts: &Layouts) -> Result<BlockIndex, PerfDataError> {
    let order = records.order;
    let mut unpacker = Unpacker::new().map_err(|error| PerfDataError::io("zstd", error))?;
    let mut seen = Seen { layouts, found: BlockIndex::default(), block: EMPTY, before: 0 };
    while let Next::Record(size) = records.next()? {
        let record = records.peek(size);
        swap::record(record, order, layouts);
        let mut skip = 0;
        if matches!(record_type(record), PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2) {
            unpacker.take(record);
            while unpacker.has_packed() {
                if unpacker.step(order).is_err() {
                    seen.finish_block();
                    return Ok(seen.found);
                }
                while let Some(record) = unpacker.next(order) {
                    swap::record(record, order, layouts);
                    seen.add(record);
                }
            }
        } else {
            skip = payload(record);
            seen.add(record);
        }
        records.take(size);
        records.skip(skip);
    }
    seen.finish_block();
    Ok(seen.found)
}
