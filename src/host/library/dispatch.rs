//! `run`: calls the handlers of a program, in the thread that called it.

use std::{ops::ControlFlow, time::Instant};

use perf_prof_core::event::{Deliver, Flow, Sink, Stop};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PySystemExit, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyModule, PyTuple},
};

use super::{
    background::LOOK_FOR_SIGNALS,
    errors::{exception, named},
    messages, options,
    queue::{Entry, EventBatch, Taken},
    run_thread::RunThread,
    trace::open_run,
};
use crate::script::{Callbacks, OnError, Program};

/// The result of run().
#[pyclass(module = "perf_prof", frozen, get_all)]
pub struct RunResult {
    /// the number of events that were delivered
    delivered: u64,
    /// the number of events that were lost
    lost: u64,
    /// the exit status of the command of exec; else 0, or 1 if a handler raised an exception
    status: u8,
}

#[pymethods]
impl RunResult {
    fn __repr__(&self) -> String {
        let RunResult { delivered, lost, status } = self;
        format!("RunResult(delivered={delivered}, lost={lost}, status={status})")
    }
}

/// Traces events, or replays the recording `input`, and calls handlers. `options` are keyword arguments of
/// `perf_prof.run`.
#[pyfunction]
#[pyo3(signature = (selectors, options, handlers, input = None, on_error = "raise"))]
pub fn run_handlers(
    py: Python<'_>,
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    handlers: &Bound<'_, PyAny>,
    input: Option<&Bound<'_, PyAny>>,
    on_error: &str,
) -> PyResult<RunResult> {
    let on_error = match on_error {
        "raise" => OnError::Raise,
        "continue" => OnError::Continue,
        other => return Err(PyValueError::new_err(format!("on_error is 'raise' or 'continue', not '{other}'"))),
    };
    let plan = options::plan("run", input, selectors, options)?;
    let mut thread = open_run(py, plan)?;
    let opened = functions(&thread, handlers).and_then(|(functions, origin)| {
        let program = Program::from_functions(&functions, &origin, thread.run.clone(), on_error);
        let program = program.map_err(|error| named(py, "HandlerError", &error.to_string()))?;
        match functions.get_item("__init__")?.filter(|_| handlers.is_instance_of::<PyModule>()) {
            Some(init) => init.call0().map(|_| program),
            None => Ok(program),
        }
    });
    let mut program = match opened {
        Ok(program) => program,
        Err(error) => {
            py.detach(|| thread.close());
            return Err(error);
        }
    };
    let mut delivered = 0;
    let ended = deliver(py, &mut program, &thread, &mut delivered);
    // After an error, what is left is dropped. `__exit__` is called in any case, as in a script.
    if ended.is_err() {
        py.detach(|| thread.close());
    }
    let end = py.detach(|| thread.end());
    let mut at_exit = Flow::Continue(());
    program.enter(&mut |program| at_exit = program.exit());
    let (raised, callbacks) = (program.take_raised(), program.callbacks());
    let lost = thread.run.stats.total_lost();
    program.clear();
    messages::warn(py)?;
    ended?;
    if let Some(raised) = raised {
        return Err(raised);
    }
    stopped(at_exit)?;
    let status = match end {
        Some(Err(error)) => return Err(exception(py, &error)),
        Some(Ok(end)) => end.status,
        None => 0,
    };
    let raised = callbacks == perf_prof_core::engine::exit_status::Callbacks::Raised;
    Ok(RunResult { delivered, lost, status: if raised && status == 0 { 1 } else { status } })
}

/// Returns the handlers by name, and where they come from.
fn functions<'py>(thread: &RunThread, handlers: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyDict>, String)> {
    let py = handlers.py();
    let kind = || handlers.get_type().name().map(|name| name.to_string());
    if let Ok(module) = handlers.cast::<PyModule>() {
        return Ok((module.dict(), module.name()?.to_string()));
    }
    if let Ok(dict) = handlers.cast::<PyDict>() {
        return Ok((dict.clone(), "handlers".to_owned()));
    }
    let found = PyDict::new(py);
    for name in Callbacks::names(&thread.run.events) {
        if let Some(function) = handlers.getattr_opt(&*name)? {
            found.set_item(name, function)?;
        }
    }
    if found.is_empty() && handlers.is_callable() {
        found.set_item("__sample__", handlers)?;
    }
    if found.is_empty() && handlers.is_none() {
        return Err(PyTypeError::new_err("run(): handlers is a module, an object, a dict or a function, not None"));
    }
    Ok((found, kind()?))
}

/// Calls the handlers until the events end.
fn deliver(py: Python<'_>, program: &mut Program, thread: &RunThread, delivered: &mut u64) -> PyResult<()> {
    loop {
        match thread.queue.take() {
            Taken::Batch(batch) => {
                messages::warn(py)?;
                let mut flow = Flow::Continue(());
                program.enter(&mut |program| flow = deliver_batch(program, &batch, delivered));
                if flow.is_break() {
                    if let Some(raised) = program.take_raised() {
                        return Err(raised);
                    }
                    return stopped(flow);
                }
            }
            Taken::Nothing => py.detach(|| thread.queue.wait(Instant::now() + LOOK_FOR_SIGNALS)),
            Taken::End => return Ok(()),
        }
        py.check_signals()?;
    }
}

fn deliver_batch(program: &mut dyn Deliver, batch: &EventBatch, delivered: &mut u64) -> Flow {
    for entry in &batch.entries {
        match *entry {
            Entry::Sample { event, start, size } => {
                *delivered += 1;
                program.sample(event as usize, batch.record(start, size))?;
            }
            Entry::Lost { start, end } => program.lost(start, end)?,
            Entry::Interval => program.interval()?,
        }
    }
    Flow::Continue(())
}

/// Returns the exception for a run that a handler ended.
fn stopped(flow: Flow) -> PyResult<()> {
    match flow {
        ControlFlow::Continue(()) | ControlFlow::Break(Stop::Failed | Stop::ClosedPipe) => Ok(()),
        ControlFlow::Break(Stop::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
        ControlFlow::Break(Stop::Exit(status)) => Err(PySystemExit::new_err(status)),
    }
}
