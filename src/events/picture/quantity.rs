//! Numbers with their units, as pictures and tables show them.

use super::printable;

/// Returns a number in groups of three digits, for example `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// Returns a sum of weights as text. A time is shown in the unit that fits it best: `1.042 s`.
pub fn weight_text(weight: u64, unit: &str) -> String {
    match unit {
        "ns" | "us" | "ms" | "s" => amount(weight, unit),
        _ => counted(weight, &printable(unit)),
    }
}

/// What is counted, in the plural.
const COUNTED: [&str; 9] =
    ["samples", "events", "values", "calls", "bytes", "faults", "page-faults", "periods", "context-switches"];

/// Returns a number and what was counted: `1 sample`, `2 samples`. Other units, such as `iops`, may have no plural and stay as they
/// are.
pub(super) fn counted(number: u64, unit: &str) -> String {
    let one = COUNTED.contains(&unit).then(|| unit.strip_suffix("es").filter(|one| one.ends_with("ch")));
    let one = one.and_then(|one| one.or_else(|| unit.strip_suffix('s'))).unwrap_or(unit);
    format!("{} {}", grouped(number), if number == 1 { one } else { unit })
}

/// Returns a value with its unit. A time is shown in the unit that fits it best.
pub(super) fn amount(value: u64, unit: &str) -> String {
    let ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "bytes" if value == 1 => return "1 byte".to_owned(),
        "bytes" => return in_largest(value, &[("bytes", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)]),
        _ => return format!("{} {unit}", grouped(value)),
    };
    duration(value.saturating_mul(ns))
}

/// Returns a time in the largest unit in which it is at least 1, with up to three digits after the point.
pub(super) fn duration(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        _ => in_largest(ns, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)]),
    }
}

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Returns a time since the start of a picture, from a minute on in hours, minutes and seconds: `1 h 23 min 45.6 s`.
pub(super) fn elapsed(ns: u64) -> String {
    // From a second on, three digits after the point are shown.
    const MILLISECOND: u64 = SECOND / 1000;
    let ns = if ns < SECOND { ns } else { ns.saturating_add(MILLISECOND / 2) / MILLISECOND * MILLISECOND };
    if ns < MINUTE {
        return duration(ns);
    }
    let whole = [(ns / HOUR, "h"), (ns % HOUR / MINUTE, "min")].map(|(number, unit)| format!("{number} {unit}"));
    let parts = whole.into_iter().filter(|part| !part.starts_with("0 "));
    parts.chain(Some(duration(ns % MINUTE)).filter(|seconds| seconds != "0")).collect::<Vec<_>>().join(" ")
}

/// Returns the smallest round time that is at least `at_least` ns: 1, 2, 5, 10, 20, 50, ... ns up to 20 s, then parts and
/// multiples of a minute and of an hour.
pub(super) fn step_of_time(at_least: u64) -> u64 {
    const MINUTES: [u64; 12] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];
    let powers = std::iter::successors(Some(1u64), |power| power.checked_mul(10));
    let steps = powers.flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)));
    let steps = steps
        .take_while(|&step| step < 30 * SECOND)
        .chain([30 * SECOND])
        .chain(MINUTES.map(|minutes| minutes * MINUTE));
    let days = 24 * HOUR;
    steps.into_iter().find(|&step| step >= at_least).unwrap_or_else(|| at_least.div_ceil(days).saturating_mul(days))
}

/// Returns a number in the largest of these units, which ascend, in which it is at least 1.
fn in_largest(value: u64, units: &[(&str, u64)]) -> String {
    let (unit, factor) = units.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&units[0]);
    let number = format!("{:.3}", value as f64 / *factor as f64);
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_times_are_shown_in_the_unit_that_fits_them() {
        let texts =
            [("ns", 2_018_036_056), ("us", 1500), ("samples", 1_234_567)].map(|(unit, sum)| weight_text(sum, unit));
        assert_eq!(texts, ["2.018 s", "1.5 ms", "1,234,567 samples"]);
    }

    #[test]
    fn times_are_in_the_largest_unit_in_which_they_are_at_least_1() {
        assert_eq!([999, 1_000, 1_234_567, 12_000_000_000].map(duration), ["999 ns", "1 us", "1.235 ms", "12 s"]);
    }

    #[test]
    fn long_times_are_in_hours_and_minutes_and_their_steps_are_parts_of_them() {
        let times =
            [59_999_400_000, 59_999_500_000, 60_000_000_000, 83_500_400_000, 3_600_000_000_000, 5_025_600_000_000];
        assert_eq!(times.map(elapsed), ["59.999 s", "1 min", "1 min", "1 min 23.5 s", "1 h", "1 h 23 min 45.6 s"]);
        let steps = [0, 3, 11, 21_000_000_000, 51_000_000_000, 301_000_000_000, 50_000_000_000_000];
        let expected = [1, 5, 20, 30 * SECOND, MINUTE, 10 * MINUTE, 24 * HOUR];
        assert_eq!(steps.map(step_of_time), expected);
        assert_eq!(step_of_time(25 * HOUR), 48 * HOUR);
    }

    #[test]
    fn one_of_a_unit_has_no_plural() {
        let one = |unit| counted(1, unit);
        let texts = ["samples", "bytes", "us", "MB/s", "iops", "context-switches"].map(one);
        assert_eq!(texts, ["1 sample", "1 byte", "1 us", "1 MB/s", "1 iops", "1 context-switch"]);
        assert_eq!(counted(1000, "samples"), "1,000 samples");
    }
}
