//! Finds the event that a sample's id belongs to.

use std::collections::HashMap;

/// The maximum number of table entries per id. If the ids are so far apart that the table would need more entries, a
/// hash map is used instead.
const SPARSE: usize = 16;

/// A map from ids to event indices. The kernel gives an event one id for each CPU or thread on which it is opened.
///
/// The kernel numbers events in the order in which they are opened, so the ids of one run are close together. Therefore
/// the map is usually a table that is indexed by the distance from the lowest id. With a table, finding an event takes
/// one memory access.
#[derive(Debug)]
pub struct EventIds {
    lowest: u64,
    table: Vec<u32>,
    sparse: HashMap<u64, u32>,
    stray: Option<usize>,
    closed: Vec<u64>,
}

/// The table entry of an id that no event has.
const NONE: u32 = u32::MAX;

impl EventIds {
    /// Builds the map from pairs of id and event index.
    pub fn new(ids: &[(u64, usize)]) -> Self {
        let lowest = ids.iter().map(|&(id, _)| id).min().unwrap_or(0);
        let highest = ids.iter().map(|&(id, _)| id).max().unwrap_or(0);
        let span = usize::try_from(highest - lowest).unwrap_or(usize::MAX);
        if span / SPARSE > ids.len() {
            let sparse = ids.iter().map(|&(id, event)| (id, event as u32)).collect();
            return Self { lowest, table: Vec::new(), sparse, stray: None, closed: Vec::new() };
        }
        let mut table = vec![NONE; span + 1];
        for &(id, event) in ids {
            table[(id - lowest) as usize] = event as u32;
        }
        Self { lowest, table, sparse: HashMap::new(), stray: None, closed: Vec::new() }
    }

    /// Sets the event to which samples with the id of another program's event belong.
    pub fn with_foreign_event(self, stray: Option<usize>) -> Self {
        Self { stray, ..self }
    }

    /// Sets the ids of events that were closed before the run. Their samples are neither delivered nor counted.
    pub fn with_closed_events(self, ids: &[u64]) -> Self {
        Self { closed: ids.to_vec(), ..self }
    }

    /// Returns whether the event with this id was closed before the run.
    pub fn is_closed(&self, id: u64) -> bool {
        self.closed.contains(&id)
    }

    /// Returns the event to which samples with the id of another program's event belong.
    pub fn foreign_event(&self) -> Option<usize> {
        self.stray
    }

    /// Returns the index of the event with this id.
    #[inline(always)]
    pub fn event(&self, id: u64) -> Option<usize> {
        let at = id.wrapping_sub(self.lowest);
        let found = match self.table.get(usize::try_from(at).unwrap_or(usize::MAX)) {
            Some(&found) => found,
            None => self.sparse_event(id),
        };
        (found != NONE).then_some(found as usize)
    }

    #[inline(never)]
    fn sparse_event(&self, id: u64) -> u32 {
        self.sparse.get(&id).copied().unwrap_or(NONE)
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
        fn dense_ids_find_their_events(start in 0u64..1 << 40, count in 1usize..100) {
            let list: Vec<_> = (0..count).map(|n| (start + 2 * n as u64, n)).collect();
            let look_up = EventIds::new(&list);
            for &(id, event) in &list {
                prop_assert_eq!(look_up.event(id), Some(event));
                prop_assert_eq!(look_up.event(id + 1), None);
            }
        }
    }
}
