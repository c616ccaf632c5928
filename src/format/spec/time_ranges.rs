//! Ranges of time as the user types them: `12.5,13`, `21:49:13,21:50`, `10%,20%`, `10%/2`. Does not know about recordings.

use std::fmt;

use super::DayTime;

/// A list of time ranges in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRanges(Vec<TimeRange>);

/// A range that includes both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeRange {
    /// A range from one time of the recording's clock to another, in ns.
    Times(u64, u64),
    /// A range from one time of day to another. Either end may be open.
    OfDay(Option<DayTime>, Option<DayTime>),
    /// A range from one percentage of the recording's duration to another. The unit of both numbers is a millionth of a
    /// percent.
    Shares(u64, u64),
}

/// An error in a range of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeRangeError {
    /// The text is not a range of time.
    #[error(
        "`{0}` is not a time range; write FROM,TO in seconds of the recording's clock, for example `12.5,13` (FROM or TO may be \
         left out), in local times of day, for example `21:49:13,21:50` or `2026-11-27T21:49,`, or in percentages of the \
         recording, for example `10%,20%` (from 10 % to 20 %) or `10%/2` (the second tenth)"
    )]
    Range(String),
    /// The range ends before it starts.
    #[error("the time range `{0}` ends before it starts")]
    Reversed(String),
}

/// One percent, in the unit of [`TimeRange::Shares`].
const PERCENT: u64 = 1_000_000;

impl std::str::FromStr for TimeRanges {
    type Err = TimeRangeError;

    fn from_str(text: &str) -> Result<Self, TimeRangeError> {
        let wrong = || TimeRangeError::Range(text.to_owned());
        let reversed = || TimeRangeError::Reversed(text.to_owned());
        let text = text.trim();
        if !text.contains('%') {
            let (from, to) = text.split_once(',').ok_or_else(wrong)?;
            if from.trim().is_empty() && to.trim().is_empty() {
                return Err(wrong());
            }
            if text.contains(':') {
                let moment = |text: &str| match text.trim() {
                    "" => Some(None),
                    text => DayTime::parse(text).map(Some),
                };
                let (from, to) = (moment(from).ok_or_else(wrong)?, moment(to).ok_or_else(wrong)?);
                return Ok(Self(vec![TimeRange::OfDay(from, to)]));
            }
            let time = |text: &str, open| if text.trim().is_empty() { Some(open) } else { parse_fixed_point(text, 9) };
            let (from, to) = (time(from, 0).ok_or_else(wrong)?, time(to, u64::MAX).ok_or_else(wrong)?);
            return if from > to { Err(reversed()) } else { Ok(Self(vec![TimeRange::Times(from, to)])) };
        }
        let share =
            |text: &str| parse_fixed_point(text.trim().strip_suffix('%')?, 6).filter(|&share| share <= 100 * PERCENT);
        // `10%,20%` is one range. `0%-10%,30%-40%` and `10%/1,10%/3` are lists of ranges.
        if let Some((from, to)) = text.split_once(',')
            && let (Some(from), Some(to)) = (share(from), share(to))
        {
            return if from > to { Err(reversed()) } else { Ok(Self(vec![TimeRange::Shares(from, to)])) };
        }
        let range = |item: &str| {
            if let Some((size, number)) = item.split_once('/') {
                let (size, number) = (share(size)?, number.trim().parse::<u64>().ok().filter(|&number| number > 0)?);
                let from = size.checked_mul(number - 1).filter(|&from| size > 0 && from < 100 * PERCENT)?;
                return Some((from, (from + size).min(100 * PERCENT)));
            }
            let (from, to) = item.split_once('-')?;
            Some((share(from)?, share(to)?))
        };
        let ranges: Option<Vec<(u64, u64)>> = text.split(',').map(range).collect();
        let ranges = ranges.ok_or_else(wrong)?;
        if ranges.iter().any(|(from, to)| from > to) {
            return Err(reversed());
        }
        Ok(Self(ranges.into_iter().map(|(from, to)| TimeRange::Shares(from, to)).collect()))
    }
}

impl TimeRanges {
    /// Returns the range from one ns of the recording's clock to another.
    pub fn of_clock(first: u64, last: u64) -> TimeRanges {
        TimeRanges(vec![TimeRange::Times(first, last)])
    }

    /// Returns whether a range is given in times of day.
    pub fn has_times_of_day(&self) -> bool {
        self.0.iter().any(|range| matches!(range, TimeRange::OfDay(..)))
    }

    /// Returns the same ranges with times of the recording's clock in place of times of day. `clock` returns the time of
    /// the recording's clock in ns. For the end of a range, it gets the range's begin too, if the range has one.
    pub fn without_times_of_day<E: From<TimeRangeError>>(
        &self,
        mut clock: impl FnMut(DayTime, Option<u64>) -> Result<u64, E>,
    ) -> Result<TimeRanges, E> {
        let ranges = self.0.iter().map(|range| {
            let TimeRange::OfDay(from, to) = *range else { return Ok(*range) };
            let from = from.map(|from| clock(from, None)).transpose()?;
            let to = to.map_or(Ok(u64::MAX), |to| clock(to, from))?;
            let from = from.unwrap_or(0);
            if from > to {
                Err(TimeRangeError::Reversed(self.to_string()))?
            }
            Ok(TimeRange::Times(from, to))
        });
        ranges.collect::<Result<_, E>>().map(TimeRanges)
    }

