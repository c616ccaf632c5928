//! The script host: loads the user's module, binds its callbacks to the selected events, and calls them.

use std::{
    ffi::{OsStr, OsString},
    io, ptr,
    sync::Arc,
};

use perf_prof_events::event::{Deliver, Flow, Sink};
use perf_prof_format::record::OtherRecords;
use perf_prof_session::{
    engine::{exit_status, kernel_tables::EventUse},
    live::select,
    plan::Verbosity,
    spine::About,
};
use perf_prof_system::{compat, fork_lock, output};
use perf_prof_tools::parallel;
use pyo3::{
    exceptions::{PyBrokenPipeError, PyOSError},
    ffi,
    prelude::*,
    types::PyDict,
};

use super::{
    callbacks::{Callback, Callbacks, callback_like_names},
    error::ScriptError,
    event::kept_events,
    failure::{Failures, OnError, OwnInterrupt, exit_status},
    feeding::FeedingProgram,
    forked,
    handlers::{Handler, handlers, perf_handlers},
    interpreter,
    loader::{self, Loaded},
    module,
    perf_script::{self, Raised},
};

/// How events are passed to the functions of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// `system__name(event)`, with an event object.
    #[default]
    PerfProf,
    /// As `perf script -s` passes them: `system__name(event_name, context, ..., fields...)`.
    PerfScript(perf_script::Options),
}

impl Dialect {
    /// Returns which records other than samples the scripts get.
    pub fn other_records(self) -> OtherRecords {
        match self {
            Dialect::PerfProf => OtherRecords::NONE,
            Dialect::PerfScript(_) => perf_script::RecordFunctions::records(),
        }
    }
}

/// The user's module, after its import.
pub struct Module {
    pub(super) loaded: Loaded,
    dialect: Dialect,
}

impl Module {
    /// Imports the module. `sys.argv` becomes `module`, followed by `args`.
    pub fn load(
        module: &OsStr,
        args: &[OsString],
        dialect: Dialect,
        verbosity: Verbosity,
    ) -> Result<Module, ScriptError> {
        forked::install_fork_hook();
        Python::attach(|py| {
            let loaded = match dialect {
                Dialect::PerfProf => loader::load(py, module, args, verbosity),
                Dialect::PerfScript(_) => loader::load_as_main(py, module, args, verbosity),
            };
            forked::leave_if_child(py, || match &loaded {
                Ok(_) => 0,
                Err(ScriptError::Exited(status)) => *status,
                Err(_) => 1,
            });
            Ok(Module { loaded: loaded?, dialect })
        })
    }

    /// Imports the module in a program that continues after the script. Does not end the children that the script
    /// forks.
    pub fn load_within(py: Python<'_>, module: &OsStr, args: &[OsString]) -> Result<Module, ScriptError> {
        Ok(Module { loaded: loader::load(py, module, args, Verbosity::Quiet)?, dialect: Dialect::PerfProf })
    }

    /// Returns the module.
    pub fn module(&self) -> &Py<PyModule> {
        &self.loaded.module
    }

    /// Returns the module's file.
    pub fn path(&self) -> &str {
        &self.loaded.path
    }

    /// Returns the functions that look like callbacks by their names and are never called, each with the reason.
    pub fn uncalled_handlers(&self, about: &About) -> Vec<(String, String)> {
        let names = Python::attach(|py| callback_like_names(self.loaded.module.bind(py)));
        let called = Callbacks::names_in_modules(&about.events);
        select::uncalled_handlers(&names, &called, &about.events, &|| about.available.events())
    }

    /// Looks up the callbacks, and prepares the arguments that they get for the events.
    pub fn bind(self, run: Arc<About>, on_error: OnError) -> Result<Program, ScriptError> {
        let Module { loaded, dialect } = self;
        Python::attach(|py| {
            let module = loaded.module.bind(py);
            let (callbacks, receiver, own_interrupt) = match dialect {
                Dialect::PerfProf => {
                    let callbacks = Callbacks::find(&module.dict(), &loaded.path, &run.events)?;
                    let handlers = handlers(py, &callbacks.handlers, &run, &loaded.path)?;
                    (callbacks, Receiver::EventObjects(handlers), OwnInterrupt::EndsRun)
                }
                Dialect::PerfScript(options) => {
                    let callbacks = Callbacks::of_perf_script(module, &loaded.path)?;
                    let handlers = perf_script::Handlers::new(py, &module.dict(), &run, options)?;
                    (callbacks, Receiver::PerfScript(Box::new(handlers)), OwnInterrupt::Fails)
                }
            };
            module::set_run(run);
            let failures = Failures::new(on_error, own_interrupt);
            let names = module.dict().unbind();
            Ok(Program { callbacks, receiver, failures, names, module: Some(loaded) })
        })
    }
}

