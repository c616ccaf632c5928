//! Finds damage: since when records are missing if a section has damaged bytes and no rounds, and which blocks of a stored index
//! are not as they were recorded.

use perf_prof_format::record::RECORD_HEADER;

use super::{
    blocks::{BLOCK, Block, BlockIndex, IndexInput, scan_block},
    side_band::SideBand,
};
use crate::{
    error::{PerfDataError, unread_records},
    format::{bytes::ByteOrder, layouts::Layouts, swap},
    order::rounds::Rounds,
    select::is_impossible,
};

/// The number of zeros that are not part of a record: a smaller number is often between other values.
const ZEROS: usize = 64;

/// The maximum number of warnings about single blocks.
const WARNINGS: usize = 8;

/// The number of records before the damage that may be wrong.
const DOUBTED: usize = 16;

impl IndexInput<'_> {
    /// Adds side-band records of at most `room` bytes to an index that has none. Reads only the blocks with side-band
    /// records. Notes the blocks that differ from the index, and warns about records that cannot be read.
    ///
    /// The index stays in use for the other blocks: it has a checksum, and a replay in one process uses it too.
    pub(crate) fn keep_side_band(
        &self,
        mut index: BlockIndex,
        warnings: &mut Vec<String>,
    ) -> Result<BlockIndex, PerfDataError> {
        if self.room == 0 {
            return Ok(index);
        }
        let mut buffer = vec![0; BLOCK];
        let BlockIndex { blocks, side_band, damaged, .. } = &mut index;
        let mut unread = Vec::new();
        for (number, block) in blocks.iter_mut().enumerate().filter(|(_, block)| block.side_band != 0) {
            let filled = self.read(&mut buffer[..block.size as usize], block.offset)?;
            let scanned = scan_block(&mut buffer[..filled], self, *block, Rounds::default(), side_band);
            let found = scanned.block;
            if block.lacks(found.records, found.samples, scanned.impossible) {
                damaged.push(number);
                unread.extend(unread_records(self.name, block, found.records));
            }
            // If side-band records of a block cannot be read, those of the next blocks have other places in memory.
            (block.side_band, block.side_band_from) = (found.side_band, found.side_band_from);
        }
        // If the end of a file is somewhere else, each block is damaged.
        let more = unread.len().saturating_sub(WARNINGS);
        warnings.extend(unread.into_iter().take(WARNINGS));
        warnings.extend((more != 0).then(|| format!("{} is damaged: so are {more} more parts of it", self.name)));
        Ok(index)
    }

    /// Returns whether the records of a block are as the index says.
    pub(super) fn is_there(&self, block: &Block, buffer: &mut [u8]) -> Result<bool, PerfDataError> {
        let filled = self.read(&mut buffer[..block.size as usize], block.offset)?;
        let within = IndexInput { room: 0, ..*self };
        let found =
            scan_block(&mut buffer[..filled], &within, *block, Rounds::default(), &mut SideBand::default()).block;
        Ok(found == Block { side_band_from: found.side_band_from, ..*block })
    }

    /// Returns since when records are missing if bytes at `offset` are damaged. `blocks` are the blocks before them, and `before`
    /// is the time of the last record.
    pub(super) fn before_damage(&self, blocks: &[Block], offset: u64, before: u64) -> Result<u64, PerfDataError> {
        let mut next = [0; ZEROS];
        let filled = self.read(&mut next, offset)?;
        if !are_of_another_place(&next[..filled], self.order) {
            return Ok(before);
        }
        // What is left of other records can look like one record of 64 KiB, which is then the whole last block.
        let mut first = blocks.len();
        while first > 0 && blocks[first..].iter().map(|block| block.records).sum::<u32>() < DOUBTED as u32 {
            first -= 1;
        }
        let mut bytes = Vec::new();
        for block in &blocks[first..] {
            let begin = bytes.len();
            bytes.resize(begin + block.size as usize, 0);
            let filled = self.read(&mut bytes[begin..], block.offset)?;
            bytes.truncate(begin + filled);
        }
        let before = blocks.get(first).map_or(before, |block| block.before);
        Ok(time_before_damage(&mut bytes, before, self.order, self.layouts))
    }
}

