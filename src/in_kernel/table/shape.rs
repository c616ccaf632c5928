//! The layout of a table's rows in the kernel, and how they are read.

use perf_prof_events::aggregate::{Amount, Distribution, InOnePlace, Key, KeyPart};

use super::{
    chain::ChainAt,
    range::{Numbers, place},
};
use crate::{
    expression::Number,
    instruction::{Place, Register},
    lower::{Lowered, Part},
    select::SCRATCH,
};

/// The layout of a table's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The size of a key, in bytes.
    pub key_bytes: usize,
    /// The size of a value, in bytes.
    pub value_bytes: usize,
    parts: Vec<Part>,
    kept: Kept,
    numbers: Numbers,
}

/// What is kept for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Count,
    Sum,
    Distribution,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key of the row. Several rows can have the same key: one for each range of a distribution, and rows whose texts
    /// differ only after the first NUL.
    pub key: Key,
    /// The number of events.
    pub count: u64,
    /// The sum or the distribution of the row.
    pub amount: Amount,
    /// When the row was added, on the clock `CLOCK_MONOTONIC`.
    pub first: u64,
    /// The call chain in the key. The part of `key` for the call chain is `Missing`.
    pub chain: Option<ChainAt>,
}

/// The counters of a program, besides its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of rows that the program has added to all of its tables.
    pub inserted: u64,
    /// The number of events that were refused because the table was full.
    pub refused: u64,
    /// The sum of the refused numbers, and the sum of their upper halves. [`Shape::refused`] combines them.
    pub refused_sums: [u64; 2],
    /// The number of perf-prof's own events.
    pub own: u64,
    /// The number of segments of call chains that the program has added to all of its hashes.
    pub segments: u64,
}

impl Counters {
    /// The number of counters, in words.
    pub const WORDS: usize = 6;
    pub(super) const INSERTED: i16 = 0;
    pub(super) const REFUSED: i16 = 8;
    pub(super) const REFUSED_SUM: i16 = 16;
    pub(crate) const OWN: i16 = 32;
    pub(super) const SEGMENTS: i16 = 40;
}

impl From<[u64; Counters::WORDS]> for Counters {
    fn from([inserted, refused, sum, high, own, segments]: [u64; Counters::WORDS]) -> Counters {
        Counters { inserted, refused, refused_sums: [sum, high], own, segments }
    }
}

impl Shape {
    /// The offset in a value of the time at which the row was added.
    pub(super) const FIRST: i16 = 0;
    /// The offset in a value of the number of events.
    pub(super) const COUNT: i16 = 8;

    pub(super) fn new(lowered: &Lowered, is_distribution: bool) -> Shape {
        let kept = match (is_distribution, lowered.added) {
            (true, _) => Kept::Distribution,
            (false, None) => Kept::Count,
            (false, Some(_)) => Kept::Sum,
        };
        let added = lowered.added.unwrap_or(Number::Constant(1));
        let numbers = Numbers { is_signed: added.is_signed(), is_wide: added.is_wide() };
        let of_parts: usize = lowered.key.iter().map(Part::bytes).sum();
        let of_range = if is_distribution { 8 } else { 0 };
        let key_bytes = (of_parts + of_range).max(8);
        let shape = Shape { key_bytes, value_bytes: 0, parts: lowered.key.clone(), kept, numbers };
        let places = [shape.sum(), shape.min(), shape.max(), shape.high()];
        let value_bytes = 8 * (2 + places.into_iter().flatten().count());
        Shape { value_bytes, ..shape }
    }

    /// Returns the place of the key on the stack.
    pub(super) fn key(&self) -> Place {
        Register::Frame.at(SCRATCH.offset - self.key_bytes as i16)
    }

    /// Returns the place of a new row's value on the stack.
    pub(super) fn value(&self) -> Place {
        Register::Frame.at(self.key().offset - self.value_bytes as i16)
    }

    /// Returns the place of the call chain's id on the stack; `None` if the key contains no call chain.
    pub(super) fn chain(&self) -> Option<Place> {
        self.chain_part().map(|(_, offset)| self.key().after(offset))
    }

    /// Returns whether the key contains a call chain.
    pub fn has_chain(&self) -> bool {
        self.chain_part().is_some()
    }

    /// Returns the index of the part that is a call chain, and its offset in the key.
    fn chain_part(&self) -> Option<(usize, usize)> {
        let at = self.parts.iter().position(|part| *part == Part::Chain)?;
        Some((at, self.parts[..at].iter().map(Part::bytes).sum()))
    }

    /// Returns the place of the range on the stack: at the end of the key.
    pub(super) fn range(&self) -> Place {
        Register::Frame.at(SCRATCH.offset - 8)
    }

    /// Returns whether the key has no parts and no range. It is then 8 bytes of zeros.
    pub(super) fn has_no_key(&self) -> bool {
        self.kept != Kept::Distribution && self.parts.iter().map(Part::bytes).sum::<usize>() == 0
    }

    /// Returns whether values contain the smallest and the largest number.
    pub fn has_extremes(&self) -> bool {
        self.kept == Kept::Distribution
    }

