//! What the classes that draw pictures share: subtitles, errors, and pictures for notebooks.

use std::{io, path::Path};

use perf_prof_events::{
    event::{Provenance, Shortfall, Stats},
    picture::DrawError,
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

/// Returns where and when the events of the current run happened, or after its end those of the run with the counts `fed`.
pub fn provenance(fed: Option<&Stats>) -> Provenance {
    let run = run();
    let mut of = run.as_ref().map(|run| &*run.stats).or(fed).map(Stats::provenance).unwrap_or_default();
    // A run that goes on has no duration yet.
    of.duration = of.duration.or_else(|| u64::try_from(clock::realtime() - of.began?).ok());
    of
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
