//! Errors of runs as Python exceptions. The package `perf_prof` defines the classes.

use std::{error::Error, io, path::Path};

use perf_prof_capture::CaptureError;
use perf_prof_recordings::{PerfDataError, write::WriteError};
use perf_prof_system::{CallError, output_path::OutputPathError, tracefs::TracefsError, workload::WorkloadError};
use pyo3::prelude::*;

use super::background::Internal;

/// Returns the exception for an error. The class and the text of the exception depend on the error and on the causes of
/// the error.
pub fn exception(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    // An exception that the program itself raised is returned unchanged.
    if let Some(raised) = error.downcast_ref::<PyErr>() {
        return raised.clone_ref(py);
    }
    if let Some(PerfDataError::Io { name, error }) = error.chain().find_map(|cause| cause.downcast_ref())
        && let Some(errno) = error.raw_os_error()
    {
        return of_file(py, name, errno);
    }
    if let Some(CutOff { path, cause }) = error.downcast_ref() {
        return of_file(py, path, cause.0.raw_os_error().unwrap_or(libc::EIO));
    }
    if let Some((path, errno)) = error.chain().find_map(|cause| unwritable(cause.downcast_ref()?)) {
        return of_file(py, &path.to_string_lossy(), errno);
    }
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    let errno = error.chain().find_map(errno);
    let is_refused = |cause: &(dyn Error + 'static)| {
        matches!(cause.downcast_ref::<CaptureError>(), Some(CaptureError::Permission { .. }))
            || matches!(cause.downcast_ref::<TracefsError>(), Some(TracefsError::Permission(_)))
    };
    let is_permission = error.chain().any(is_refused) || matches!(errno, Some(libc::EACCES | libc::EPERM));
    if error.chain().any(|cause| cause.is::<PerfDataError>()) {
        return named(py, "RecordingError", &text);
    }
    match errno {
        _ if is_permission => with_number(py, "AccessError", errno.unwrap_or(libc::EACCES), &text),
        // Python itself prints the error number, so the number is removed from the text.
        Some(errno) => with_number(py, "KernelError", errno, &text.replace(&format!(" (os error {errno})"), "")),
        None if error.chain().any(|cause| cause.is::<CaptureError>()) => named(py, "KernelError", &text),
        None if error.chain().any(|cause| cause.is::<Internal>()) => named(py, "Error", &text),
        None => named(py, "SelectorError", &text),
    }
}

/// The recording is incomplete, because its file could not be written to the end. The disk may be full.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct CutOff {
    pub path: String,
    pub cause: WriteError,
}

/// Returns the path of an output file that cannot be created, and the errno of its creation.
fn unwritable(error: &OutputPathError) -> Option<(&Path, i32)> {
    match error {
        OutputPathError::NoFolder(path) => Some((path, libc::ENOENT)),
        OutputPathError::NotInFolder(path) => Some((path, libc::ENOTDIR)),
        OutputPathError::Folder(path) => Some((path, libc::EISDIR)),
        OutputPathError::Closed { path, source } => Some((path, source.raw_os_error()?)),
        _ => None,
    }
}

/// Returns the OSError for the file of a recording that cannot be read or written. The class depends on the errno.
fn of_file(py: Python<'_>, name: &str, errno: i32) -> PyErr {
    let class = match errno {
        libc::ENOENT => "RecordingNotFoundError",
        libc::EACCES | libc::EPERM => "RecordingAccessError",
        _ => "RecordingFileError",
    };
    raise(py, class, |class| {
        let text = py.import("os")?.call_method1("strerror", (errno,))?;
        class.call1((errno, text, name))
    })
}

fn errno(cause: &(dyn Error + 'static)) -> Option<i32> {
    let of_call = || cause.downcast_ref::<CallError>().map(CallError::errno);
    let of_io = || cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let of_command = || match cause.downcast_ref::<WorkloadError>() {
        Some(WorkloadError::Exec { source, .. }) => source.raw_os_error(),
        _ => None,
    };
    let of_capture = || cause.downcast_ref::<CaptureError>().and_then(CaptureError::errno);
    let of_tracefs = || match cause.downcast_ref::<TracefsError>() {
        Some(TracefsError::NotMounted(error)) => error.raw_os_error(),
        _ => None,
    };
    of_call().or_else(of_io).or_else(of_command).or_else(of_capture).or_else(of_tracefs)
}

/// Returns an exception of a class in the package `perf_prof`.
pub fn named(py: Python<'_>, class: &str, text: &str) -> PyErr {
    raise(py, class, |class| class.call1((text,)))
}

/// Returns an exception of a class in the package `perf_prof`, with an error number.
pub fn with_number(py: Python<'_>, class: &str, errno: i32, text: &str) -> PyErr {
    raise(py, class, |class| class.call1((errno, text)))
}

fn raise<'py>(
    py: Python<'py>,
    class: &str,
    create: impl FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    let created = py.import("perf_prof").and_then(|module| create(module.getattr(class)?));
    created.map_or_else(|error| error, PyErr::from_value)
}
