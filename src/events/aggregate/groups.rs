//! The table of an aggregator: from keys to sums or distributions. It never has more keys than its limit: if another one
//! comes, the smallest ones are folded into `others`.

use std::cmp::Reverse;

use super::{
    definition::{Definition, Measure},
    distribution::{Buckets, Distribution},
    key::{Key, KeyPart, key_of, known_words, words_of},
    memo::Memo,
    plan::Plan,
    rows::{Row, Rows},
    texts::Texts,
};
use crate::event::reader::Input;

/// When a table is full, a quarter of its keys is folded at once, because folding one key each time would be slow.
const FOLDED_PART: usize = 4;

/// The amount of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// With [`Measure::Sum`].
    Sum(i128),
    /// With [`Measure::Distribution`].
    Distribution(Distribution),
}

/// The keys that were folded because there were too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// How often a key was folded.
    pub keys: u64,
    /// The sum of the amounts.
    pub amount: Amount,
}

/// A table of amounts by key.
#[derive(Clone, Debug)]
pub struct Groups {
    definition: Definition,
    rows: Rows,
    texts: Texts,
    values: Values,
    others: Others,
    /// The number of events whose record ends before the value.
    skipped: u64,
    /// Changes with each change of the indexes of texts.
    generation: u64,
}

/// The amounts of all rows.
#[derive(Clone, Debug)]
enum Values {
    Sums(Vec<i128>),
    Distributions(Vec<Distribution>),
}

impl Amount {
    fn nothing(measure: Measure) -> Amount {
        match measure {
            Measure::Sum => Amount::Sum(0),
            Measure::Distribution(_) => Amount::Distribution(Distribution::default()),
        }
    }

    fn merge(&mut self, other: &Amount) {
        match (self, other) {
            (Amount::Sum(own), Amount::Sum(other)) => *own += other,
            (Amount::Distribution(own), Amount::Distribution(other)) => own.merge(other),
            // A table has one measure.
            _ => {}
        }
    }

    /// Returns the number by which amounts are sorted: the sum, or the number of values.
    pub fn weight(&self) -> i128 {
        match self {
            Amount::Sum(sum) => *sum,
            Amount::Distribution(distribution) => distribution.count.into(),
        }
    }
}

impl Values {
    fn new(measure: Measure) -> Values {
        match measure {
            Measure::Sum => Values::Sums(Vec::new()),
            Measure::Distribution(_) => Values::Distributions(Vec::new()),
        }
    }

    fn push_nothing(&mut self) {
        match self {
            Values::Sums(sums) => sums.push(0),
            Values::Distributions(distributions) => distributions.push(Distribution::default()),
        }
    }

    fn weight(&self, row: usize) -> i128 {
        match self {
            Values::Sums(sums) => sums[row],
            Values::Distributions(distributions) => distributions[row].count.into(),
        }
    }

    fn get(&self, row: usize) -> Amount {
        match self {
            Values::Sums(sums) => Amount::Sum(sums[row]),
            Values::Distributions(distributions) => Amount::Distribution(distributions[row].clone()),
        }
    }

    fn merge(&mut self, row: usize, amount: &Amount) {
        match (self, amount) {
            (Values::Sums(sums), Amount::Sum(sum)) => sums[row] += sum,
            (Values::Distributions(distributions), Amount::Distribution(other)) => distributions[row].merge(other),
            // A table has one measure.
            _ => {}
        }
    }
}

impl Groups {
    /// Creates an empty table.
    pub fn new(definition: Definition) -> Groups {
        let measure = definition.measure;
        Groups {
            rows: Rows::new(definition.keys.len() + 1),
            texts: Texts::default(),
            values: Values::new(measure),
            others: Others { keys: 0, amount: Amount::nothing(measure) },
            skipped: 0,
            generation: 1,
            definition,
        }
    }

    /// Returns what is added up.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the ranges of the distributions. For sums, they have no meaning.
    pub fn buckets(&self) -> Buckets {
        match self.definition.measure {
            Measure::Sum => Buckets::log2(1),
            Measure::Distribution(buckets) => buckets,
        }
    }

    /// Adds an event. `plan` is this table's definition for the type of the event, and `memo` is used only for this table
    /// and for events of one run.
    #[inline]
    pub fn add(&mut self, plan: &Plan, input: &Input<'_>, memo: &mut Memo) {
        if !plan.passes(input) {
            return;
        }
        let Some(value) = plan.value(input) else {
            self.skipped += 1;
            return;
        };
        memo.check(self.generation);
        let words = plan.words(input, &mut self.texts, memo);
        let row = self.row(words.as_slice());
        match &mut self.values {
            Values::Sums(sums) => sums[row] += value,
            Values::Distributions(distributions) => {
                if let Measure::Distribution(buckets) = self.definition.measure {
                    distributions[row].add(value, buckets);
                }
            }
        }
        if self.rows.len() > self.definition.limit {
            self.fold();
        }
    }

