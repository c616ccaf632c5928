//! The callbacks of the user's module: the functions that perf-prof calls. They are looked up once, after the import.

use perf_prof_core::event::EventType;
use pyo3::{prelude::*, types::PyDict};

use super::{error::ScriptError, merge::MergeCallbacks};

/// A callable object of the module, with its name.
pub struct Callback {
    /// The callable object.
    pub function: Py<PyAny>,
    /// The name of the object in the module, for messages.
    pub name: String,
}

/// All callbacks of a module.
#[derive(Default)]
pub struct Callbacks {
    /// `__init__()`.
    pub init: Option<Callback>,
    /// `__exit__()`.
    pub exit: Option<Callback>,
    /// `__interval__()`.
    pub interval: Option<Callback>,
    /// `__print_stat__(indent)`.
    pub print_stat: Option<Callback>,
    /// `__lost__(lost_start, lost_end)`.
    pub lost: Option<Callback>,
    /// `__partial__()` and `__merge__(partials)`, if the module defines both.
    pub parts: Option<MergeCallbacks>,
    /// The handler of each selected event: the function that is named after the event, else `__sample__`, else `None`.
    pub handlers: Vec<Option<Callback>>,
}

impl Callbacks {
    /// Looks up the callbacks in a module's dict. `path` is the module's file. Fails if there is no callback, or if a
    /// callback is a generator or an async function.
    pub fn find(dict: &Bound<'_, PyDict>, path: &str, events: &[EventType]) -> Result<Callbacks, ScriptError> {
        let find = |name: &str| callback(dict, name, path);
        let mut handlers = Vec::with_capacity(events.len());
        let sample = find("__sample__")?;
        for event in events {
            let own = match (find(&event.handler_name())?, event.plain_handler_name()) {
                (None, Some(plain)) => find(&plain)?,
                (own, _) => own,
            };
            handlers.push(own.or_else(|| sample.as_ref().map(|callback| callback.share(dict.py()))));
        }
        let found = Callbacks {
            init: find("__init__")?,
            exit: find("__exit__")?,
            interval: find("__interval__")?,
            print_stat: find("__print_stat__")?,
            lost: find("__lost__")?,
            parts: find("__partial__")?
                .zip(find("__merge__")?)
                .map(|(partial, merge)| MergeCallbacks { partial, merge }),
            handlers,
        };
        if found.is_empty() {
            return Err(ScriptError::NoCallback { module: path.into(), expected: expected(events) });
        }
        Ok(found)
    }

    /// Returns the names of all callbacks that objects other than modules can have. They have no `__init__` for the start
    /// of a run: Python calls a method of this name when it creates an object.
    pub fn names(events: &[EventType]) -> Vec<String> {
        let of_events = events.iter().flat_map(|event| [Some(event.handler_name()), event.plain_handler_name()]);
        let others = ["__sample__", "__interval__", "__lost__", "__exit__", "__partial__", "__merge__"];
        let others = others.map(str::to_owned);
        of_events.flatten().chain(others).collect()
    }

    /// Looks up the callbacks of a script of `perf script`, except for those that are looked up when they are needed.
    pub fn of_perf_script(module: &Bound<'_, PyModule>, path: &str) -> Result<Callbacks, ScriptError> {
        let dict = module.dict();
        let find = |name: &str| callback(&dict, name, path);
        Ok(Callbacks {
            init: find("trace_begin")?,
            parts: find("__partial__")?
                .zip(find("__merge__")?)
                .map(|(partial, merge)| MergeCallbacks { partial, merge }),
            ..Callbacks::default()
        })
    }

    fn is_empty(&self) -> bool {
        let others = [&self.init, &self.exit, &self.interval, &self.print_stat, &self.lost];
        self.handlers.iter().chain(others).all(Option::is_none)
    }
}

impl Callback {
    fn share(&self, py: Python<'_>) -> Callback {
        Callback { function: self.function.clone_ref(py), name: self.name.clone() }
    }
}

/// Returns the names of the module's callables that look like a tracepoint's handler: `sys__name`.
pub fn handler_like_names(module: &Bound<'_, PyModule>) -> Vec<String> {
    let items = module.dict().iter();
    let callable = items.filter(|(_, value)| value.is_callable());
    let names = callable.filter_map(|(name, _)| name.extract::<String>().ok());
    names.filter(|name| !name.starts_with("__") && name.contains("__")).collect()
}

/// Looks up one callback in the module's own dict. Inherited attributes of the module object are ignored: every module
/// object inherits an `__init__` that the user did not write.
fn callback(dict: &Bound<'_, PyDict>, name: &str, path: &str) -> Result<Option<Callback>, ScriptError> {
    let found = dict.get_item(name).ok().flatten();
    let Some(function) = found.filter(|found| found.is_callable()) else { return Ok(None) };
    if let Some(what) = not_plain(&function) {
        let line = function.getattr("__code__").and_then(|code| code.getattr("co_firstlineno")?.extract::<u32>());
        let place = line.map_or_else(|_| path.to_owned(), |line| format!("{path}:{line}"));
        return Err(ScriptError::BodyNeverRuns { name: name.into(), what, place });
    }
    Ok(Some(Callback { function: function.unbind(), name: name.into() }))
}

/// Returns the kind of function if a call would not run the function's body, else `None`.
fn not_plain(function: &Bound<'_, PyAny>) -> Option<&'static str> {
    // The flags of the code object are read here because importing `inspect` takes as long as starting Python.
    const CO_GENERATOR: u32 = 0x20;
    const CO_COROUTINE: u32 = 0x80;
    const CO_ITERABLE_COROUTINE: u32 = 0x100;
    const CO_ASYNC_GENERATOR: u32 = 0x200;
    let flags = |of: &Bound<'_, PyAny>| of.getattr("__code__")?.getattr("co_flags")?.extract::<u32>();
    let flags = flags(function).or_else(|_| flags(&function.getattr("__call__")?)).ok()?;
    if flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR) != 0 {
        Some("an async function")
    } else if flags & CO_GENERATOR != 0 {
        Some("a generator")
    } else {
        None
    }
}

/// Returns, as text for a message, the handlers that would be called for the selected events.
fn expected(events: &[EventType]) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<String> = events.iter().take(NAMED).map(|e| format!("{}(event)", e.handler_name())).collect();
    if events.len() > NAMED {
        names.push("...".into());
    }
    names.join(", ")
}
