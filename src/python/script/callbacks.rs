//! The callbacks of the user's module: the functions that perf-prof calls. They are looked up once, after the import of
//! the module.

use perf_prof_events::event::EventType;
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{aggregate::is_aggregator, error::ScriptError, merge::MergeCallbacks};

/// A callable object of the module, and its name.
pub struct Callback {
    /// The callable object.
    pub function: Py<PyAny>,
    /// The name of the object in the module, for messages.
    pub name: String,
}

/// What gets the samples of an event. A sample goes to the aggregators first, then to the functions.
pub struct EventHandler {
    /// The name of the handler in the module, for messages.
    pub name: String,
    /// The aggregators. They get samples, but no event objects.
    pub aggregators: Vec<Py<PyAny>>,
    /// The functions, which are called with an event object.
    pub functions: Vec<Callback>,
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
    /// The handler of each selected event: the object that is named after the event. If there is no such object,
    /// `__sample__`; `None` if there is no `__sample__` either.
    pub handlers: Vec<Option<EventHandler>>,
}

impl Callbacks {
    /// Looks up the callbacks in the dict of a module. `path` is the file of the module. Fails if there is no callback,
    /// or if a callback is a generator or an async function.
    pub fn find(dict: &Bound<'_, PyDict>, path: &str, events: &[EventType]) -> Result<Callbacks, ScriptError> {
        let found = Callbacks::find_any(dict, path, events)?;
        if found.is_empty() {
            return Err(ScriptError::NoCallback { module: path.into(), expected: expected(events) });
        }
        Ok(found)
    }

    /// Like [`Callbacks::find`], but does not fail if there is no callback.
    pub fn find_any(dict: &Bound<'_, PyDict>, path: &str, events: &[EventType]) -> Result<Callbacks, ScriptError> {
        let find = |name: &str| callback(dict, name, path);
        let mut handlers = Vec::with_capacity(events.len());
        let handler = |name: &str| handler(dict, name, path);
        let sample = handler("__sample__")?;
        for event in events {
            let own = match (handler(&event.handler_name())?, event.plain_handler_name()) {
                (None, Some(plain)) => handler(&plain)?,
                (own, _) => own,
            };
            handlers.push(own.or_else(|| sample.as_ref().map(|handler| handler.share(dict.py()))));
        }
        Ok(Callbacks {
            init: find("__init__")?,
            exit: find("__exit__")?,
            interval: find("__interval__")?,
            print_stat: find("__print_stat__")?,
            lost: find("__lost__")?,
            parts: find("__partial__")?
                .zip(find("__merge__")?)
                .map(|(partial, merge)| MergeCallbacks { partial, merge }),
            handlers,
        })
    }

    /// Returns the names of all callbacks that an object other than a module can have. `__init__` is not among them,
    /// because Python itself calls this method when it creates the object.
    pub fn names(events: &[EventType]) -> Vec<String> {
        let of_events = events.iter().flat_map(|event| [Some(event.handler_name()), event.plain_handler_name()]);
        let others = ["__sample__", "__interval__", "__lost__", "__exit__", "__partial__", "__merge__"];
        let others = others.map(str::to_owned);
        of_events.flatten().chain(others).collect()
    }

    /// Returns the names of all callbacks that a module can have.
    pub fn names_in_modules(events: &[EventType]) -> Vec<String> {
        let more = ["__init__", "__print_stat__"].map(str::to_owned);
        Callbacks::names(events).into_iter().chain(more).collect()
    }

    /// Looks up the callbacks that a script of `perf script` needs at the start of a run. All other functions are
    /// looked up at each call.
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

    /// Returns true if at least one event has a handler, and all handlers are aggregators.
    pub fn has_only_aggregators(&self) -> bool {
        let mut handlers = self.handlers.iter().flatten().peekable();
        handlers.peek().is_some() && handlers.all(|handler| handler.functions.is_empty())
    }

    fn is_empty(&self) -> bool {
        let others = [&self.init, &self.exit, &self.interval, &self.print_stat, &self.lost];
        self.handlers.iter().all(Option::is_none) && others.into_iter().all(Option::is_none)
    }
}

impl EventHandler {
    fn share(&self, py: Python<'_>) -> EventHandler {
        EventHandler {
            name: self.name.clone(),
            aggregators: self.aggregators.iter().map(|aggregator| aggregator.clone_ref(py)).collect(),
            functions: self.functions.iter().map(|function| function.share(py)).collect(),
        }
    }
}