    /// Adds an amount to the amount of a key.
    pub fn add_amount(&mut self, key: &[KeyPart], amount: &Amount) {
        let words = words_of(key, &mut self.texts);
        let row = self.row(words.as_slice());
        self.values.merge(row, amount);
        if self.rows.len() > self.definition.limit {
            self.fold();
        }
    }

    /// Adds what another table has folded.
    pub fn add_others(&mut self, others: &Others) {
        self.others.keys += others.keys;
        self.others.amount.merge(&others.amount);
    }

    /// Adds to the number of events that were skipped.
    pub fn add_skipped(&mut self, events: u64) {
        self.skipped += events;
    }

    /// Adds all amounts of another table, which has the same keys and the same measure.
    pub fn merge(&mut self, other: &Groups) {
        for (key, amount) in other.iter() {
            self.add_amount(&key, &amount);
        }
        self.add_others(&other.others);
        self.skipped += other.skipped;
    }

    #[inline]
    fn row(&mut self, words: &[u64]) -> usize {
        match self.rows.find_or_add(words) {
            Row::Known(row) => row,
            Row::New(row) => {
                self.values.push_nothing();
                row
            }
        }
    }

    /// Folds the smallest keys into `others`. Of keys with the same amount, the latest ones are folded.
    #[cold]
    fn fold(&mut self) {
        let mut rows: Vec<usize> = (0..self.rows.len()).collect();
        let folded = (self.definition.limit / FOLDED_PART).max(rows.len() - self.definition.limit);
        rows.select_nth_unstable_by_key(folded - 1, |&row| (self.values.weight(row), Reverse(row)));
        let mut kept = rows.split_off(folded);
        for row in rows {
            self.others.keys += 1;
            self.others.amount.merge(&self.values.get(row));
        }
        kept.sort_unstable();
        let before = self.clone();
        self.clear_rows();
        for row in kept {
            self.add_amount(&before.key(row), &before.values.get(row));
        }
    }

    fn clear_rows(&mut self) {
        self.rows = Rows::new(self.definition.keys.len() + 1);
        self.texts = Texts::default();
        self.values = Values::new(self.definition.measure);
        self.generation += 1;
    }

    /// Removes all keys and amounts.
    pub fn clear(&mut self) {
        self.clear_rows();
        self.others = Others { keys: 0, amount: Amount::nothing(self.definition.measure) };
        self.skipped = 0;
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Returns the amount of a key.
    pub fn get(&self, key: &[KeyPart]) -> Option<Amount> {
        let words = known_words(key, &self.texts)?;
        self.rows.find(words.as_slice()).map(|row| self.values.get(row))
    }

    /// Returns the keys with their amounts, in the order in which the keys came first.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Amount)> + '_ {
        (0..self.rows.len()).map(|row| (self.key(row), self.values.get(row)))
    }

    /// Returns the `top` largest keys with their amounts, the largest first. Of keys with the same amount, the one that
    /// came first is first.
    pub fn largest(&self, top: Option<usize>) -> Vec<(Key, Amount)> {
        self.first_by(top, |row| self.values.weight(row))
    }

    /// Returns the `top` keys with the largest sums of values, the largest first. Of keys with the same sum, the one that
    /// came first is first.
    pub fn largest_by_sum(&self, top: Option<usize>) -> Vec<(Key, Amount)> {
        self.first_by(top, |row| match &self.values {
            Values::Sums(sums) => sums[row],
            Values::Distributions(distributions) => distributions[row].sum,
        })
    }

    fn first_by(&self, top: Option<usize>, number: impl Fn(usize) -> i128) -> Vec<(Key, Amount)> {
        let mut rows: Vec<usize> = (0..self.rows.len()).collect();
        rows.sort_by_key(|&row| Reverse(number(row)));
        rows.truncate(top.unwrap_or(usize::MAX));
        rows.into_iter().map(|row| (self.key(row), self.values.get(row))).collect()
    }

    fn key(&self, row: usize) -> Key {
        key_of(self.rows.key(row), &self.texts)
    }

    /// Returns the sum of all amounts, with those of `others`.
    pub fn total(&self) -> Amount {
        let mut total = self.others.amount.clone();
        for row in 0..self.rows.len() {
            total.merge(&self.values.get(row));
        }
        total
    }

    /// Returns what was folded because there were too many keys.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// Returns the number of events that were not added because their record ends before the value.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
