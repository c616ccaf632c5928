//! A list of mappings that finds the mappings in a range of addresses without comparing all of them.

use std::{collections::BTreeSet, ops::Deref};

use super::mapping_history::TimedMapping;

/// The memory of a mapping in bytes, including its entry in the index.
pub const MAPPING_BYTES: usize = size_of::<TimedMapping>() + 40;
/// The minimum length of a list with an index.
const INDEXED: usize = 256;
/// The maximum number of mappings that the index returns. If a range contains more, the whole list is searched instead.
const FOUND_LIMIT: usize = 256;

/// Mappings in the order of their times.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    list: Vec<TimedMapping>,
    /// The positions in the list by address. `None` for a short list, and after a change that moved positions.
    index: Option<Index>,
}

/// The positions of mappings, by size class and first address. The size class of a mapping is the number of the highest
/// bit that is set in its size. So a mapping of class `c` that overlaps a range starts less than `2 << c` bytes before
/// the range.
#[derive(Clone, Debug, Default)]
struct Index {
    places: BTreeSet<(u32, u64, usize)>,
    /// A mask of the size classes that have a mapping.
    classes: u64,
}

impl Index {
    fn add(&mut self, mapping: &TimedMapping, at: usize) {
        let class = mapping.end.saturating_sub(mapping.start).max(1).ilog2();
        self.classes |= 1 << class;
        self.places.insert((class, mapping.start, at));
    }

    /// Returns the positions of all mappings that may overlap a range, in any order.
    fn candidates(&self, start: u64, end: u64) -> impl Iterator<Item = usize> {
        (0..u64::BITS).filter(|class| self.classes & 1 << class != 0).flat_map(move |class| {
            let lowest = start.saturating_sub((1u64 << class).saturating_mul(2));
            self.places.range((class, lowest, 0)..(class, end, 0)).map(|&(_, _, at)| at)
        })
    }
}

impl Mappings {
    /// Inserts a mapping at the position `at`.
    pub fn insert(&mut self, at: usize, mapping: TimedMapping) {
        if at < self.list.len() {
            // The positions of other mappings change. The next mapping that is added at the end creates the index
            // again.
            self.index = None;
        } else if let Some(index) = &mut self.index {
            index.add(&mapping, at);
        }
        self.list.insert(at, mapping);
        if self.index.is_none() && at + 1 == self.list.len() && at >= INDEXED {
            let mut index = Index::default();
            self.list.iter().enumerate().for_each(|(at, mapping)| index.add(mapping, at));
            self.index = Some(index);
        }
    }

    /// Drops the first mappings.
    pub fn drop_first(&mut self, count: usize) {
        self.index = None;
        self.list.drain(..count);
    }

    /// Removes the mappings from the position `at` on, and returns them.
    pub fn split_off(&mut self, at: usize) -> Vec<TimedMapping> {
        self.index = None;
        self.list.split_off(at)
    }

    /// Returns the mappings that overlap a range.
    pub fn overlapping(&self, start: u64, end: u64) -> Overlapping<'_> {
        let few = self.index.as_ref().and_then(|index| {
            let mut found: Vec<usize> = index.candidates(start, end).take(FOUND_LIMIT).collect();
            if found.len() == FOUND_LIMIT {
                return None;
            }
            found.retain(|&at| self.list[at].overlaps(start, end));
            found.sort_unstable();
            Some(found)
        });
        Overlapping { list: &self.list, range: (start, end), few }
    }
}

/// The mappings that overlap a range, by their positions in the list.
///
/// A range may overlap very many mappings, for example all files that a process has mapped at one address, one after
/// the other. So a search starts at the position that the caller needs, and ends where the caller stops reading.
pub struct Overlapping<'a> {
    list: &'a [TimedMapping],
    range: (u64, u64),
    /// The positions in ascending order. `None` if the index did not find all of them.
    few: Option<Vec<usize>>,
}

