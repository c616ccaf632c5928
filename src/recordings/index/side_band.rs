//! Keeps the side-band records of a section in memory while the section is indexed. Side-band records are about tasks,
//! mappings and lost events, and need little memory. If they are in memory, a reader of some samples reads only the
//! blocks with these samples. Knows nothing of files.

use perf_prof_format::record::{Chunk, SortedRecord, record_size};

use super::blocks::Block;
use crate::{
    order::{block_stream::ReplayContext, gaps},
    select::Wanted,
};

/// The maximum number of bytes of side-band records to keep in memory per recording. A block is read again if its
/// side-band records do not fit.
pub(crate) const ROOM: usize = 32 << 20;

/// The side-band records of a section, in the order of the section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideBand {
    /// Whole records in native byte order.
    bytes: Vec<u8>,
    kept: Vec<KeptRecord>,
    /// The number of side-band records that were added so far, including records that were not kept because they did
    /// not fit.
    met: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptRecord {
    /// The time of the record. If the record contains no time, it is the time of the record before it.
    time: u64,
    /// The offset of the record in `bytes`.
    at: u32,
}

impl SideBand {
    /// Returns the number of side-band records that were added so far. It is also the index of the next side-band
    /// record.
    pub(crate) fn seen_count(&self) -> u32 {
        self.met
    }

    /// Keeps a record, if it and all records before it fit into `room` bytes.
    #[cold]
    pub(crate) fn add(&mut self, record: &[u8], time: u64, room: usize) {
        let at = self.bytes.len();
        if self.kept.len() == self.met as usize && at + record.len() <= room.min(u32::MAX as usize) {
            self.kept.push(KeptRecord { time, at: at as u32 });
            self.bytes.extend_from_slice(record);
        }
        self.met = self.met.saturating_add(1);
    }

    /// Appends `other`, the side-band records of the next section, if all records so far are kept and `other` fits into
    /// `room` bytes. `blocks` are the blocks of the next section; their `side_band_from` is updated.
    pub(crate) fn append(&mut self, other: &SideBand, blocks: &mut [Block], room: usize) {
        let at = self.bytes.len();
        if self.kept.len() == self.met as usize && at + other.bytes.len() <= room.min(u32::MAX as usize) {
            self.kept.extend(other.kept.iter().map(|kept| KeptRecord { at: kept.at + at as u32, ..*kept }));
            self.bytes.extend_from_slice(&other.bytes);
        }
        blocks.iter_mut().for_each(|block| block.side_band_from = block.side_band_from.saturating_add(self.met));
        self.met = self.met.saturating_add(other.met);
    }

    pub(crate) fn forget(&mut self) {
        (self.bytes, self.kept) = (Vec::new(), Vec::new());
    }

    /// Returns the records of a block; `None` if some of them were not kept.
    fn records_of(&self, block: &Block) -> Option<&[KeptRecord]> {
        let from = block.side_band_from as usize;
        self.kept.get(from..from + block.side_band as usize)
    }

    /// Returns the times of a block's records; `None` if some of them were not kept.
    #[cfg(test)]
    pub(crate) fn times(&self, block: &Block) -> Option<Vec<u64>> {
        self.records_of(block).map(|kept| kept.iter().map(|kept| kept.time).collect())
    }

    /// Returns whether all records of a block were kept.
    pub fn has(&self, block: &Block) -> bool {
        self.records_of(block).is_some()
    }

    /// Returns whether a block may have records about losses. Returns true if some side-band records of the block were
    /// not kept.
    pub(crate) fn may_have_losses(&self, block: &Block) -> bool {
        let is_loss = |kept: &KeptRecord| gaps::is_loss(&self.bytes[kept.at as usize..]);
        block.side_band != 0 && self.records_of(block).is_none_or(|kept| kept.iter().any(is_loss))
    }

    /// Appends the selected side-band records of a block to `records`. `number` is the number of the block. Returns the
    /// chunk that contains the appended records.
    pub(crate) fn list(
        &self,
        block: &Block,
        number: u32,
        context: &ReplayContext,
        records: &mut Vec<SortedRecord>,
    ) -> Chunk {
        let mut bytes = Vec::new();
        for &KeptRecord { time, at } in self.records_of(block).unwrap_or_default() {
            let record = &self.bytes[at as usize..];
            let record = &record[..record_size(record).min(record.len())];
            if context.selection.wants(record, time, &context.layouts) != Wanted::No {
                records.push(SortedRecord { time, chunk: number, offset: bytes.len() as u32 });
                bytes.extend_from_slice(record);
            }
        }
        Chunk::new(0, bytes, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 16-byte records with these times, as one block.
    fn kept(times: std::ops::Range<u64>, room: usize) -> (SideBand, [Block; 1]) {
        let mut kept = SideBand::default();
        let count = times.clone().count() as u32;
        let record = [&3u32.to_ne_bytes()[..], &[0, 0, 16, 0], &[0; 8]].concat();
        times.for_each(|time| kept.add(&record, time, room));
        (kept, [Block { side_band: count, ..Block::default() }])
    }

    #[test]
    fn blocks_without_room_have_no_kept_records() {
        let (mut first, [one]) = kept(0..3, 160);
        // All records of the second section are kept, but only some records of the third section. No record of the
        // fourth section is kept, because records before it are missing.
        let [(second, mut two), (third, mut three), (fourth, mut four)] =
            [kept(3..6, 160), kept(6..9, 32), kept(9..10, 160)];
        first.append(&second, &mut two, 160);
        first.append(&third, &mut three, 160);
        first.append(&fourth, &mut four, 160);
        assert_eq!((first.met, first.kept.len()), (10, 8));
        assert_eq!(first.times(&one), Some(vec![0, 1, 2]));
        assert_eq!(first.times(&two[0]), Some(vec![3, 4, 5]));
        assert_eq!((first.times(&three[0]), first.times(&four[0])), (None, None));
        // Not all records of the second section fit, so nothing after them is kept.
        let (mut first, _) = kept(0..3, 160);
        let (second, mut two) = kept(3..11, 160);
        first.append(&second, &mut two, 160);
        let (third, mut three) = kept(11..12, 160);
        first.append(&third, &mut three, 160);
        assert_eq!((first.met, first.kept.len(), first.times(&two[0]), first.times(&three[0])), (12, 3, None, None));
    }
}
