//! Keeps the events with the largest values: either whole events, with facts that are not in their records, or only the values
//! of their keys. Without room in memory, it drops the events with the smallest values, and counts them.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use perf_prof_system::budget::{HeldFor, Holding};

use super::{
    definition::Definition,
    key::{Key, KeyPart, key_of},
    memo::Memo,
    plan::Plan,
    texts::Texts,
};
use crate::event::{
    EventType,
    reader::{Facts, Input, KeptFacts},
};

/// An event that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its value.
    pub value: i128,
    /// Its time in nanoseconds.
    pub time: u64,
    /// The event itself, or its keys.
    pub kept: Kept,
}

/// The part of an event that is kept.
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

impl Entry {
    /// Returns the bytes that the entry takes, including the spare room of a growing list.
    fn bytes(&self) -> usize {
        2 * size_of::<Entry>()
            + match &self.kept {
                Kept::Event { record, facts, .. } => record.len() + facts.heap_bytes(),
                Kept::Values(parts) => parts.iter().map(|part| size_of::<KeyPart>() + part.heap_bytes()).sum(),
            }
    }
}

/// Orders by value. Of events with the same value, the earlier one counts as larger.
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
    /// The largest events. The definition's limit is their maximum number. If the definition has keys, only the values of the
    /// keys are kept.
    entries: BinaryHeap<Reverse<Entry>>,
    seen: u64,
    /// The number of events that were dropped for lack of memory, although the limit was not reached.
    without_room: u64,
    /// The memory of the entries.
    bytes: usize,
    /// The list's share of the run's memory; `None` until the first event comes from a run.
    memory: Option<Holding>,
}

impl Largest {
    /// Creates an empty list. The limit of the definition is the number of events that are kept.
    pub fn new(definition: Definition) -> Largest {
        let entries = BinaryHeap::new();
        Largest { definition, entries, seen: 0, without_room: 0, bytes: 0, memory: None }
    }

    /// Returns the definition, which says which values are compared.
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
        let is_full = self.entries.len() >= self.definition.limit || self.without_room != 0;
        if !is_full || self.entries.peek().is_some_and(|Reverse(least)| rank > (least.value, Reverse(least.time))) {
            self.keep(value, plan, event, input);
        } else if self.entries.len() < self.definition.limit {
            self.without_room += 1;
        }
    }

    // Looks up the names of the event now, because the process may be gone later.
    #[cold]
    fn keep(&mut self, value: i128, plan: &Plan, event: &Arc<EventType>, input: &Input<'_>) {
        let kept = if self.definition.keys.is_empty() {
            Kept::Event { event: Arc::clone(event), record: input.sample.record.into(), facts: input.kept() }
        } else {
            let mut texts = Texts::default();
            let words = plan.words(input, &mut texts, &mut Memo::default());
            Kept::Values(key_of(words.as_slice(), &texts))
        };
        if let Facts::Run(context) = input.facts
            && !self.memory.as_ref().is_some_and(|memory| memory.budget().is(context.budget()))
        {
            self.memory = Some(context.budget().hold(HeldFor::Tables));
        }
        self.push(Entry { value, time: input.sample.time(), kept });
    }

    /// Adds an event. If there are now more events than the limit, or if they take too much memory, drops those with the
    /// smallest values.
    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.push(Reverse(entry));
        if self.entries.len() > self.definition.limit {
            self.pop();
        }
        let limit = self.memory.as_ref().map_or(usize::MAX, Holding::limit);
        while self.bytes > limit && !self.entries.is_empty() {
            self.pop();
            self.without_room += 1;
        }
        self.memory.iter_mut().for_each(|memory| memory.set(self.bytes));
    }

    fn pop(&mut self) {
        if let Some(Reverse(least)) = self.entries.pop() {
            self.bytes -= least.bytes();
        }
    }

    /// Adds the events of another list.
    pub fn merge(&mut self, other: &Largest) {
        self.seen += other.seen;
        self.without_room += other.without_room;
        other.entries.iter().for_each(|Reverse(entry)| self.push(entry.clone()));
    }

    /// Adds to the number of events that were compared.
    pub fn add_seen(&mut self, events: u64) {
        self.seen += events;
    }

    /// Returns the number of events that were dropped for lack of memory, although the limit was not reached.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Adds to the number of events that were dropped for lack of memory.
    pub fn add_without_room(&mut self, events: u64) {
        self.without_room += events;
    }

    /// Returns the number of events that were compared.
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
        *self = Largest::new(self.definition.clone());
    }
}
