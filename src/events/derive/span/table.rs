//! The table of open spans: their records by key, in the order of opening. The table has a maximum number of spans and of
//! bytes. If a new span does not fit, the oldest spans are dropped.

use hashbrown::{HashTable, hash_table::Entry};
use perf_prof_format::spec::Nesting;
use perf_prof_system::budget::{Budget, HeldFor, Holding};

use super::{key::Key, rules::Keep};
use crate::event::{SpanNote, notes};

pub(super) struct OpenSpans {
    /// For each key, the slot of the span that was opened last.
    by_key: HashTable<u32>,
    slots: Vec<Slot>,
    /// Links spans with the same key, in the order of opening. The element of a slot is the slot of the next span with its
    /// key. For the last span of a key, it is the slot of the first span, so both ends are found at once. Elements are valid
    /// only for keys with several spans. The list is empty until a key has several spans.
    above: Vec<u32>,
    /// The first unused slot. [`Slot::below`] links it to the next unused slot.
    unused: u32,
    oldest: u32,
    newest: u32,
    len: u32,
    max: u32,
    nesting: Nesting,
    /// The memory of the keys and records of open spans, in bytes.
    contents: usize,
    memory: Holding,
}

/// An open span.
struct Slot {
    key: Key,
    /// The record of the begin, followed by the notes.
    record: Box<[u8]>,
    /// The spans that were opened right before and right after this span.
    older: u32,
    newer: u32,
    /// The span with the same key that was opened right before this span.
    below: u32,
    input: u16,
    /// Whether nobody knows which of the open spans with the key a sample belongs to. Valid only for the last span of a key.
    is_unclear: bool,
}

impl Slot {
    /// Returns a slot that no span uses. No unused slot follows it.
    fn unused() -> Slot {
        let (key, record) = (Key::One(0), Box::default());
        Slot { key, record, older: NONE, newer: NONE, below: NONE, input: 0, is_unclear: false }
    }
}

/// What opening a span did to other spans.
pub(super) struct Opened {
    /// The span that was dropped because it has the key of the new one.
    pub replaced: Option<OpenSpan<Box<[u8]>>>,
    /// The number of spans that were dropped because memory was short.
    pub without_room: u64,
}

/// Where the table keeps an open span. The place is valid until a span is opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// The memory of an open span besides its key and record, in bytes. It consists of a slot, as much spare capacity of the
/// `Vec`, an index in the hash table, and the allocator's header of the record.
const SLOT: usize = 2 * size_of::<Slot>() + 16;

/// A span that is or was in the table.
pub(super) struct OpenSpan<R> {
    /// The input whose event began the span.
    pub input: usize,
    /// The record of the begin, followed by the notes.
    pub record: R,
}

/// The maximum number of notes that an open span keeps for a rule.
const MOST_NOTES: usize = 16;

impl<R: AsRef<[u8]>> OpenSpan<R> {
    /// Returns the record of the begin, and the notes as [`notes`] reads them.
    pub fn split(&self) -> (&[u8], &[u8]) {
        split(self.record.as_ref())
    }
}

/// Splits a record from the notes behind it. The header of the record contains the record's size.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let size = bytes.get(6..).and_then(|rest| rest.first_chunk()).map_or(0, |size| u16::from_ne_bytes(*size));
    bytes.split_at(usize::from(size).min(bytes.len()))
}

impl OpenSpans {
    /// Creates a table for at most `max` open spans. The memory of the table comes from `budget`.
    pub fn new(max: u32, nesting: Nesting, budget: &Budget) -> Self {
        Self {
            by_key: HashTable::new(),
            slots: Vec::new(),
            above: Vec::new(),
            unused: NONE,
            oldest: NONE,
            newest: NONE,
            len: 0,
            max,
            nesting,
            contents: 0,
            memory: budget.hold(HeldFor::Spans),
        }
    }

