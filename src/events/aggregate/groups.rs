//! The table of an aggregator: from keys to sums or distributions. The table has a maximum number of keys and of bytes.
//! When it reaches one of the two, it folds its smallest keys into `others`.

use std::cmp::Reverse;

use perf_prof_system::budget::{Budget, HeldFor, Holding};

use super::{
    definition::{Definition, Measure},
    distribution::{Buckets, Distribution},
    key::{Key, KeyPart, key_of, known_words, move_texts, text_indexes, words_of},
    memo::Memo,
    plan::Plan,
    rows::{Row, Rows},
    texts::Texts,
};
use crate::event::reader::{Facts, Input};

/// When a table is full, it folds a quarter of its keys or of its memory at once. To fold a single key each time would
/// be slow. This number is the divisor: 4 for a quarter.
const FOLDED_PART: usize = 4;

/// What a table has added up for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The amount of a table with [`Measure::Sum`].
    Sum(i128),
    /// The amount of a table with [`Measure::Distribution`].
    Distribution(Distribution),
}

/// What was folded: the amounts of keys for which the table had no place or no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// How often a key was folded. A key that comes again can be folded again, and then counts twice.
    pub keys: u64,
    /// The amounts of the folded keys, added up.
    pub amount: Amount,
}

/// The order in which keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The largest sum first. For distributions, the largest number of events first.
    Weight,
    /// The largest sum of values first, also for distributions.
    Sum,
}

/// Why keys were folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoldReason {
    /// There were too many keys.
    #[default]
    Keys,
    /// The keys took too much memory.
    Memory,
}

/// A table of amounts by key.
#[derive(Clone, Debug)]
pub struct Groups {
    definition: Definition,
    rows: Rows,
    texts: Texts,
    values: Values,
    others: Others,
    last_fold: FoldReason,
    /// The number of events without a value, which were not added.
    skipped: u64,
    /// Changes whenever texts get new indexes. A cache of indexes compares it (see `Memo`).
    generation: u64,
    /// The memory that the table takes from the run's budget. `None` until the first event of a run is added.
    memory: Option<Holding>,
    when_full: WhenFull,
}

/// What happens to a new key when the table has as many keys as its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WhenFull {
    /// The table folds its smallest keys.
    #[default]
    FoldSmallest,
    /// The table keeps its keys, and adds the amounts of the new key to `others`.
    KeepFirst,
}

/// The amounts of all rows.
#[derive(Clone, Debug)]
enum Values {
    Sums(Vec<i128>),
    Distributions {
        rows: Vec<Distribution>,
        /// The memory of the ranges of all rows, in bytes.
        range_bytes: usize,
    },
}

struct Table {
    rows: Rows,
    values: Values,
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
            // Not reached: a table has one measure.
            _ => {}
        }
    }

    /// Returns the number by which tables are sorted: the sum, or for a distribution the number of events.
    pub fn weight(&self) -> i128 {
        match self {
            Amount::Sum(sum) => *sum,
            Amount::Distribution(distribution) => distribution.events().into(),
        }
    }
}

impl Values {
    fn new(measure: Measure) -> Values {
        match measure {
            Measure::Sum => Values::Sums(Vec::new()),
            Measure::Distribution(_) => Values::Distributions { rows: Vec::new(), range_bytes: 0 },
        }
    }

    fn push_nothing(&mut self) {
        match self {
            Values::Sums(sums) => sums.push(0),
            Values::Distributions { rows, .. } => rows.push(Distribution::default()),
        }
    }

    /// Keeps the rows with these indexes, in this order.
    fn keep(self, kept: &[usize]) -> Values {
        match self {
            Values::Sums(sums) => Values::Sums(kept.iter().map(|&row| sums[row]).collect()),
            Values::Distributions { mut rows, .. } => {
                let rows: Vec<_> = kept.iter().map(|&row| std::mem::take(&mut rows[row])).collect();
                let range_bytes = rows.iter().map(Distribution::heap_bytes).sum();
                Values::Distributions { rows, range_bytes }
            }
        }
    }

    /// Returns the memory of one row's amount, in bytes, without the ranges of a distribution. Counts the spare
    /// capacity of the `Vec` too.
    fn bytes_of_row(&self) -> usize {
        2 * match self {
            Values::Sums(_) => size_of::<i128>(),
            Values::Distributions { .. } => size_of::<Distribution>(),
        }
    }

