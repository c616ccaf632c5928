//! `record`: records events into a file while the program goes on, or while a command runs.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use perf_prof_core::{recorder, sys::signals::EndRequests};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    background::Background,
    errors::{exception, named},
    options::{Action, words},
};
use crate::cli::record::plan_of_program;

/// A recording that is being made.
#[pyclass(module = "perf_prof._native", frozen)]
pub struct RecordingRun {
    /// `None` when a thread waits for its end, or has done so.
    work: Mutex<Option<Background<u8>>>,
    requests: Arc<EndRequests>,
    pid: u32,
}

/// Starts to record. Returns when the recording has begun.
#[pyfunction]
pub fn start_recording(
    py: Python<'_>,
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
) -> PyResult<RecordingRun> {
    let words = words(Action::Record, "record", selectors, options)?;
    let plan = plan_of_program(words.options, words.command);
    let plan = plan.map_err(|text| named(py, "OptionError", &text))?;
    let (sender, begun) = mpsc::channel();
    let work = Background::start(move |signals| {
        let begun = || {
            // The program waits for it.
            let _ = sender.send(());
        };
        Ok(recorder::run_with(&plan, || Ok(signals), begun)?.0)
    });
    let work = work.map_err(|error| exception(py, &error))?;
    if py.detach(move || begun.recv()).is_err() {
        // The recording has not begun, so the result is an error.
        work.wait(py)?;
    }
    Ok(RecordingRun { requests: work.requests(), work: Mutex::new(Some(work)), pid: std::process::id() })
}

#[pymethods]
impl RecordingRun {
    /// Waits until the command has ended or the time is over. Returns the exit status of the command.
    fn wait(&self, py: Python<'_>) -> PyResult<u8> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        match work {
            Some(work) if std::process::id() == self.pid => work.wait(py),
            _ => Ok(0),
        }
    }

    /// Ends the recording, and waits until the file is complete. Returns the exit status of the command.
    fn stop(&self, py: Python<'_>) -> PyResult<u8> {
        if std::process::id() == self.pid {
            self.requests.request();
        }
        self.wait(py)
    }
}
