//! A recording divided for several readers, each with about the same number of samples.

use std::sync::Arc;

use super::{Block, BlockIndex};
use crate::spec::CpuSet;

/// Ranges of time, first and last nanosecond, that together are all of it: so many, with about as many samples in each.
/// Within a block samples are taken to be spread evenly.
pub fn by_time(indexes: &[Arc<BlockIndex>], shards: usize) -> Vec<(u64, u64)> {
    let blocks = || indexes.iter().flat_map(|index| &index.blocks).filter(|block| block.samples > 0);
    let before = |time: u64| -> f64 {
        let of_block = |first: u64, last: u64, samples: u32| {
            let share = time.saturating_sub(first) as f64 / ((last - first) as f64 + 1.0);
            f64::from(samples) * share.min(1.0)
        };
        blocks().map(|block| of_block(block.first, block.last, block.samples)).sum()
    };
    let total: f64 = blocks().map(|block| f64::from(block.samples)).sum();
    let (first, last) = (blocks().map(|block| block.first).min(), blocks().map(|block| block.last).max());
    let (Some(first), Some(last)) = (first, last) else { return vec![(0, u64::MAX)] };
    let mut ranges = Vec::new();
    let mut begin = 0;
    for shard in 1..shards.max(1) {
        let wanted = total * shard as f64 / shards as f64;
        let (mut low, mut high) = (first, last);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        if low > begin {
            ranges.push((begin, low - 1));
            begin = low;
        }
    }
    ranges.push((begin, u64::MAX));
    ranges
}

/// Ranges of time as [`by_time`] gives them, of the same length, for a recording of which nobody knows where its samples
/// lie.
pub fn evenly((first, last): (u64, u64), shards: usize) -> Vec<(u64, u64)> {
    by_time(
        &[Arc::new(BlockIndex { blocks: vec![Block { samples: 1, first, last, ..Block::default() }], samples: None })],
        shards,
    )
}

/// Sets of CPUs that together are all of them: so many, or as many as there are CPUs.
pub fn by_cpu(cpus: &CpuSet, shards: usize) -> Vec<CpuSet> {
    let count = shards.clamp(1, cpus.iter().count().max(1));
    (0..count).map(|shard| cpus.iter().skip(shard).step_by(count).collect()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn index(blocks: &[(u64, u64, u32)]) -> Arc<BlockIndex> {
        let block = |&(first, last, samples): &(u64, u64, u32)| {
            let (offset, size, records, before) = (0, 0, samples, 0);
            Block { offset, size, records, samples, first, last, before }
        };
        Arc::new(BlockIndex { blocks: blocks.iter().map(block).collect(), samples: None })
    }

    fn check(blocks: &[(u64, u64, u32)], shards: usize, expect: Expect) {
        expect.assert_eq(&format!("{:?}", by_time(&[index(blocks)], shards)));
    }

    #[test]
    fn each_shard_has_as_many_samples() {
        check(&[(100, 199, 1000)], 2, expect!["[(0, 149), (150, 18446744073709551615)]"]);
        // Most of it at its end.
        check(&[(0, 999, 10), (1000, 1099, 990)], 2, expect!["[(0, 1049), (1050, 18446744073709551615)]"]);
        check(&[], 4, expect!["[(0, 18446744073709551615)]"]);
        // No more than there are times.
        check(&[(5, 5, 100)], 3, expect!["[(0, 4), (5, 18446744073709551615)]"]);
    }

    #[test]
    fn cpus_are_dealt_out() {
        let shards = by_cpu(&"0-4".parse().unwrap(), 2);
        let shown: Vec<String> = shards.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0,2,4", "1,3"]);
        assert_eq!(by_cpu(&"7".parse().unwrap(), 3).len(), 1);
    }

    proptest! {
        #[test]
        fn every_time_is_in_one_shard(
            blocks in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30, 0u32..5000), 0..20),
            shards in 0usize..9,
        ) {
            let blocks: Vec<_> = blocks.into_iter().map(|(first, length, samples)| (first, first + length, samples)).collect();
            let ranges = by_time(&[index(&blocks)], shards);
            prop_assert!(ranges.len() <= shards.max(1));
            prop_assert_eq!(ranges[0].0, 0);
            prop_assert_eq!(ranges[ranges.len() - 1].1, u64::MAX);
            prop_assert!(ranges.iter().all(|&(first, last)| first <= last));
            prop_assert!(ranges.windows(2).all(|two| two[0].1 + 1 == two[1].0));
        }
    }
}