impl Program {
    /// Creates a program from the dict `functions`, which maps names to functions. `origin` is the file or module that
    /// defines the functions, for messages.
    pub fn from_functions(
        functions: &Bound<'_, PyDict>,
        origin: &str,
        run: Arc<About>,
        on_error: OnError,
    ) -> Result<Program, ScriptError> {
        let callbacks = Callbacks::find(functions, origin, &run.events)?;
        let handlers = handlers(functions.py(), &callbacks.handlers, &run, origin)?;
        let receiver = Receiver::EventObjects(handlers);
        module::set_run(run);
        let failures = Failures::new(on_error, OwnInterrupt::EndsRun);
        Ok(Program { callbacks, receiver, failures, names: functions.clone().unbind(), module: None })
    }

    /// Creates a program that passes all samples to one function, as `perf.sample_event`. The first exception ends the
    /// run.
    pub fn from_perf_callback(function: &Bound<'_, PyAny>, run: Arc<About>) -> PyResult<Program> {
        let py = function.py();
        let receiver = Receiver::EventObjects(perf_handlers(py, function, &run)?);
        module::set_run(run);
        let failures = Failures::new(OnError::Raise, OwnInterrupt::EndsRun);
        let names = PyDict::new(py).unbind();
        Ok(Program { callbacks: Callbacks::default(), receiver, failures, names, module: None })
    }

    /// Binds the script's functions to the events of the next recording. The script keeps its state.
    pub fn continue_with(mut self, run: Arc<About>) -> Result<Program, ScriptError> {
        Python::attach(|py| {
            let origin = self.module.as_ref().map_or("", |loaded| &loaded.path);
            let callbacks = Callbacks::find_any(self.names.bind(py), origin, &run.events)?;
            let handlers = handlers(py, &callbacks.handlers, &run, origin)?;
            self.clear_events(py);
            self.callbacks = callbacks;
            self.receiver = Receiver::EventObjects(handlers);
            module::set_run(run);
            let parts = py.import("perf_prof._parts").and_then(|parts| parts.call_method0("enter_recording"));
            parts.map_err(|error| ScriptError::Start(error.to_string()))?;
            Ok(self)
        })
    }

    /// Releases the event objects of the run.
    fn clear_events(&mut self, _py: Python<'_>) {
        if let Receiver::EventObjects(handlers) = &mut self.receiver {
            for handler in handlers.iter_mut().flatten() {
                // SAFETY: `_py` says that this thread holds the GIL.
                unsafe { handler.slot.clear() };
            }
        }
    }

    /// Takes the exception that ended the run. Returns `None` without [`OnError::Raise`].
    pub fn take_raised(&mut self) -> Option<PyErr> {
        self.failures.take_raised()
    }
}

/// The user's functions, bound to the selected events.
pub struct Program {
    pub(super) callbacks: Callbacks,
    pub(super) receiver: Receiver,
    pub(super) failures: Failures,
    /// The dict in which the callbacks were looked up.
    pub(super) names: Py<PyDict>,
    /// Keeps the module alive. A script may delete itself from `sys.modules`, but its functions still need the globals
    /// of the module. `None` if the functions do not come from a script.
    pub(super) module: Option<Loaded>,
}

/// What gets the samples.
pub(super) enum Receiver {
    /// Functions that get an event object. The list contains the handler of each event; `None` if an event has no
    /// handler.
    EventObjects(Vec<Option<Handler>>),
    /// Functions that get the fields of the event, as in `perf script`.
    PerfScript(Box<perf_script::Handlers>),
}

