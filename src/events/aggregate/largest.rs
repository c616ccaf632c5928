//! Keeps the events with the largest values: whole events, or only the values of their keys. When memory is short,
//! drops the events with the smallest values and counts them.

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
    /// The value by which events are compared.
    pub value: i128,
    /// Its time in nanoseconds.
    pub time: u64,
    /// The event itself, or the values of its keys.
    pub kept: Kept,
}

/// What is kept of an event.
#[derive(Clone, Debug)]
pub enum Kept {
    /// The whole event.
    Event {
        /// The event type.
        event: Arc<EventType>,
        /// The record of the event.
        record: Box<[u8]>,
        /// What perf-prof knew about the event and the record does not contain, such as the task's name.
        facts: KeptFacts,
    },
    /// The values of the keys that the definition names.
    Values(Key),
}

impl Entry {
    /// Returns the memory of the entry, in bytes. Counts the spare capacity of the list too.
    fn bytes(&self) -> usize {
        2 * size_of::<Entry>()
            + match &self.kept {
                Kept::Event { record, facts, .. } => record.len() + facts.heap_bytes(),
                Kept::Values(parts) => parts.iter().map(|part| size_of::<KeyPart>() + part.heap_bytes()).sum(),
            }
    }
}

/// Orders by value. Of two events with the same value, the earlier event counts as larger.
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
    /// The entries, the smallest on top. The definition's limit is their maximum number.
    entries: BinaryHeap<Reverse<Entry>>,
    seen: u64,
    /// The number of events that were dropped because memory was short, although the list had fewer events than its
    /// limit.
    without_room: u64,
    /// The memory of the entries, in bytes.
    bytes: usize,
    /// The memory that the list takes from the run's budget. `None` until the first event of a run is added.
    memory: Option<Holding>,
}

impl Largest {
    /// Creates an empty list. The limit of the definition is the number of events that are kept.
    pub fn new(definition: Definition) -> Largest {
        let entries = BinaryHeap::new();
        Largest { definition, entries, seen: 0, without_room: 0, bytes: 0, memory: None }
    }

    /// Returns the definition: which values are compared, and what is kept.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Keeps an event if its value is among the largest. `event` is the type of the event, and `plan` is the definition
    /// compiled for this type.
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

    // Looks up the names of the event now, because the process may have exited later.
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

    /// Adds an event. Drops the events with the smallest values if there are more than the limit, or if they take too
    /// much memory.
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

    /// Adds to the count of compared events.
    pub fn add_seen(&mut self, events: u64) {
        self.seen += events;
    }

    /// Returns the number of events that were dropped because memory was short, although the list had fewer events than
    /// its limit.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Adds to the count of events that were dropped because memory was short.
    pub fn add_without_room(&mut self, events: u64) {
        self.without_room += events;
    }

    /// Returns the number of compared events: all that passed the filter and have a value.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the kept events, the largest value first.
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
