//! The branches in a sample (PERF_SAMPLE_BRANCH_STACK).

use super::layout::SampleLayout;
use crate::abi::{PERF_SAMPLE_BRANCH_HW_INDEX, PERF_SAMPLE_BRANCH_STACK};

/// A branch that the CPU recorded (`struct perf_branch_entry` in `include/uapi/linux/perf_event.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The address of the branch instruction.
    pub from: u64,
    /// The address that the branch instruction jumped to.
    pub to: u64,
    /// The bit fields after the addresses.
    flags: u64,
}

impl Branch {
    /// Returns whether the CPU predicted the target of the branch wrongly.
    pub fn mispred(self) -> bool {
        self.bits(0, 1) != 0
    }

    /// Returns whether the CPU predicted the target of the branch correctly. If neither this function nor
    /// [`Branch::mispred`] returns true, the CPU does not report predictions.
    pub fn predicted(self) -> bool {
        self.bits(1, 1) != 0
    }

    /// Returns whether the branch was in a transaction.
    pub fn in_tx(self) -> bool {
        self.bits(2, 1) != 0
    }

    /// Returns whether the branch aborted a transaction.
    pub fn abort(self) -> bool {
        self.bits(3, 1) != 0
    }

    /// Returns the number of CPU cycles since the previous branch; 0 if the CPU does not report this number.
    pub fn cycles(self) -> u16 {
        self.bits(4, 16) as u16
    }

    /// Returns the type of the branch instruction (`PERF_BR_*`); 0 if the CPU does not report it.
    pub fn kind(self) -> u8 {
        self.bits(20, 4) as u8
    }

    fn bits(self, first: u32, count: u32) -> u64 {
        // A C bit field starts at the lowest bit of a word on little-endian machines, and at the highest bit on
        // big-endian machines.
        let shift = if cfg!(target_endian = "little") { first } else { 64 - first - count };
        self.flags >> shift & ((1 << count) - 1)
    }
}

impl SampleLayout {
    /// Returns the branches of a sample, the latest first. Returns `None` if the layout has no branches or if the record
    /// is cut off.
    pub fn branches<'a>(&self, record: &'a [u8]) -> Option<impl ExactSizeIterator<Item = Branch> + use<'a>> {
        const ENTRY: usize = 24;
        let (count, rest) = self.variable(record, PERF_SAMPLE_BRANCH_STACK)?.split_first_chunk()?;
        // The number of entries comes first. With PERF_SAMPLE_BRANCH_HW_INDEX, an index of the hardware is between this
        // number and the entries.
        let skipped = if self.format.branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX != 0 { 8 } else { 0 };
        let size = usize::try_from(u64::from_ne_bytes(*count)).ok()?.checked_mul(ENTRY)?;
        let entries = rest.get(skipped..)?.get(..size)?;
        let word = |entry: &[u8], at: usize| entry[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        Some(entries.chunks_exact(ENTRY).map(move |entry| Branch {
            from: word(entry, 0),
            to: word(entry, 8),
            flags: word(entry, 16),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        abi::{PERF_SAMPLE_BRANCH_ANY, PERF_SAMPLE_BRANCH_COUNTERS, PERF_SAMPLE_IP},
        record::SampleFormat,
    };

    fn record(words: &[u64]) -> Vec<u8> {
        let mut record = [9u32.to_ne_bytes(), [0; 4]].concat();
        words.iter().for_each(|word| record.extend(word.to_ne_bytes()));
        record
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn branches_are_read_in_every_layout() {
        let flags = 0b1101 | 77 << 4;
        let entries = [0x1000, 0x2000, flags, 0x3000, 0x4000, 0b10];
        for (branch_sample_type, before, after) in [
            (PERF_SAMPLE_BRANCH_ANY, &[][..], &[][..]),
            (PERF_SAMPLE_BRANCH_HW_INDEX, &[u64::MAX], &[]),
            (PERF_SAMPLE_BRANCH_HW_INDEX | PERF_SAMPLE_BRANCH_COUNTERS, &[5], &[6, 7]),
        ] {
            let sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_BRANCH_STACK;
            let format = SampleFormat { sample_type, branch_sample_type, ..SampleFormat::default() };
            let layout = SampleLayout::from_format(format);
            let record = record(&[&[9, 2][..], before, &entries, after].concat());
            let branches: Vec<Branch> = layout.branches(&record).unwrap().collect();
            let [first, second] = branches[..] else { panic!("{branches:?}") };
            assert_eq!((first.from, first.to, first.cycles()), (0x1000, 0x2000, 77));
            assert_eq!((first.mispred(), first.predicted(), first.in_tx(), first.abort()), (true, false, true, true));
            assert_eq!((second.from, second.predicted(), second.mispred(), second.cycles()), (0x3000, true, false, 0));
            (8..record.len()).for_each(|cut| assert!(layout.branches(&record[..cut]).is_none(), "{cut}"));
        }
        assert!(SampleLayout::new(PERF_SAMPLE_IP, 0).branches(&record(&[9, 0])).is_none());
    }
}