impl Program {
    /// Calls `__init__()` or `trace_begin()`. Ends the process if it is a child that this call has forked.
    pub fn init(&mut self) -> Result<(), ScriptError> {
        Python::attach(|py| {
            let result = self.begin(py);
            forked::leave_if_child(py, || forked::status(py, result.as_ref().err().map(|raised| &raised.error)));
            match result {
                Ok(()) => Ok(()),
                Err(Raised { error, .. }) if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) => {
                    Err(ScriptError::Exited(exit_status(py, &error)))
                }
                Err(Raised { function, error }) => match super::failure::output_error(py, &error) {
                    Some(error) => Err(ScriptError::Output(error.to_string())),
                    None => {
                        super::failure::print_traceback(py, &error);
                        Err(ScriptError::Init(function))
                    }
                },
            }
        })
    }

    fn begin(&mut self, py: Python<'_>) -> Result<(), Raised> {
        if let Some(init) = &self.callbacks.init {
            let result = init.function.call0(py);
            result.map_err(|error| Raised { function: init.name.clone(), error })?;
        }
        match &mut self.receiver {
            Receiver::EventObjects(_) => Ok(()),
            Receiver::PerfScript(handlers) => handlers.begin(py),
        }
    }

    /// Fails if a script of `perf script` has handlers of tracepoints, and no event of this run belongs to any of them.
    /// Never fails for other scripts.
    pub fn check_handles_an_event(&self) -> Result<(), ScriptError> {
        match &self.receiver {
            Receiver::EventObjects(_) => Ok(()),
            Receiver::PerfScript(handlers) => Python::attach(|py| {
                let Some(loaded) = &self.module else { return Ok(()) };
                let mut names = callback_like_names(loaded.module.bind(py));
                names.retain(|name| !name.starts_with("__"));
                handlers.check_handles_an_event(py, &loaded.path, &names)
            }),
        }
    }

    /// Returns whether at least one event has a handler.
    pub fn has_handlers(&self) -> bool {
        match &self.receiver {
            Receiver::EventObjects(handlers) => handlers.iter().any(Option::is_some),
            Receiver::PerfScript(handlers) => Python::attach(|py| handlers.has_functions(py)),
        }
    }

    /// Returns the use of each event type. The kernel may fill the tables of aggregators only if no other function of
    /// the script than `__interval__` and `__exit__` is called during the run. Any other function could read a table
    /// before it contains the kernel's sums.
    pub fn uses(&self) -> Vec<EventUse> {
        let Receiver::EventObjects(handlers) = &self.receiver else { return Vec::new() };
        // A thread of the script may fork meanwhile. Its child must not inherit a locked table.
        let _held = fork_lock::hold();
        let reason = if handlers.iter().flatten().any(|handler| !handler.functions.is_empty()) {
            Some("a function gets events")
        } else if self.callbacks.lost.is_some() {
            Some("there is __lost__")
        } else {
            self.callbacks.print_stat.as_ref().map(|_| "there is __print_stat__")
        };
        let of_event = |handler: &Option<Handler>| match (reason, handler) {
            (Some(reason), _) => EventUse::Samples(reason),
            (None, None) => EventUse::Samples("nothing handles it"),
            (None, Some(handler)) => handler.event_use(),
        };
        handlers.iter().map(of_event).collect()
    }

    /// Returns whether the module has `__interval__`.
    pub fn has_interval(&self) -> bool {
        self.callbacks.interval.is_some()
    }

    /// Says whether a callback has raised an exception.
    pub fn callbacks(&self) -> exit_status::Callbacks {
        if self.failures.is_empty() { exit_status::Callbacks::Returned } else { exit_status::Callbacks::Raised }
    }

    /// Releases all Python objects, before the interpreter ends.
    pub fn clear(mut self) {
        Python::attach(|py| {
            self.clear_events(py);
            module::clear_run();
            drop(self);
        });
    }
}

impl Program {
    /// Returns the program for use while the GIL is held. Returns `None` for a script of `perf script`, whose functions
    /// get no event objects.
    pub(super) fn attached<'a, 'py>(&'a mut self, py: Python<'py>) -> Option<AttachedProgram<'a, 'py>> {
        let Program { callbacks, receiver, failures, .. } = self;
        match receiver {
            Receiver::EventObjects(handlers) => {
                Some(AttachedProgram { attached: Attached { py, callbacks, failures }, handlers })
            }
            Receiver::PerfScript(_) => None,
        }
    }
}

