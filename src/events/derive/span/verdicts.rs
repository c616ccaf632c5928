//! What a filter said of a number, so that it is asked once for each number and not for each span.

use rustc_hash::FxHashMap;

/// The most numbers that are remembered. There are fewer system calls and errors.
const MOST: usize = 4096;

/// What a filter said of the numbers that one text field of a span depends on.
pub(super) struct Verdicts {
    /// The index of the field.
    pub field: usize,
    known: FxHashMap<i64, bool>,
}

impl Verdicts {
    /// Creates an empty memory for a filter that reads this field only.
    pub fn new(field: usize) -> Verdicts {
        Verdicts { field, known: FxHashMap::default() }
    }

    /// Returns what the filter said of a number.
    #[inline]
    pub fn of(&self, number: i64) -> Option<bool> {
        self.known.get(&number).copied()
    }

    /// Remembers what the filter says of a number.
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
            assert_eq!(verdicts.of(number), Some(number % 2 == 0));
        }
        assert!(verdicts.known.len() <= MOST);
    }
}
