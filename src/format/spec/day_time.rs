//! Times of day as the user types them: `21:49`, `21:49:13.5`, `2026-11-27T21:49:13`. Does not know time zones.

use std::fmt;

use super::parse_fixed_point;

/// A time of day, with or without its date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayTime {
    /// `None` stands for the day on which the recording was made.
    pub date: Option<Date>,
    /// The time since midnight, in ns.
    pub since_midnight: u64,
}

/// A day of the calendar. It may be one that does not exist, such as February 30th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// From 0 to 9999.
    pub year: u16,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to 31.
    pub day: u8,
}

const SECOND: u64 = 1_000_000_000;

impl DayTime {
    /// Parses `[YYYY-MM-DD(T| )]HH:MM[:SS[.FRACTION]]`.
    pub fn parse(text: &str) -> Option<DayTime> {
        let text = text.trim();
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (Some(Date::parse(date)?), time),
            None => (None, text),
        };
        let mut parts = time.split(':');
        let (hours, minutes) = (number(parts.next()?, 2, 23)?, number(parts.next()?, 2, 59)?);
        let seconds = match parts.next() {
            Some(text) if text.find('.').unwrap_or(text.len()) == 2 => parse_fixed_point(text, 9)?,
            Some(_) => return None,
            None => 0,
        };
        let is_whole = parts.next().is_none() && seconds < 60 * SECOND;
        is_whole.then_some(DayTime { date, since_midnight: (hours * 60 + minutes) * 60 * SECOND + seconds })
    }
}

impl Date {
    fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let year = number(parts.next()?, 4, 9999)?.try_into().ok()?;
        let month = number(parts.next()?, 2, 12).filter(|&month| month > 0)?.try_into().ok()?;
        let day = number(parts.next()?, 2, 31).filter(|&day| day > 0)?.try_into().ok()?;
        parts.next().is_none().then_some(Date { year, month, day })
    }
}

/// Parses a number of so many digits.
fn number(text: &str, digits: usize, most: u64) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| is_number && number <= most)
}

impl fmt::Display for DayTime {
    /// Writes text that parses to the same time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Date { year, month, day }) = self.date {
            write!(f, "{year:04}-{month:02}-{day:02}T")?;
        }
        let (seconds, part) = (self.since_midnight / SECOND, self.since_midnight % SECOND);
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if part == 0 { Ok(()) } else { write!(f, ".{part:09}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_parsed_and_written_alike() {
        for (text, written) in [
            ("21:49", "21:49:00"),
            ("00:00:59.5", "00:00:59.500000000"),
            (" 2026-11-27 21:49:13", "2026-11-27T21:49:13"),
            ("2026-11-27T21:49:13.000000001", "2026-11-27T21:49:13.000000001"),
        ] {
            let time = DayTime::parse(text).unwrap();
            assert_eq!((time.to_string().as_str(), DayTime::parse(written)), (written, Some(time)));
        }
        for text in [
            "",
            ":",
            "21",
            "1:49",
            "24:00",
            "21:60",
            "21:49:60",
            "21:49:1",
            "21:49:13:1",
            "26-1-1T21:49",
            "2026-13-01T21:49",
        ] {
            assert_eq!(DayTime::parse(text), None, "{text}");
        }
    }
}