impl Sink for Program {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        if let Program { callbacks, receiver: Receiver::EventObjects(handlers), failures, .. } = self
            && callbacks.has_only_aggregators()
        {
            return body(&mut FeedingProgram::new(callbacks, failures, handlers));
        }
        Python::attach(|py| {
            let Program { callbacks, receiver, failures, .. } = self;
            let attached = Attached { py, callbacks, failures };
            match receiver {
                Receiver::EventObjects(handlers) => body(&mut AttachedProgram { attached, handlers }),
                Receiver::PerfScript(handlers) => body(&mut AttachedPerfScript { attached, handlers }),
            }
        });
    }

    fn collects_output(&self) -> bool {
        interpreter::collects_output()
    }
}

/// The callbacks of a program while the GIL is held.
pub(super) struct Attached<'a, 'py> {
    pub py: Python<'py>,
    pub callbacks: &'a Callbacks,
    pub failures: &'a mut Failures,
}

impl Attached<'_, '_> {
    fn call(&mut self, callback: Option<&Callback>, args: impl Fn(Python<'_>) -> Vec<Py<PyAny>>) -> Flow {
        let py = self.py;
        let Some(callback) = callback else { return Flow::Continue(()) };
        let args = pyo3::types::PyTuple::new(py, args(py));
        let result = args.and_then(|args| callback.function.call1(py, args));
        self.handle(result.map(drop), &callback.name)
    }

    #[inline]
    fn handle(&mut self, result: PyResult<()>, name: &str) -> Flow {
        forked::leave_if_child(self.py, || forked::status(self.py, result.as_ref().err()));
        match result {
            Ok(()) => Flow::Continue(()),
            Err(error) => self.failures.handle(self.py, &error, name),
        }
    }

    fn flush(&mut self) -> Flow {
        match flush(self.py) {
            Err(error) if error.is_instance_of::<PyBrokenPipeError>(self.py) => {
                self.failures.handle(self.py, &error, "print")
            }
            // The write failed, for example because the disk is full. Python keeps the text and tries again, at the
            // latest at the end of the run.
            Err(error) => {
                note_write_error(self.py, &error);
                Flow::Continue(())
            }
            Ok(()) => Flow::Continue(()),
        }
    }

    /// Calls the callback for the end of the run. Then flushes the output.
    fn exit(&mut self, callback: Option<&Callback>) -> Flow {
        // Discards an interrupt that arrived while no callback was running. Otherwise the interrupt would end
        // `callback` as soon as `callback` starts.
        if let Err(error) = self.py.check_signals() {
            drop(error);
        }
        let flow = self.call(callback, |_| Vec::new());
        self.failures.print_totals();
        match flush(self.py) {
            Ok(()) => flow,
            Err(error) if output::reader_is_gone() => {
                drop(error);
                output::discard();
                flow
            }
            // The error may also mean that the script itself has closed stdout. [`note_write_error`] ignores this case.
            Err(error) => {
                note_write_error(self.py, &error);
                flow
            }
        }
    }
}

/// A program whose functions get event objects, while the GIL is held.
pub(super) struct AttachedProgram<'a, 'py> {
    pub attached: Attached<'a, 'py>,
    pub handlers: &'a mut Vec<Option<Handler>>,
}

impl AttachedProgram<'_, '_> {
    /// Calls the functions of an event type with an event object that exists already.
    pub(super) fn object(&mut self, event: usize, object: Py<PyAny>) -> Flow {
        let Some(Some(handler)) = self.handlers.get(event) else { return Flow::Continue(()) };
        let py = self.attached.py;
        for feed in &handler.feeds {
            let result = feed.object(object.bind(py));
            self.attached.handle(result, "add")?;
        }
        for callback in &handler.functions {
            let result = callback.function.call1(py, (object.clone_ref(py),));
            self.attached.handle(result.map(drop), &callback.name)?;
        }
        Flow::Continue(())
    }
}

impl Deliver for AttachedProgram<'_, '_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(Some(handler)) = self.handlers.get_mut(event) else { return Flow::Continue(()) };
        for feed in &mut handler.feeds {
            feed.sample(record);
        }
        for callback in &handler.functions {
            let py = self.attached.py;
            // SAFETY: the GIL is held. The record outlives the call. `after_callback` is called after the call, with
            // the GIL still held.
            let result = unsafe {
                let object = handler.slot.show(handler.class, record);
                if object.is_null() {
                    ptr::null_mut()
                } else {
                    // The element before the arguments is unused. CPython may store the `self` of a bound method in it
                    // (PY_VECTORCALL_ARGUMENTS_OFFSET).
                    let args = [ptr::null_mut(), object];
                    let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
                    let function = callback.function.as_ptr();
                    let result = ffi::PyObject_Vectorcall(function, args.as_ptr().add(1), count, ptr::null_mut());
                    handler.slot.after_callback();
                    result
                }
            };
            if result.is_null() {
                let error = PyErr::fetch(py);
                self.attached.handle(Err(error), &callback.name)?;
                continue;
            }
            forked::leave_if_child(py, || 0);
            // SAFETY: the call returned a new reference, which is released here.
            unsafe { ffi::Py_DECREF(result) };
        }
        Flow::Continue(())
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        let callback = self.attached.callbacks.lost.as_ref();
        self.attached.call(callback, |py| [start, end].map(|time| number(py, time)).into())
    }

    fn interval(&mut self) -> Flow {
        self.attached.call(self.attached.callbacks.interval.as_ref(), |_| Vec::new())
    }

    fn print_stat(&mut self, indent: u32) -> Flow {
        self.attached.call(self.attached.callbacks.print_stat.as_ref(), |py| vec![number(py, indent.into())])
    }

    fn kept_events(&mut self) -> usize {
        kept_events()
    }

    fn flush(&mut self) -> Flow {
        self.attached.flush()
    }

    fn exit(&mut self) -> Flow {
        self.attached.exit(self.attached.callbacks.exit.as_ref())
    }
}