/// Returns whether the bytes after the last record come from another place of the file: they are neither zeros, nor the
/// beginning of a record whose rest is missing.
fn are_of_another_place(next: &[u8], order: ByteOrder) -> bool {
    let Some(kind) = next.first_chunk().filter(|_| next.len() >= RECORD_HEADER) else { return false };
    let begins_record = swap::record_size(next, order) >= RECORD_HEADER && !is_impossible(order.u32(*kind));
    !begins_record && next.iter().any(|byte| *byte != 0)
}

/// Returns a time before all missing records. `bytes` are the last blocks of records before the damage, and `before` is the
/// time of the last record before these blocks.
///
/// The last records may be made of what is left of others. They look like records, but their times can be any number. So the
/// earliest time of the last records is taken.
fn time_before_damage(bytes: &mut [u8], before: u64, order: ByteOrder, layouts: &Layouts) -> u64 {
    let (mut at, mut times) = (0, vec![before]);
    while let size @ RECORD_HEADER.. = swap::record_size(&bytes[at..], order)
        && let Some(record) = bytes.get_mut(at..at + size)
    {
        swap::record(record, order, layouts);
        times.extend(layouts.time(record));
        at += size;
    }
    times.iter().rev().take(DOUBTED).copied().min().unwrap_or(before)
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_RECORD_SAMPLE, PERF_SAMPLE_TIME},
        record::SampleFormat,
    };

    use super::*;
    use crate::{Attr, AttrIds, format::first_records::Rings, order::rounds::Ending};

    fn sample(time: u64) -> Vec<u8> {
        [&PERF_RECORD_SAMPLE.to_ne_bytes()[..], &[0, 0, 16, 0], &time.to_ne_bytes()].concat()
    }

    /// The last record before the damage had a time after the end of the recording, so nothing seemed to be missing.
    #[test]
    fn a_time_that_is_made_of_other_bytes_does_not_hide_what_is_missing() {
        let format = SampleFormat { sample_type: PERF_SAMPLE_TIME, ..SampleFormat::default() };
        let layouts = Layouts::new(&[AttrIds { attr: Attr { format, ..Attr::default() }, ids: Vec::new() }]);
        let since = |times: &[u64], before| {
            let mut bytes: Vec<u8> = times.iter().flat_map(|time| sample(*time)).chain([1, 2, 3]).collect();
            time_before_damage(&mut bytes, before, ByteOrder::Native, &layouts)
        };
        let times: Vec<u64> = (100..200).collect();
        assert_eq!(since(&[&times[..], &[1 << 40]].concat(), 99), 185);
        assert_eq!((since(&times, 99), since(&[1 << 40], 99), since(&[], 7)), (184, 99, 7));
    }

    /// What is left of many records looks like one of up to 64 KiB, which is a block of its own.
    #[test]
    fn the_records_before_the_last_block_are_doubted_too() {
        let format = SampleFormat { sample_type: PERF_SAMPLE_TIME, ..SampleFormat::default() };
        let layouts = Layouts::new(&[AttrIds { attr: Attr { format, ..Attr::default() }, ids: Vec::new() }]);
        let times = (100..140).chain([1 << 40, 1 << 50]);
        let bytes: Vec<u8> = times.flat_map(sample).chain([9; 64]).collect();
        let (order, ending) = (ByteOrder::Native, Ending::Finished);
        let walk =
            IndexInput { input: &bytes, name: "x", order, layouts: &layouts, room: 0, ending, rings: Rings::One };
        let block = |from: u64, records: u32, before| Block {
            offset: from * 16,
            size: records * 16,
            records,
            before,
            ..Block::empty(0, 0, 0)
        };
        let blocks = [block(0, 30, 0), block(30, 11, 129), block(41, 1, 1 << 40)];
        assert_eq!(walk.before_damage(&blocks, 42 * 16, 1 << 50).unwrap(), 126);
    }

    #[test]
    fn what_is_cut_off_or_zero_is_at_its_place() {
        let bytes = sample(5);
        let moved = |bytes: &[u8]| are_of_another_place(bytes, ByteOrder::Native);
        assert!(!moved(&bytes[..8]) && !moved(&[0; 8]) && !moved(&[7; 5]) && !moved(&[]));
        assert!(moved(&[&[0; 20][..], &[1]].concat()) && moved(&[7; 8]) && moved(&bytes[4..]) && moved(&bytes[3..]));
    }
}
