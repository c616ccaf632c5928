//! `run` for programs: calls the handlers of a program, in the thread that called `run`.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use perf_prof_events::event::{Deliver, EventType, Flow, Sink, Stop};
use perf_prof_session::{engine::ExitStatus, plan::RunPlan, spine::About};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PySystemExit, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyModule, PyTuple},
};

use super::{
    background::LOOK_FOR_SIGNALS,
    errors::{exception, named},
    forks::Generation,
    messages, options,
    queue::{Delivery, Entry, EventBatch, Taken},
    run_thread::{Enabling, NotOpened, Opening, RunThread},
    trace::wait_for,
};
use crate::script::{Callbacks, OnError, Program, current_run, set_current_run};

/// The result of run().
#[pyclass(module = "perf_prof", frozen, get_all)]
pub struct RunResult {
    /// the number of events that were delivered
    pub delivered: u64,
    /// the number of events that were lost
    pub lost: u64,
    /// the exit status of the command of exec; else 0, or 1 if a handler raised an exception
    pub status: u8,
}

#[pymethods]
impl RunResult {
    fn __repr__(&self) -> String {
        let RunResult { delivered, lost, status } = self;
        format!("RunResult(delivered={delivered}, lost={lost}, status={status})")
    }
}

/// Traces events, or replays the recording `input`, and calls handlers. `options` are keyword arguments of
/// `perf_prof.run`, and `forms` maps each possible keyword to the types that its value may have. `progress` is called
/// again and again, each time with the number of events since the previous call.
#[pyfunction]
#[pyo3(signature = (selectors, options, forms, handlers, input = None, on_error = "raise", progress = None))]
pub fn run_handlers(
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
    handlers: &Bound<'_, PyAny>,
    input: Option<&Bound<'_, PyAny>>,
    on_error: &str,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<RunResult> {
    let on_error = on_error_from(on_error)?;
    let py = selectors.py();
    let plan = options::plan("run", input, options::Arguments { selectors, keywords: options, forms })?;
    let (generation, before) = (Generation::current(), current_run());
    let opened = opened(py, plan, |run| {
        let (functions, origin) = functions(&run.events, handlers, options)?;
        Ok((program(py, &functions, &origin, run, on_error)?, functions))
    });
    let opened = opened.and_then(|(program, functions, mut thread)| match begin(&functions, handlers) {
        Ok(()) => Ok((program, thread)),
        Err(error) => {
            py.detach(|| thread.close());
            Err(error)
        }
    });
    let (mut program, mut thread) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            set_current_run(before);
            return Err(error);
        }
    };
    let mut delivered = 0;
    let ended = deliver(py, &mut program, &thread, progress, &mut delivered);
    if !generation.is_this() {
        // This process is a child that a handler has forked.
        thread.forget();
        return Err(named(py, "ClosedError", "this is a forked child; the run goes on in its parent"));
    }
    // If a handler ended the run, the remaining events are dropped. `__exit__` is called in any case, as in a script.
    if !matches!(ended, Ok(EndedBy::Events)) {
        py.detach(|| thread.close());
    }
    let end = py.detach(|| thread.end());
    // Signals are checked before `__exit__` is called. Otherwise the call would discard the exception that a signal
    // handler of the program raises.
    let interrupted = py.check_signals().err();
    let mut at_exit = Flow::Continue(());
    program.enter(&mut |program| at_exit = program.exit());
    let (raised, callbacks) = (program.take_raised(), program.callbacks());
    let lost = thread.run.stats.total_lost();
    delivered += thread.run.stats.total_in_kernel();
    program.clear();
    set_current_run(before);
    ended?;
    if let Some(raised) = raised.or(interrupted) {
        return Err(raised);
    }
    stopped(at_exit)?;
    messages::warn(py)?;
    let status = match end {
        Some(Err(error)) => return Err(exception(py, &error)),
        Some(Ok(ExitStatus(status))) => status,
        None => 0,
    };
    let raised = callbacks == perf_prof_session::engine::exit_status::Callbacks::Raised;
    Ok(RunResult { delivered, lost, status: if raised && status == 0 { 1 } else { status } })
}

/// Opens the events of a run, gets from `make` the program that calls the handlers for these events, and enables the
/// events. If all handlers are aggregators, the kernel may add up the events.
fn opened<'py>(
    py: Python<'py>,
    plan: RunPlan,
    make: impl FnOnce(&Arc<About>) -> PyResult<(Program, Bound<'py, PyDict>)>,
) -> PyResult<(Program, Bound<'py, PyDict>, RunThread)> {
    messages::collect();
    let mut opening =
        Opening::start(plan, Delivery::AtOnce, Enabling::WhenTold).map_err(|error| exception(py, &error))?;
    let selected = loop {
        if let Some(selected) = py.detach(|| opening.selected(LOOK_FOR_SIGNALS)) {
            break selected;
        }
        if let Err(raised) = py.check_signals() {
            opening.abandon();
            return Err(raised);
        }
    };
    let made = selected.map(|run| make(&run));
    opening.tell(made.as_ref().ok().and_then(|made| Some(made.as_ref().ok()?.0.uses())).unwrap_or_default());
    let mut thread = wait_for(py, opening)?;
    match made {
        Ok(Ok((program, functions))) => Ok((program, functions, thread)),
        Ok(Err(error)) => {
            py.detach(|| thread.close());
            Err(error)
        }
        Err(NotOpened) => Err(named(py, "ClosedError", "the run ended before its events were opened")),
    }
}

