//! Ranges of time, and how they are divided. This module knows neither recordings nor commands.

use std::{fmt, time::Duration};

use perf_prof_format::spec::{TimeRangeError, TimeRanges, format_seconds, parse_fixed_point};

/// The number of decimal places of a time in seconds. With 9 places, times are exact to the nanosecond.
const DIGITS: usize = 9;

/// A range of time in nanoseconds of a recording's clock. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first nanosecond.
    pub start: u64,
    /// The last nanosecond.
    pub end: u64,
}

/// How a range of time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divide {
    /// Into this number of ranges.
    Count(usize),
    /// Into ranges of about this length.
    Every(Duration),
}

/// The result of dividing ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divided {
    /// The ranges, in the order of time.
    pub ranges: Vec<TimeRange>,
    /// Whether the ranges have the requested length, or the minimum length.
    pub lengths: RangeLength,
}

/// Which length the divided ranges have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLength {
    /// The requested length.
    Requested,
    /// The minimum length, because the requested length is shorter.
    Minimum,
}

/// Why the value of `--time` is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text is not a range FROM,TO in seconds.
    #[error(
        "--time {0}: write a range as FROM,TO in seconds, for example `12.5,13` (FROM or TO may be left out); separate several ranges with spaces"
    )]
    Form(String),
    /// The text contains a `%`, but is no valid range in percent.
    #[error(
        "--time {0}: write a range as FROM%,TO% of the recording, for example `10%,20%`, as `10%/2` (the second tenth), or as a list of \
         ranges, for example `0%-10%,30%-40%`"
    )]
    Shares(String),
    /// The ranges overlap, or one of them ends before it starts.
    #[error("--time {0}: each range must end after its start and before the next range; the recording covers {1}")]
    Order(String, TimeRange),
}

impl TimeRange {
    /// Parses the value of `--time`: ranges `FROM,TO` in seconds, separated by spaces, or ranges in percent of `all`.
    /// Without FROM, a range starts at the start of `all`. Without TO, it ends at the end of `all`.
    pub fn parse_all(text: &str, all: TimeRange) -> Result<Vec<TimeRange>, RangeError> {
        if text.contains('%') {
            let shares = text.parse::<TimeRanges>().map_err(|error| match error {
                TimeRangeError::Range(_) => RangeError::Shares(text.to_owned()),
                TimeRangeError::Reversed(_) => RangeError::Order(text.to_owned(), all),
            });
            let mut shares = shares?.resolve(all.start, all.end);
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
            let start = if from.is_empty() { all.start } else { parse_fixed_point(from, DIGITS).ok_or_else(form)? };
            let end = if to.is_empty() { all.end } else { parse_fixed_point(to, DIGITS).ok_or_else(form)? };
            if start > end || ranges.last().is_some_and(|before| start <= before.end) {
                return Err(RangeError::Order(text.to_owned(), all));
            }
            ranges.push(TimeRange { start, end });
        }
        if ranges.is_empty() { Err(form()) } else { Ok(ranges) }
    }

    /// Returns the length of the range in nanoseconds.
    pub fn nanoseconds(self) -> u64 {
        (self.end - self.start).saturating_add(1)
    }