    fn range_bytes(&self) -> usize {
        match self {
            Values::Sums(_) => 0,
            Values::Distributions { range_bytes, .. } => *range_bytes,
        }
    }

    fn range_bytes_of(&self, row: usize) -> usize {
        match self {
            Values::Sums(_) => 0,
            Values::Distributions { rows, .. } => rows[row].heap_bytes(),
        }
    }

    fn weight(&self, row: usize) -> i128 {
        match self {
            Values::Sums(sums) => sums[row],
            Values::Distributions { rows, .. } => rows[row].events().into(),
        }
    }

    fn get(&self, row: usize) -> Amount {
        match self {
            Values::Sums(sums) => Amount::Sum(sums[row]),
            Values::Distributions { rows, .. } => Amount::Distribution(rows[row].clone()),
        }
    }

    fn merge(&mut self, row: usize, amount: &Amount) {
        match (self, amount) {
            (Values::Sums(sums), Amount::Sum(sum)) => sums[row] += sum,
            (Values::Distributions { rows, range_bytes }, Amount::Distribution(other)) => {
                let before = rows[row].heap_bytes();
                rows[row].merge(other);
                *range_bytes += rows[row].heap_bytes() - before;
            }
            // Not reached: a table has one measure.
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
            last_fold: FoldReason::default(),
            skipped: 0,
            generation: 1,
            memory: None,
            when_full: WhenFull::default(),
            definition,
        }
    }

    /// Makes a full table keep its keys from now on, so that their amounts never decrease. Only a lack of memory can
    /// still fold keys.
    pub fn keep_first_keys(&mut self) {
        self.when_full = WhenFull::KeepFirst;
    }

    /// Makes the table take its memory from `budget`. The first event does this too, so only tables that get no events need
    /// this call.
    pub fn within(mut self, budget: &Budget) -> Groups {
        self.take_memory_from(budget);
        self
    }

    fn take_memory_from(&mut self, budget: &Budget) {
        if !self.memory.as_ref().is_some_and(|memory| memory.budget().is(budget)) {
            self.memory = Some(budget.hold(HeldFor::Tables));
        }
    }

    /// Returns the definition: what the table adds up.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the ranges of the distributions. For a table of sums, the result has no meaning.
    pub fn buckets(&self) -> Buckets {
        match self.definition.measure {
            Measure::Sum => Buckets::log2(1),
            Measure::Distribution(buckets) => buckets,
        }
    }

    /// Adds an event. `plan` is the table's definition, compiled for the type of the event. `memo` belongs to this
    /// table and to one run: the caller uses it for nothing else.
    #[inline]
    pub fn add(&mut self, plan: &Plan, input: &Input<'_>, memo: &mut Memo) {
        if !plan.passes(input) {
            return;
        }
        let Some(value) = plan.value(input) else { return self.skip(plan, input, memo) };
        memo.check(self.generation);
        let words = plan.words(input, &mut self.texts, memo);
        let (rows, ranges) = (self.rows.len(), self.values.range_bytes());
        if self.has_no_room_for(words.as_slice()) {
            return self.add_to_others(value);
        }
        let row = self.row(words.as_slice());
        match &mut self.values {
            Values::Sums(sums) => sums[row] += value,
            Values::Distributions { rows, range_bytes } => {
                if let Measure::Distribution(buckets) = self.definition.measure {
                    let before = rows[row].heap_bytes();
                    rows[row].add(value, buckets);
                    *range_bytes += rows[row].heap_bytes() - before;
                }
            }
        }
        if (self.rows.len(), self.values.range_bytes()) != (rows, ranges) {
            if let Facts::Run(context) = input.facts {
                self.take_memory_from(context.budget());
            }
            self.fold_what_has_no_room();
        }
    }

    /// Counts an event without a value. A table of distributions also counts the event for its key, so that the key has a
    /// row.
    #[cold]
    fn skip(&mut self, plan: &Plan, input: &Input<'_>, memo: &mut Memo) {
        self.skipped += 1;
        if self.definition.measure == Measure::Sum {
            return;
        }
        if let Facts::Run(context) = input.facts {
            self.take_memory_from(context.budget());
        }
        memo.check(self.generation);
        let words = plan.words(input, &mut self.texts, memo);
        let key = key_of(words.as_slice(), &self.texts);
        self.add_amount(&key, &Amount::Distribution(Distribution::of_unknown()));
    }

