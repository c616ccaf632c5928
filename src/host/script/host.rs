//! The script host: loads the user's module, binds its callbacks to the selected events and calls them.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io, ptr,
    sync::Arc,
};

use perf_prof_core::{
    engine::exit_status,
    event::{Deliver, EventType, Flow, Sink},
    parallel,
    sys::{compat, output},
};
use pyo3::{
    exceptions::{PyBrokenPipeError, PyOSError},
    ffi,
    prelude::*,
};

use super::{
    callbacks::{Callback, Callbacks, handler_like_names},
    error::ScriptError,
    event::{Class, EventSlot, kept_events, register_class},
    failure::{Failures, OnError, exit_status},
    forked, interpreter,
    loader::{self, Loaded},
    module::{self, Run},
};

/// The user's module, after its import.
pub struct Module {
    pub(super) loaded: Loaded,
}

impl Module {
    /// Imports the module. `args` become the rest of `sys.argv`.
    pub fn load(module: &OsStr, args: &[OsString]) -> Result<Module, ScriptError> {
        forked::install_fork_hook();
        Python::attach(|py| {
            let loaded = loader::load(py, module, args);
            forked::leave_if_child(py, || match &loaded {
                Ok(_) => 0,
                Err(ScriptError::Exited(status)) => *status,
                Err(_) => 1,
            });
            Ok(Module { loaded: loaded? })
        })
    }

    /// Returns the module's file.
    pub fn path(&self) -> &str {
        &self.loaded.path
    }

    /// Returns the names of the module's functions that look like a tracepoint's handler.
    pub fn handler_like_names(&self) -> Vec<String> {
        Python::attach(|py| handler_like_names(self.loaded.module.bind(py)))
    }

    /// Looks up the callbacks and creates the Python classes of the events.
    pub fn bind(self, run: Arc<Run>, on_error: OnError) -> Result<Program, ScriptError> {
        let Module { loaded } = self;
        Python::attach(|py| {
            let callbacks = Callbacks::find(loaded.module.bind(py), &loaded.path, &run.events)?;
            let handlers = handlers(py, &callbacks.handlers, &run).map_err(|e| ScriptError::Start(e.to_string()))?;
            module::set_run(run);
            Ok(Program { callbacks, handlers, failures: Failures::new(on_error), module: loaded })
        })
    }
}

/// The user's functions, bound to the selected events.
pub struct Program {
    pub(super) callbacks: Callbacks,
    handlers: Vec<Option<Handler>>,
    pub(super) failures: Failures,
    /// Keeps the module alive. A script may delete itself from `sys.modules`, but the script's functions still need the
    /// module's globals.
    pub(super) module: Loaded,
}

/// The handler of an event type, the Python class of the event type, and the object that is passed to the handler.
struct Handler {
    callback: Callback,
    class: &'static Class,
    slot: EventSlot,
}

fn handlers(py: Python<'_>, found: &[Option<Callback>], run: &Arc<Run>) -> PyResult<Vec<Option<Handler>>> {
    // An event that is selected twice has one class.
    let mut classes: HashMap<(String, String), &'static Class> = HashMap::new();
    let handler = |(callback, event): (&Option<Callback>, &EventType)| {
        callback.as_ref().map(|callback| {
            let names = (event.real_name(), event.shown_name());
            let class = match classes.get(&names) {
                Some(class) if class.event.layout == event.layout => class,
                _ => Class::new(py, event.clone(), run.context.clone())?,
            };
            classes.insert(names, class);
            register_class(class);
            let callback = Callback { function: callback.function.clone_ref(py), name: callback.name.clone() };
            Ok(Handler { callback, class, slot: EventSlot::new() })
        })
    };
    found.iter().zip(&run.events).map(handler).map(Option::transpose).collect()
}

impl Program {
    /// Calls `__init__()`.
    pub fn init(&mut self) -> Result<(), ScriptError> {
        let Some(init) = &self.callbacks.init else { return Ok(()) };
        Python::attach(|py| {
            let result = init.function.call0(py);
            forked::leave_if_child(py, || forked::status(py, result.as_ref().err()));
            match result {
                Ok(_) => Ok(()),
                Err(error) if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) => {
                    Err(ScriptError::Exited(exit_status(py, &error)))
                }
                Err(error) => {
                    super::failure::print_traceback(py, &error);
                    Err(ScriptError::Init)
                }
            }
        })
    }

    /// Returns whether at least one event has a handler.
    pub fn has_handlers(&self) -> bool {
        self.handlers.iter().any(Option::is_some)
    }

    /// Returns whether the module has `__interval__`.
    pub fn has_interval(&self) -> bool {
        self.callbacks.interval.is_some()
    }

    /// Returns whether a callback has raised an exception.
    pub fn callbacks(&self) -> exit_status::Callbacks {
        if self.failures.is_empty() { exit_status::Callbacks::Returned } else { exit_status::Callbacks::Raised }
    }

    /// Releases all Python objects, before the interpreter ends.
    pub fn clear(mut self) {
        Python::attach(|_| {
            for handler in self.handlers.iter_mut().flatten() {
                // SAFETY: this thread is attached, so the GIL is held.
                unsafe { handler.slot.clear() };
            }
            module::clear_run();
            drop(self);
        });
    }
}