    /// Returns whether the added numbers can be negative.
    pub(super) fn is_signed(&self) -> bool {
        self.numbers.is_signed
    }

    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Returns the offset in a value of the lower 64 bits of the sum.
    pub(super) fn sum(&self) -> Option<i16> {
        match self.kept {
            Kept::Count => None,
            Kept::Sum | Kept::Distribution => Some(16),
        }
    }

    /// Returns the offset in a value of the smallest number.
    pub(super) fn min(&self) -> Option<i16> {
        (self.kept == Kept::Distribution).then_some(24)
    }

    /// Returns the offset in a value of the largest number.
    pub(super) fn max(&self) -> Option<i16> {
        (self.kept == Kept::Distribution).then_some(32)
    }

    /// Returns the offset in a value of the sum of the numbers' upper halves.
    pub(super) fn high(&self) -> Option<i16> {
        match (self.kept, self.numbers.is_wide) {
            (Kept::Count, _) | (_, false) => None,
            (Kept::Sum, true) => Some(24),
            (Kept::Distribution, true) => Some(40),
        }
    }

    /// Returns the row that this key and value in the kernel stand for.
    pub fn row(&self, key: &[u8], value: &[u8]) -> Row {
        let at = |offset: Option<i16>| offset.map_or(0, |offset| word(value, offset as usize));
        let count = at(Some(Shape::COUNT));
        let sum = self.whole_sum([at(self.sum()), at(self.high())], count);
        let amount = match self.kept {
            Kept::Count => Amount::Sum(count.into()),
            Kept::Sum => Amount::Sum(sum),
            Kept::Distribution => Amount::Distribution(Distribution::from(InOnePlace {
                place: place(word(key, self.key_bytes - 8)),
                count,
                sum,
                min: self.number(at(self.min())),
                max: self.number(at(self.max())),
            })),
        };
        let chain = self.chain_part().map(|(part, offset)| ChainAt { part, id: word(key, offset) });
        Row { key: self.parts_of(key), count, amount, first: at(Some(Shape::FIRST)), chain }
    }

    /// Returns what was added to a row since its value was `before`; `None` if nothing was added. The smallest and the largest
    /// number are still those of all numbers of the row.
    pub fn row_since(&self, key: &[u8], value: &[u8], before: &[u8]) -> Option<Row> {
        if value == before {
            return None;
        }
        let mut added = value.to_vec();
        for at in [Some(Shape::COUNT), self.sum(), self.high()].into_iter().flatten().map(|offset| offset as usize) {
            if let Some(place) = added.get_mut(at..at + 8) {
                place.copy_from_slice(&word(value, at).wrapping_sub(word(before, at)).to_ne_bytes());
            }
        }
        Some(self.row(key, &added))
    }

    /// Returns the amount of the refused events.
    pub fn refused(&self, counters: &Counters) -> Amount {
        let sum = self.whole_sum(counters.refused_sums, counters.refused);
        match self.kept {
            Kept::Count | Kept::Sum => Amount::Sum(sum),
            Kept::Distribution => {
                let mut distribution = Distribution::default();
                (distribution.count, distribution.sum) = (counters.refused, sum);
                Amount::Distribution(distribution)
            }
        }
    }

    fn parts_of(&self, key: &[u8]) -> Key {
        let mut at = 0;
        let part = |part: &Part| {
            let bytes = key.get(at..at + part.bytes()).unwrap_or_default();
            at += part.bytes();
            match part {
                Part::Number(number) => KeyPart::Number(extended(word(bytes, 0), number.is_signed())),
                Part::Named { names, .. } => KeyPart::Text(names.text(word(bytes, 0) as i64).into()),
                Part::Text(_) => KeyPart::Text(bytes.split(|byte| *byte == 0).next().unwrap_or_default().into()),
                Part::Bytes { size, .. } => KeyPart::Bytes(bytes.get(..*size).unwrap_or_default().into()),
                Part::Constant(text) => KeyPart::Text(text.clone()),
                Part::Chain => KeyPart::Missing,
            }
        };
        self.parts.iter().map(part).collect()
    }

    /// Returns the sum of `count` numbers, from its lower 64 bits and the sum of the numbers' upper halves. The sum of their
    /// lower halves is below 2^64 if there are fewer than 2^32 numbers.
    ///
    /// A program adds to one word after the other. If the words were read in between, the difference of the two sums is not
    /// exactly the sum of the lower halves, and can even be negative. Of the numbers that have the same lower 64 bits, the
    /// one that is nearest to the expected sum is the difference. What is missing here is in the next reading.
    fn whole_sum(&self, [sum, high]: [u64; 2], count: u64) -> i128 {
        if !self.numbers.is_wide {
            return self.number(sum);
        }
        let high = self.number(high) << 32;
        let expected = count.min(1 << 32) << 31;
        let unexpected = sum.wrapping_sub(high as u64).wrapping_sub(expected) as i64;
        high + i128::from(expected) + i128::from(unexpected)
    }

    fn number(&self, word: u64) -> i128 {
        extended(word, self.numbers.is_signed)
    }
}

fn extended(word: u64, is_signed: bool) -> i128 {
    if is_signed { (word as i64).into() } else { word.into() }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}