    /// Takes the memory from another budget from now on.
    pub fn move_to(&mut self, budget: &Budget) {
        self.memory = budget.hold(HeldFor::Spans);
        self.count_memory();
    }

    /// Returns the number of open spans.
    pub fn len(&self) -> u64 {
        self.len.into()
    }

    /// Opens a span. If memory is short, the oldest spans are dropped. If the new span still does not fit, it is also dropped.
    #[inline]
    pub fn open(&mut self, key: &Key, input: usize, record: &[u8]) -> Opened {
        self.open_nested(key, input, record, self.nesting)
    }

    /// Like `open`, but with this nesting instead of the table's own.
    pub fn open_nested(&mut self, key: &Key, input: usize, record: &[u8], nesting: Nesting) -> Opened {
        let replaced = if nesting == Nesting::Replaced { self.close(key) } else { None };
        let contents = key.heap_bytes() + record.len();
        let without_room = self.make_room(contents);
        if !self.has_room(contents) {
            return Opened { replaced, without_room: without_room + 1 };
        }
        self.contents += contents;
        let at = self.put(key, input, record);
        let slots = &self.slots;
        let same = |&other: &u32| slots[other as usize].key == *key;
        let below = match self.by_key.entry(key.hash(), same, |&at| slots[at as usize].key.hash()) {
            Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), at),
            Entry::Vacant(entry) => {
                entry.insert(at);
                NONE
            }
        };
        self.put_above(at, below);
        match self.newest {
            NONE => self.oldest = at,
            newest => self.slots[newest as usize].newer = at,
        }
        self.newest = at;
        self.len += 1;
        self.count_memory();
        Opened { replaced, without_room }
    }

    /// Drops the oldest spans until another span fits. Returns how many were dropped.
    fn make_room(&mut self, contents: usize) -> u64 {
        let before = self.len;
        while self.len != 0 && (self.len == self.max || !self.has_room(contents)) {
            drop(self.take_oldest());
        }
        if self.len == 0 && before != 0 {
            // Free the unused slots: they take memory too.
            self.clear();
        }
        (before - self.len).into()
    }

    /// Returns whether another span fits without dropping one.
    pub fn has_room_for(&self, key: &Key, record: &[u8]) -> bool {
        self.len < self.max && self.has_room(key.heap_bytes() + record.len())
    }

    /// Returns whether there is memory for another span.
    #[inline]
    fn has_room(&self, contents: usize) -> bool {
        let slot = if self.unused == NONE { SLOT } else { 0 };
        self.memory.has_room(slot + contents)
    }

    #[inline]
    fn count_memory(&mut self) {
        self.memory.set(self.contents + SLOT * self.slots.len());
    }

    /// Returns the span with this key that was opened last.
    #[inline]
    pub fn last(&self, key: &Key) -> Option<OpenSpan<&[u8]>> {
        let slot = &self.slots[self.last_slot(key)? as usize];
        Some(OpenSpan { input: slot.input.into(), record: &slot.record })
    }

    /// Returns the span with this key that was opened first.
    pub fn first(&self, key: &Key) -> Option<OpenSpan<&[u8]>> {
        let slot = &self.slots[self.first_slot(key)? as usize];
        Some(OpenSpan { input: slot.input.into(), record: &slot.record })
    }

    #[inline]
    fn last_slot(&self, key: &Key) -> Option<u32> {
        self.by_key.find(key.hash(), |&at| self.slots[at as usize].key == *key).copied()
    }

    fn first_slot(&self, key: &Key) -> Option<u32> {
        Some(self.bottom(self.last_slot(key)?))
    }

    /// Notes that nobody knows which of the open spans with this key a sample belongs to. This holds until none of them is
    /// open.
    pub fn set_unclear(&mut self, key: &Key) {
        if let Some(last) = self.last_slot(key) {
            self.slots[last as usize].is_unclear = true;
        }
    }

    /// Returns whether spans with this key are open, and nobody knows which of them a sample belongs to.
    pub fn is_unclear(&self, key: &Key) -> bool {
        self.last_slot(key).is_some_and(|last| self.slots[last as usize].is_unclear)
    }

    /// Returns the slot of the first span with a key. `top` must be the slot of the last span with this key.
    fn bottom(&self, top: u32) -> u32 {
        if self.slots[top as usize].below == NONE { top } else { self.above[top as usize] }
    }

    /// Makes `at` the last span of its key. `below` was the last span until now.
    fn put_above(&mut self, at: u32, below: u32) {
        self.slots[at as usize].below = below;
        if below != NONE {
            let bottom = self.bottom(below);
            self.slots[at as usize].is_unclear = self.slots[below as usize].is_unclear;
            self.above.resize(self.slots.len(), NONE);
            self.above[below as usize] = at;
            self.above[at as usize] = bottom;
        }
    }

    /// Returns where the spans with this key are, the last one first.
    pub fn places(&self, key: &Key) -> impl Iterator<Item = Place> + use<'_> {
        let below = |&at: &u32| Some(self.slots[at as usize].below).filter(|&below| below != NONE);
        std::iter::successors(self.last_slot(key), below).map(Place)
    }

    /// Returns the span at a place.
    pub fn at(&self, Place(at): Place) -> OpenSpan<&[u8]> {
        let slot = &self.slots[at as usize];
        OpenSpan { input: slot.input.into(), record: &slot.record }
    }

    /// Takes out the span at a place.
    pub fn close_at(&mut self, Place(at): Place) -> Option<OpenSpan<Box<[u8]>>> {
        let slots = &self.slots;
        let slot = &slots[at as usize];
        let key = slot.key.clone();
        let last = *self.by_key.find(key.hash(), |&other| slots[other as usize].key == key)?;
        match slot.below {
            _ if at == last => self.close(&key),
            NONE => self.remove_first(at),
            below => {
                let above = self.above[at as usize];
                self.slots[above as usize].below = below;
                self.above[below as usize] = above;
                Some(self.take(at))
            }
        }
    }

    /// Takes out the span with this key that was opened first.
    pub fn close_first(&mut self, key: &Key) -> Option<OpenSpan<Box<[u8]>>> {
        self.remove_first(self.first_slot(key)?)
    }

    /// Returns whether a span with this key is open.
    pub fn is_open(&self, key: &Key) -> bool {
        self.last(key).is_some()
    }

    /// Keeps a sample with the span of this key that was opened last. `rule` is the sample's rule, an index into the rules
    /// of the input. Returns how many of the oldest spans were dropped to make room for the sample. The span that the
    /// sample belongs to may be one of them.
    pub fn note(&mut self, key: &Key, of: (usize, usize), record: &[u8], keep: Keep) -> u64 {
        let last = self.places(key).next();
        last.map_or(0, |last| self.note_at(last, of, record, keep))
    }

    /// Like `note`, but with the span at this place.
    pub fn note_at(&mut self, Place(at): Place, (input, rule): (usize, usize), record: &[u8], keep: Keep) -> u64 {
        let slot = &mut self.slots[at as usize];
        let (begin, old) = split(&slot.record);
        let mut kept: Vec<SpanNote<'_>> = notes(old).collect();
        let is_own = |note: &SpanNote<'_>| (note.input, note.rule) == (input, rule);
        let own = kept.iter().filter(|note| is_own(note)).count();
        let new = |count| SpanNote { input, rule, count, record };
        match kept.iter_mut().find(|note| is_own(note)) {
            None => kept.push(new(1)),
            Some(first) => {
                first.count = first.count.saturating_add(1);
                match keep {
                    Keep::First => {}
                    Keep::Last => first.record = record,
                    Keep::Some if own < MOST_NOTES => kept.push(new(0)),
                    Keep::Some => {}
                }
            }
        }
        let mut bytes = Vec::with_capacity(begin.len() + old.len() + 8 + record.len());
        bytes.extend_from_slice(begin);
        kept.iter().for_each(|note| note.write(&mut bytes));
        let before = std::mem::replace(&mut slot.record, bytes.into()).len();
        self.contents = self.contents - before + self.slots[at as usize].record.len();
        let open = self.len;
        while self.contents + SLOT * self.slots.len() > self.memory.limit() && self.len != 0 {
            drop(self.take_oldest());
        }
        self.count_memory();
        (open - self.len).into()
    }

    /// Takes out the span with this key that was opened last.
    #[inline]
    pub fn close(&mut self, key: &Key) -> Option<OpenSpan<Box<[u8]>>> {
        self.close_if(key, |_| true)
    }

    /// Takes out the span with this key that was opened last, if the condition returns true for it.
    #[inline]
    pub fn close_if(
        &mut self,
        key: &Key,
        condition: impl FnOnce(OpenSpan<&[u8]>) -> bool,
    ) -> Option<OpenSpan<Box<[u8]>>> {
        let slots = &self.slots;
        let mut entry = self.by_key.find_entry(key.hash(), |&at| slots[at as usize].key == *key).ok()?;
        let at = *entry.get();
        let slot = &slots[at as usize];
        if !condition(OpenSpan { input: slot.input.into(), record: &slot.record }) {
            return None;
        }
        match slots[at as usize].below {
            NONE => drop(entry.remove()),
            below => {
                *entry.get_mut() = below;
                self.above[below as usize] = self.above[at as usize];
                self.slots[below as usize].is_unclear = self.slots[at as usize].is_unclear;
            }
        }
        Some(self.take(at))
    }

    /// Returns the open spans and their keys, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, OpenSpan<&[u8]>)> {
        let slot = |at: u32| self.slots.get(at as usize);
        std::iter::successors(slot(self.oldest), move |last| slot(last.newer))
            .map(|slot| (&slot.key, OpenSpan { input: slot.input.into(), record: &*slot.record }))
    }

    fn oldest_key(&self) -> Option<&Key> {
        self.slots.get(self.oldest as usize).map(|slot| &slot.key)
    }

    fn take_oldest(&mut self) -> Option<OpenSpan<Box<[u8]>>> {
        self.remove_first(self.oldest)
    }

    /// Takes out the span in a slot. It must be the first span of its key.
    fn remove_first(&mut self, at: u32) -> Option<OpenSpan<Box<[u8]>>> {
        let slot = self.slots.get(at as usize)?;
        let slots = &self.slots;
        if let Ok(entry) = self.by_key.find_entry(slot.key.hash(), |&other| slots[other as usize].key == slot.key) {
            let top = *entry.get();
            if top == at {
                entry.remove();
            } else {
                let second = self.above[at as usize];
                self.slots[second as usize].below = NONE;
                self.above[top as usize] = second;
            }
        }
        Some(self.take(at))
    }

    pub fn take_oldest_with_key(&mut self) -> Option<(Key, OpenSpan<Box<[u8]>>)> {
        let key = self.oldest_key()?.clone();
        Some((key, self.take_oldest()?))
    }

    pub fn take_all(&mut self) -> OpenSpans {
        let empty = Self::new(self.max, self.nesting, &self.memory.budget().clone());
        std::mem::replace(self, empty)
    }

    pub fn clear(&mut self) {
        drop(self.take_all());
    }

    /// Fills an unused slot, and returns its index. Writes the fields one by one: a whole slot that is built and then moved
    /// is read again in other pieces than it was written, for which the CPU waits.
    #[inline]
    fn put(&mut self, key: &Key, input: usize, record: &[u8]) -> u32 {
        if self.unused == NONE {
            self.unused = self.slots.len() as u32;
            self.slots.push(Slot::unused());
        }
        let at = self.unused;
        let slot = &mut self.slots[at as usize];
        self.unused = slot.below;
        slot.key.clone_from(key);
        slot.record = record.into();
        (slot.older, slot.newer, slot.below) = (self.newest, NONE, NONE);
        (slot.input, slot.is_unclear) = (input as u16, false);
        at
    }

    /// Removes a slot from the order of opening, and returns its span.
    fn take(&mut self, at: u32) -> OpenSpan<Box<[u8]>> {
        let slot = &mut self.slots[at as usize];
        let (older, newer, input) = (slot.older, slot.newer, slot.input.into());
        let record = std::mem::take(&mut slot.record);
        self.contents -= slot.key.heap_bytes() + record.len();
        slot.key = Key::One(0);
        slot.below = self.unused;
        self.unused = at;
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        self.len -= 1;
        self.count_memory();
        OpenSpan { input, record }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns how many spans were replaced, and how many had no room.
    fn dropped(opened: Opened) -> (usize, u64) {
        (opened.replaced.iter().count(), opened.without_room)
    }

    /// With this size, a million open system calls with six arguments take 200 MiB. Each has a record of 128 bytes, 16 bytes
    /// for the allocator, and an index of at most 11 bytes.
    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 56, "{}", size_of::<Slot>());
    }

    #[test]
    fn of_several_spans_with_one_key_the_first_or_the_last_can_be_closed() {
        let mut open = OpenSpans::new(10, Nesting::Replaced, &Budget::unlimited());
        let record = |number: u8| [0, 0, 0, 0, 0, 0, 8, 0, number];
        let number = |span: Option<OpenSpan<Box<[u8]>>>| span.map(|span| span.record[8]);
        let (key, other) = (Key::One(1), Key::One(2));
        for at in 1..=4 {
            assert_eq!(dropped(open.open_nested(&key, 0, &record(at), Nesting::Nested)), (0, 0));
        }
        open.open(&other, 0, &record(9));
        assert_eq!(open.first(&key).map(|span| span.record[8]), Some(1));
        assert_eq!(number(open.close_first(&key)), Some(1));
        assert_eq!(number(open.close(&key)), Some(4));
        assert_eq!(number(open.close_first(&key)), Some(2));
        assert_eq!(number(open.close_first(&key)), Some(3));
        assert_eq!((number(open.close_first(&key)), number(open.close_first(&other))), (None, Some(9)));
        open.clear();
        assert_eq!(open.len(), 0);
    }

    /// In a recording, records can have 64 KiB, and each can have a key of its own.
    #[test]
    fn spans_without_room_are_dropped_the_oldest_first() {
        let budget = Budget::new(16 << 20);
        let share = budget.share();
        let mut open = OpenSpans::new(1_000_000, Nesting::Nested, &budget);
        let record = |size: usize| [&[0; 6][..], &(size as u16).to_ne_bytes(), &vec![0; size - 8]].concat();
        let large = record(60_000);
        let mut without_room = 0;
        for number in 0..1000 {
            without_room += open.open(&Key::One(number), 0, &large).without_room;
            assert!(open.memory.bytes() <= share && budget.held() <= share);
        }
        let kept = (share / (large.len() + SLOT)) as u64;
        assert_eq!((open.len(), without_room), (kept, 1000 - kept));
        assert_eq!(open.oldest_key(), Some(&Key::One(1000 - kept)));
        // Notes and keys also take their memory from `share`.
        let note = |open: &mut OpenSpans, number| open.note(&Key::One(number), (0, 0), &large, Keep::First);
        assert_eq!((note(&mut open, 999), open.len()), (1, kept - 1));
        let long = Key::Bytes(vec![0; 60_000].into());
        assert_eq!(open.open(&long, 0, &record(8)).without_room, 1);
        // Many small spans take the place of a few large ones. Their slots take memory too.
        (0..100_000).for_each(|number| _ = open.open(&Key::One(number), 0, &record(8)));
        assert!(open.memory.bytes() <= share && open.len() > 10_000, "{}", open.len());
        assert!(open.open(&Key::One(7), 0, &large).replaced.is_none());
        assert!(open.is_open(&Key::One(7)) && open.memory.bytes() <= share);
        open.clear();
        assert_eq!(budget.held(), 0);
        let mut none = OpenSpans::new(10, Nesting::Nested, &Budget::new(1 << 10));
        assert_eq!((dropped(none.open(&Key::One(1), 0, &large)), none.len()), ((0, 1), 0));
    }

    /// If an operation took longer with many spans of a key, this test would take hours.
    #[test]
    fn a_million_open_spans_with_one_key_cost_no_more_than_a_few() {
        const MANY: u32 = 1_000_000;
        let mut open = OpenSpans::new(MANY, Nesting::Nested, &Budget::unlimited());
        let key = Key::One(1);
        let record = |number: u32| [[0, 0, 0, 0], [0, 0, 12, 0], number.to_ne_bytes()].concat();
        let number = |span: Option<OpenSpan<Box<[u8]>>>| {
            span.and_then(|span| Some(u32::from_ne_bytes(*span.record[8..].first_chunk()?)))
        };
        for at in 0..MANY {
            assert_eq!(dropped(open.open(&key, 0, &record(at))), (0, 0));
        }
        // The table is full, so each new span drops the oldest one.
        for at in MANY..2 * MANY {
            assert_eq!(dropped(open.open(&key, 0, &record(at))), (0, 1));
        }
        for at in 0..MANY / 2 {
            assert_eq!(number(open.close_first(&key)), Some(MANY + at));
            assert_eq!(number(open.close(&key)), Some(2 * MANY - 1 - at));
        }
        assert_eq!((open.len(), number(open.take_oldest())), (0, None));
    }

    proptest! {
        /// The model is a list of keys and numbers, the oldest span first, and of keys that are unclear.
        #[test]
        fn the_ends_of_each_chain_are_those_of_a_naive_list(
            steps in prop::collection::vec((0..6u8, 0..3i64), 0..100),
            max in 1..8usize,
        ) {
            let mut open = OpenSpans::new(max as u32, Nesting::Nested, &Budget::unlimited());
            let (mut model, mut unclear) = (Vec::<(i64, u8)>::new(), HashSet::new());
            let number = |span: Option<OpenSpan<Box<[u8]>>>| span.map(|span| span.record[8]);
            for (at, &(step, key)) in (0..).zip(&steps) {
                let with_key = Key::One(key as u64);
                let first = model.iter().position(|&(other, _)| other == key);
                let last = model.iter().rposition(|&(other, _)| other == key);
                prop_assert_eq!(open.first(&with_key).map(|span| span.record[8]), first.map(|at| model[at].1));
                prop_assert_eq!(open.last(&with_key).map(|span| span.record[8]), last.map(|at| model[at].1));
                prop_assert_eq!(open.is_unclear(&with_key), unclear.contains(&key));
                match step {
                    0 | 1 => {
                        if model.len() == max {
                            model.remove(0);
                            unclear.retain(|key| model.iter().any(|(other, _)| other == key));
                        }
                        model.push((key, at));
                        open.open(&with_key, 0, &[0, 0, 0, 0, 0, 0, 9, 0, at]);
                    }
                    2 => prop_assert_eq!(number(open.close(&with_key)), last.map(|at| model.remove(at).1)),
                    3 => prop_assert_eq!(number(open.close_first(&with_key)), first.map(|at| model.remove(at).1)),
                    4 => {
                        open.set_unclear(&with_key);
                        unclear.extend(first.map(|_| key));
                    }
                    _ => {
                        // The second span from the last one.
                        let place = open.places(&with_key).nth(1);
                        let second = model.iter().rposition(|&(other, of)| other == key && last.is_some_and(|last| of != model[last].1));
                        let closed = place.and_then(|place| open.close_at(place));
                        prop_assert_eq!(number(closed), second.map(|at| model.remove(at).1));
                    }
                }
                unclear.retain(|key| model.iter().any(|(other, _)| other == key));
                prop_assert_eq!(open.len(), model.len() as u64);
            }
        }
    }
}
