//! Times, sizes and rates as the user types them: `500`, `1s`, `8M`. Does not know the page size or the clock.

use std::time::Duration;

use super::Rate;

/// The maximum interval: a year. Adding a year to the time of a clock cannot overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The maximum size of a ring, in bytes. Kernels allow only much smaller rings.
const MAX_RING: u64 = 1 << 40;

/// An error in a time, a size or a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a time.
    #[error(
        "`{0}` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`"
    )]
    Time(String),
    /// A time of 0, or of more than a year.
    #[error("the time `{0}` is out of range; it must be between 1us and 366 days")]
    TimeRange(String),
    /// Not a size.
    #[error("`{0}` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`")]
    Size(String),
    /// Not a number of pages and not a size.
    #[error(
        "`{0}` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"
    )]
    Pages(String),
    /// A size of 0, or beyond any machine's memory.
    #[error("the size `{0}` is 0 or too large")]
    SizeRange(String),
    /// Not a number of events.
    #[error("`{0}` is not a number above 0, such as 1000")]
    Period(String),
    /// Not a frequency.
    #[error("`{0}` is neither a frequency in Hz, such as 997, nor `max`")]
    Frequency(String),
}

/// Parses a time. A number without a unit is in milliseconds.
pub fn parse_interval(text: &str) -> Result<Duration, QuantityError> {
    let wrong = || QuantityError::Time(text.to_owned());
    let trimmed = text.trim();
    let (number, unit) = split_unit(trimmed);
    let unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "" | "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    // The number has only digits and points here: no sign, no exponent, no `inf`.
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * unit).map_err(|_| QuantityError::TimeRange(text.to_owned()))?;
    if time < Duration::from_micros(1) || time > MAX_INTERVAL {
        return Err(QuantityError::TimeRange(text.to_owned()));
    }
    Ok(time)
}

/// Parses a size in bytes: `8M`, `512K`, `16G`, or a number without a unit.
pub fn parse_size(text: &str) -> Result<usize, QuantityError> {
    let (number, scale) = scaled(text).ok_or_else(|| QuantityError::Size(text.to_owned()))?;
    let bytes = number.checked_mul(scale.unwrap_or(1)).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| QuantityError::SizeRange(text.to_owned()))
}

/// The size of one ring, as the user typed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    /// A number of pages.
    Pages(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl RingSize {
    /// Returns the size in pages of `page_size` bytes, rounded up to the power of two that the kernel requires.
    pub fn pages(self, page_size: usize) -> usize {
        let pages = match self {
            RingSize::Pages(pages) => pages,
            RingSize::Bytes(bytes) => bytes.div_ceil(page_size.max(1) as u64),
        };
        // `parse_pages` refuses values above MAX_RING. For a larger value that does not come from `parse_pages`, the
        // result is the largest power of two.
        let rounded = pages.max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        usize::try_from(rounded).unwrap_or(1 << (usize::BITS - 1))
    }
}

/// Parses the size of a ring: `128` is a number of pages, `8M` a number of bytes.
pub fn parse_pages(text: &str) -> Result<RingSize, QuantityError> {
    let (number, scale) = scaled(text).ok_or_else(|| QuantityError::Pages(text.to_owned()))?;
    // No machine has pages smaller than 4 KiB.
    let bytes = number.checked_mul(scale.unwrap_or(4096)).filter(|bytes| (1..=MAX_RING).contains(bytes));
    match (bytes, scale) {
        (None, _) => Err(QuantityError::SizeRange(text.to_owned())),
        (Some(_), None) => Ok(RingSize::Pages(number)),
        (Some(bytes), Some(_)) => Ok(RingSize::Bytes(bytes)),
    }
}

/// Parses the number of events for each sample.
pub fn parse_period(text: &str) -> Result<Rate, QuantityError> {
    Rate::period(text).ok_or_else(|| QuantityError::Period(text.to_owned()))
}

/// Parses the number of samples per second.
pub fn parse_frequency(text: &str) -> Result<Rate, QuantityError> {
    Rate::frequency(text).ok_or_else(|| QuantityError::Frequency(text.to_owned()))
}

/// Parses a whole number and its binary unit, if it has one. Returns the number and the unit's factor.
fn scaled(text: &str) -> Option<(u64, Option<u64>)> {
    let (number, unit) = split_unit(text.trim());
    let unit = unit.to_ascii_uppercase();
    let scale = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" if unit.is_empty() => None,
        "" if unit == "B" => Some(1),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        "T" => Some(1 << 40),
        _ => return None,
    };
    Some((number.parse().ok()?, scale))
}

/// Splits `text` into a number (digits and points) and the rest. The number may be empty; the caller then reports it.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let show = |result: Result<String, QuantityError>| result.unwrap_or_else(|error| format!("error: {error}"));
        let time = show(parse_interval(text).map(|time| format!("{time:?}")));
        let size = show(parse_size(text).map(|size| size.to_string()));
        let ring = show(parse_pages(text).map(|ring| format!("{ring:?} = {} pages", ring.pages(4096))));
        expected.assert_eq(&format!("{time}\n{size}\n{ring}"));
    }

    #[test]
    fn quantities() {
        check(
            "500",
            expect![[r#"
                500ms
                500
                Pages(500) = 512 pages"#]],
        );
        check(
            "1s",
            expect![[r#"
                1s
                error: `1s` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`
                error: `1s` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"#]],
        );
        check(
            "0.5",
            expect![[r#"
                500µs
                error: `0.5` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`
                error: `0.5` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"#]],
        );
        check(
            "100us",
            expect![[r#"
                100µs
                error: `100us` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`
                error: `100us` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"#]],
        );
        check(
            "8M",
            expect![[r#"
                error: `8M` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`
                8388608
                Bytes(8388608) = 2048 pages"#]],
        );
        check(
            "5KiB",
            expect![[r#"
                error: `5KiB` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`
                5120
                Bytes(5120) = 2 pages"#]],
        );
        check(
            "0",
            expect![[r#"
                error: the time `0` is out of range; it must be between 1us and 366 days
                error: the size `0` is 0 or too large
                error: the size `0` is 0 or too large"#]],
        );
        check(
            "99999999999999999999999",
            expect![[r#"
                error: the time `99999999999999999999999` is out of range; it must be between 1us and 366 days
                error: `99999999999999999999999` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`
                error: `99999999999999999999999` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"#]],
        );
        check(
            "-1",
            expect![[r#"
                error: `-1` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`
                error: `-1` is not a size; write a number of bytes, or a number with a unit, for example `512K`, `8M` or `16G`
                error: `-1` is not a ring size; write a number of pages, for example `128`, or a size, for example `512K` or `8M`"#]],
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_quantity_or_an_error(text in "[0-9.]{0,30}[a-zA-Z]{0,3}|.*") {
            let _ = parse_interval(&text);
            let _ = parse_size(&text);
            let _ = parse_pages(&text).map(|ring| ring.pages(4096));
        }
    }
}
