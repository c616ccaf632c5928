//! Ranges of time and how they are divided. Knows nothing of recordings or commands.

use std::{fmt, time::Duration};

use crate::spec::{TimeRangeError, TimeRanges, fixed, seconds};

/// Digits of a second behind the point: nanoseconds.
const DIGITS: usize = 9;

/// Nanoseconds of a recording's clock, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first.
    pub start: u64,
    /// The last.
    pub end: u64,
}

/// How a range of time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divide {
    /// Into so many ranges.
    Into(usize),
    /// Into ranges of about this length.
    Every(Duration),
}

/// Ranges that others were divided into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divided {
    /// In the order of time.
    pub ranges: Vec<TimeRange>,
    /// How long they are.
    pub lengths: Lengths,
}

/// How long ranges are that others were divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// As was asked for.
    Asked,
    /// The least that they may be, which is more.
    Least,
}

/// Why a `--time` is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not FROM,TO in seconds.
    #[error(
        "--time {0}: a range is FROM,TO in seconds, as 12.5,13 (either may be missing); several are separated by blanks"
    )]
    Form(String),
    /// Not shares of the recording.
    #[error("--time: {0}")]
    Shares(#[from] TimeRangeError),
    /// Ranges that overlap, or end before they begin.
    #[error("--time {0}: each range ends after it begins and before the next one begins; the recording has {1}")]
    Order(String, TimeRange),
}

impl TimeRange {
    /// Reads the ranges of a `--time`: `FROM,TO` in seconds, several separated by blanks, or shares of `all` in percent. What
    /// is missing is the end of `all` on that side.
    pub fn parse_all(text: &str, all: TimeRange) -> Result<Vec<TimeRange>, RangeError> {
        if text.contains('%') {
            let mut shares = text.parse::<TimeRanges>()?.of(all.start, all.end);
            shares.sort_unstable();
            if shares.windows(2).any(|two| two[1].0 <= two[0].1) {
                return Err(RangeError::Order(text.to_owned(), all));
            }
            return Ok(shares.into_iter().map(|(start, end)| TimeRange { start, end }).collect());
        }
        let form = || RangeError::Form(text.to_owned());
        let mut ranges: Vec<TimeRange> = Vec::new();
        for range in text.split_whitespace() {
            let (from, to) = range.split_once(',').ok_or_else(form)?;
            let start = if from.is_empty() { all.start } else { fixed(from, DIGITS).ok_or_else(form)? };
            let end = if to.is_empty() { all.end } else { fixed(to, DIGITS).ok_or_else(form)? };
            if start > end || ranges.last().is_some_and(|before| start <= before.end) {
                return Err(RangeError::Order(text.to_owned(), all));
            }
            ranges.push(TimeRange { start, end });
        }
        if ranges.is_empty() { Err(form()) } else { Ok(ranges) }
    }

    /// The length in nanoseconds.
    pub fn nanoseconds(self) -> u64 {
        (self.end - self.start).saturating_add(1)
    }

    /// Divides it into `count` ranges, one after the other and of nearly the same length.
    pub fn divided(self, count: usize) -> Vec<TimeRange> {
        let whole = u128::from(self.nanoseconds());
        let count = (count.max(1) as u128).min(whole);
        let begin = |index: u128| self.start + (whole * index / count) as u64;
        (0..count)
            .map(|index| TimeRange {
                start: begin(index),
                end: if index + 1 == count { self.end } else { begin(index + 1) - 1 },
            })
            .collect()
    }
}

