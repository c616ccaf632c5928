//! A histogram with a row for each power of two, as text in the format of BPF tools, or as HTML.

use std::ops::Range;

/// Counts values by powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log2Histogram {
    /// The counts of the values 0 and 1, 2 and 3, 4 to 7, 8 to 15, ...
    rows: [u64; ROWS],
    /// The number of values below zero, such as differences of times in the wrong order.
    negative: u64,
}

/// The number of rows: one for each power of two in a `u64`. The first row counts the values 0 and 1.
const ROWS: usize = 64;
/// The width of the longest bar, in characters.
const BAR: usize = 40;

impl Default for Log2Histogram {
    fn default() -> Log2Histogram {
        Log2Histogram { rows: [0; ROWS], negative: 0 }
    }
}

impl Log2Histogram {
    /// Counts a value `n` times.
    pub fn add(&mut self, value: u64, n: u64) {
        let row = &mut self.rows[63 - (value | 1).leading_zeros() as usize];
        *row = row.saturating_add(n);
    }

    /// Counts a value below zero `n` times.
    pub fn add_negative(&mut self, n: u64) {
        self.negative = self.negative.saturating_add(n);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Log2Histogram) {
        for (row, more) in self.rows.iter_mut().zip(other.rows) {
            *row = row.saturating_add(more);
        }
        self.add_negative(other.negative);
    }

    /// Returns the number of all values.
    pub fn count(&self) -> u64 {
        self.rows.iter().fold(self.negative, |sum, row| sum.saturating_add(*row))
    }

    /// Returns the rows that have a count: the smallest value of the row, and the count. The smallest value is `None` for
    /// the row of values below zero.
    pub fn rows(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let rows = self.rows.iter().enumerate().map(|(at, &count)| (Some(low(at)), count));
        std::iter::once((None, self.negative)).chain(rows).filter(|&(_, count)| count != 0)
    }

    /// Returns the histogram as text: a header, and a line for each row from the first to the last one with a count. Values
    /// below zero have a line at the top.
    pub fn text(&self, name: &str) -> String {
        let rows = self.shown_rows();
        let most = self.largest_count();
        // Numbers of more than ten digits need twice the width.
        let number = if rows.end > 33 { 20 } else { 10 };
        let (indent, width) = (number / 2, number + number / 2 + 4);
        let mut text = format!("{:indent$}{name:<width$} : count     distribution", "");
        let mut row = |range: String, count: u64| {
            let stars = (u128::from(count) * BAR as u128 / u128::from(most)) as usize;
            text += &format!("\n{range} : {count:<8} |{:<BAR$}|", "*".repeat(stars));
        };
        if self.negative != 0 {
            row(format!("{:>number$}    {:number$}", "< 0", ""), self.negative);
        }
        for at in rows {
            row(format!("{:>number$} -> {:<number$}", low(at), high(at)), self.rows[at]);
        }
        text
    }

    /// Returns the same rows as [`Log2Histogram::text`], as an HTML table for notebooks.
    pub fn html(&self, name: &str) -> String {
        let most = self.largest_count();
        let name = escaped(name);
        let mut html = format!(
            "<table><thead><tr><th style=\"text-align:right\">{name}</th><th style=\"text-align:right\">count</th>\
             <th style=\"text-align:left\">distribution</th></tr></thead><tbody>"
        );
        let mut row = |range: &str, count: u64| {
            let percent = count as f64 * 100.0 / most as f64;
            html += &format!(
                "<tr><td style=\"text-align:right\">{range}</td><td style=\"text-align:right\">{count}</td>\
                 <td style=\"width:20em\"><div style=\"background:#4c78a8;height:1em;width:{percent:.1}%\"></div></td></tr>"
            );
        };
        if self.negative != 0 {
            row("&lt; 0", self.negative);
        }
        for at in self.shown_rows() {
            row(&format!("{} – {}", low(at), high(at)), self.rows[at]);
        }
        html + "</tbody></table>"
    }