    /// Returns whether a range is given in percent. In this case, the caller must know the first and the last time of
    /// the recording.
    pub fn has_shares(&self) -> bool {
        self.0.iter().any(|range| matches!(range, TimeRange::Shares(..)))
    }

    /// Returns the first and the last nanosecond of each range, for a recording that starts at `first` and ends at
    /// `last` (in ns). Adjacent ranges in percent have no nanosecond in common. If ranges in percent cover the whole
    /// recording, every nanosecond is in one of them.
    pub fn resolve(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let whole = u128::from(last.saturating_sub(first)) + 1;
        let at = |share: u64| (u128::from(share) * whole / u128::from(100 * PERCENT)) as u64;
        let range = |range: &TimeRange| match *range {
            TimeRange::Times(from, to) => Some((from, to)),
            // Only a caller that knows the time of day can resolve them ([`TimeRanges::without_times_of_day`]).
            TimeRange::OfDay(..) => None,
            TimeRange::Shares(from, to) => {
                let (from, end) = (at(from), at(to));
                (from < end).then(|| (first.saturating_add(from), first.saturating_add(end - 1)))
            }
        };
        let ranges: Vec<_> = self.0.iter().filter_map(range).collect();
        // An empty list means all times for the callers. So if there are no ranges, the result is a range that contains
        // no record.
        if ranges.is_empty() { vec![(u64::MAX, u64::MAX)] } else { ranges }
    }
}

impl fmt::Display for TimeRanges {
    /// Writes text that parses to the same ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: u64| {
            let text = format!("{}.{:06}", share / PERCENT, share % PERCENT);
            format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
        };
        let mut separator = "";
        for range in &self.0 {
            f.write_str(separator)?;
            match *range {
                TimeRange::Times(from, u64::MAX) => write!(f, "{},", format_seconds(from))?,
                TimeRange::Times(from, to) => write!(f, "{},{}", format_seconds(from), format_seconds(to))?,
                TimeRange::OfDay(from, to) => {
                    from.map_or(Ok(()), |from| write!(f, "{from}"))?;
                    f.write_str(",")?;
                    to.map_or(Ok(()), |to| write!(f, "{to}"))?;
                }
                TimeRange::Shares(from, to) => write!(f, "{}-{}", percent(from), percent(to))?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Returns nanoseconds as seconds, in the form in which ranges of time are typed.
pub fn format_seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// Parses a decimal number with up to `digits` digits after the point. Returns the number in units of the last decimal
/// place: with 9 digits, `1.5` gives 1500000000.
pub fn parse_fixed_point(text: &str, digits: usize) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !all_digits(whole) || !all_digits(part) || part.len() > digits {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: u64 = format!("{part:0<digits$}").parse().ok()?;
    whole.checked_mul(10u64.pow(digits as u32))?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Expect) {
        let shown = match text.parse::<TimeRanges>() {
            Ok(ranges) => format!("{:?}", ranges.resolve(1000, 1999)),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn ranges() {
        check("12.5,13", expect!["[(12500000000, 13000000000)]"]);
        check("0.000001999,", expect!["[(1999, 18446744073709551615)]"]);
        check(",1", expect!["[(0, 1000000000)]"]);
        check("10%,20%", expect!["[(1100, 1199)]"]);
        check("10%/2", expect!["[(1100, 1199)]"]);
        check("40%/3", expect!["[(1800, 1999)]"]);
        check("0%-10%,99.9%-100%", expect!["[(1000, 1099), (1999, 1999)]"]);
        check("5%,5%", expect!["[(18446744073709551615, 18446744073709551615)]"]);
        check("2,1", expect!["the time range `2,1` ends before it starts"]);
        for text in ["", ",", "x", "1", "1.0000000001,2", "-1,2", "10%", "10%/0", "10%/11", "110%,120%", "0%/1"] {
            assert!(text.parse::<TimeRanges>().is_err(), "{text}");
        }
    }

    #[test]
    fn display_parses_back() {
        for text in ["12.5,13", "0.000001999,", ",1", "10%,20%", "10%/2", "40%/3", "0%-10%,99.9%-100%", "5%,5%"] {
            let ranges: TimeRanges = text.parse().unwrap();
            assert_eq!(ranges.to_string().parse(), Ok(ranges.clone()), "{ranges}");
        }
        let shown = ["1,2.5", "3,", "0.5%/3,10%/2"].map(|text| text.parse::<TimeRanges>().unwrap().to_string());
        assert_eq!(shown, ["1.000000000,2.500000000", "3.000000000,", "1%-1.5%,10%-20%"]);
    }

    proptest! {
        #[test]
        fn slices_are_a_partition(first in 0u64..1 << 40, length in 0u64..1 << 40, parts in 2u64..40) {
            let percent = format!("{:.6}", 100.0 / parts as f64 + 0.000001);
            let mut next = first;
            for part in 1..=parts {
                let ranges: TimeRanges = format!("{percent}%/{part}").parse().unwrap();
                let &[(from, to)] = &ranges.resolve(first, first + length)[..] else { unreachable!() };
                if from != u64::MAX {
                    prop_assert_eq!(from, next);
                    next = to + 1;
                }
            }
            prop_assert_eq!(next, first + length + 1);
        }
    }
}