/// A program whose functions get the fields of events, as in `perf script`, while the GIL is held.
struct AttachedPerfScript<'a, 'py> {
    attached: Attached<'a, 'py>,
    handlers: &'a mut perf_script::Handlers,
}

impl Deliver for AttachedPerfScript<'_, '_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        match self.handlers.sample(self.attached.py, event, record) {
            Ok(()) => {
                forked::leave_if_child(self.attached.py, || 0);
                Flow::Continue(())
            }
            Err(Raised { function, error }) => self.attached.handle(Err(error), &function),
        }
    }

    fn other_record(&mut self, record: &[u8], _time: u64) -> Flow {
        match self.handlers.other_record(self.attached.py, record) {
            Ok(()) => {
                forked::leave_if_child(self.attached.py, || 0);
                Flow::Continue(())
            }
            Err(Raised { function, error }) => self.attached.handle(Err(error), &function),
        }
    }

    fn flush(&mut self) -> Flow {
        self.attached.flush()
    }

    fn exit(&mut self) -> Flow {
        // `trace_end` is looked up at the end of the run, because a script can define its functions at any time.
        let end = self.handlers.trace_end(self.attached.py);
        self.attached.exit(end.as_ref())
    }
}

fn number(py: Python<'_>, number: u64) -> Py<PyAny> {
    match number.into_pyobject(py) {
        Ok(object) => object.into_any().unbind(),
        Err(never) => match never {},
    }
}

/// Flushes the script's stdout and stderr.
pub fn flush(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    for name in ["stdout", "stderr"] {
        let stream = sys.getattr(name)?;
        if !stream.is_none() {
            stream.call_method0("flush")?;
        }
    }
    Ok(())
}

/// Remembers the errno if the output could not be written, for example because the disk is full.
fn note_write_error(py: Python<'_>, error: &PyErr) {
    let errno = || error.value(py).getattr("errno")?.extract::<i32>();
    if error.is_instance_of::<PyOSError>(py)
        && let Ok(errno) = errno()
    {
        output::note_write_error(&io::Error::from_raw_os_error(errno));
    }
}

/// Prints the path of the loaded file to stderr, unless `quiet` is true. If PERF_PROF_COMPAT is set, prints the path to
/// stdout instead, as the C implementation does.
pub fn announce(path: &str, quiet: bool) {
    let line = format!("{}{path}", parallel::LOADED);
    if compat::is_on() {
        output::print_line(&line);
    } else if !quiet {
        output::write_line(&line);
    }
}
