//! Times and sizes as they are typed: `500`, `1s`, `8M`. Knows nothing of the page size and of the clock.

use std::time::Duration;

/// The longest interval: far above any use, far below where adding it to a clock could overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The largest ring per CPU, far above what a kernel gives.
const MAX_RING: u64 = 1 << 40;

/// What is wrong with a time or a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a time.
    #[error("`{0}` is not a time; write milliseconds as `500`, or `1s`, `500ms`, `100us`")]
    Time(String),
    /// A time of nothing, or of more than a year.
    #[error("the time `{0}` is out of range; it has to be between 1us and 366 days")]
    TimeRange(String),
    /// Not a size.
    #[error("`{0}` is not a size; write `512K`, `8M`, `16G` or a number of bytes")]
    Size(String),
    /// Not a number of pages and not a size.
    #[error("`{0}` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`")]
    Pages(String),
    /// A size of nothing, or beyond any machine's memory.
    #[error("the size `{0}` is out of range")]
    SizeRange(String),
}

/// A time; a bare number is milliseconds.
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
    // Only digits and a point came this far: no sign, no exponent, no `inf`.
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * unit).map_err(|_| QuantityError::TimeRange(text.to_owned()))?;
    if time < Duration::from_micros(1) || time > MAX_INTERVAL {
        return Err(QuantityError::TimeRange(text.to_owned()));
    }
    Ok(time)
}

/// A size in bytes: `8M`, `512K`, `16G`, or a bare number of bytes.
pub fn parse_size(text: &str) -> Result<usize, QuantityError> {
    let (number, scale) = scaled(text).ok_or_else(|| QuantityError::Size(text.to_owned()))?;
    let bytes = number.checked_mul(scale.unwrap_or(1)).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| QuantityError::SizeRange(text.to_owned()))
}

/// The size of one ring, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    /// A number of pages.
    Pages(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl RingSize {
    /// The size in pages of `page_size` bytes, rounded up to the power of two that the kernel asks for.
    pub fn pages(self, page_size: usize) -> usize {
        let pages = match self {
            RingSize::Pages(pages) => pages,
            RingSize::Bytes(bytes) => bytes.div_ceil(page_size.max(1) as u64),
        };
        // At most MAX_RING, see `parse_pages`; a value made by hand saturates.
        let rounded = pages.max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        usize::try_from(rounded).unwrap_or(1 << (usize::BITS - 1))
    }
}

/// A ring's size: `128` is a number of pages, `8M` a size.
pub fn parse_pages(text: &str) -> Result<RingSize, QuantityError> {
    let (number, scale) = scaled(text).ok_or_else(|| QuantityError::Pages(text.to_owned()))?;
    // The smallest page there is has 4 KiB.
    let bytes = number.checked_mul(scale.unwrap_or(4096)).filter(|bytes| (1..=MAX_RING).contains(bytes));
    match (bytes, scale) {
        (None, _) => Err(QuantityError::SizeRange(text.to_owned())),
        (Some(_), None) => Ok(RingSize::Pages(number)),
        (Some(bytes), Some(_)) => Ok(RingSize::Bytes(bytes)),
    }
}

/// A whole number and its binary unit, where it has one.
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

/// Digits and points, then the rest. An empty number fails to parse.
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
                error: `1s` is not a size; write `512K`, `8M`, `16G` or a number of bytes
                error: `1s` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`"#]],
        );
        check(
            "0.5",
            expect![[r#"
                500µs
                error: `0.5` is not a size; write `512K`, `8M`, `16G` or a number of bytes
                error: `0.5` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`"#]],
        );
        check(
            "100us",
            expect![[r#"
                100µs
                error: `100us` is not a size; write `512K`, `8M`, `16G` or a number of bytes
                error: `100us` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`"#]],
        );
        check(
            "8M",
            expect![[r#"
                error: `8M` is not a time; write milliseconds as `500`, or `1s`, `500ms`, `100us`
                8388608
                Bytes(8388608) = 2048 pages"#]],
        );
        check(
            "5KiB",
            expect![[r#"
                error: `5KiB` is not a time; write milliseconds as `500`, or `1s`, `500ms`, `100us`
                5120
                Bytes(5120) = 2 pages"#]],
        );
        check(
            "0",
            expect![[r#"
                error: the time `0` is out of range; it has to be between 1us and 366 days
                error: the size `0` is out of range
                error: the size `0` is out of range"#]],
        );
        check(
            "99999999999999999999999",
            expect![[r#"
                error: the time `99999999999999999999999` is out of range; it has to be between 1us and 366 days
                error: `99999999999999999999999` is not a size; write `512K`, `8M`, `16G` or a number of bytes
                error: `99999999999999999999999` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`"#]],
        );
        check(
            "-1",
            expect![[r#"
                error: `-1` is not a time; write milliseconds as `500`, or `1s`, `500ms`, `100us`
                error: `-1` is not a size; write `512K`, `8M`, `16G` or a number of bytes
                error: `-1` is not a ring size; write a number of pages as `128`, or a size as `512K`, `8M`"#]],
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