    /// Adds an amount to the amount of a key.
    pub fn add_amount(&mut self, key: &[KeyPart], amount: &Amount) {
        let words = words_of(key, &mut self.texts);
        if self.has_no_room_for(words.as_slice()) {
            self.others.keys += 1;
            return self.others.amount.merge(amount);
        }
        let row = self.row(words.as_slice());
        self.values.merge(row, amount);
        self.fold_what_has_no_room();
    }

    /// Adds the folded amounts of another table.
    pub fn add_others(&mut self, others: &Others) {
        self.others.keys += others.keys;
        self.others.amount.merge(&others.amount);
    }

    /// Adds to the count of skipped events.
    pub fn add_skipped(&mut self, events: u64) {
        self.skipped += events;
    }

    /// Adds all amounts of another table. Both tables must have the same keys and the same measure.
    pub fn merge(&mut self, other: &Groups) {
        if let (None, Some(memory)) = (&self.memory, &other.memory) {
            self.take_memory_from(memory.budget());
        }
        for (key, amount) in other.iter() {
            self.add_amount(&key, &amount);
        }
        self.add_others(&other.others);
        if other.others.keys != 0 {
            self.last_fold = other.last_fold;
        }
        self.skipped += other.skipped;
    }

    /// Adds all amounts of another table, like [`Groups::merge`]. If this table is empty, it takes over the other table
    /// without copying.
    pub fn absorb(&mut self, other: Groups) {
        if self.is_empty() && self.others.keys == 0 && self.skipped == 0 {
            *self = other;
        } else {
            self.merge(&other);
        }
    }

    /// Returns whether a full table keeps its keys instead of folding the smallest ones.
    pub fn keeps_first_keys(&self) -> bool {
        self.when_full == WhenFull::KeepFirst
    }

    /// Returns whether the amounts of this key go to `others`: the table is full and keeps its keys, and the key is
    /// new.
    #[inline]
    fn has_no_room_for(&self, words: &[u64]) -> bool {
        self.keeps_first_keys() && self.rows.len() >= self.definition.limit && self.rows.find(words).is_none()
    }

