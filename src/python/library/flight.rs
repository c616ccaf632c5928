//! `flight` for programs: keeps the events of the last seconds in memory, and records them when the program requests a
//! dump.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
};

use perf_prof_session::flight::{self, Asking};
use perf_prof_system::{mutex::Mutex, signals::EndRequests};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    background::Background,
    errors::{exception, named},
    forks::Generation,
    messages, options,
};
use crate::script::await_dump;

/// A flight recorder that goes on in the background.
#[pyclass(module = "perf_prof._native", frozen)]
pub struct FlightRun {
    /// `None` after the recorder has ended.
    work: Mutex<Option<Background<u8>>>,
    /// Keeps the eventfd open through which the program requests dumps.
    requests: Arc<EndRequests>,
    asking: Asking,
    generation: Generation,
}

/// Starts to keep events. Dumps are written into `folder`. Returns when the events are on.
#[pyfunction]
pub fn start_flight(
    folder: PathBuf,
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
) -> PyResult<FlightRun> {
    let py = selectors.py();
    let plan = options::flight_plan(folder, options::Arguments { selectors, keywords: options, forms })?;
    let (sender, begun) = mpsc::channel();
    let work = Background::start(move |signals| {
        let begun = move |asking| {
            // The program waits for this message.
            let _ = sender.send(asking);
        };
        Ok(flight::run_with(&plan, || Ok(signals), begun)?.0)
    });
    let work = work.map_err(|error| exception(py, &error))?;
    let Ok(asking) = py.detach(move || begun.recv()) else {
        // If no message came, the recorder has failed, and `wait` returns the error of the recorder.
        work.wait(py)?;
        return Err(named(py, "Error", "flight(): the recorder ended before it began to keep events"));
    };
    let generation = Generation::current();
    Ok(FlightRun { requests: work.requests(), work: Mutex::new(Some(work)), asking, generation })
}

#[pymethods]
impl FlightRun {
    /// Writes a dump, and returns its path when it is complete.
    fn dump(&self, py: Python<'_>, reason: &str, path: Option<PathBuf>) -> PyResult<PathBuf> {
        if !self.generation.is_this() {
            return Err(named(py, "ClosedError", "this is a forked child; the recorder goes on in its parent"));
        }
        let dump = await_dump(py, self.asking.ask(reason, path), || {});
        messages::warn(py)?;
        dump
    }

    /// Ends the recorder, and also a dump that is being written.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.work.lock().take();
        match work.filter(|_| self.generation.is_this()) {
            Some(work) => {
                self.requests.end();
                work.wait(py).map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Drop for FlightRun {
    fn drop(&mut self) {
        if self.generation.is_this() {
            self.requests.end();
        }
    }
}
