//! `snapshot()`: requests a dump from the flight recorder that runs beside the script.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use perf_prof_session::flight::Snapshots;
use perf_prof_system::{mutex::Mutex, signals};
use pyo3::prelude::*;

use super::interpreter::is_host;

/// The interval in which a waiting thread checks for signals, such as Ctrl-C.
pub const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(20);

/// The flight recorder beside the run of this process.
static SNAPSHOTS: Mutex<Option<OfProcess>> = Mutex::new(None);

/// A flight recorder, and the id of its process. The id shows whether this process is a forked child, in which the
/// recorder does not run.
#[derive(Clone)]
struct OfProcess {
    snapshots: Snapshots,
    pid: u32,
}

/// Sets the recorder that `snapshot()` uses; `None` if there is none.
pub fn set_snapshots(snapshots: Option<Snapshots>) {
    let pid = std::process::id();
    let of_process = snapshots.map(|snapshots| OfProcess { snapshots, pid });
    *SNAPSHOTS.lock() = of_process;
}

/// Writes a recording with the events of the last seconds, which --before keeps, and of the time of --after.
/// Returns its path when it is complete. Until then, events wait for the script; its other threads continue. The
/// name of the file contains the time and reason, unless path is given. A program uses flight() instead.
///
/// Raises RecordingFileError (the file cannot be written), Error (nothing is kept: there is no --before, or this is the
/// import or __init__), ClosedError (in a forked child).
#[pyfunction]
#[pyo3(signature = (reason="", path=None))]
pub fn snapshot(py: Python<'_>, reason: &str, path: Option<PathBuf>) -> PyResult<std::ffi::OsString> {
    let known = SNAPSHOTS.lock().clone();
    let OfProcess { snapshots, pid } = known.ok_or_else(|| named(py, "Error", nothing_kept()))?;
    if pid != std::process::id() {
        return Err(named(py, "ClosedError", "snapshot(): this is a forked child; the events are kept in its parent"));
    }
    // Ctrl-C ends the wait for the events of --after. After that, later snapshots do not wait for events of --after
    // either.
    let is_cut = Cell::new(false);
    let cut = || {
        if signals::end_requests() != 0 && !is_cut.replace(true) {
            snapshots.cut();
        }
    };
    Ok(await_dump(py, snapshots.ask(reason, path), cut)?.into_os_string())
}

fn nothing_kept() -> &'static str {
    if is_host() {
        "snapshot(): no events are kept; run the script on live events with --before TIME, for example \
         `perf-prof python --before 10s -e EVENT SCRIPT`, and call it in a handler"
    } else {
        "snapshot(): it is for scripts of `perf-prof python --before TIME`; in a program, flight() keeps events, and its \
         dump() writes them"
    }
}

/// Waits for the answer of a flight recorder. Calls `meanwhile` often. Returns the path of the dump. Fails if no dump
/// was written, or if a signal handler of the program raises an exception.
pub fn await_dump(
    py: Python<'_>,
    answer: Receiver<Result<PathBuf, String>>,
    meanwhile: impl Fn(),
) -> PyResult<PathBuf> {
    let answer = Mutex::new(answer);
    loop {
        let next = || answer.lock().recv_timeout(LOOK_FOR_SIGNALS);
        match py.detach(next) {
            Ok(dump) => return dump.map_err(|error| named(py, "RecordingFileError", &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(named(py, "ClosedError", "the recorder has ended, so nothing is kept any more"));
            }
        }
        meanwhile();
    }
}

/// Returns an exception of a class in the package, with this text.
fn named(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let raised = py.import("perf_prof").and_then(|package| package.getattr(class)?.call1((text,)));
    raised.map_or_else(|error| error, PyErr::from_value)
}
