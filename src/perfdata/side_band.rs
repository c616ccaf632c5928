//! The records of a run that tell of tasks, mappings and losses, kept when all of them were looked at: few bytes, so that
//! who wants the samples of a part reads that part alone. Knows nothing of files.

use super::{index::Block, select::Wanted, stream::Gate};
use crate::record::{Chunk, SortedRecord, record_size};

/// How many bytes are kept of a recording at most. Blocks with others are read.
pub(super) const ROOM: usize = 32 << 20;

/// Such records, in the run's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideBand {
    /// Whole ones, in native order.
    bytes: Vec<u8>,
    kept: Vec<Kept>,
    /// How many there were; more than there are kept where there was no room.
    met: u32,
}

/// A record that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// Its time, or that of the record before it.
    time: u64,
    /// Where it begins.
    at: u32,
}

impl SideBand {
    /// How many records were met so far: a block's own begin with this number.
    pub(super) fn met(&self) -> u32 {
        self.met
    }

    /// Keeps a record, if it and all before it have room in so many bytes.
    #[cold]
    pub(super) fn add(&mut self, record: &[u8], time: u64, room: usize) {
        let at = self.bytes.len();
        if self.kept.len() == self.met as usize && at + record.len() <= room.min(u32::MAX as usize) {
            self.kept.push(Kept { time, at: at as u32 });
            self.bytes.extend_from_slice(record);
        }
        self.met = self.met.saturating_add(1);
    }

    /// Adds what was kept of what follows, whose blocks are these, if all of it has room.
    pub(super) fn append(&mut self, other: &SideBand, blocks: &mut [Block], room: usize) {
        let at = self.bytes.len();
        if self.kept.len() == self.met as usize && at + other.bytes.len() <= room.min(u32::MAX as usize) {
            self.kept.extend(other.kept.iter().map(|kept| Kept { at: kept.at + at as u32, ..*kept }));
            self.bytes.extend_from_slice(&other.bytes);
        }
        blocks.iter_mut().for_each(|block| block.side_band_from = block.side_band_from.saturating_add(self.met));
        self.met = self.met.saturating_add(other.met);
    }

    /// Keeps none of them any more.
    pub(super) fn forget(&mut self) {
        (self.bytes, self.kept) = (Vec::new(), Vec::new());
    }

    /// A block's own; `None` where some had no room.
    fn of(&self, block: &Block) -> Option<&[Kept]> {
        let from = block.side_band_from as usize;
        self.kept.get(from..from + block.side_band as usize)
    }

    /// The times of a block's own; `None` where some had no room.
    #[cfg(test)]
    pub(super) fn times(&self, block: &Block) -> Option<Vec<u64>> {
        self.of(block).map(|kept| kept.iter().map(|kept| kept.time).collect())
    }

    /// Whether all of a block's are kept.
    pub(super) fn has(&self, block: &Block) -> bool {
        self.of(block).is_some()
    }

    /// The wanted ones of a block, which are appended to `records` with the block's number.
    pub(super) fn list(&self, block: &Block, number: u32, gate: &Gate, records: &mut Vec<SortedRecord>) -> Chunk {
        let mut bytes = Vec::new();
        for &Kept { time, at } in self.of(block).unwrap_or_default() {
            let record = &self.bytes[at as usize..];
            let record = &record[..record_size(record).min(record.len())];
            if gate.selection.wants(record, time, &gate.layouts) != Wanted::No {
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

    /// Records of 16 bytes at these times, as one block.
    fn kept(times: std::ops::Range<u64>, room: usize) -> (SideBand, [Block; 1]) {
        let mut kept = SideBand::default();
        let count = times.clone().count() as u32;
        let record = [&3u32.to_ne_bytes()[..], &[0, 0, 16, 0], &[0; 8]].concat();
        times.for_each(|time| kept.add(&record, time, room));
        (kept, [Block { side_band: count, ..Block::default() }])
    }

    #[test]
    fn what_had_no_room_is_not_taken_for_what_had() {
        let (mut first, [one]) = kept(0..3, 160);
        // All of it, a part of it, and what is behind that part.
        let [(second, mut two), (third, mut three), (fourth, mut four)] =
            [kept(3..6, 160), kept(6..9, 32), kept(9..10, 160)];
        first.append(&second, &mut two, 160);
        first.append(&third, &mut three, 160);
        first.append(&fourth, &mut four, 160);
        assert_eq!((first.met, first.kept.len()), (10, 8));
        assert_eq!(first.times(&one), Some(vec![0, 1, 2]));
        assert_eq!(first.times(&two[0]), Some(vec![3, 4, 5]));
        assert_eq!((first.times(&three[0]), first.times(&four[0])), (None, None));
        // It has no room for all of what follows, and nothing behind that.
        let (mut first, _) = kept(0..3, 160);
        let (second, mut two) = kept(3..11, 160);
        first.append(&second, &mut two, 160);
        let (third, mut three) = kept(11..12, 160);
        first.append(&third, &mut three, 160);
        assert_eq!((first.met, first.kept.len(), first.times(&two[0]), first.times(&three[0])), (12, 3, None, None));
    }
}