/// Parses the argument `on_error`.
pub fn on_error_from(name: &str) -> PyResult<OnError> {
    match name {
        "raise" => Ok(OnError::Raise),
        "continue" => Ok(OnError::Continue),
        other => Err(PyValueError::new_err(format!("on_error is 'raise' or 'continue', not '{other}'"))),
    }
}

/// Returns a program that passes the events of a run to the handlers.
pub fn program(
    py: Python<'_>,
    functions: &Bound<'_, PyDict>,
    origin: &str,
    run: &Arc<About>,
    on_error: OnError,
) -> PyResult<Program> {
    let program = Program::from_functions(functions, origin, run.clone(), on_error);
    program.map_err(|error| named(py, "HandlerError", &error.to_string()))
}

/// Calls `__init__` if the handlers are a module. For an object, Python called `__init__` when it created the object.
pub fn begin(functions: &Bound<'_, PyDict>, handlers: &Bound<'_, PyAny>) -> PyResult<()> {
    let init = functions.get_item("__init__")?.filter(|_| handlers.is_instance_of::<PyModule>());
    init.map_or(Ok(()), |init| init.call0().map(drop))
}

/// Returns the handlers by name, and, for messages, the name of the module or class that defines them. The option
/// `on_lost` becomes the handler `__lost__`.
pub fn functions<'py>(
    events: &[EventType],
    handlers: &Bound<'py, PyAny>,
    options: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyDict>, String)> {
    let (found, origin) = named_functions(events, handlers)?;
    if let Some(on_lost) = options.get_item("on_lost")?.filter(|on_lost| !on_lost.is_none()) {
        if found.contains("__lost__")? {
            let text = "run(): the handlers have __lost__(), so leave out on_lost";
            return Err(named(handlers.py(), "OptionError", text));
        }
        found.set_item("__lost__", on_lost)?;
    }
    Ok((found, origin))
}

fn named_functions<'py>(events: &[EventType], handlers: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyDict>, String)> {
    let py = handlers.py();
    let kind = || handlers.get_type().name().map(|name| name.to_string());
    if let Ok(module) = handlers.cast::<PyModule>() {
        return Ok((module.dict().copy()?, module.name()?.to_string()));
    }
    if let Ok(dict) = handlers.cast::<PyDict>() {
        return Ok((dict.copy()?, "handlers".to_owned()));
    }
    let found = PyDict::new(py);
    // In a context manager, `__exit__` is not a callback: Python calls it with three arguments.
    let is_context_manager = handlers.hasattr("__enter__")?;
    for name in Callbacks::names(events) {
        if name == "__exit__" && is_context_manager {
            continue;
        }
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

/// What ended the delivery of events.
enum EndedBy {
    Events,
    Handler,
}

/// Calls the handlers until there are no more events or a handler ends the run.
fn deliver(
    py: Python<'_>,
    program: &mut Program,
    thread: &RunThread,
    progress: Option<&Bound<'_, PyAny>>,
    delivered: &mut u64,
) -> PyResult<EndedBy> {
    let generation = Generation::current();
    loop {
        match thread.queue.take() {
            Taken::Batch(batch) => {
                messages::warn(py)?;
                let (mut flow, before) = (Flow::Continue(()), *delivered);
                program.enter(&mut |program| flow = deliver_batch(program, &batch, generation, delivered));
                if flow.is_break() || !generation.is_this() {
                    if let Some(raised) = program.take_raised() {
                        return Err(raised);
                    }
                    return stopped(flow).map(|()| EndedBy::Handler);
                }
                if let Some(progress) = progress {
                    progress.call1((*delivered - before,))?;
                }
            }
            Taken::Nothing => py.detach(|| thread.queue.wait(Instant::now() + LOOK_FOR_SIGNALS)),
            Taken::End => return Ok(EndedBy::Events),
        }
        py.check_signals()?;
    }
}

fn deliver_batch(program: &mut dyn Deliver, batch: &EventBatch, generation: Generation, delivered: &mut u64) -> Flow {
    for entry in &batch.entries {
        if !generation.is_this() {
            break;
        }
        match *entry {
            Entry::Sample { event, start, size } => {
                *delivered += 1;
                program.sample(event as usize, batch.record(start, size))?;
            }
            Entry::Lost { start, end } => program.lost(start, end)?,
            Entry::Interval => program.interval()?,
            Entry::Other { start, size } => program.other_record(batch.record(start, size), 0)?,
        }
    }
    Flow::Continue(())
}

/// If a handler ended the run by a KeyboardInterrupt or a SystemExit, fails with the same exception.
pub fn stopped(flow: Flow) -> PyResult<()> {
    match flow {
        ControlFlow::Continue(()) | ControlFlow::Break(Stop::Failed | Stop::ClosedPipe | Stop::Limit) => Ok(()),
        ControlFlow::Break(Stop::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
        ControlFlow::Break(Stop::Exit(status)) => Err(PySystemExit::new_err(status)),
    }
}
