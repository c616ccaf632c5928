//! Functions that were generated at run time, by address. A new function replaces all functions that it overlaps. This
//! module knows no file format.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Functions by address, with a memory limit.
#[derive(Debug)]
pub struct CodeMap {
    /// For each function, by its first address: the address after its last byte, and its name.
    functions: BTreeMap<u64, (u64, Arc<str>)>,
    bytes: usize,
    limit: usize,
    /// The number of functions that were not added because of `limit`.
    dropped: u64,
}

/// The estimated memory of an entry in bytes, without the text of its name. It includes the entry in the tree, and the
/// reference counts and the allocation of the name.
const ENTRY: usize = 80;

impl CodeMap {
    /// Creates an empty map. `limit` is the maximum memory in bytes.
    pub fn new(limit: usize) -> Self {
        Self { functions: BTreeMap::new(), bytes: 0, limit, dropped: 0 }
    }

    /// Adds a function and removes the functions that it overlaps. If there is not enough memory, the new function is
    /// not added.
    pub fn insert(&mut self, start: u64, size: u64, name: &str) {
        let Some(end) = start.checked_add(size).filter(|&end| start < end) else { return };
        self.clear(start, end);
        if self.bytes + ENTRY + name.len() > self.limit {
            self.dropped += 1;
            return;
        }
        self.bytes += ENTRY + name.len();
        self.functions.insert(start, (end, name.into()));
    }

    /// Moves the function that starts at `from` to the address `to`. If `size` is 0, the function keeps its size.
    pub fn move_to(&mut self, from: u64, to: u64, size: u64) {
        let Some((end, name)) = self.functions.remove(&from) else { return };
        self.bytes -= ENTRY + name.len();
        self.insert(to, if size == 0 { end - from } else { size }, &name);
    }

    /// Returns the function that contains an address: its first address and its name.
    pub fn lookup(&self, address: u64) -> Option<(u64, &Arc<str>)> {
        self.lookup_range(address).map(|(range, name)| (range.start, name))
    }

    /// Returns the function that contains an address: the range of its addresses, and its name.
    pub fn lookup_range(&self, address: u64) -> Option<(Range<u64>, &Arc<str>)> {
        let (&start, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some((start..*end, name))
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the approximate memory that is used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether some functions were not added because of the memory limit.
    pub fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// Removes the functions that overlap the range from `start` to `end`. Functions in the map do not overlap each
    /// other. So the search goes backwards from the last function that starts before `end`, and stops at a function
    /// that ends at or before `start`.
    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&at, &(old_end, _))) = self.functions.range(..end).next_back()
            && old_end > start
        {
            if let Some((_, name)) = self.functions.remove(&at) {
                self.bytes -= ENTRY + name.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn later_code_takes_the_place_of_earlier() {
        let mut map = CodeMap::new(1 << 20);
        map.insert(0x100, 0x20, "old");
        map.insert(0x90, 0x100, "new");
        assert_eq!(map.lookup(0x110).unwrap().1.as_ref(), "new");
        map.move_to(0x90, 0x1000, 0);
        assert!(map.lookup(0x110).is_none());
        assert_eq!(map.lookup(0x10ff).unwrap(), (0x1000, &"new".into()));
    }

    proptest! {
        /// Oracle: a search through the list of inserted functions, from the last to the first.
        #[test]
        fn as_a_list_asked_from_its_end(functions in prop::collection::vec((0u64..60, 0u64..9), 0..40), limit in 0usize..6000) {
            let mut map = CodeMap::new(limit);
            for (number, &(start, size)) in functions.iter().enumerate() {
                map.insert(start, size, &number.to_string());
            }
            prop_assert!(map.bytes() <= limit);
            if map.has_dropped() {
                return Ok(());
            }
            for at in 0..70 {
                let list = functions.iter().enumerate().rev().find(|(_, (start, size))| (*start..start + size).contains(&at));
                // A later function that overlaps this one has removed it as a whole.
                let gone = list.is_some_and(|(number, &(start, size))| functions[number + 1..].iter().any(|&(other, other_size)| other_size > 0 && other < start + size && start < other + other_size));
                let expected = if gone { None } else { list.map(|(number, _)| number.to_string()) };
                prop_assert_eq!(map.lookup(at).map(|(_, name)| name.to_string()), expected);
            }
        }
    }
}
