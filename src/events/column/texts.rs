//! A column of text, encoded as a dictionary.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array,
    builder::{ArrayBuilder, StringBuilder},
    types::Int32Type,
};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::ArrowError;
use rustc_hash::FxHashMap;

use super::cell::Cell;
use crate::{
    aggregate::{Memo, Texts},
    event::reader::{Input, Read},
};

#[derive(Default)]
pub(super) struct TextColumn {
    texts: Texts,
    /// The index of each row's text among `texts`.
    indexes: Vec<u32>,
    nulls: Option<NullBufferBuilder>,
    memo: Memo,
    /// For each event type, the index of its name in `texts`; `None` if no row has the name yet.
    event_names: Vec<Option<u32>>,
    /// The number of batches before this one.
    batches: u64,
}

impl TextColumn {
    /// Appends a row. `event` is the index of its event type.
    #[inline]
    pub fn push(&mut self, event: usize, cell: &Cell, input: &Input<'_>) {
        let index = match cell {
            Cell::Null => None,
            Cell::Read(Read::Event(name)) => Some(self.event_name(event, name)),
            Cell::Read(read @ (Read::Comm | Read::Cgroup | Read::Stack(_))) => {
                self.memo.word(read, input, &mut self.texts).text_index()
            }
            Cell::Read(Read::Field(field)) if field.kind.is_text() => match input.sample.field(field) {
                Some(perf_prof_format::value::Value::Str(text)) => Some(self.texts.intern(text)),
                _ => None,
            },
            cell => cell.datum(input).map(|datum| self.texts.intern(&datum.text())),
        };
        let rows = self.indexes.len();
        self.indexes.push(index.unwrap_or(0));
        match (&mut self.nulls, index) {
            (Some(nulls), index) => nulls.append(index.is_some()),
            (None, None) => {
                let mut nulls = NullBufferBuilder::new(rows + 1);
                nulls.append_n_non_nulls(rows);
                nulls.append_null();
                self.nulls = Some(nulls);
            }
            (None, Some(_)) => {}
        }
    }

    #[inline]
    fn event_name(&mut self, event: usize, name: &[u8]) -> u32 {
        if let Some(Some(index)) = self.event_names.get(event) {
            return *index;
        }
        if self.event_names.len() <= event {
            self.event_names.resize(event + 1, None);
        }
        *self.event_names[event].insert(self.texts.intern(name))
    }

    /// Returns the memory of the texts.
    pub fn bytes(&self) -> usize {
        self.texts.bytes()
    }

    /// Returns the array, and leaves an empty column.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let texts = std::mem::take(&mut self.texts);
        self.batches += 1;
        self.memo.check(self.batches);
        self.event_names.clear();
        let indexes = std::mem::take(&mut self.indexes);
        self.indexes.reserve(indexes.len());
        let nulls = self.nulls.take().and_then(|mut nulls| nulls.finish());
        // Texts that are not UTF-8 may become equal when they are converted, but the values of a dictionary must differ. All
        // other texts differ already.
        let mut shown: FxHashMap<String, i32> = FxHashMap::default();
        let mut values = StringBuilder::with_capacity(texts.len(), texts.iter().map(<[u8]>::len).sum());
        let mut place = Vec::with_capacity(texts.len());
        for text in texts.iter() {
            let text = String::from_utf8_lossy(text);
            let next = values.len() as i32;
            let at = match text.contains(char::REPLACEMENT_CHARACTER) {
                true => *shown.entry(text.clone().into_owned()).or_insert(next),
                false => next,
            };
            if at == next {
                values.append_value(text);
            }
            place.push(at);
        }
        drop(texts);
        let keys: Vec<i32> = indexes.into_iter().map(|index| place.get(index as usize).copied().unwrap_or(0)).collect();
        let values = Arc::new(values.finish());
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::new(keys.into(), nulls), values)?))
    }
}
