//! `run` with `jobs`: forked children replay the parts of a recording, and the program merges their results. The Python
//! file `_jobs.py` of the package forks the children.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_events::event::Stop;
use perf_prof_session::engine::exit_status::Callbacks as Raised;
use perf_prof_system::{
    mutex::Mutex,
    process,
    signals::{EndRequests, Signals},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    dispatch::{RunResult, begin, functions, on_error_from, program, stopped},
    errors::{exception, named},
    messages, options,
};
use crate::{
    run::DividedRecording,
    script::{Callbacks, OnError, current_run, set_current_run, stay_in_forked_child},
};

/// How often signal handlers of the program can run while a part is read in advance.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// A recording that is divided between processes, and the handlers that get its events.
#[pyclass(module = "perf_prof._native", frozen)]
pub struct DividedRun {
    divided: Mutex<DividedRecording>,
    functions: Py<PyDict>,
    origin: String,
    on_error: OnError,
    /// The process that divided the recording.
    pid: u32,
}

/// Opens the recording `input` and divides it between the processes of the option `jobs`. Returns `None` for one
/// process.
#[pyfunction]
pub fn divide(
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
    handlers: &Bound<'_, PyAny>,
    input: Option<&Bound<'_, PyAny>>,
    on_error: &str,
) -> PyResult<Option<DividedRun>> {
    let py = selectors.py();
    let on_error = on_error_from(on_error)?;
    let plan = options::plan("run", input, options::Arguments { selectors, keywords: options, forms })?;
    messages::collect();
    let divided = py.detach(|| DividedRecording::open(&plan)).map_err(|error| exception(py, &error))?;
    let Some(divided) = divided else { return Ok(None) };
    let (functions, origin) = functions(divided.events(), handlers, options)?;
    let found = Callbacks::find(&functions, &origin, divided.events());
    let found = found.map_err(|error| named(py, "HandlerError", &error.to_string()))?;
    for name in ["__partial__", "__merge__"] {
        let is_missing = functions.get_item(name)?.is_none_or(|function| !function.is_callable());
        if is_missing && !found.has_only_aggregators() {
            let text = format!(
                "run(): jobs needs {name}() in the handlers: each process calls __partial__(), which returns the result \
                 of its part, and this process calls __merge__(partials) with all of them"
            );
            return Err(named(py, "HandlerError", &text));
        }
    }
    begin(&functions, handlers)?;
    messages::warn(py)?;
    Ok(Some(DividedRun {
        divided: Mutex::new(divided),
        functions: functions.unbind(),
        origin,
        on_error,
        pid: std::process::id(),
    }))
}

#[pymethods]
impl DividedRun {
    /// the number of parts
    #[getter]
    fn parts(&self) -> usize {
        self.divided.lock().parts()
    }

    /// Reads the previous part if spans may continue from it. Must be called for each part, before the part's process
    /// is forked. Raises the exceptions of the program's own signal handlers.
    fn read_before(&self, py: Python<'_>, number: usize) -> PyResult<()> {
        let (mut checked, mut raised) = (Instant::now(), None);
        let mut check = || {
            if checked.elapsed() < CHECK_EVERY {
                return ControlFlow::Continue(());
            }
            checked = Instant::now();
            raised = Python::attach(|py| py.check_signals()).err();
            if raised.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let read = py.detach(|| self.divided.lock().read_before(number, &mut check));
        raised.map_or(Ok(()), Err)?;
        read.map(|_| ()).map_err(|error| exception(py, &error))
    }

    /// Turns this forked child into the process that replays a part. When the thread that forked the child ends, the
    /// kernel kills the child.
    fn enter_child(&self, number: usize) {
        stay_in_forked_child();
        if !process::die_with(self.pid, libc::SIGKILL) {
            process::exit_now(1);
        }
        // The parent shows the messages from before the fork, so the child drops its copies of them.
        drop(messages::take());
        self.divided.lock().enter(number);
    }

    /// Replays a part in this forked child. If an exception of a handler ends the replay, raises this exception.
    fn replay_part(&self, py: Python<'_>, number: usize) -> PyResult<()> {
        let signals = signals(py)?;
        let load = |run: Arc<_>| {
            Python::attach(|py| {
                let program = program(py, self.functions.bind(py), &self.origin, &run, self.on_error)?;
                program.clear_aggregators()?;
                Ok(program)
            })
            .map_err(|error: PyErr| error.into())
        };
        let replayed = py.detach(|| self.divided.lock().replay_part(number, &signals, load));
        stopped_by(replayed.map_err(|error| exception(py, &error))?)
    }

    /// Returns the messages that replaying the part has written, and clears them.
    fn messages(&self) -> Vec<String> {
        messages::take()
    }

    /// Merges the results of all parts. `messages` are the messages of the processes that replayed the parts.
    fn merge(&self, py: Python<'_>, messages: Vec<String>) -> PyResult<RunResult> {
        messages::add(messages);
        py.check_signals()?;
        let (signals, before) = (signals(py)?, current_run());
        let load = |run: Arc<_>| {
            Python::attach(|py| program(py, self.functions.bind(py), &self.origin, &run, self.on_error))
                .map_err(Into::into)
        };
        let merged = py.detach(|| self.divided.lock().merge(&signals, load));
        set_current_run(before);
        let merged = merged.map_err(|error| exception(py, &error))?;
        stopped_by(merged.stop)?;
        messages::warn(py)?;
        let status = u8::from(merged.callbacks == Raised::Raised);
        Ok(RunResult { delivered: merged.delivered, lost: merged.lost, status })
    }
}

/// Returns a `Signals` that no signal reaches, because the program's own handlers get the signals of the process.
fn signals(py: Python<'_>) -> PyResult<Signals> {
    let requests = EndRequests::new().map_err(|error| exception(py, &error.into()))?;
    Ok(Signals::of_program(Arc::new(requests)))
}

fn stopped_by(stop: Option<Stop>) -> PyResult<()> {
    stopped(stop.map_or(ControlFlow::Continue(()), ControlFlow::Break))
}
