//! The hash index of a table: from the words of a key to the number of its row. Rows are numbered in the order in which
//! their keys came first.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// The content of a free slot.
const EMPTY: u32 = u32::MAX;
/// The number of slots after the first row is added; a power of two.
const FIRST_SLOTS: usize = 16;

/// The keys of a table's rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// The number of words in a key.
    width: usize,
    /// The keys of all rows, one after another.
    words: Vec<u64>,
    /// The hash table, with open addressing: a key's hash selects a slot, and if the slot holds another row, the next
    /// slot is tried. A slot holds the number of a row. At most half of the slots are used.
    slots: Vec<u32>,
    len: usize,
}

/// The result of [`Rows::find_or_add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// The key had this row already.
    Known(usize),
    /// This row was added for the key.
    New(usize),
}

impl Rows {
    /// Creates an index for keys of `width` words.
    pub fn new(width: usize) -> Rows {
        Rows { width, words: Vec::new(), slots: Vec::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of a row, in bytes: the words of its key, with the spare capacity of the `Vec`, and its
    /// slots.
    pub fn bytes_of_row(&self) -> usize {
        2 * size_of::<u64>() * self.width + 4 * size_of::<u32>()
    }

    pub fn key(&self, row: usize) -> &[u64] {
        &self.words[row * self.width..][..self.width]
    }

    /// Returns the row of a key. Adds a row if the key has none.
    #[inline]
    pub fn find_or_add(&mut self, key: &[u64]) -> Row {
        if !self.slots.is_empty() {
            let slot = self.slot(key);
            match self.slots[slot] {
                EMPTY if 2 * (self.len + 1) <= self.slots.len() => {
                    self.slots[slot] = self.len as u32;
                    return self.push(key);
                }
                EMPTY => {}
                row => return Row::Known(row as usize),
            }
        }
        self.grow();
        let slot = self.slot(key);
        self.slots[slot] = self.len as u32;
        self.push(key)
    }

    /// Returns the row of a key; `None` if the key has none.
    pub fn find(&self, key: &[u64]) -> Option<usize> {
        if self.slots.is_empty() || key.len() != self.width {
            return None;
        }
        let row = self.slots[self.slot(key)];
        (row != EMPTY).then_some(row as usize)
    }

    fn push(&mut self, key: &[u64]) -> Row {
        self.words.extend_from_slice(key);
        self.len += 1;
        Row::New(self.len - 1)
    }

    /// Returns the slot that holds the key's row. If the key has no row, returns the free slot where its row belongs.
    #[inline]
    fn slot(&self, key: &[u64]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash(key) as usize & mask;
        loop {
            let row = self.slots[at];
            if row == EMPTY || self.is_key(row as usize, key) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn is_key(&self, row: usize, key: &[u64]) -> bool {
        // Keys have few words, so this loop is faster than memcmp.
        let start = row * self.width;
        let Some(own) = self.words.get(start..start + key.len()) else { return false };
        own.iter().zip(key).all(|(own, word)| own == word)
    }

    #[cold]
    fn grow(&mut self) {
        self.slots = vec![EMPTY; (2 * self.slots.len()).max(FIRST_SLOTS)];
        for row in 0..self.len {
            let slot = self.slot(&self.words[row * self.width..][..self.width]);
            self.slots[slot] = row as u32;
        }
    }
}

#[inline]
fn hash(key: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    for &word in key {
        hasher.write_u64(word);
    }
    hasher.finish()
}
