//! The events with the largest values. Keeps either whole events, with the facts that are not in their records, or only
//! the values of the keys.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use super::{
    definition::Definition,
    key::{Key, key_of},
    memo::Memo,
    plan::Plan,
    texts::Texts,
};
use crate::event::{
    EventType,
    reader::{Input, KeptFacts},
};

/// An event that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its value.
    pub value: i128,
    /// Its time in nanoseconds.
    pub time: u64,
    /// What is kept of it.
    pub kept: Kept,
}

/// What is kept of an event.
#[derive(Clone, Debug)]
pub enum Kept {
    /// The whole event.
    Event {
        /// Its event type.
        event: Arc<EventType>,
        /// Its record.
        record: Box<[u8]>,
        /// The facts that are not in the record.
        facts: KeptFacts,
    },
    /// The values of the keys in the definition.
    Values(Key),
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
    /// The limit of the definition is the number of events that are kept. If it has keys, only their values are kept.
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

    /// Keeps an event if its value is large enough. `event` is the type of the event, and `plan` is the definition
    /// compiled for it.
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
            self.keep(value, plan, event, input);
        }
    }

    // Looks up names now, because the process may be gone later.
    #[cold]
    fn keep(&mut self, value: i128, plan: &Plan, event: &Arc<EventType>, input: &Input<'_>) {
        let kept = if self.definition.keys.is_empty() {
            Kept::Event { event: Arc::clone(event), record: input.sample.record.into(), facts: input.kept() }
        } else {
            let mut texts = Texts::default();
            let words = plan.words(input, &mut texts, &mut Memo::default());
            Kept::Values(key_of(words.as_slice(), &texts))
        };
        self.push(Entry { value, time: input.sample.time(), kept });
    }

    /// Adds what is kept of an event. If there are now more events than the limit, removes the event with the smallest
    /// value.
    pub fn push(&mut self, entry: Entry) {
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