/// Divides ranges. None becomes shorter than `least` by it.
pub fn divide(ranges: &[TimeRange], divide: Divide, least: Duration) -> Divided {
    let total: u64 = ranges.iter().map(|range| range.nanoseconds()).sum();
    let asked = match divide {
        // As many as are there already, or more.
        Divide::Into(count) if count <= ranges.len() => {
            return Divided { ranges: ranges.to_vec(), lengths: Lengths::Asked };
        }
        Divide::Into(count) => total as f64 / count as f64,
        Divide::Every(interval) => interval.as_nanos() as f64,
    };
    let least = least.as_nanos() as f64;
    let interval = asked.max(least).max(1.0);
    let count = |range: &TimeRange| (range.nanoseconds() as f64 / interval).round() as usize;
    let ranges = ranges.iter().flat_map(|range| range.divided(count(range))).collect();
    Divided { ranges, lengths: if asked < least { Lengths::Least } else { Lengths::Asked } }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", seconds(self.start), seconds(self.end))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    const ALL: TimeRange = TimeRange { start: 100_000_000_000, end: 103_999_999_999 };

    fn check(time: &str, how: Divide, least: f64, expect: Expect) {
        let shown = match TimeRange::parse_all(time, ALL) {
            Err(error) => error.to_string(),
            Ok(ranges) => {
                let Divided { ranges, lengths } = divide(&ranges, how, Duration::from_secs_f64(least));
                let ranges = ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                if lengths == Lengths::Least { format!("the least: {ranges}") } else { ranges }
            }
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn ranges_are_divided() {
        let two = expect!["100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Into(2), 0.0, two);
        check(",", Divide::Into(1), 0.0, expect!["100.000000000,103.999999999"]);
        let thirds = expect!["100.000000000,101.333333332 101.333333333,102.666666665 102.666666666,103.999999999"];
        check(",", Divide::Into(3), 0.0, thirds);
        check("101.5,102", Divide::Into(2), 0.0, expect!["101.500000000,101.749999999 101.750000000,102.000000000"]);
        // Each of several ranges by its length.
        let several = expect!["100.000000000,100.999999999 101.000000000,101.999999999 103.000000000,103.999999999"];
        check(",101.999999999 103,", Divide::Into(3), 0.0, several);
        check(
            "100,101 102,103",
            Divide::Into(2),
            0.0,
            expect!["100.000000000,101.000000000 102.000000000,103.000000000"],
        );
    }

    /// They were refused, though the command itself takes them.
    #[test]
    fn percents_are_divided() {
        let two = expect!["100.400000000,101.199999999 101.200000000,101.999999999"];
        check("10%,50%", Divide::Into(2), 0.0, two);
        check("25%/2", Divide::Into(1), 0.0, expect!["101.000000000,101.999999999"]);
        let both = expect!["100.000000000,100.399999999 102.000000000,102.399999999"];
        check("50%-60%,0%-10%", Divide::Into(2), 0.0, both);
        // Nothing at all lies behind the recording.
        check("5%,5%", Divide::Into(2), 0.0, expect!["18446744073.709551615,18446744073.709551615"]);
    }

    #[test]
    fn intervals_are_seconds() {
        let halves = expect!["100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Every(Duration::from_secs(2)), 0.0, halves);
        let never_shorter = expect!["the least: 100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Every(Duration::from_millis(1)), 2.0, never_shorter);
        check(",", Divide::Into(400), 10.0, expect!["the least: 100.000000000,103.999999999"]);
    }

    #[test]
    fn what_is_no_range_is_said() {
        let form = expect![
            "--time 10,x: a range is FROM,TO in seconds, as 12.5,13 (either may be missing); several are separated by blanks"
        ];
        check("10,x", Divide::Into(1), 0.0, form);
        let share = expect![
            "--time: `10%,x` is not a range of time; write seconds of the recording's clock as `12.5,13` (one may be left out), shares as `10%,20%`, or the second tenth as `10%/2`"
        ];
        check("10%,x", Divide::Into(1), 0.0, share);
        let overlap = expect![
            "--time 0%-50%,25%-75%: each range ends after it begins and before the next one begins; the recording has 100.000000000,103.999999999"
        ];
        check("0%-50%,25%-75%", Divide::Into(1), 0.0, overlap);
        let order = expect![
            "--time 102,101: each range ends after it begins and before the next one begins; the recording has 100.000000000,103.999999999"
        ];
        check("102,101", Divide::Into(1), 0.0, order);
        let overlap = expect![
            "--time 100,102 102,103: each range ends after it begins and before the next one begins; the recording has 100.000000000,103.999999999"
        ];
        check("100,102 102,103", Divide::Into(1), 0.0, overlap);
    }

    proptest! {
        #[test]
        fn every_nanosecond_is_in_one_range(start in 0u64..1 << 40, length in 0u64..1 << 40, count in 0usize..1000) {
            let whole = TimeRange { start, end: start + length };
            let ranges = whole.divided(count);
            prop_assert_eq!(ranges[0].start, whole.start);
            prop_assert_eq!(ranges[ranges.len() - 1].end, whole.end);
            prop_assert!(ranges.iter().all(|range| range.start <= range.end));
            prop_assert!(ranges.windows(2).all(|two| two[0].end + 1 == two[1].start));
        }

        #[test]
        fn a_time_is_read_as_it_is_written(time: u64) {
            prop_assert_eq!(fixed(&seconds(time), DIGITS), Some(time));
        }
    }
}
