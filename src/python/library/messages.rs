//! Shows the messages of runs as Python warnings. Threads without the GIL write messages; the program shows them when
//! it takes events.

use perf_prof_system::{limits, mutex::Mutex, output};
use pyo3::{prelude::*, types::PyType};

use crate::script::is_host;

/// The messages that have not been shown yet.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prepares the process for a run in a library. From now on, messages are collected, and the limits of the process are
/// not changed. Does nothing in the executable `perf-prof`, which prints messages to stderr.
pub fn collect() {
    if !is_host() {
        limits::keep_limits();
        output::send_messages_to(Some(note));
    }
}

fn note(text: &str) {
    MESSAGES.lock().push(text.to_owned());
}

/// Returns the collected messages and clears them, so that another process can show them.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *MESSAGES.lock())
}

/// Adds the messages of another process.
pub fn add(messages: Vec<String>) {
    MESSAGES.lock().extend(messages);
}

/// Shows the collected messages as warnings. Returns an exception if a warning filter turns a message into an error.
pub fn warn(py: Python<'_>) -> PyResult<()> {
    let messages = take();
    if messages.is_empty() {
        return Ok(());
    }
    let category = py.import("perf_prof")?.getattr("Warning")?.cast_into::<PyType>()?;
    let mut left = messages.into_iter();
    while let Some(message) = left.next() {
        let text = std::ffi::CString::new(message.strip_prefix("warning: ").unwrap_or(&message).replace('\0', " "))?;
        if let Err(error) = PyErr::warn(py, &category, &text, 1) {
            MESSAGES.lock().extend(left);
            return Err(error);
        }
    }
    Ok(())
}
