//! Keys of a table: numbers and texts, stored as words for fast comparisons, and returned as values.

use std::borrow::Cow;

use perf_prof_format::value;

use super::{definition::MAX_KEYS, texts::Texts};
use crate::picture::printable;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyPart {
    /// A number that fits into a `u64` or an `i64`.
    Number(i128),
    /// Text. It may contain any bytes except NUL.
    Text(Box<[u8]>),
    /// Bytes of an array that is not text.
    Bytes(Box<[u8]>),
    /// An array of unsigned numbers of 64 bits.
    Words(Box<[u8]>),
    /// The record ends before the field, or the value is not known.
    Missing,
}

/// A key: one part for each name in the definition.
pub type Key = Vec<KeyPart>;

impl KeyPart {
    /// Returns the number of bytes that the part has allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            KeyPart::Text(bytes) | KeyPart::Bytes(bytes) | KeyPart::Words(bytes) => bytes.len(),
            KeyPart::Number(_) | KeyPart::Missing => 0,
        }
    }

    /// Returns the part as text for a table.
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

/// The kinds of words. The kind says what a word means.
const NUMBER: u64 = 0;
const NEGATIVE: u64 = 1;
const TEXT: u64 = 2;
const BYTES: u64 = 3;
const MISSING: u64 = 4;
const WORDS: u64 = 5;

/// A part of a key in a table: its kind, and a number or the index of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    kind: u64,
    word: u64,
}

impl Word {
    /// The word of a value that is not known.
    pub const MISSING: Word = Word { kind: MISSING, word: 0 };

    /// Returns the word of a signed number.
    #[inline]
    pub fn signed(number: i64) -> Word {
        // A number that is not negative has the same word in signed and in unsigned fields.
        Word { kind: u64::from(number < 0), word: number as u64 }
    }

    /// Returns the word of an unsigned number.
    #[inline]
    pub fn unsigned(number: u64) -> Word {
        Word { kind: NUMBER, word: number }
    }

    /// Returns the word of a text: the index that [`Texts`] gave to the text.
    #[inline]
    pub fn text(index: u32) -> Word {
        Word { kind: TEXT, word: index.into() }
    }

    /// Returns the index of the text that the word stands for.
    #[inline]
    pub fn text_index(self) -> Option<u32> {
        (self.kind == TEXT).then_some(self.word as u32)
    }

    /// Returns the word of bytes: the index that [`Texts`] gave to the bytes.
    #[inline]
    pub fn bytes(index: u32) -> Word {
        Word { kind: BYTES, word: index.into() }
    }

    /// Returns the word of an array of numbers: the index that [`Texts`] gave to its bytes.
    #[inline]
    pub fn words(index: u32) -> Word {
        Word { kind: WORDS, word: index.into() }
    }
}

/// The words of a key, in a buffer of fixed size.
pub(super) struct Words {
    words: [u64; MAX_KEYS + 1],
    len: usize,
}

impl Words {
    /// Creates an empty key.
    #[inline]
    pub fn new() -> Words {
        Words { words: [0; MAX_KEYS + 1], len: 0 }
    }

    /// Adds a part.
    #[inline]
    pub fn push(&mut self, Word { kind, word }: Word) {
        // The first word has the kinds of all parts.
        self.words[0] |= kind << (8 * self.len);
        self.len += 1;
        self.words[self.len] = word;
    }

    /// Returns the words.
    #[inline]
    pub fn as_slice(&self) -> &[u64] {
        &self.words[..=self.len]
    }
}

/// Returns the words of a key, and adds its texts to `texts`.
pub(super) fn words_of(key: &[KeyPart], texts: &mut Texts) -> Words {
    words_with(key, |bytes| Some(texts.intern(bytes))).unwrap_or_else(Words::new)
}

/// Returns the words of a key; `None` if `texts` lacks a text of the key, so that no row has the key.
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

/// Returns the positions in `words`, a row's words, at which there is the index of a text.
fn text_places(words: &[u64]) -> impl Iterator<Item = usize> + use<> {
    let kinds = words.first().copied().unwrap_or(0);
    (1..words.len()).filter(move |at| matches!((kinds >> (8 * (at - 1))) & 0xff, TEXT | BYTES | WORDS))
}

/// Returns the indexes of the texts in a row's words.
pub(super) fn text_indexes(words: &[u64]) -> impl Iterator<Item = usize> {
    text_places(words).map(|at| words[at] as usize)
}

/// Gives the texts in a row's words their new indexes.
pub(super) fn move_texts(words: &mut [u64], new: &[u32]) {
    text_places(words).for_each(|at| words[at] = new[words[at] as usize].into());
}

/// Returns the key of a row's words.
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
