//! Keys of a table: numbers and texts. A table stores a key as words, which are fast to compare, and returns it as
//! values.

use std::borrow::Cow;

use perf_prof_format::value;

use super::{definition::MAX_KEYS, texts::Texts};
use crate::picture::printable;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyPart {
    /// A number that fits into a `u64` or an `i64`.
    Number(i128),
    /// Text. It may contain any byte except NUL.
    Text(Box<[u8]>),
    /// Bytes of an array that is not text.
    Bytes(Box<[u8]>),
    /// An array of unsigned 64-bit numbers.
    Words(Box<[u8]>),
    /// No value: the record ends before the field, or perf-prof does not know the value.
    Missing,
}

/// A key: one part for each name in the definition.
pub type Key = Vec<KeyPart>;

impl KeyPart {
    /// Returns the heap memory of the part, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            KeyPart::Text(bytes) | KeyPart::Bytes(bytes) | KeyPart::Words(bytes) => bytes.len(),
            KeyPart::Number(_) | KeyPart::Missing => 0,
        }
    }

    /// Returns the part as text for a printed table.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            KeyPart::Number(number) => number.to_string().into(),
            KeyPart::Text(text) => printable(&String::from_utf8_lossy(text)).into_owned().into(),
            KeyPart::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            KeyPart::Words(bytes) => {
                let words: Vec<String> = value::words(bytes).map(|word| format!("{word:#x}")).collect();
                format!("({})", words.join(", ")).into()
            }
            KeyPart::Missing => "-".into(),
        }
    }
}

/// The kinds of words: how the `word` of a [`Word`] is read.
const NUMBER: u64 = 0;
const NEGATIVE: u64 = 1;
const TEXT: u64 = 2;
const BYTES: u64 = 3;
const MISSING: u64 = 4;
const WORDS: u64 = 5;

/// A part of a key as a table stores it: its kind, and a number or the index of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    kind: u64,
    word: u64,
}

impl Word {
    pub const MISSING: Word = Word { kind: MISSING, word: 0 };

    #[inline]
    pub fn signed(number: i64) -> Word {
        // A number that is not negative gets the same word from signed and from unsigned fields.
        Word { kind: u64::from(number < 0), word: number as u64 }
    }

    #[inline]
    pub fn unsigned(number: u64) -> Word {
        Word { kind: NUMBER, word: number }
    }

    /// Returns the word for the text with this index in [`Texts`].
    #[inline]
    pub fn text(index: u32) -> Word {
        Word { kind: TEXT, word: index.into() }
    }

    /// Returns the index in [`Texts`]; `None` for words of other kinds.
    #[inline]
    pub fn text_index(self) -> Option<u32> {
        (self.kind == TEXT).then_some(self.word as u32)
    }

    /// Returns the word for the bytes with this index in [`Texts`].
    #[inline]
    pub fn bytes(index: u32) -> Word {
        Word { kind: BYTES, word: index.into() }
    }

    /// Returns the word for an array of numbers whose bytes have this index in [`Texts`].
    #[inline]
    pub fn words(index: u32) -> Word {
        Word { kind: WORDS, word: index.into() }
    }
}

/// The words of a key, in a buffer of fixed size. The first word contains the kinds of all parts, a byte for each.
pub(super) struct Words {
    words: [u64; MAX_KEYS + 1],
    len: usize,
}

impl Words {
    #[inline]
    pub fn new() -> Words {
        Words { words: [0; MAX_KEYS + 1], len: 0 }
    }

    #[inline]
    pub fn push(&mut self, Word { kind, word }: Word) {
        self.words[0] |= kind << (8 * self.len);
        self.len += 1;
        self.words[self.len] = word;
    }

    #[inline]
    pub fn as_slice(&self) -> &[u64] {
        &self.words[..=self.len]
    }
}

/// Returns the words of a key. Adds the key's texts to `texts`.
pub(super) fn words_of(key: &[KeyPart], texts: &mut Texts) -> Words {
    words_with(key, |bytes| Some(texts.intern(bytes))).unwrap_or_else(Words::new)
}

/// Returns the words of a key. Returns `None` if `texts` lacks a text of the key: then no row has this key.
pub(super) fn known_words(key: &[KeyPart], texts: &Texts) -> Option<Words> {
    words_with(key, |bytes| texts.find(bytes))
}

fn words_with(key: &[KeyPart], mut index: impl FnMut(&[u8]) -> Option<u32>) -> Option<Words> {
    let mut words = Words::new();
    for part in key.iter().take(MAX_KEYS) {
        words.push(match part {
            KeyPart::Number(number) => match u64::try_from(*number) {
                Ok(number) => Word::unsigned(number),
                Err(_) => Word::signed(i64::try_from(*number).ok()?),
            },
            KeyPart::Text(text) => Word::text(index(text)?),
            KeyPart::Bytes(bytes) => Word::bytes(index(bytes)?),
            KeyPart::Words(bytes) => Word::words(index(bytes)?),
            KeyPart::Missing => Word::MISSING,
        });
    }
    Some(words)
}

/// Returns the positions in a row's words that hold the index of a text.
fn text_places(words: &[u64]) -> impl Iterator<Item = usize> + use<> {
    let kinds = words.first().copied().unwrap_or(0);
    (1..words.len()).filter(move |at| matches!((kinds >> (8 * (at - 1))) & 0xff, TEXT | BYTES | WORDS))
}

/// Returns the indexes of the texts that a row's words refer to.
pub(super) fn text_indexes(words: &[u64]) -> impl Iterator<Item = usize> {
    text_places(words).map(|at| words[at] as usize)
}

/// Replaces the index of each text in a row's words. `new` holds the new index at the position of the old one.
pub(super) fn move_texts(words: &mut [u64], new: &[u32]) {
    text_places(words).for_each(|at| words[at] = new[words[at] as usize].into());
}

/// Returns the key that a row's words stand for.
pub(super) fn key_of(words: &[u64], texts: &Texts) -> Key {
    let Some((kinds, words)) = words.split_first() else { return Key::new() };
    let part = |(at, &word): (usize, &u64)| match (kinds >> (8 * at)) & 0xff {
        NUMBER => KeyPart::Number(word.into()),
        NEGATIVE => KeyPart::Number((word as i64).into()),
        TEXT => KeyPart::Text(texts.get(word as u32).into()),
        BYTES => KeyPart::Bytes(texts.get(word as u32).into()),
        WORDS => KeyPart::Words(texts.get(word as u32).into()),
        _ => KeyPart::Missing,
    };
    words.iter().enumerate().map(part).collect()
}
