//! Code that was made at run time: functions by address, the later one where two overlap. Knows no file format.

use std::{collections::BTreeMap, sync::Arc};

/// Functions by address, within a bound of memory.
#[derive(Debug)]
pub struct CodeMap {
    /// By first address: the address behind the last, and the name.
    functions: BTreeMap<u64, (u64, Arc<str>)>,
    bytes: usize,
    limit: usize,
    /// Functions for which there was no room.
    dropped: u64,
}

/// What an entry costs beside its name: its place in the tree, and the name's counts and allocation.
const ENTRY: usize = 80;

impl CodeMap {
    /// None yet; `limit` bounds the bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self { functions: BTreeMap::new(), bytes: 0, limit, dropped: 0 }
    }

    /// Adds a function. What it overlaps is no longer there.
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

    /// A function has moved.
    pub fn move_to(&mut self, from: u64, to: u64, size: u64) {
        let Some((end, name)) = self.functions.remove(&from) else { return };
        self.bytes -= ENTRY + name.len();
        self.insert(to, if size == 0 { end - from } else { size }, &name);
    }

    /// The function that an address is in, and its start.
    pub fn lookup(&self, address: u64) -> Option<(u64, &Arc<str>)> {
        let (&start, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some((start, name))
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Bytes of memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there was no room for some.
    pub fn is_cut(&self) -> bool {
        self.dropped > 0
    }

    /// Nothing overlaps within, so what overlaps a range is the last before its end, and the ones before that.
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
        /// The oracle: a list of all, asked from its end.
        #[test]
        fn as_a_list_asked_from_its_end(functions in prop::collection::vec((0u64..60, 0u64..9), 0..40), limit in 0usize..6000) {
            let mut map = CodeMap::new(limit);
            for (number, &(start, size)) in functions.iter().enumerate() {
                map.insert(start, size, &number.to_string());
            }
            prop_assert!(map.bytes() <= limit);
            if map.is_cut() {
                return Ok(());
            }
            for at in 0..70 {
                let list = functions.iter().enumerate().rev().find(|(_, (start, size))| (*start..start + size).contains(&at));
                // One that was overlapped is gone as a whole.
                let gone = list.is_some_and(|(number, &(start, size))| functions[number + 1..].iter().any(|&(other, other_size)| other_size > 0 && other < start + size && start < other + other_size));
                let expected = if gone { None } else { list.map(|(number, _)| number.to_string()) };
                prop_assert_eq!(map.lookup(at).map(|(_, name)| name.to_string()), expected);
            }
        }
    }
}