impl Callback {
    /// Returns another `Callback` for the same function.
    pub fn share(&self, py: Python<'_>) -> Callback {
        Callback { function: self.function.clone_ref(py), name: self.name.clone() }
    }
}

/// Returns the names in the module that look like the handler of a tracepoint (`sys__name`) or like another callback
/// (`__name__`).
pub fn callback_like_names(module: &Bound<'_, PyModule>) -> Vec<String> {
    let is_handler = |value: &Bound<'_, PyAny>| match several(value) {
        Some(items) => !items.is_empty() && items.iter().all(PyAnyMethods::is_callable),
        None => value.is_callable(),
    };
    let items = module.dict().iter().filter(|(_, value)| is_handler(value));
    let names = items.filter_map(|(name, _)| name.extract::<String>().ok());
    // These names are not callbacks. Every module has values such as `__loader__`, and Python itself calls the
    // functions `__getattr__` and `__dir__` (PEP 562).
    let of_python = ["__loader__", "__getattr__", "__dir__", "__build_class__", "__import__"];
    let is_python = |name: &str| of_python.contains(&name);
    names.filter(|name| name.contains("__") && !is_python(name)).collect()
}

/// Returns the items of a tuple or a list; `None` for other values.
fn several<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let of_list = || value.cast::<PyList>().map(|items| items.iter().collect());
    value.cast::<PyTuple>().map(|items| items.iter().collect()).or_else(|_| of_list()).ok()
}

/// Looks up the handler of an event: a function, an aggregator, or a tuple or list of both.
fn handler(dict: &Bound<'_, PyDict>, name: &str, path: &str) -> Result<Option<EventHandler>, ScriptError> {
    let Some(found) = dict.get_item(name).ok().flatten() else { return Ok(None) };
    let mut handler = EventHandler { name: name.to_owned(), aggregators: Vec::new(), functions: Vec::new() };
    if is_aggregator(&found) {
        handler.aggregators.push(found.unbind());
        return Ok(Some(handler));
    }
    let Some(items) = several(&found) else {
        handler.functions.extend(callback(dict, name, path)?);
        return Ok((!handler.functions.is_empty()).then_some(handler));
    };
    for (at, item) in items.into_iter().enumerate() {
        let name = format!("{name}[{at}]");
        if is_aggregator(&item) {
            handler.aggregators.push(item.unbind());
        } else if item.is_callable() {
            handler.functions.push(plain(item, &name, path)?);
        } else {
            let kind = item.get_type().name().map_or_else(|_| "object".to_owned(), |kind| kind.to_string());
            return Err(ScriptError::NoHandler { name, kind });
        }
    }
    let is_empty = handler.aggregators.is_empty() && handler.functions.is_empty();
    Ok((!is_empty).then_some(handler))
}

/// Looks up a callback in the module's own dict. Inherited attributes are ignored, because every module object inherits
/// an `__init__` that the user did not write.
fn callback(dict: &Bound<'_, PyDict>, name: &str, path: &str) -> Result<Option<Callback>, ScriptError> {
    let found = dict.get_item(name).ok().flatten();
    found.filter(|found| found.is_callable()).map(|function| plain(function, name, path)).transpose()
}

/// Returns a callable object as a callback. Fails if the object is a generator or an async function.
fn plain(function: Bound<'_, PyAny>, name: &str, path: &str) -> Result<Callback, ScriptError> {
    if let Some(what) = not_plain(&function) {
        let line = function.getattr("__code__").and_then(|code| code.getattr("co_firstlineno")?.extract::<u32>());
        let place = line.map_or_else(|_| path.to_owned(), |line| format!("{path}:{line}"));
        return Err(ScriptError::BodyNeverRuns { name: name.into(), what, place });
    }
    Ok(Callback { function: function.unbind(), name: name.into() })
}

/// Returns `a generator` or `an async function` if a call would not run the body of the function; otherwise `None`.
fn not_plain(function: &Bound<'_, PyAny>) -> Option<&'static str> {
    // The flags of the code object are read directly, because importing `inspect` takes as long as starting Python.
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

/// Returns the names of the handlers that the selected events can have, as text for a message.
fn expected(events: &[EventType]) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<String> =
        events.iter().take(NAMED).map(|event| format!("{}(event)", event.handler_name())).collect();
    if events.len() > NAMED {
        names.push("...".into());
    }
    names.join(", ")
}
