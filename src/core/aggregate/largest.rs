//! The events with the largest values, whole: their records, and what the records do not say themselves.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use super::{
    definition::Definition,
    input::{Input, KeptFacts},
    plan::Plan,
};
use crate::event::EventType;

/// An event that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its value.
    pub value: i128,
    /// Its time in nanoseconds.
    pub time: u64,
    /// Its event type.
    pub event: Arc<EventType>,
    /// Its record.
    pub record: Box<[u8]>,
    /// What the record does not say itself.
    pub facts: KeptFacts,
}

/// Larger values are larger. Of events with the same value, the earlier one is larger.
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.value, Reverse(self.time)).cmp(&(other.value, Reverse(other.time)))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// The events with the largest values.
#[derive(Clone, Debug)]
pub struct Largest {
    definition: Definition,
    /// The limit of the definition is the number of events that are kept.
    entries: BinaryHeap<Reverse<Entry>>,
    seen: u64,
}

impl Largest {
    /// Creates an empty list. The limit of the definition is the number of events that are kept.
    pub fn new(definition: Definition) -> Largest {
        Largest { definition, entries: BinaryHeap::new(), seen: 0 }
    }

    /// Returns what is compared.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Looks at an event. `plan` is the definition for the type of the event, which is `event`.
    #[inline]
    pub fn add(&mut self, plan: &Plan, event: &Arc<EventType>, input: &Input<'_>) {
        if !plan.passes(input) {
            return;
        }
        let Some(value) = plan.value(input) else { return };
        self.seen += 1;
        let rank = (value, Reverse(input.sample.time()));
        if self.entries.len() < self.definition.limit
            || self.entries.peek().is_some_and(|Reverse(least)| rank > (least.value, Reverse(least.time)))
        {
            self.keep(value, event, input);
        }
    }

    // The names are looked up now: later, the process may be gone.
    #[cold]
    fn keep(&mut self, value: i128, event: &Arc<EventType>, input: &Input<'_>) {
        self.push(Entry {
            value,
            time: input.sample.time(),
            event: Arc::clone(event),
            record: input.sample.record.into(),
            facts: input.kept(),
        });
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(Reverse(entry));
        if self.entries.len() > self.definition.limit {
            self.entries.pop();
        }
    }

    /// Adds the events of another list.
    pub fn merge(&mut self, other: &Largest) {
        self.seen += other.seen;
        other.entries.iter().for_each(|Reverse(entry)| self.push(entry.clone()));
    }

    /// Adds to the number of events that were looked at.
    pub fn add_seen(&mut self, events: u64) {
        self.seen += events;
    }

    /// Returns the number of events that were looked at.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the kept events, the one with the largest value first.
    pub fn entries(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.entries.iter().map(|Reverse(entry)| entry).collect();
        entries.sort_by(|a, b| b.cmp(a));
        entries
    }

    /// Removes all events.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.seen = 0;
    }
}