    #[cold]
    fn add_to_others(&mut self, value: i128) {
        self.others.keys += 1;
        match (&mut self.others.amount, self.definition.measure) {
            (Amount::Sum(sum), _) => *sum += value,
            (Amount::Distribution(of), Measure::Distribution(buckets)) => of.add(value, buckets),
            // Not reached: a table has one measure.
            (Amount::Distribution(_), Measure::Sum) => {}
        }
        // The texts of the key are stored, although the key has no row. This call drops texts that no row uses, once they
        // take too much memory.
        self.fold_what_has_no_room();
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

    /// Returns the memory of the table.
    fn bytes(&self) -> usize {
        self.rows.len() * self.bytes_of_row() + self.texts.bytes() + self.values.range_bytes()
    }

    fn bytes_of_row(&self) -> usize {
        self.rows.bytes_of_row() + self.values.bytes_of_row()
    }

    /// Folds the smallest keys if the table has more keys than its limit, or takes more memory than its share.
    fn fold_what_has_no_room(&mut self) {
        let (rows, bytes) = (self.rows.len(), self.bytes());
        let limit = self.memory.as_ref().map_or(usize::MAX, Holding::limit);
        if rows > self.definition.limit || bytes > limit {
            self.last_fold = if bytes > limit { FoldReason::Memory } else { FoldReason::Keys };
            let folded = (self.definition.limit / FOLDED_PART).max(rows.saturating_sub(self.definition.limit));
            let rows = if rows > self.definition.limit { rows - folded } else { rows };
            self.fold(rows, limit - limit / FOLDED_PART);
        }
        let bytes = self.bytes();
        self.memory.iter_mut().for_each(|memory| memory.set(bytes));
    }

    /// Keeps the largest keys: at most `most_rows`, and no more than fit into `most_bytes`. Folds all other keys into
    /// `others`. Among keys with equal amounts, the keys that came last are folded.
    #[cold]
    fn fold(&mut self, most_rows: usize, most_bytes: usize) {
        let mut rows: Vec<usize> = (0..self.rows.len()).collect();
        rows.sort_unstable_by_key(|&row| (Reverse(self.values.weight(row)), row));
        let folded = rows.split_off(self.fitting(&rows, most_rows, most_bytes));
        for row in folded {
            self.others.keys += 1;
            self.others.amount.merge(&self.values.get(row));
        }
        rows.sort_unstable();
        let mut is_kept = vec![false; self.texts.len()];
        rows.iter().flat_map(|&row| text_indexes(self.rows.key(row))).for_each(|text| is_kept[text] = true);
        let places = self.texts.keep(&is_kept);
        let before = self.take_rows();
        for &row in &rows {
            let mut words = before.rows.key(row).to_vec();
            move_texts(&mut words, &places);
            self.rows.find_or_add(&words);
        }
        self.values = before.values.keep(&rows);
    }

    /// Returns how many of `rows` fit into `most_bytes` with their texts, counted from the first one; at most
    /// `most_rows`.
    fn fitting(&self, rows: &[usize], most_rows: usize, most_bytes: usize) -> usize {
        let mut has_text = vec![false; self.texts.len()];
        let mut left = most_bytes;
        let fits = |&&row: &&usize| {
            let texts = text_indexes(self.rows.key(row)).filter(|&text| !std::mem::replace(&mut has_text[text], true));
            let texts: usize = texts.map(|text| Texts::bytes_of(self.texts.get(text as u32))).sum();
            let bytes = self.bytes_of_row() + self.values.range_bytes_of(row) + texts;
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        rows.iter().take(most_rows).take_while(fits).count()
    }

    /// Removes all rows from the table and returns them. The table keeps the texts.
    fn take_rows(&mut self) -> Table {
        let rows = std::mem::replace(&mut self.rows, Rows::new(self.definition.keys.len() + 1));
        let values = std::mem::replace(&mut self.values, Values::new(self.definition.measure));
        self.generation += 1;
        Table { rows, values }
    }

    /// Removes all keys and amounts.
    pub fn clear(&mut self) {
        drop(self.take_rows());
        self.texts = Texts::default();
        self.memory.iter_mut().for_each(|memory| memory.set(0));
        self.others = Others { keys: 0, amount: Amount::nothing(self.definition.measure) };
        self.skipped = 0;
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Returns the amount of a key; `None` if the table does not have the key.
    pub fn get(&self, key: &[KeyPart]) -> Option<Amount> {
        let words = known_words(key, &self.texts)?;
        self.rows.find(words.as_slice()).map(|row| self.values.get(row))
    }

    /// Returns the keys with their amounts, in the order in which the keys came first.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Amount)> + '_ {
        (0..self.rows.len()).map(|row| (self.key(row), self.values.get(row)))
    }

    /// Returns the `top` largest keys with their amounts, the largest first. Keys with equal amounts are in the order
    /// in which they came first.
    pub fn largest(&self, top: Option<usize>) -> Vec<(Key, Amount)> {
        self.in_order(Order::Weight, top).collect()
    }

    /// Returns the first `top` keys in this order, with their amounts. Keys with equal amounts are in the order in
    /// which they came first.
    pub fn in_order(&self, order: Order, top: Option<usize>) -> impl Iterator<Item = (Key, Amount)> + '_ {
        let number = |&row: &usize| match (order, &self.values) {
            (Order::Sum, Values::Distributions { rows, .. }) => Reverse(rows[row].sum),
            _ => Reverse(self.values.weight(row)),
        };
        let mut rows: Vec<usize> = (0..self.rows.len()).collect();
        rows.sort_by_key(number);
        rows.truncate(top.unwrap_or(usize::MAX));
        rows.into_iter().map(|row| (self.key(row), self.values.get(row)))
    }

    fn key(&self, row: usize) -> Key {
        key_of(self.rows.key(row), &self.texts)
    }

    /// Returns the sum of all amounts, including `others`.
    pub fn total(&self) -> Amount {
        let mut total = self.others.amount.clone();
        for row in 0..self.rows.len() {
            total.merge(&self.values.get(row));
        }
        total
    }

    /// Returns what was folded.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// Returns why keys were folded the last time.
    pub fn last_fold(&self) -> FoldReason {
        self.last_fold
    }

    /// Returns the number of events that were not added because their value is not known, or because their record ends
    /// before the value.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