    /// Divides the range into `count` adjacent ranges of nearly equal length.
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

/// Divides ranges. No range is divided into ranges shorter than `least`.
pub fn divide(ranges: &[TimeRange], divide: Divide, least: Duration) -> Divided {
    let total: u64 = ranges.iter().map(|range| range.nanoseconds()).sum();
    let asked = match divide {
        // The caller already passes at least `count` ranges.
        Divide::Count(count) if count <= ranges.len() => {
            return Divided { ranges: ranges.to_vec(), lengths: RangeLength::Requested };
        }
        Divide::Count(count) => total as f64 / count as f64,
        Divide::Every(interval) => interval.as_nanos() as f64,
    };
    let least = least.as_nanos() as f64;
    let interval = asked.max(least).max(1.0);
    let count = |range: &TimeRange| (range.nanoseconds() as f64 / interval).round() as usize;
    let ranges = ranges.iter().flat_map(|range| range.divided(count(range))).collect();
    Divided { ranges, lengths: if asked < least { RangeLength::Minimum } else { RangeLength::Requested } }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", format_seconds(self.start), format_seconds(self.end))
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
                if lengths == RangeLength::Minimum { format!("the least: {ranges}") } else { ranges }
            }
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn ranges_are_divided() {
        let two = expect!["100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Count(2), 0.0, two);
        check(",", Divide::Count(1), 0.0, expect!["100.000000000,103.999999999"]);
        let thirds = expect!["100.000000000,101.333333332 101.333333333,102.666666665 102.666666666,103.999999999"];
        check(",", Divide::Count(3), 0.0, thirds);
        check("101.5,102", Divide::Count(2), 0.0, expect!["101.500000000,101.749999999 101.750000000,102.000000000"]);
        // Several ranges are divided in proportion to their lengths.
        let several = expect!["100.000000000,100.999999999 101.000000000,101.999999999 103.000000000,103.999999999"];
        check(",101.999999999 103,", Divide::Count(3), 0.0, several);
        check(
            "100,101 102,103",
            Divide::Count(2),
            0.0,
            expect!["100.000000000,101.000000000 102.000000000,103.000000000"],
        );
    }

    /// Percentages are accepted, because the commands that read a recording accept them.
    #[test]
    fn percents_are_divided() {
        let two = expect!["100.400000000,101.199999999 101.200000000,101.999999999"];
        check("10%,50%", Divide::Count(2), 0.0, two);
        check("25%/2", Divide::Count(1), 0.0, expect!["101.000000000,101.999999999"]);
        let both = expect!["100.000000000,100.399999999 102.000000000,102.399999999"];
        check("50%-60%,0%-10%", Divide::Count(2), 0.0, both);
        // The range `5%,5%` is empty and selects nothing. The result is a time after the end of the recording.
        check("5%,5%", Divide::Count(2), 0.0, expect!["18446744073.709551615,18446744073.709551615"]);
    }

    #[test]
    fn intervals_are_seconds() {
        let halves = expect!["100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Every(Duration::from_secs(2)), 0.0, halves);
        let never_shorter = expect!["the least: 100.000000000,101.999999999 102.000000000,103.999999999"];
        check(",", Divide::Every(Duration::from_millis(1)), 2.0, never_shorter);
        check(",", Divide::Count(400), 10.0, expect!["the least: 100.000000000,103.999999999"]);
    }

    #[test]
    fn invalid_ranges_are_reported() {
        let form = expect![
            "--time 10,x: write a range as FROM,TO in seconds, for example `12.5,13` (FROM or TO may be left out); separate several ranges with spaces"
        ];
        check("10,x", Divide::Count(1), 0.0, form);
        let share = expect![
            "--time 10%,x: write a range as FROM%,TO% of the recording, for example `10%,20%`, as `10%/2` (the second tenth), or as a list of ranges, for example `0%-10%,30%-40%`"
        ];
        check("10%,x", Divide::Count(1), 0.0, share);
        let reversed = expect![
            "--time 20%,10%: each range must end after its start and before the next range; the recording covers 100.000000000,103.999999999"
        ];
        check("20%,10%", Divide::Count(1), 0.0, reversed);
        let overlap = expect![
            "--time 0%-50%,25%-75%: each range must end after its start and before the next range; the recording covers 100.000000000,103.999999999"
        ];
        check("0%-50%,25%-75%", Divide::Count(1), 0.0, overlap);
        let order = expect![
            "--time 102,101: each range must end after its start and before the next range; the recording covers 100.000000000,103.999999999"
        ];
        check("102,101", Divide::Count(1), 0.0, order);
        let overlap = expect![
            "--time 100,102 102,103: each range must end after its start and before the next range; the recording covers 100.000000000,103.999999999"
        ];
        check("100,102 102,103", Divide::Count(1), 0.0, overlap);
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
            prop_assert_eq!(parse_fixed_point(&format_seconds(time), DIGITS), Some(time));
        }
    }
}