    /// Returns the rows from the first to the last one with a count.
    fn shown_rows(&self) -> Range<usize> {
        let first = self.rows.iter().position(|&count| count != 0);
        let last = self.rows.iter().rposition(|&count| count != 0);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// Returns the largest count of a row; at least 1.
    fn largest_count(&self) -> u64 {
        self.rows.iter().copied().max().unwrap_or(0).max(self.negative).max(1)
    }
}

/// Returns text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the smallest value of a row.
fn low(row: usize) -> u64 {
    if row == 0 { 0 } else { 1 << row }
}

/// Returns the largest value of a row.
fn high(row: usize) -> u64 {
    u64::MAX >> (63 - row)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(values: &[(u64, u64)], negative: u64, expect: Expect) {
        let mut histogram = Log2Histogram::default();
        values.iter().for_each(|&(value, n)| histogram.add(value, n));
        histogram.add_negative(negative);
        // `expect!` removes the common indentation of all lines. A `|` before each line keeps the indentation of the
        // histogram.
        expect.assert_eq(&format!("|{}", histogram.text("usecs").replace('\n', "\n|")));
    }

    #[test]
    fn rows_from_the_first_to_the_last() {
        check(
            &[(2, 1), (3, 1), (16, 40), (31, 40), (32, 1)],
            0,
            expect![[r#"
                |     usecs               : count     distribution
                |         2 -> 3          : 2        |*                                       |
                |         4 -> 7          : 0        |                                        |
                |         8 -> 15         : 0        |                                        |
                |        16 -> 31         : 80       |****************************************|
                |        32 -> 63         : 1        |                                        |"#]],
        );
    }

    #[test]
    fn html_has_the_same_rows() {
        let mut histogram = Log2Histogram::default();
        histogram.add(5, 4);
        histogram.add(16, 1);
        histogram.add_negative(2);
        let html = histogram.html("<b>");
        let cells = html.replace("</td>", " ").replace("</th>", " ").replace("</tr>", "\n");
        let width = |cell: &str| cell.split("width:").nth(2).map(|rest| rest.split('"').next().unwrap().to_owned());
        let widths: Vec<String> = cells.lines().filter_map(width).collect();
        let tags = |line: &str| {
            line.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect::<String>()
        };
        let rows: Vec<String> = cells.lines().map(|line| tags(line).trim().to_owned()).collect();
        assert_eq!(rows[..5], ["&lt;b&gt; count distribution", "&lt; 0 2", "4 – 7 4", "8 – 15 0", "16 – 31 1"]);
        assert_eq!(widths, ["50.0%", "100.0%", "0.0%", "25.0%"]);
    }

    #[test]
    fn nothing_and_one_share_a_row() {
        check(
            &[(0, 1), (1, 2)],
            0,
            expect![[r#"
                |     usecs               : count     distribution
                |         0 -> 1          : 3        |****************************************|"#]],
        );
    }

    #[test]
    fn below_zero() {
        check(
            &[(5, 1)],
            4,
            expect![[r#"
                |     usecs               : count     distribution
                |       < 0               : 4        |****************************************|
                |         4 -> 7          : 1        |**********                              |"#]],
        );
    }

    #[test]
    fn large_numbers_have_wide_columns() {
        check(
            &[(u32::MAX.into(), 1)],
            0,
            expect![[r#"
                |     usecs               : count     distribution
                |2147483648 -> 4294967295 : 1        |****************************************|"#]],
        );
        check(
            &[(1 << 33, 3), (u64::MAX, u64::MAX)],
            0,
            expect![[r#"
                |          usecs                              : count     distribution
                |          8589934592 -> 17179869183          : 3        |                                        |
                |         17179869184 -> 34359738367          : 0        |                                        |
                |         34359738368 -> 68719476735          : 0        |                                        |
                |         68719476736 -> 137438953471         : 0        |                                        |
                |        137438953472 -> 274877906943         : 0        |                                        |
                |        274877906944 -> 549755813887         : 0        |                                        |
                |        549755813888 -> 1099511627775        : 0        |                                        |
                |       1099511627776 -> 2199023255551        : 0        |                                        |
                |       2199023255552 -> 4398046511103        : 0        |                                        |
                |       4398046511104 -> 8796093022207        : 0        |                                        |
                |       8796093022208 -> 17592186044415       : 0        |                                        |
                |      17592186044416 -> 35184372088831       : 0        |                                        |
                |      35184372088832 -> 70368744177663       : 0        |                                        |
                |      70368744177664 -> 140737488355327      : 0        |                                        |
                |     140737488355328 -> 281474976710655      : 0        |                                        |
                |     281474976710656 -> 562949953421311      : 0        |                                        |
                |     562949953421312 -> 1125899906842623     : 0        |                                        |
                |    1125899906842624 -> 2251799813685247     : 0        |                                        |
                |    2251799813685248 -> 4503599627370495     : 0        |                                        |
                |    4503599627370496 -> 9007199254740991     : 0        |                                        |
                |    9007199254740992 -> 18014398509481983    : 0        |                                        |
                |   18014398509481984 -> 36028797018963967    : 0        |                                        |
                |   36028797018963968 -> 72057594037927935    : 0        |                                        |
                |   72057594037927936 -> 144115188075855871   : 0        |                                        |
                |  144115188075855872 -> 288230376151711743   : 0        |                                        |
                |  288230376151711744 -> 576460752303423487   : 0        |                                        |
                |  576460752303423488 -> 1152921504606846975  : 0        |                                        |
                | 1152921504606846976 -> 2305843009213693951  : 0        |                                        |
                | 2305843009213693952 -> 4611686018427387903  : 0        |                                        |
                | 4611686018427387904 -> 9223372036854775807  : 0        |                                        |
                | 9223372036854775808 -> 18446744073709551615 : 18446744073709551615 |****************************************|"#]],
        );
    }

    #[test]
    fn nothing_counted() {
        check(&[], 0, expect!["|     usecs               : count     distribution"]);
    }

    proptest! {
        #[test]
        fn every_value_is_in_the_row_of_its_bounds(value in any::<u64>(), shift in 0..64u32, n in 1..1000u64) {
            let value = value >> shift;
            let mut histogram = Log2Histogram::default();
            histogram.add(value, n);
            let rows: Vec<_> = histogram.rows().collect();
            let [(Some(from), count)] = rows[..] else { panic!("{rows:?}") };
            prop_assert!(from <= value && count == n && histogram.count() == n);
            prop_assert!(value < from.saturating_mul(2).max(2) || value == u64::MAX);
        }
    }
}
