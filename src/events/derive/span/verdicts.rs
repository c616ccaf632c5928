//! Caches the results of a filter that reads only the text of a number, such as the name of a system call.

use rustc_hash::FxHashMap;

/// The maximum number of cached results. It is larger than the number of system calls, and than the number of errnos.
const MOST: usize = 4096;

/// The results of a filter that reads one text field, by the number that the text is made from.
pub(super) struct Verdicts {
    /// The index of the field.
    pub field: usize,
    known: FxHashMap<i64, bool>,
}

impl Verdicts {
    /// Creates an empty cache for a filter over this field.
    pub fn new(field: usize) -> Verdicts {
        Verdicts { field, known: FxHashMap::default() }
    }

    #[inline]
    pub fn get(&self, number: i64) -> Option<bool> {
        self.known.get(&number).copied()
    }

    pub fn remember(&mut self, number: i64, passes: bool) {
        if self.known.len() == MOST {
            self.known.clear();
        }
        self.known.insert(number, passes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded() {
        let mut verdicts = Verdicts::new(0);
        for number in 0..3 * MOST as i64 {
            verdicts.remember(number, number % 2 == 0);
            assert_eq!(verdicts.get(number), Some(number % 2 == 0));
        }
        assert!(verdicts.known.len() <= MOST);
    }
}
