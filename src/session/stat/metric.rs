//! Metrics that relate a count to another count or to a time: CPUs in use, instructions per cycle, percentage of
//! misses, rate per second. No I/O.

use perf_prof_format::{
    abi::*,
    spec::{NamedEvent, perf_event_name},
};

use super::result::{Event, Row, Unit};

/// A number that is computed from a count and another value, such as the number of instructions per cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The number.
    pub value: f64,
    /// The unit. For a percentage, it includes the base, for example `% of all branches`.
    pub unit: String,
}

/// The unit of rates.
pub const PER_SECOND: &str = "/sec";

/// Pairs of hardware events whose counts are divided: the dividend, the divisor, and the unit of the quotient.
const QUOTIENTS: [(u64, u64, Quotient); 5] = [
    (PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CPU_CYCLES, Quotient::Number("insn per cycle")),
    (PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, Quotient::Percent("of all branches")),
    (PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_CACHE_REFERENCES, Quotient::Percent("of all cache references")),
    (PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, PERF_COUNT_HW_CPU_CYCLES, Quotient::Percent("frontend cycles idle")),
    (PERF_COUNT_HW_STALLED_CYCLES_BACKEND, PERF_COUNT_HW_CPU_CYCLES, Quotient::Percent("backend cycles idle")),
];

#[derive(Clone, Copy)]
enum Quotient {
    Number(&'static str),
    Percent(&'static str),
}

/// Returns the metric of a row: the row's count, divided by another count of the same CPU and cgroup in `all`, or by a
/// time. `elapsed` is the elapsed time in seconds.
pub fn metric_of_row(row: &Row<'_>, all: &[Row<'_>], elapsed: f64) -> Option<Metric> {
    let value = row.tally.value()? as f64;
    let beside = |is_it: &dyn Fn(&Event) -> bool| {
        let is_beside = |other: &&Row<'_>| other.cpu == row.cpu && other.cgroup == row.cgroup && is_it(other.event);
        let found = all.iter().find(is_beside);
        found.and_then(|other| other.tally.value()).filter(|&value| value > 0).map(|value| value as f64)
    };
    // Counts are divided only if the exclusions are the same, for example if both events are limited to user space.
    let counted = |kind: u32, config: u64| {
        beside(&|event| event.kind == kind && event.config == config && event.excluded == row.event.excluded)
    };
    let metric = |value: f64, unit: &str| Some(Metric { value, unit: unit.to_owned() });
    if row.event.unit() == Unit::Nanoseconds {
        return if elapsed > 0.0 { metric(value / 1e9 / elapsed, "CPUs utilized") } else { None };
    }
    let Event { kind, config, .. } = *row.event;
    let part_of = QUOTIENTS.iter().find(|&&(part, ..)| kind == PERF_TYPE_HARDWARE && part == config);
    if let Some((_, whole, quotient)) = part_of
        && let Some(whole) = counted(kind, *whole)
    {
        return match quotient {
            Quotient::Number(unit) => metric(value / whole, unit),
            Quotient::Percent(unit) => metric(100.0 * value / whole, &format!("% {unit}")),
        };
    }
    // The percentage of cache accesses that were misses.
    const MISS: u64 = 1 << 16;
    if kind == PERF_TYPE_HW_CACHE
        && config & MISS != 0
        && let Some(accesses) = counted(kind, config & !MISS)
    {
        let name = perf_event_name(NamedEvent { kind, config: config & !MISS }).unwrap_or_default();
        return metric(100.0 * value / accesses, &format!("% of all {name}"));
    }
    // If a clock event was counted, rates are per second of CPU time. Otherwise they are per second of elapsed time.
    let clock = beside(&|event| event.unit() == Unit::Nanoseconds);
    if (kind, config) == (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES) {
        return clock.and_then(|nanoseconds| metric(value / nanoseconds, "GHz"));
    }
    let seconds = clock.map_or(elapsed, |nanoseconds| nanoseconds / 1e9);
    if seconds <= 0.0 {
        return None;
    }
    metric(value / seconds, PER_SECOND)
}
