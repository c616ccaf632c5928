//! The functions of the user's module that are called, looked up once after the import.

use pyo3::{prelude::*, types::PyDict};

use super::{error::ScriptError, parts::Parts};
use crate::event::EventType;

/// A callable of the module and the name that it was found under.
pub struct Callback {
    /// The function.
    pub function: Py<PyAny>,
    /// Its name, for messages.
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
    /// `__partial__()` and `__merge__(partials)`, if both are there.
    pub parts: Option<Parts>,
    /// Per event type, its own handler or `__sample__`.
    pub handlers: Vec<Option<Callback>>,
}

impl Callbacks {
    /// Looks the callbacks up. A module without any is an error, one with unreachable code too.
    pub fn find(module: &Bound<'_, PyModule>, path: &str, events: &[EventType]) -> Result<Callbacks, ScriptError> {
        let dict = module.dict();
        let find = |name: &str| callback(&dict, name, path);
        let mut handlers = Vec::with_capacity(events.len());
        let sample = find("__sample__")?;
        for event in events {
            let own = match (find(&event.handler_name())?, event.plain_handler_name()) {
                (None, Some(plain)) => find(&plain)?,
                (own, _) => own,
            };
            handlers.push(own.or_else(|| sample.as_ref().map(|callback| callback.share(module.py()))));
        }
        let found = Callbacks {
            init: find("__init__")?,
            exit: find("__exit__")?,
            interval: find("__interval__")?,
            print_stat: find("__print_stat__")?,
            lost: find("__lost__")?,
            parts: find("__partial__")?.zip(find("__merge__")?).map(|(partial, merge)| Parts { partial, merge }),
            handlers,
        };
        if found.is_empty() {
            return Err(ScriptError::NoCallback { module: path.into(), expected: expected(events) });
        }
        Ok(found)
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

/// Names of functions in the module that are callable and could be a tracepoint's handler, `sys__name`.
pub fn handler_like_names(module: &Bound<'_, PyModule>) -> Vec<String> {
    let items = module.dict().iter();
    let callable = items.filter(|(_, value)| value.is_callable());
    let names = callable.filter_map(|(name, _)| name.extract::<String>().ok());
    names.filter(|name| !name.starts_with("__") && name.contains("__")).collect()
}

/// Only what stands in the module itself counts: every module object has an `__init__` that is not the user's.
fn callback(dict: &Bound<'_, PyDict>, name: &str, path: &str) -> Result<Option<Callback>, ScriptError> {
    let found = dict.get_item(name).ok().flatten();
    let Some(function) = found.filter(|found| found.is_callable()) else { return Ok(None) };
    if let Some(what) = not_plain(&function) {
        let line = function.getattr("__code__").and_then(|code| code.getattr("co_firstlineno")?.extract::<u32>());
        let place = line.map_or_else(|_| path.to_owned(), |line| format!("{path}:{line}"));
        return Err(ScriptError::NotPlain { name: name.into(), what, place });
    }
    Ok(Some(Callback { function: function.unbind(), name: name.into() }))
}

/// What kind of function it is when calling it would not run its body.
fn not_plain(function: &Bound<'_, PyAny>) -> Option<&'static str> {
    // Not through the module `inspect`: importing it costs as much as starting Python.
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

/// The handlers that the selected events would call, for a message.
fn expected(events: &[EventType]) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<String> = events.iter().take(NAMED).map(|e| format!("{}(event)", e.handler_name())).collect();
    if events.len() > NAMED {
        names.push("...".into());
    }
    names.join(", ")
}
