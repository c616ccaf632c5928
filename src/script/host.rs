//! The script host: where events meet the user's functions.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    ptr,
    sync::Arc,
};

use pyo3::{ffi, prelude::*};

use super::{
    callbacks::{Callback, Callbacks, handler_like_names},
    choice::variable_is_on,
    error::ScriptError,
    event::{Class, EventSlot, kept, remember},
    failure::{Failures, OnError, exit_status},
    forked,
    loader::{self, Loaded},
    module::{self, Run},
};
use crate::{
    event::{Deliver, EventType, Flow, Sink},
    sys::output,
};

/// The user's module, imported.
pub struct Module {
    pub(super) loaded: Loaded,
}

impl Module {
    /// Imports it.
    pub fn load(module: &OsStr, args: &[OsString]) -> Result<Module, ScriptError> {
        forked::watch();
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

    /// Its file.
    pub fn path(&self) -> &str {
        &self.loaded.path
    }

    /// Names of its functions that look like a tracepoint's handler.
    pub fn handler_like_names(&self) -> Vec<String> {
        Python::attach(|py| handler_like_names(self.loaded.module.bind(py)))
    }

    /// Looks the callbacks up and makes the events' classes.
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

/// The user's functions, bound to events.
pub struct Program {
    pub(super) callbacks: Callbacks,
    handlers: Vec<Option<Handler>>,
    pub(super) failures: Failures,
    /// A script may delete its module from `sys.modules`; its functions need their globals all the same.
    pub(super) module: Loaded,
}

/// An event type's handler, its class and the object that it is shown.
struct Handler {
    callback: Callback,
    class: &'static Class,
    slot: EventSlot,
}

fn handlers(py: Python<'_>, found: &[Option<Callback>], run: &Arc<Run>) -> PyResult<Vec<Option<Handler>>> {
    // The same event selected twice is of one class.
    let mut classes: HashMap<(String, String), &'static Class> = HashMap::new();
    let handler = |(callback, event): (&Option<Callback>, &EventType)| {
        callback.as_ref().map(|callback| {
            let names = (event.real_name(), event.shown_name());
            let class = match classes.get(&names) {
                Some(class) if class.event.layout == event.layout => class,
                _ => Class::new(py, event.clone(), run.context.clone())?,
            };
            classes.insert(names, class);
            remember(class);
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

    /// Whether some event has a handler.
    pub fn has_handlers(&self) -> bool {
        self.handlers.iter().any(Option::is_some)
    }

    /// Whether `__interval__` is there.
    pub fn has_interval(&self) -> bool {
        self.callbacks.interval.is_some()
    }

    /// Lets go of every Python object before the interpreter ends.
    pub fn clear(mut self) {
        Python::attach(|_| {
            for handler in self.handlers.iter_mut().flatten() {
                // SAFETY: attached, so the lock is held.
                unsafe { handler.slot.clear() };
            }
            module::clear_run();
            drop(self);
        });
    }
}

impl Sink for Program {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        Python::attach(|py| body(&mut Entered { py, program: self }));
    }
}

/// The program while the interpreter's lock is held.
struct Entered<'a, 'py> {
    py: Python<'py>,
    program: &'a mut Program,
}

impl Entered<'_, '_> {
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
                self.program.failures.take(py, &error, &name)
            }
        }
    }
}

impl Deliver for Entered<'_, '_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(Some(handler)) = self.program.handlers.get_mut(event) else { return Flow::Continue(()) };
        // SAFETY: the lock is held; the record outlives the call, and `settle` follows it without giving up the lock.
        let result = unsafe {
            let object = handler.slot.show(handler.class, record);
            if object.is_null() {
                ptr::null_mut()
            } else {
                // The free place in front lets a bound method put its `self` there (PY_VECTORCALL_ARGUMENTS_OFFSET).
                let args = [ptr::null_mut(), object];
                let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
                let function = handler.callback.function.as_ptr();
                let result = ffi::PyObject_Vectorcall(function, args.as_ptr().add(1), count, ptr::null_mut());
                handler.slot.settle();
                result
            }
        };
        if result.is_null() {
            let error = PyErr::fetch(self.py);
            forked::leave_if_child(self.py, || forked::status(self.py, Some(&error)));
            return self.program.failures.take(self.py, &error, &handler.callback.name);
        }
        forked::leave_if_child(self.py, || 0);
        // SAFETY: a new reference that the call returned.
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

    fn kept(&self) -> usize {
        kept()
    }

    fn exit(&mut self) -> Flow {
        // An interrupt that came while nothing ran must not end `__exit__` before it has begun.
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
            // A stdout that the script closed itself is its own affair.
            Err(_) => flow,
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

/// How the line begins that says which file was loaded.
pub const LOADED: &str = "Loaded module: ";

/// Says which file was loaded; where the C implementation says it when asked to.
pub fn announce(path: &str, quiet: bool) {
    let line = format!("{LOADED}{path}");
    if variable_is_on("PERF_PROF_COMPAT") {
        output::print_line(&line);
    } else if !quiet {
        output::write_line(&line);
    }
}
