//! Texts that are stored once, each with an index.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Texts with their indexes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    indexes: FxHashMap<Arc<[u8]>, u32>,
    texts: Vec<Arc<[u8]>>,
}

impl Texts {
    /// Returns the index of a text, which is added if it is new.
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
        self.texts.push(Arc::clone(&text));
        self.indexes.insert(text, index);
        index
    }

    /// Returns the index of a text that was added before.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.indexes.get(text).copied()
    }

    /// Returns all texts, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(|text| &**text)
    }

    /// Returns the text with this index.
    pub fn get(&self, index: u32) -> &[u8] {
        self.texts.get(index as usize).map_or(&[], |text| text)
    }
}
