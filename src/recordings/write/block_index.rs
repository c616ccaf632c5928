//! Indexes records block by block while they are written. The index is the same as the index that a reader would make.

use perf_prof_format::record::{Records, SampleLayout, record_type};

use crate::{BLOCK, Block, BlockIndex, Layouts};

/// The block index of records that are being written.
#[derive(Debug)]
pub(super) struct Blocks {
    layouts: Layouts,
    found: BlockIndex,
    block: Block,
    /// The time of the last record.
    before: u64,
}

impl Blocks {
    /// Creates an index for records that start at `offset` in the file. `layout` is the layout of all samples.
    pub fn new(offset: u64, layout: SampleLayout) -> Blocks {
        let (layouts, found, before) = (Layouts::for_writing(layout), BlockIndex::default(), 0);
        Blocks { layouts, found, block: Block::empty(offset, 0, before), before }
    }

    fn end(&mut self) {
        let Block { offset, size, side_band_from, side_band, .. } = self.block;
        if size != 0 {
            self.found.add(self.block);
            let side_band_from = side_band_from.saturating_add(side_band);
            self.block = Block::empty(offset + u64::from(size), side_band_from, self.before);
        }
    }

    /// Adds whole records, which come directly after the previously added records in the file.
    pub fn add(&mut self, records: &[u8]) {
        for record in Records::new(records) {
            if self.block.size as usize + record.len() > BLOCK {
                self.end();
            }
            let time = self.layouts.time(record).unwrap_or(self.before);
            self.before = time;
            self.block.size += record.len() as u32;
            self.block.count(record_type(record), time);
        }
    }

    /// Returns the index of all records.
    pub fn finish(mut self) -> BlockIndex {
        self.end();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::{
        abi::{
            PERF_RECORD_COMM, PERF_RECORD_SAMPLE, PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TID,
            PERF_SAMPLE_TIME, perf_data::PERF_RECORD_FINISHED_ROUND,
        },
        record::SampleFormat,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Attr, AttrFlag, AttrIds, ByteOrder, Section,
        format::first_records::Rings,
        index::{
            blocks::{self, IndexInput, Indexed},
            side_band::SideBand,
        },
        order::rounds::Ending,
    };

    const SAMPLE_TYPE: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;

    fn record(kind: u32, time: u64, more: usize) -> Vec<u8> {
        let words = match kind {
            // The members are identifier, tid, time and CPU.
            PERF_RECORD_SAMPLE => [&[7, 1, time, 0][..], &vec![time; more]].concat(),
            // The same members are at the end of the record, with the identifier as the last one.
            PERF_RECORD_COMM => [&vec![0; more + 2][..], &[1, time, 0, 7]].concat(),
            _ => Vec::new(),
        };
        let size = 8 + 8 * words.len() as u16;
        let header = [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes()].concat();
        [header, words.iter().flat_map(|word| word.to_ne_bytes()).collect()].concat()
    }

    proptest! {
        #[test]
        fn are_those_that_a_reader_finds(
            some in prop::collection::vec((
                prop_oneof![9 => Just(PERF_RECORD_SAMPLE), 1 => Just(PERF_RECORD_COMM), 1 => Just(PERF_RECORD_FINISHED_ROUND)],
                0u64..99,
                0usize..4000,
            ), 0..400),
            at_once in 1usize..40,
        ) {
            let made: Vec<Vec<u8>> = some.iter().map(|&(kind, time, more)| record(kind, time, more)).collect();
            let format = SampleFormat { sample_type: SAMPLE_TYPE, ..SampleFormat::default() };
            const OFFSET: u64 = 104;
            let mut blocks = Blocks::new(OFFSET, SampleLayout::from_format(format));
            made.chunks(at_once).for_each(|records| blocks.add(&records.concat()));
            let attr = Attr { format, flags: 1 << AttrFlag::SampleIdAll as u32, ..Attr::default() };
            let layouts = Layouts::new(&[AttrIds { attr, ids: vec![7] }]);
            let file = [vec![0; OFFSET as usize], made.concat()].concat();
            let section = Section { offset: OFFSET, size: file.len() as u64 - OFFSET };
            let (order, ending) = (ByteOrder::Native, Ending::Finished);
            let rings = Rings::One;
            let walk = IndexInput { input: &file, name: "x", order, layouts: &layouts, room: 0, ending, rings };
            let Indexed::Plain(mut expected) = blocks::index(walk, section, &mut Vec::new()).unwrap() else { panic!() };
            Arc::get_mut(&mut expected).unwrap().side_band = SideBand::default();
            prop_assert_eq!(blocks.finish(), Arc::unwrap_or_clone(expected));
        }
    }
}
