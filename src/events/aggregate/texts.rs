//! Interned texts: each text is stored once, and has an index.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// The memory of a stored text beyond its own bytes: the counts of its `Arc`, two pointers to it, its index, and the
/// spare capacity of the tables.
const TEXT: usize = 128;

#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    indexes: FxHashMap<Arc<[u8]>, u32>,
    texts: Vec<Arc<[u8]>>,
    /// The memory of all texts, in bytes.
    bytes: usize,
}

impl Texts {
    /// Returns the index of a text. Stores the text if it is new.
    #[inline]
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        match self.indexes.get(text) {
            Some(&index) => index,
            None => self.add(text),
        }
    }

    #[cold]
    fn add(&mut self, text: &[u8]) -> u32 {
        let (index, text): (u32, Arc<[u8]>) = (self.texts.len() as u32, text.into());
        self.bytes += Texts::bytes_of(&text);
        self.texts.push(Arc::clone(&text));
        self.indexes.insert(text, index);
        index
    }

    /// Returns the index of a text; `None` if the text is not stored.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.indexes.get(text).copied()
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory of one text, in bytes.
    pub fn bytes_of(text: &[u8]) -> usize {
        TEXT + text.len()
    }

    /// Drops the texts for which `is_kept` is false. Returns the new indexes of the kept texts, at the positions of
    /// their old indexes. At the positions of dropped texts, the result has no meaning.
    pub fn keep(&mut self, is_kept: &[bool]) -> Vec<u32> {
        let mut next = 0;
        let place = |&kept: &bool| {
            let at = next;
            next += u32::from(kept);
            at
        };
        let places: Vec<u32> = is_kept.iter().map(place).collect();
        self.indexes.retain(|_, index| {
            let before = std::mem::replace(index, places[*index as usize]);
            is_kept[before as usize]
        });
        let mut kept = is_kept.iter();
        self.texts.retain(|_| kept.next().is_some_and(|kept| *kept));
        self.bytes = self.texts.iter().map(|text| Texts::bytes_of(text)).sum();
        places
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns all texts, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(|text| &**text)
    }

    pub fn get(&self, index: u32) -> &[u8] {
        self.texts.get(index as usize).map_or(&[], |text| text)
    }
}