impl Overlapping<'_> {
    fn has(&self, at: usize) -> bool {
        self.list[at].overlaps(self.range.0, self.range.1)
    }

    /// Returns the positions from `first` on, in ascending order.
    pub fn starting_at(&self, first: usize) -> impl Iterator<Item = usize> {
        let few = self.few.as_ref().map(|few| few[few.partition_point(|&at| at < first)..].iter().copied());
        let many = first..if self.few.is_some() { first } else { self.list.len() };
        few.into_iter().flatten().chain(many.filter(|&at| self.has(at)))
    }

    /// Returns the positions before `end`, in descending order.
    pub fn before(&self, end: usize) -> impl Iterator<Item = usize> {
        let few = self.few.as_ref().map(|few| few[..few.partition_point(|&at| at < end)].iter().rev().copied());
        let many = 0..if self.few.is_some() { 0 } else { end };
        few.into_iter().flatten().chain(many.rev().filter(|&at| self.has(at)))
    }
}

impl From<Vec<TimedMapping>> for Mappings {
    fn from(list: Vec<TimedMapping>) -> Self {
        Self { list, index: None }
    }
}

impl Deref for Mappings {
    type Target = [TimedMapping];

    fn deref(&self) -> &[TimedMapping] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use proptest::prelude::*;

    use super::*;
    use crate::symbol::{
        mapping_history::{Contents, FileKey, Image, ImageOrigin, MappedFile},
        maps::Backing,
    };

    fn file() -> Arc<MappedFile> {
        let key = FileKey {
            path: "/f".into(),
            device: (0, 0),
            inode: 1,
            generation: 0,
            build_id: None,
            deleted: false,
            contents: Contents::Code,
        };
        Arc::new(MappedFile { id: 1, key, dso: "/f".into(), backing: Backing::File })
    }

    proptest! {
        /// Oracle: a search of the whole list.
        #[test]
        fn the_index_finds_what_the_list_has(
            ranges in prop::collection::vec((0u64..1 << 40, 0u32..40, 0u8..20), 1..700),
            asked in prop::collection::vec((0u64..1 << 40, 0u32..40), 1..40),
        ) {
            let mut mappings = Mappings::default();
            let file = file();
            for (time, &(start, bits, kind)) in ranges.iter().enumerate() {
                let end = start + (1 << bits) + start % 7;
                let mapping = TimedMapping { time: time as u64, start, end, file_offset: 0, file: Arc::clone(&file) };
                match kind {
                    0 => mappings.insert(mappings.len() / 2, mapping),
                    1 => mappings.drop_first(mappings.len() / 8),
                    _ => mappings.insert(mappings.len(), mapping),
                }
            }
            for &(start, bits) in &asked {
                let end = start + (1 << bits);
                let all = mappings.iter().enumerate().filter(|(_, mapping)| mapping.overlaps(start, end));
                let all: Vec<usize> = all.map(|(at, _)| at).collect();
                let (found, middle) = (mappings.overlapping(start, end), mappings.len() / 2);
                let (early, late) = all.split_at(all.partition_point(|&at| at < middle));
                prop_assert_eq!(found.starting_at(0).collect::<Vec<_>>(), &all[..]);
                prop_assert_eq!(found.starting_at(middle).collect::<Vec<_>>(), late);
                prop_assert_eq!(found.before(middle).collect::<Vec<_>>(), early.iter().rev().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_mapping_that_moves_is_compared_with_few_others() {
        let mut mappings = Mappings::default();
        let file = file();
        let mut compared = 0;
        for time in 0..60_000u64 {
            let start = (time * 7919 % 30_000) << 13;
            let index = mappings.index.as_ref();
            compared += index.map_or(0, |index| index.candidates(start, start + 4096).take(FOUND_LIMIT).count());
            assert!(index.is_some() || mappings.len() <= INDEXED);
            let mapping = TimedMapping { time, start, end: start + 4096, file_offset: 0, file: Arc::clone(&file) };
            mappings.insert(mappings.len(), mapping);
        }
        assert!(compared < 60_000 * 8, "{compared}");
    }

    /// A program that maps one file after the other at one address must not delay the end of a trace. Comparing all
    /// mappings with each other would take minutes.
    #[test]
    fn files_that_follow_each_other_at_one_address_are_not_all_compared() {
        let mut image = Image::new(1, 0, ImageOrigin::Start);
        let start = Instant::now();
        for time in 0..60_000 {
            let mapping = TimedMapping { time, start: 0x1000, end: 0x3000, file_offset: time << 12, file: file() };
            assert_eq!(image.insert(mapping), time > 0);
        }
        for time in 0..60_000 {
            let found = image.locate(0x2000, time).unwrap();
            assert_eq!((found.mapping.time, found.until), (time, if time < 59_999 { time + 1 } else { u64::MAX }));
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