impl Sink for Program {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        Python::attach(|py| body(&mut AttachedProgram { py, program: self }));
    }

    fn collects_output(&self) -> bool {
        interpreter::collects_output()
    }
}

/// The program while the GIL is held.
struct AttachedProgram<'a, 'py> {
    py: Python<'py>,
    program: &'a mut Program,
}

impl AttachedProgram<'_, '_> {
    fn call(
        &mut self,
        which: fn(&Callbacks) -> &Option<Callback>,
        args: impl Fn(Python<'_>) -> Vec<Py<PyAny>>,
    ) -> Flow {
        let py = self.py;
        let Some(callback) = which(&self.program.callbacks) else { return Flow::Continue(()) };
        let args = pyo3::types::PyTuple::new(py, args(py));
        let result = args.and_then(|args| callback.function.call1(py, args));
        forked::leave_if_child(py, || forked::status(py, result.as_ref().err()));
        match result {
            Ok(_) => Flow::Continue(()),
            Err(error) => {
                let name = callback.name.clone();
                self.program.failures.handle(py, &error, &name)
            }
        }
    }
}

impl Deliver for AttachedProgram<'_, '_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(Some(handler)) = self.program.handlers.get_mut(event) else { return Flow::Continue(()) };
        // SAFETY: the GIL is held. The record outlives the call. `after_callback` is called after the call, with the
        // GIL still held.
        let result = unsafe {
            let object = handler.slot.show(handler.class, record);
            if object.is_null() {
                ptr::null_mut()
            } else {
                // The free element before the arguments is for the `self` of a bound method
                // (PY_VECTORCALL_ARGUMENTS_OFFSET).
                let args = [ptr::null_mut(), object];
                let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
                let function = handler.callback.function.as_ptr();
                let result = ffi::PyObject_Vectorcall(function, args.as_ptr().add(1), count, ptr::null_mut());
                handler.slot.after_callback();
                result
            }
        };
        if result.is_null() {
            let error = PyErr::fetch(self.py);
            forked::leave_if_child(self.py, || forked::status(self.py, Some(&error)));
            return self.program.failures.handle(self.py, &error, &handler.callback.name);
        }
        forked::leave_if_child(self.py, || 0);
        // SAFETY: the call returned a new reference, which is released here.
        unsafe { ffi::Py_DECREF(result) };
        Flow::Continue(())
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.call(|callbacks| &callbacks.lost, |py| [start, end].map(|time| number(py, time)).into())
    }

    fn interval(&mut self) -> Flow {
        self.call(|callbacks| &callbacks.interval, |_| Vec::new())
    }

    fn print_stat(&mut self, indent: u32) -> Flow {
        self.call(|callbacks| &callbacks.print_stat, |py| vec![number(py, indent.into())])
    }

    fn kept_events(&self) -> usize {
        kept_events()
    }

    fn flush(&mut self) -> Flow {
        match flush(self.py) {
            Err(error) if error.is_instance_of::<PyBrokenPipeError>(self.py) => {
                self.program.failures.handle(self.py, &error, "print")
            }
            // A full disk, for example. Python keeps the text and tries again, the last time at the end of the run.
            Err(error) => {
                note_write_error(self.py, &error);
                Flow::Continue(())
            }
            Ok(()) => Flow::Continue(()),
        }
    }

    fn exit(&mut self) -> Flow {
        // A pending interrupt is discarded here. It arrived while no callback was running, and must not end `__exit__`
        // before it has started.
        if let Err(error) = self.py.check_signals() {
            drop(error);
        }
        let flow = self.call(|callbacks| &callbacks.exit, |_| Vec::new());
        self.program.failures.print_totals();
        match flush(self.py) {
            Ok(()) => flow,
            Err(error) if output::reader_is_gone() => {
                drop(error);
                output::discard();
                flow
            }
            // The script itself may have closed stdout. That is not an error.
            Err(error) => {
                note_write_error(self.py, &error);
                flow
            }
        }
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

/// Remembers the error if the system could not write the output, for example because the disk is full.
fn note_write_error(py: Python<'_>, error: &PyErr) {
    let errno = || error.value(py).getattr("errno")?.extract::<i32>();
    if error.is_instance_of::<PyOSError>(py)
        && let Ok(errno) = errno()
    {
        output::note_write_error(&io::Error::from_raw_os_error(errno));
    }
}

/// Prints the path of the loaded file to stderr, unless `quiet`. If PERF_PROF_COMPAT is set, prints it to stdout
/// instead, as the C implementation does.
pub fn announce(path: &str, quiet: bool) {
    let line = format!("{}{path}", parallel::LOADED);
    if compat::is_on() {
        output::print_line(&line);
    } else if !quiet {
        output::write_line(&line);
    }
}
