//! What the classes that draw pictures share: subtitles, errors, and pictures for notebooks.

use std::{io, path::Path};

use perf_prof_events::{
    event::{Provenance, Shortfall, Stats},
    picture::DrawError,
};
use perf_prof_format::{
    abi::{PERF_COUNT_HW_CPU_CYCLES, PERF_TYPE_HARDWARE},
    spec::NamedEvent,
};
use perf_prof_system::clock;
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};

use super::module::run;

/// The largest number of events that a picture names.
const NAMED: usize = 3;

/// Returns what is missing in the current run, or after its end in the run with the counts `fed`. `None` if nothing is. It is
/// not known which of the run's events a picture shows, so the text names all of them. If `unit`, the unit of the picture, is
/// one of time, spans that had not ended are missing too, because they last longer.
pub fn missing_in_run(fed: Option<&Stats>, unit: &str) -> Option<String> {
    let shortfall = match unit {
        "ns" | "us" | "ms" | "s" => Shortfall::of_sums,
        _ => Shortfall::of,
    };
    let Some(run) = run() else { return shortfall(fed?, None).map(|shortfall| shortfall.reasons()) };
    let reasons = shortfall(&run.stats, Some(&run.context))?.reasons();
    let delivered = run.events.iter().zip(&run.is_delivered).filter(|(_, is_delivered)| **is_delivered);
    let mut names: Vec<String> = delivered.map(|(event, _)| event.shown_name()).collect();
    names.dedup();
    Some(match names.len() {
        ..2 => reasons,
        2..=NAMED => format!("in the run of {}: {reasons}", names.join(", ")),
        many => format!("in the run of {many} events: {reasons}"),
    })
}

/// Returns why unwound call chains of the current run lack callers. `None` if they lack none, or after the run.
pub fn missing_callers() -> Option<String> {
    run()?.context.endings().summary()
}

/// Returns where and when the events of the current run happened, or after its end those of the run with the counts `fed`.
pub fn provenance(fed: Option<&Stats>) -> Provenance {
    let run = run();
    let of = run.as_ref().map(|run| &*run.stats).or(fed).map(Stats::provenance).unwrap_or_default();
    // A run that goes on has no duration yet.
    if of.duration.is_none() && of.began.is_some() { of.until(clock::realtime()) } else { of }
}

/// Returns the rate of the samples of the current run as the end of a sentence: `, 997 a second of CPU time`. Empty outside of a
/// run, and if not all samples are those of one event that samples CPU time.
pub fn sampling_rate() -> String {
    let Some(run) = run() else { return String::new() };
    let mut delivered = run.is_delivered.iter().enumerate().filter(|(_, is_delivered)| **is_delivered);
    let (Some((at, _)), None) = (delivered.next(), delivered.next()) else { return String::new() };
    let rate = run.attrs.get(at).and_then(|attr| rate_of(&attr.bytes));
    rate.map_or_else(String::new, |rate| format!(", {rate} a second of CPU time"))
}

/// Returns the number of samples in a second of CPU time. `None` if the attr is not that of a clock or of cycles, or if cycles are
/// sampled by their number.
fn rate_of(attr: &[u8]) -> Option<u64> {
    // The flag `freq` says that the member `sample_period` has the frequency.
    const FREQ: u64 = 1 << 10;
    let word = |at: usize| attr.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
    // The members `type`, `config`, `sample_period` and the flags of the attr.
    let (kind, config, period, flags) = (word(0)? as u32, word(8)?, word(16)?, word(40)?);
    let is_clock = NamedEvent { kind, config }.is_clock();
    let is_cycles = (kind, config) == (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
    match flags & FREQ {
        0 if is_clock => 1_000_000_000u64.checked_div(period),
        FREQ if is_clock || is_cycles => Some(period),
        _ => None,
    }
}

/// Returns what `_repr_svg_` of a picture returns: the text of the SVG, or None if there is nothing to draw.
pub fn svg_text(picture: Result<Vec<u8>, DrawError>) -> PyResult<Option<String>> {
    match picture {
        Ok(svg) => Ok(Some(String::from_utf8_lossy(&svg).into_owned())),
        Err(DrawError::Empty) => Ok(None),
        Err(DrawError::Write(error)) => Err(error.into()),
    }
}

/// Returns the error for a picture that could not be saved. `nothing` says that there was nothing to draw.
pub fn not_saved(error: DrawError, path: &Path, nothing: &str) -> PyErr {
    match error {
        DrawError::Empty => PyValueError::new_err(format!("{}: {nothing}", path.display())),
        DrawError::Write(error) => os_error(&error, path),
    }
}

/// Returns the OSError that Python itself would raise for this file: with the errno, and of the subclass for this
/// errno.
pub fn os_error(error: &io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            // Both Rust and Python add the error number to the text, so Rust's number is removed.
            let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text).to_owned();
            PyOSError::new_err((number, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS, PERF_TYPE_SOFTWARE};

    use super::*;

    #[test]
    fn the_rate_of_clocks_and_of_cycles_is_that_of_their_attr() {
        let of = |kind: u32, config: u64, period: u64, flags: u64| {
            rate_of(&[kind.into(), config, period, 0, 0, flags].map(u64::to_ne_bytes).concat())
        };
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 199, 1 << 10), Some(199));
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 1_000_000, 1), Some(1000));
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 0, 0), None);
        assert_eq!(of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 997, 1 << 10 | 1), Some(997));
        assert_eq!(of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 997, 0), None);
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 997, 1 << 10), None);
        assert_eq!(rate_of(&[]), None);
    }
}
