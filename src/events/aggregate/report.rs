//! The table of an aggregator as text or HTML.

use super::{
    distribution::{Buckets, Distribution, LinearRanges},
    groups::{Amount, FoldReason, Groups},
    key::{Key, KeyPart},
};
use crate::event::OTHERS;
use crate::picture::{Log2Histogram, escaped, printable};

/// The width of the longest bar, in characters.
const BAR: usize = 40;
/// The percentiles of a table of distributions.
const PERCENTILES: [f64; 3] = [50.0, 90.0, 99.0];

/// The alignment of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// A table for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The names and alignments of the columns.
    pub columns: Vec<(String, Align)>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns the table as text, without a newline at the end.
    pub fn text(&self) -> String {
        let heads: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines: Vec<&Vec<String>> = [&heads].into_iter().chain(&self.rows).collect();
        let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..heads.len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text: Vec<String> = Vec::new();
        for line in lines {
            let cells = line.iter().zip(&self.columns).zip(&widths);
            let cells = cells.map(|((cell, (_, align)), &width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            text.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
        }
        text.extend(self.notes.iter().cloned());
        text.join("\n")
    }

    /// Returns the table in HTML, for notebooks.
    pub fn html(&self) -> String {
        let cell = |tag: &str, text: &str, align: Align| {
            let side = if align == Align::Left { "left" } else { "right" };
            format!("<{tag} style=\"text-align:{side}\">{}</{tag}>", escaped(text))
        };
        let heads: String = self.columns.iter().map(|(name, align)| cell("th", name, *align)).collect();
        let row = |cells: &Vec<String>| {
            let cells: String =
                cells.iter().zip(&self.columns).map(|(text, (_, align))| cell("td", text, *align)).collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = self.rows.iter().map(row).collect();
        let notes: String = self.notes.iter().map(|note| note_html(note)).collect();
        format!("<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{notes}")
    }
}

/// Returns a line below a table in HTML.
pub fn note_html(note: &str) -> String {
    format!("<p>{}</p>", escaped(note))
}

impl Groups {
    /// Returns the table of the `top` largest keys. `unit` is the heading of the column of amounts.
    pub fn report(&self, top: Option<usize>, unit: &str) -> Report {
        let largest = self.largest(top);
        let is_number = |at: usize| largest.iter().all(|(key, _)| matches!(key.get(at), Some(KeyPart::Number(_))));
        let side = |at| if is_number(at) { Align::Right } else { Align::Left };
        let keys = self.definition().keys.iter().enumerate();
        let mut columns: Vec<(String, Align)> =
            keys.map(|(at, name)| (printable(name).into_owned(), side(at))).collect();
        let total = self.total();
        let amounts = match &total {
            Amount::Sum(_) => vec![unit.to_owned(), "share".to_owned()],
            Amount::Distribution(_) => {
                let percentiles = PERCENTILES.iter().map(|percent| format!("p{percent}"));
                let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
                let columns = ["mean".to_owned()].into_iter().chain(percentiles).chain(["max".to_owned()]);
                let columns = columns.map(|column| format!("{column}{unit}"));
                ["count".to_owned()].into_iter().chain(columns).collect()
            }
        };
        columns.extend(amounts.into_iter().map(|name| (printable(&name).into_owned(), Align::Right)));
        let rows = largest.iter().map(|(key, amount)| {
            let keys = key.iter().map(|part| part.text().into_owned());
            keys.chain(self.amount_cells(amount, &total)).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let notes = self.notes(&largest);
        Report { columns, rows, notes }
    }

    /// Returns the notes below a table: what the table leaves out, beyond the `shown` keys.
    pub fn notes(&self, shown: &[(Key, Amount)]) -> Vec<String> {
        let total = self.total();
        let mut notes = Vec::new();
        if shown.len() < self.len() {
            let together: i128 = shown.iter().map(|(_, amount)| amount.weight()).sum();
            let rest = total.weight() - together - self.others().amount.weight();
            let (hidden, plural) = match self.len() - shown.len() {
                1 => (1, ""),
                hidden => (hidden, "s"),
            };
            notes.push(format!("({hidden} more key{plural}, {rest} together)"));
        }
        if self.others().keys != 0 {
            let reason = match self.last_fold() {
                FoldReason::Keys => format!("there were more than limit={} keys", self.definition().limit),
                FoldReason::Memory => "the keys took more than their share of --buffer".to_owned(),
            };
            let others = self.others().amount.weight();
            notes.push(match self.keeps_first_keys() && self.last_fold() == FoldReason::Keys {
                true => format!("others: {others} ({reason}, so those that came later are added up here)"),
                false => format!(
                    "others: {others} ({reason}, so the smallest were added to others {} times; a key that came back may show \
                     too little)",
                    self.others().keys
                ),
            });
        }
        notes.extend(self.note_of_skipped());
        notes
    }

    /// Returns the note that says how many events were not added.
    pub fn note_of_skipped(&self) -> Option<String> {
        let value = self.definition().value.as_deref().unwrap_or_default();
        let value = printable(value);
        match self.skipped() {
            0 => None,
            1 => Some(format!("1 event is not added up: its `{value}` is not known")),
            more => Some(format!("{more} events are not added up: their `{value}` is not known")),
        }
    }

    fn amount_cells(&self, amount: &Amount, total: &Amount) -> Vec<String> {
        match amount {
            Amount::Sum(sum) => {
                let share = *sum as f64 * 100.0 / total.weight() as f64;
                let share = if share.is_finite() { format!("{share:.1}%") } else { "-".to_owned() };
                vec![sum.to_string(), share]
            }
            Amount::Distribution(of) => {
                let buckets = self.buckets();
                let number = |number: Option<i128>| number.map_or("-".to_owned(), |number| buckets.shown(number));
                let percentiles = PERCENTILES.iter().map(|&percent| buckets.shown_percentile(of, percent));
                let cells = [of.count.to_string(), buckets.shown_mean(of)].into_iter().chain(percentiles);
                cells.chain([number(of.max)]).collect()
            }
        }
    }
}

/// Says how often keys were folded, for pictures and profiles of stacks, which have the amount of these keys as one stack. `None` if
/// none was.
pub fn note_of_folded(times: u64) -> Option<String> {
    let often = match times {
        0 => return None,
        1 => "once".to_owned(),
        more => format!("{more} times"),
    };
    Some(format!(
        "stacks were folded into {OTHERS} {often}, and may show too little where they have boxes of their own"
    ))
}

impl Buckets {
    /// Returns a value as text in the shown unit. With the divisor 1, the text is a whole number; otherwise it has
    /// three digits after the point.
    pub fn shown(self, value: i128) -> String {
        match i128::from(self.divisor()) {
            1 => value.to_string(),
            divisor => {
                // Integers keep all digits, even of sums that are too large for a float.
                let thousandths = value.unsigned_abs() * 1000 / divisor.unsigned_abs();
                let sign = if value < 0 { "-" } else { "" };
                format!("{sign}{}.{:03}", thousandths / 1000, thousandths % 1000)
            }
        }
    }

    /// Returns a percentile of a distribution as text in the shown unit, with no more digits than are known: the values of a
    /// range are counted together, so all numbers of the range are equally right. `-` if there are no values.
    pub fn shown_percentile(self, of: &Distribution, percent: f64) -> String {
        let Some((value, (low, high))) = of.percentile_within(percent, self) else { return "-".to_owned() };
        if low == high {
            return self.shown(value);
        }
        // In a larger unit, the first value after a range, such as 288 us after 287.999 us, is the shorter one.
        let high = if self.divisor() > 1 && of.max > Some(high) { high + 1 } else { high };
        let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0);
        let rounded = (0..digits).rev().map(|place| {
            let step = 10i128.pow(place);
            ((value + value.signum() * step / 2) / step * step, place)
        });
        let found = rounded.into_iter().find(|(rounded, _)| (low..=high).contains(rounded));
        let (rounded, place) = found.unwrap_or((value, 0));
        let decimals = self.divisor().ilog10().saturating_sub(place) as usize;
        format!("{:.decimals$}", rounded as f64 / self.divisor() as f64)
    }

    /// Returns the mean of a distribution as text in the shown unit; `-` if there are no values.
    pub fn shown_mean(self, of: &Distribution) -> String {
        if of.count == 0 {
            return "-".to_owned();
        }
        let mean = of.sum as f64 / of.count as f64;
        if self.divisor() == 1 { format!("{mean:.1}") } else { format!("{:.3}", mean / self.divisor() as f64) }
    }
}

impl Distribution {
    /// Returns the distribution as text, with a bar for each row. `unit` is the heading of the values.
    pub fn text(&self, unit: &str, buckets: Buckets) -> String {
        let unit = printable(unit);
        let Some(linear) = buckets.as_linear() else { return self.log2(buckets).text(&unit) };
        let rows = self.linear_rows(buckets, linear);
        let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let width = rows.iter().map(|(range, _)| range.len()).max().unwrap_or(0).max(unit.chars().count());
        let mut text = format!("{unit:>width$} : count     distribution");
        for (range, count) in rows {
            let stars = (u128::from(count) * BAR as u128 / u128::from(most)) as usize;
            text += &format!("\n{range:>width$} : {count:<8} |{:<BAR$}|", "*".repeat(stars));
        }
        text
    }

    /// Returns the distribution as HTML, for notebooks.
    pub fn html(&self, unit: &str, buckets: Buckets) -> String {
        let Some(linear) = buckets.as_linear() else { return self.log2(buckets).html(unit) };
        let rows = self.linear_rows(buckets, linear).into_iter().map(|(range, count)| vec![range, count.to_string()]);
        let columns = vec![(unit.to_owned(), Align::Right), ("count".to_owned(), Align::Right)];
        Report { columns, rows: rows.collect(), notes: Vec::new() }.html()
    }

    /// Returns the smallest value and the count of each shown row. Values are in their own unit, not in the shown one.
    /// The smallest value is `None` for the row of all values below the first range.
    pub fn rows(&self, buckets: Buckets) -> Vec<(Option<i128>, u64)> {
        let own = |shown: i128| shown * i128::from(buckets.divisor());
        let Some(LinearRanges { high, .. }) = buckets.as_linear() else {
            let rows = self.log2(buckets);
            return rows.rows().map(|(low, count)| (low.map(|low| own(low.into())), count)).collect();
        };
        let below = [(None, self.below)].into_iter();
        let ranges = self.ranges().map(|(range, count)| (Some(buckets.bounds(range).0), count));
        let all = below.chain(ranges).chain([(Some(own(high.into())), self.above)]);
        all.filter(|&(_, count)| count != 0).collect()
    }

    fn log2(&self, buckets: Buckets) -> Log2Histogram {
        let mut histogram = Log2Histogram::default();
        histogram.add_negative(self.below);
        for (range, count) in self.ranges() {
            histogram.add(buckets.shown_start(range), count);
        }
        histogram
    }

    fn linear_rows(&self, buckets: Buckets, LinearRanges { low, high, .. }: LinearRanges) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        if self.below != 0 {
            rows.push((format!("< {low}"), self.below));
        }
        let counted: Vec<(u32, u64)> = self.ranges().collect();
        if let (Some((first, _)), Some((last, _))) = (counted.first(), counted.last()) {
            let count = |range| counted.binary_search_by_key(&range, |(range, _)| *range).map_or(0, |at| counted[at].1);
            rows.extend((*first..=*last).map(|range| {
                let ((from, to), divisor) = (buckets.bounds(range), i128::from(buckets.divisor()));
                (format!("{} -> {}", from / divisor, (to + 1) / divisor - 1), count(range))
            }));
        }
        if self.above != 0 {
            rows.push((format!(">= {high}"), self.above));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(values: &[i128], divisor: u64) -> String {
        let (mut of, buckets) = (Distribution::default(), Buckets::log2(divisor));
        values.iter().for_each(|&value| of.add(value, buckets));
        buckets.shown_percentile(&of, 50.0)
    }

    #[test]
    fn percentiles_have_the_digits_that_are_known() {
        let around = |value: i128| [1, value, value, value, 1 << 60];
        assert_eq!(shown(&around(52_345_678), 1000), "52000");
        assert_eq!(shown(&around(1_234_567), 1000), "1200");
        assert_eq!(shown(&around(1_234), 1000), "1.2");
        assert_eq!(shown(&around(123), 1000), "0.12");
        // 1000 is not in the range from 1024 to 1151.
        assert_eq!(shown(&[[1; 8].as_slice(), &[1030; 9], &[1 << 60]].concat(), 1), "1040");
        // The percentile is the last value of its range.
        assert_eq!(shown(&[[270_000; 5], [1 << 60; 5]].concat(), 1000), "288");
        // All digits of single values are known.
        assert_eq!(
            (shown(&[1_234_567], 1000), shown(&[3, 3, 9], 1), shown(&[], 1)),
            ("1234.567".into(), "3".into(), "-".into())
        );
    }

    proptest! {
        #[test]
        fn a_shown_percentile_is_at_most_an_eighth_away(
            mut values in prop::collection::vec(0..10_000_000_000i128, 1..100),
            divisor in prop::sample::select(vec![1, 1000, 1_000_000, 1_000_000_000]),
        ) {
            let found: f64 = shown(&values, divisor).parse().unwrap();
            values.sort_unstable();
            let exact = values[values.len().div_ceil(2) - 1] as f64 / divisor as f64;
            // The largest value has three digits after the point.
            prop_assert!((found - exact).abs() <= exact / 8.0 + 0.001, "{found} {exact}");
        }
    }
}
