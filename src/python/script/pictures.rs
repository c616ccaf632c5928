//! What the classes that draw pictures share: subtitles, errors, and pictures for notebooks.

use std::{io, path::Path};

use perf_prof_events::picture::DrawError;
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};

use super::module::shortfall;

/// Returns the subtitle of a picture, which also says what is missing in the current run.
pub fn with_missing(subtitle: Option<&str>) -> Option<String> {
    let missing = shortfall().map(|shortfall| format!("partial: {}", shortfall.reasons()));
    let texts: Vec<&str> = subtitle.into_iter().chain(missing.as_deref()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
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
