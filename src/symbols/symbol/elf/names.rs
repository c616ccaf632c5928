//! The names of symbols, in the string tables of their files. Many symbols may refer to the same bytes, so the time and
//! the memory for names have limits.

use std::collections::BTreeMap;

/// The maximum length of a name in bytes. Longer names are cut. Compilers make no longer names, and the demangler
/// accepts none. But in a damaged file, a million symbols may share one name of many megabytes.
pub const NAME_LIMIT: usize = 64 << 10;

/// The position of a name. The upper bits are the number of a string table, and the lower bits are the offset in this
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameAt(u32);

/// The number of bits for the offset in `NameAt`. An offset in the largest string table that is read fits into these
/// bits (`SECTION_LIMIT` in file.rs).
const PLACE_BITS: u32 = 30;

impl NameAt {
    /// Creates a position. Returns `None` if the numbers are too large.
    pub fn new(table: usize, at: u32) -> Option<Self> {
        (table < 4 && at >> PLACE_BITS == 0).then_some(Self((table as u32) << PLACE_BITS | at))
    }

    fn table(self) -> usize {
        (self.0 >> PLACE_BITS) as usize
    }

    /// Returns the offset in the string table.
    pub fn offset(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }

    fn rest(self, tables: &[Vec<u8>]) -> &[u8] {
        tables.get(self.table()).and_then(|table| table.get(self.offset()..)).unwrap_or_default()
    }

    /// Returns the name, cut to `NAME_LIMIT` bytes.
    pub fn bytes(self, tables: &[Vec<u8>]) -> &[u8] {
        until_nul(self.rest(tables))
    }
}

/// Returns the bytes before the first NUL, at most `NAME_LIMIT`.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(NAME_LIMIT)];
    &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())]
}

/// Finds the lengths of names. Many symbols may refer into one long name. Still, each byte of a string table is
/// searched for the end of a name at most once.
#[derive(Debug)]
pub(super) struct NameLengths<'a> {
    tables: &'a [Vec<u8>],
    /// For each string table, the names whose ends are known. The key is the offset of the name's end. The value is the
    /// lowest known offset of a name with this end.
    known: Vec<BTreeMap<usize, usize>>,
    /// The number of bytes that were searched.
    searched: usize,
}

/// The maximum number of leading underscores that are counted.
const UNDERSCORES: usize = 255;

impl<'a> NameLengths<'a> {
    /// Creates a value in which no length is known yet.
    pub fn new(tables: &'a [Vec<u8>]) -> Self {
        Self { tables, known: vec![BTreeMap::new(); tables.len()], searched: 0 }
    }

    /// Returns the length of a name in bytes.
    pub fn length(&mut self, name: NameAt) -> usize {
        let (table, at) = (name.table(), name.offset());
        let (Some(bytes), Some(known)) = (self.tables.get(table), self.known.get_mut(table)) else { return 0 };
        if at >= bytes.len() {
            return 0;
        }
        let next = known.range(at..).next().map(|(&end, &from)| (end, from));
        let until = match next {
            Some((end, from)) if from <= at => return end - at,
            Some((_, from)) => from,
            None => bytes.len(),
        };
        let found = bytes.get(at..until).unwrap_or_default().iter().position(|&byte| byte == 0);
        self.searched += found.map_or(until - at, |length| length + 1);
        // If there is no NUL before the start of the next known name, this name ends where the known name ends.
        let end = found.map_or(next.map_or(until, |(end, _)| end), |length| at + length);
        known.insert(end, at);
        end - at
    }

    /// Returns the number of underscores at the start of a name.
    pub fn underscores(&self, name: NameAt) -> usize {
        name.rest(self.tables).iter().take(UNDERSCORES).take_while(|&&byte| byte == b'_').count()
    }

    /// Returns the number of bytes that were searched for ends of names so far.
    #[cfg(test)]
    fn searched(&self) -> usize {
        self.searched
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_name_is_searched_once_for_all_symbols_that_refer_into_it() {
        let tables = [[vec![b'_'; 1 << 20], vec![0]].concat()];
        let mut lengths = NameLengths::new(&tables);
        for at in (0..1 << 20).rev().step_by(3).chain((0..1 << 20).step_by(5)) {
            let name = NameAt::new(0, at).unwrap();
            assert_eq!(lengths.length(name), (1 << 20) - at as usize);
        }
        let whole = NameAt::new(0, 0).unwrap();
        assert_eq!((lengths.underscores(whole), whole.bytes(&tables).len()), (UNDERSCORES, NAME_LIMIT));
        assert!(lengths.searched() <= tables[0].len(), "{}", lengths.searched());
    }

    proptest! {
        /// Oracle: a search for the end of each single name.
        #[test]
        fn lengths_are_those_of_single_searches(table in prop::collection::vec(0u8..3, 0..60), asked in prop::collection::vec(0u32..70, 0..60)) {
            let tables = [table];
            let mut lengths = NameLengths::new(&tables);
            for at in asked {
                let name = NameAt::new(0, at).unwrap();
                prop_assert_eq!(lengths.length(name), until_nul(name.rest(&tables)).len());
            }
            prop_assert!(lengths.searched() <= tables[0].len());
        }
    }
}
