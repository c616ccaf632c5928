//! The errors of `perf_prof.testing` as Python exceptions. The package `perf_prof` defines the classes that are not
//! Python's own.

use perf_prof_format::{record::RecordTooLarge, spec::SpecError, tracefs::EncodeError};
use perf_prof_system::tracefs::TracefsError;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};

use super::formats::FormatsError;
use crate::library::{exception, named, with_number};

/// Returns the exception for a format that cannot be found or read.
pub fn of_formats(py: Python<'_>, error: &FormatsError) -> PyErr {
    let text = error.to_string();
    match error {
        FormatsError::Unknown { .. } | FormatsError::NoTracepoint { .. } | FormatsError::Strings(_) => {
            named(py, "SelectorError", &text)
        }
        FormatsError::Tracefs(TracefsError::Permission(_)) => with_number(py, "AccessError", libc::EACCES, &text),
        FormatsError::Tracefs(TracefsError::Call(error)) => with_number(py, "KernelError", error.errno(), &text),
        FormatsError::Tracefs(TracefsError::NotMounted(error)) => {
            with_number(py, "KernelError", error.raw_os_error().unwrap_or(libc::ENOENT), &text)
        }
        FormatsError::Recording(error) => exception(py, error),
        FormatsError::Format { .. } => named(py, "Error", &text),
    }
}

/// Returns the exception for a selector that cannot be parsed.
pub fn of_selector(py: Python<'_>, error: &SpecError) -> PyErr {
    named(py, "SelectorError", &error.to_string())
}

/// Returns the exception for values that do not fit into their fields. `event` is the name of the event.
pub fn of_values(event: &str, error: &EncodeError) -> PyErr {
    let text = format!("{event}: {error}");
    match error {
        EncodeError::WrongType { .. } => PyTypeError::new_err(text),
        EncodeError::OutOfRange { .. }
        | EncodeError::TooLong { .. }
        | EncodeError::Nul { .. }
        | EncodeError::TooLarge { .. } => PyValueError::new_err(text),
    }
}

/// Returns the exception for a record that is too large.
pub fn of_record(event: &str, error: RecordTooLarge) -> PyErr {
    PyValueError::new_err(format!("{event}: {error}"))
}
