//! The data of a heat map: how often values occur over time, on a logarithmic scale.

use std::collections::BTreeMap;

/// The maximum number of columns. When times need more, columns become twice as wide, until they fit.
const COLUMNS: u64 = 512;
/// The base-2 logarithm of the number of rows for each power of two.
const ROWS_LOG: u32 = 2;

/// Counts values by time and by size.
///
/// A column covers 2^n ns. All columns have the same `n`: the smallest `n` with which all times fit into 512 columns. So the
/// result does not depend on the order of the values, and heat maps can be merged. Each power of two of the values has four
/// rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMap {
    /// The counts by column and row.
    cells: BTreeMap<(u64, u8), u64>,
    /// The first and the last time in ns; `None` if there are no values.
    times: Option<(u64, u64)>,
    below_zero: u64,
}

/// The count in one column and one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The number of the column: its start divided by its width, both in ns.
    pub column: u64,
    /// The number of the row.
    pub row: u8,
    /// The number of values.
    pub count: u64,
}

/// Returns the row of a value.
pub fn row_of(value: u64) -> u8 {
    let power = (value | 1).ilog2();
    let row = match power.checked_sub(ROWS_LOG) {
        None => value,
        // The highest bit of the value and the two bits after it select the row.
        Some(shift) => (u64::from(shift) << ROWS_LOG) + (value >> shift),
    };
    row as u8
}

/// Returns the smallest value of a row.
pub fn lowest(row: u8) -> u64 {
    let row = u64::from(row);
    match (row >> ROWS_LOG).checked_sub(1) {
        None => row,
        Some(shift) => ((row & ((1 << ROWS_LOG) - 1)) + (1 << ROWS_LOG)) << shift,
    }
}

/// Returns the largest value of a row.
pub fn highest(row: u8) -> u64 {
    if row >= row_of(u64::MAX) { u64::MAX } else { lowest(row + 1) - 1 }
}

impl HeatMap {
    /// Counts a value `n` times at a time in ns.
    pub fn add(&mut self, time: u64, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.reach(time, time);
        let count = self.cells.entry((time >> self.shift(), row_of(value))).or_default();
        *count = count.saturating_add(n);
    }

    /// Counts `n` values below zero, which have no row.
    pub fn add_below_zero(&mut self, n: u64) {
        self.below_zero = self.below_zero.saturating_add(n);
    }

    /// Adds the counts of another heat map.
    pub fn merge(&mut self, other: &HeatMap) {
        self.add_below_zero(other.below_zero);
        let Some((first, last)) = other.times else { return };
        self.reach(first, last);
        let wider = self.shift() - other.shift();
        for (&(column, row), &more) in &other.cells {
            let count = self.cells.entry((column >> wider, row)).or_default();
            *count = count.saturating_add(more);
        }
    }

    /// Restores a heat map from its cells, its first and last time, and the number of its values below zero. Returns `None`
    /// if a cell is not between these times.
    pub fn restored(cells: &[Cell], times: Option<(u64, u64)>, below_zero: u64) -> Option<HeatMap> {
        let mut map = HeatMap { cells: BTreeMap::new(), times, below_zero };
        let columns = times.map(|(first, last)| first >> map.shift()..=last >> map.shift());
        for cell in cells {
            if !columns.as_ref()?.contains(&cell.column) {
                return None;
            }
            map.cells.insert((cell.column, cell.row), cell.count);
        }
        Some(map)
    }

    /// Returns the counts, ordered by column and then by row.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.iter().map(|(&(column, row), &count)| Cell { column, row, count })
    }

    /// Returns the first and the last time in ns; `None` if there are no values.
    pub fn times(&self) -> Option<(u64, u64)> {
        self.times
    }

    /// Returns the width of a column in ns.
    pub fn column_width(&self) -> u64 {
        1 << self.shift()
    }

    /// Returns the number of values below zero.
    pub fn below_zero(&self) -> u64 {
        self.below_zero
    }

    /// Returns the number of all values.
    pub fn count(&self) -> u64 {
        self.cells.values().fold(self.below_zero, |sum, &count| sum.saturating_add(count))
    }

    /// Returns the base-2 logarithm of the width of a column in ns.
    fn shift(&self) -> u32 {
        let (first, last) = self.times.unwrap_or_default();
        // This first guess is too small by two at most, so the loop has at most two rounds.
        let mut shift = (last - first).checked_ilog2().map_or(0, |power| power.saturating_sub(COLUMNS.ilog2()));
        while (last >> shift) - (first >> shift) >= COLUMNS {
            shift += 1;
        }
        shift
    }

    /// Makes columns wide enough for these times.
    fn reach(&mut self, first: u64, last: u64) {
        let before = self.shift();
        let (old_first, old_last) = self.times.unwrap_or((first, last));
        self.times = Some((old_first.min(first), old_last.max(last)));
        let wider = self.shift() - before;
        if wider != 0 {
            for ((column, row), more) in std::mem::take(&mut self.cells) {
                let count = self.cells.entry((column >> wider, row)).or_default();
                *count = count.saturating_add(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_follow_each_other_without_gaps() {
        assert_eq!(lowest(0), 0);
        for row in 0..row_of(u64::MAX) {
            assert_eq!((row_of(lowest(row)), row_of(highest(row))), (row, row));
            assert_eq!(lowest(row + 1), highest(row) + 1);
        }
        assert_eq!(highest(row_of(u64::MAX)), u64::MAX);
        assert_eq!([1000, 1023, 1024, 1279, 1280].map(row_of), [35, 35, 36, 36, 37]);
    }

    proptest! {
        #[test]
        fn the_order_and_the_parts_do_not_matter(
            values in prop::collection::vec((any::<u64>(), any::<u64>(), 1..5u64), 0..60),
            bits in 0..64u32,
            cut in 0..60usize,
        ) {
            let map = |values: &[(u64, u64, u64)]| {
                let mut map = HeatMap::default();
                values.iter().for_each(|&(time, value, n)| map.add(time >> bits, value, n));
                map
            };
            let whole = map(&values);
            let (left, right) = values.split_at(cut.min(values.len()));
            let mut parts = map(right);
            parts.merge(&map(left));
            prop_assert_eq!(&parts, &whole);
            prop_assert_eq!(whole.count(), values.iter().map(|value| value.2).sum::<u64>());
            let cells: Vec<Cell> = whole.cells().collect();
            if let (Some(first), Some(last)) = (cells.first(), cells.last()) {
                prop_assert!(last.column - first.column < COLUMNS);
                prop_assert!(whole.column_width() == 1 || last.column - first.column >= COLUMNS / 2 - 1);
            }
            prop_assert_eq!(HeatMap::restored(&cells, whole.times(), 0), Some(whole));
        }
    }

    #[test]
    fn damaged_cells_are_refused() {
        let cell = Cell { column: 9, row: 1, count: 1 };
        assert_eq!(HeatMap::restored(&[cell], None, 0), None);
        assert_eq!(HeatMap::restored(&[cell], Some((10, 20)), 0), None);
    }
}
