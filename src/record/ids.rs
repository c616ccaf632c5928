//! Which event a sample's id belongs to.

use std::collections::HashMap;

/// How much sparser than its ids a table may be before a map is better.
const SPARSE: usize = 16;

/// From the kernel's id of an event on a CPU or thread to the event's index.
///
/// The kernel numbers events in the order in which they are opened, so the ids of a run are close together and a
/// table indexed by the distance from the lowest answers in one load.
#[derive(Debug)]
pub struct EventIds {
    lowest: u64,
    table: Vec<u32>,
    sparse: HashMap<u64, u32>,
    stray: Option<usize>,
}

/// An id that no event has.
const NONE: u32 = u32::MAX;

impl EventIds {
    /// The look-up for these ids and indices.
    pub fn new(ids: &[(u64, usize)]) -> Self {
        let lowest = ids.iter().map(|&(id, _)| id).min().unwrap_or(0);
        let highest = ids.iter().map(|&(id, _)| id).max().unwrap_or(0);
        let span = usize::try_from(highest - lowest).unwrap_or(usize::MAX);
        if span / SPARSE > ids.len() {
            let sparse = ids.iter().map(|&(id, event)| (id, event as u32)).collect();
            return Self { lowest, table: Vec::new(), sparse, stray: None };
        }
        let mut table = vec![NONE; span + 1];
        for &(id, event) in ids {
            table[(id - lowest) as usize] = event as u32;
        }
        Self { lowest, table, sparse: HashMap::new(), stray: None }
    }

    /// Gives samples with an id that nobody here opened to this event.
    pub fn with_stray(self, stray: Option<usize>) -> Self {
        Self { stray, ..self }
    }

    /// The event of samples with an id that nobody here opened.
    pub fn stray(&self) -> Option<usize> {
        self.stray
    }

    /// The event's index.
    #[inline]
    pub fn event(&self, id: u64) -> Option<usize> {
        let at = id.wrapping_sub(self.lowest);
        let found = match self.table.get(usize::try_from(at).unwrap_or(usize::MAX)) {
            Some(&found) => found,
            None => *self.sparse.get(&id)?,
        };
        (found != NONE).then_some(found as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_id_finds_its_event(ids in prop::collection::hash_map(any::<u64>(), 0usize..1000, 0..50), other: u64) {
            let list: Vec<_> = ids.clone().into_iter().collect();
            let look_up = EventIds::new(&list);
            for (&id, &event) in &ids {
                prop_assert_eq!(look_up.event(id), Some(event));
            }
            prop_assert_eq!(look_up.event(other), ids.get(&other).copied());
        }

        #[test]
        fn ids_close_together_too(start in 0u64..1 << 40, count in 1usize..100) {
            let list: Vec<_> = (0..count).map(|n| (start + 2 * n as u64, n)).collect();
            let look_up = EventIds::new(&list);
            for &(id, event) in &list {
                prop_assert_eq!(look_up.event(id), Some(event));
                prop_assert_eq!(look_up.event(id + 1), None);
            }
        }
    }
}
