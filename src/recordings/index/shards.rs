//! Divides a recording into shards for several readers, with about the same number of samples each.

use std::{sync::Arc, time::Duration};

use perf_prof_format::spec::CpuSet;

use crate::{Block, BlockIndex};

/// Returns the times at which the range from `begin` to `end` is divided into `shards` parts. Each part has about the
/// same number of samples. The samples of a block are assumed to be spread evenly between its first and its last
/// sample.
pub fn by_time(indexes: &[Arc<BlockIndex>], (begin, end): (u64, u64), shards: usize) -> Vec<u64> {
    let blocks = || indexes.iter().flat_map(|index| &index.blocks).filter(|block| block.samples > 0);
    let before = |time: u64| -> f64 {
        let of_block = |&Block { sampled: (first, last), samples, .. }: &Block| {
            let share = time.saturating_sub(first) as f64 / ((last - first) as f64 + 1.0);
            f64::from(samples) * share.min(1.0)
        };
        blocks().map(of_block).sum()
    };
    let (earlier, all) = (before(begin), before(end.saturating_add(1)));
    let mut borders = Vec::new();
    for shard in 1..shards.max(1) {
        let wanted = earlier + (all - earlier) * shard as f64 / shards as f64;
        let (mut low, mut high) = (begin, end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        if low > begin && borders.last() != Some(&low) {
            borders.push(low);
        }
    }
    borders
}

/// Returns times at which parts with about `samples` samples begin. Each of these times is the start of a block, so
/// that few blocks are in two parts. This is faster than [`by_time`], but the sizes of the parts differ more.
pub fn at_blocks(indexes: &[Arc<BlockIndex>], samples: u64) -> Vec<u64> {
    let blocks = indexes.iter().flat_map(|index| &index.blocks).filter(|block| block.samples > 0);
    let mut begins: Vec<(u64, u32)> = blocks.map(|block| (block.sampled.0, block.samples)).collect();
    begins.sort_unstable();
    let (mut borders, mut before, mut last) = (Vec::new(), 0, begins.first().map_or(0, |(first, _)| *first));
    for (begin, count) in begins {
        if before >= samples && begin > last {
            borders.push(begin);
            (before, last) = (0, begin);
        }
        before += u64::from(count);
    }
    borders
}

/// Moves each time in `borders` to the nearest end of an interval, so that no interval is divided between two parts.
/// The intervals start at `begin`. The result may have fewer times than `borders`.
pub fn aligned(borders: &[u64], begin: u64, interval: Duration) -> Vec<u64> {
    let every = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
    let nearest = |border: &u64| {
        let since = border.saturating_sub(begin);
        let intervals = since / every + u64::from(since % every >= every.div_ceil(2));
        (intervals != 0).then(|| begin.saturating_add(every.saturating_mul(intervals)))
    };
    let mut aligned: Vec<u64> = borders.iter().filter_map(nearest).collect();
    aligned.dedup();
    aligned
}

/// Returns the ranges of time between the times in `borders`. Each range is given by its first and its last nanosecond.
/// Every time is in one of the ranges.
pub fn between(borders: &[u64]) -> Vec<(u64, u64)> {
    let first = std::iter::once(0).chain(borders.iter().copied());
    let last = borders.iter().map(|border| border - 1).chain([u64::MAX]);
    first.zip(last).collect()
}

/// An upper bound for CPU numbers: `CONFIG_NR_CPUS` is at most this number on every architecture. CPU numbers may have
/// gaps, so a CPU number in a recording may be higher than the number of CPUs.
const CPUS: u32 = 8192;

/// Returns `shards` sets of CPUs that together contain all CPUs.
pub fn by_cpu(shards: usize) -> Vec<CpuSet> {
    let count = shards.max(1);
    (0..count as u32).map(|shard| (shard..CPUS).step_by(count).collect()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn index(blocks: &[(u64, u64, u32)]) -> Arc<BlockIndex> {
        let block = |&(first, last, samples): &(u64, u64, u32)| {
            let (records, rest) = (samples, Block::default());
            Block { records, samples, first, sampled: (first, last), ..rest }
        };
        Arc::new(BlockIndex { blocks: blocks.iter().map(block).collect(), ..BlockIndex::default() })
    }

    fn check(blocks: &[(u64, u64, u32)], within: (u64, u64), shards: usize, expect: Expect) {
        expect.assert_eq(&format!("{:?}", by_time(&[index(blocks)], within, shards)));
    }

    #[test]
    fn each_shard_has_as_many_samples() {
        check(&[(100, 199, 1000)], (100, 199), 2, expect!["[150]"]);
        // Most samples are at the end.
        check(&[(0, 999, 10), (1000, 1099, 990)], (0, 1099), 2, expect!["[1050]"]);
        // Only the samples in the selected time are counted.
        check(&[(100, 199, 1000)], (120, 139), 2, expect!["[130]"]);
        check(&[], (0, u64::MAX), 4, expect!["[]"]);
        // There cannot be more parts than different times.
        check(&[(5, 5, 100)], (5, 5), 3, expect!["[]"]);
    }

    #[test]
    fn parts_begin_where_blocks_begin() {
        let check = |blocks: &[(u64, u64, u32)], samples: u64, expect: Expect| {
            expect.assert_eq(&format!("{:?}", at_blocks(&[index(blocks)], samples)));
        };
        let blocks = [(10, 19, 100), (12, 29, 100), (20, 30, 100), (30, 39, 0), (31, 40, 100)];
        check(&blocks, 100, expect!["[12, 20, 31]"]);
        check(&blocks, 150, expect!["[20]"]);
        check(&blocks, 1000, expect!["[]"]);
        // Every part contains samples.
        check(&[(5, 5, 100), (5, 9, 100), (7, 9, 100)], 100, expect!["[7]"]);
        check(&[], 100, expect!["[]"]);
    }

    #[test]
    fn intervals_lie_in_one_shard() {
        let check = |borders: &[u64], expect: Expect| {
            let aligned = aligned(borders, 100, Duration::from_nanos(10));
            expect.assert_eq(&format!("{aligned:?} {:?}", between(&aligned)));
        };
        check(&[], expect!["[] [(0, 18446744073709551615)]"]);
        check(&[104], expect!["[] [(0, 18446744073709551615)]"]);
        check(&[105, 121, 122], expect!["[110, 120] [(0, 109), (110, 119), (120, 18446744073709551615)]"]);
    }

    #[test]
    fn cpus_are_dealt_out() {
        let shards = by_cpu(2);
        let shown: Vec<String> =
            shards.iter().map(|cpus| format!("{:?}", cpus.iter().take(3).collect::<Vec<_>>())).collect();
        assert_eq!(shown, ["[0, 2, 4]", "[1, 3, 5]"]);
        assert_eq!(shards.iter().map(CpuSet::len).sum::<usize>(), CPUS as usize);
        assert_eq!(by_cpu(0).len(), 1);
    }

    proptest! {
        #[test]
        fn every_time_is_in_one_shard(
            blocks in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30, 0u32..5000), 0..20),
            shards in 0usize..9,
            interval in 1u64..1 << 40,
        ) {
            let blocks: Vec<_> = blocks.into_iter().map(|(first, length, samples)| (first, first + length, samples)).collect();
            let begin = blocks.iter().map(|block| block.0).min().unwrap_or(0);
            let end = blocks.iter().map(|block| block.1).max().unwrap_or(0);
            let borders = by_time(&[index(&blocks)], (begin, end), shards);
            for borders in [aligned(&borders, begin, Duration::from_nanos(interval)), borders] {
                let ranges = between(&borders);
                prop_assert!(ranges.len() <= shards.max(1));
                prop_assert_eq!(ranges[0].0, 0);
                prop_assert_eq!(ranges[ranges.len() - 1].1, u64::MAX);
                prop_assert!(ranges.iter().all(|&(first, last)| first <= last));
                prop_assert!(ranges.windows(2).all(|two| two[0].1 + 1 == two[1].0));
            }
        }
    }
}
