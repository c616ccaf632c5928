//! `record` for programs: records events into a file while the program goes on, or while a command runs.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, mpsc},
    thread,
};

use perf_prof_session::recorder::{self, Recorded};
use perf_prof_system::{mutex::Mutex, signals::EndRequests};
use pyo3::{
    exceptions::PyResourceWarning,
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    background::{Background, LOOK_FOR_SIGNALS},
    errors::{CutOff, exception, named},
    forks::Generation,
    options,
};

/// A recording that is being made.
#[pyclass(module = "perf_prof._native", frozen)]
pub struct RecordingRun {
    /// `None` after the recording has ended.
    work: Mutex<Option<Background<u8>>>,
    /// The exit status of the command, if the recording has ended without an error.
    status: OnceLock<u8>,
    requests: Arc<EndRequests>,
    generation: Generation,
}

/// Starts to record into the file `output`. Returns when the recording has begun.
#[pyfunction]
pub fn start_recording(
    output: PathBuf,
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
) -> PyResult<RecordingRun> {
    let py = selectors.py();
    let path = output.display().to_string();
    let plan = options::record_plan(output, options::Arguments { selectors, keywords: options, forms })?;
    let (sender, begun) = mpsc::channel();
    let work = Background::start(move |signals| {
        let begun = || {
            // The program waits for this message.
            let _ = sender.send(());
        };
        let Recorded { status, failure } = recorder::run_with(&plan, || Ok(signals), begun)?;
        match failure {
            Some(cause) => Err(CutOff { path, cause }.into()),
            None => Ok(status.0),
        }
    });
    let work = work.map_err(|error| exception(py, &error))?;
    if py.detach(move || begun.recv()).is_err() {
        // If no message came, the recording has failed, and `wait` returns the error of the recording.
        work.wait(py)?;
    }
    Ok(RecordingRun {
        requests: work.requests(),
        work: Mutex::new(Some(work)),
        status: OnceLock::new(),
        generation: Generation::current(),
    })
}

#[pymethods]
impl RecordingRun {
    /// Waits until the command has ended or the time is over. Returns the exit status of the command. Several threads
    /// may wait at the same time.
    fn wait(&self, py: Python<'_>) -> PyResult<u8> {
        if !self.generation.is_this() {
            return Err(named(py, "ClosedError", "this is a forked child; the recording goes on in its parent"));
        }
        let mut work = loop {
            match self.work.try_lock() {
                Some(work) => break work,
                // Another thread waits already.
                None => {
                    py.detach(|| thread::sleep(LOOK_FOR_SIGNALS));
                    py.check_signals()?;
                }
            }
        };
        if let Some(running) = work.take() {
            let status = running.wait(py)?;
            self.status.get_or_init(|| status);
        }
        self.status.get().copied().ok_or_else(|| named(py, "Error", "the recording ended with an error"))
    }

    /// Ends the recording, and waits until the file is complete. Returns the exit status of the command.
    fn stop(&self, py: Python<'_>) -> PyResult<u8> {
        if self.generation.is_this() {
            self.requests.end();
        }
        self.wait(py)
    }
}

impl Drop for RecordingRun {
    fn drop(&mut self) {
        let work = self.work.get_mut().take();
        if let Some(work) = work.filter(|_| self.generation.is_this()) {
            self.requests.end();
            Python::attach(|py| {
                let raised = PyErr::take(py);
                let text = c"a perf_prof.Recording was not stopped; use it in a with statement, or call stop()";
                let warned = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), text, 1);
                if let Err(error) = warned.and_then(|()| work.wait(py).map(drop)) {
                    error.write_unraisable(py, None);
                }
                if let Some(raised) = raised {
                    raised.restore(py);
                }
            });
        }
    }
}
