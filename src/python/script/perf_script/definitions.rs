//! Calls the script's functions `define_*` before the first sample of an event. These functions get the names of flags
//! and values from the event's print format. Scripts import them from the module Core, which stores the names for
//! `flag_str` and `symbol_str`.

use std::collections::HashSet;

use perf_prof_events::event::EventType;
use perf_prof_format::{
    tracefs::{Defined, Definition, EventFormat, Kernel},
    value::Value,
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{super::event::text, Raised, parameters};

/// Remembers for which events the functions `define_*` have been called.
pub struct Definitions {
    /// For each event: true until its first sample arrives, but always false for an event that is not a tracepoint.
    pending: Vec<bool>,
    /// The ids of the tracepoints whose names have been passed. Two events of a recording may be the same tracepoint.
    defined: HashSet<u32>,
    /// The last field of the last print format. As in perf, this field stays valid at the start of the next print
    /// format.
    field: Option<String>,
}

impl Definitions {
    /// Prepares the definitions of these events.
    pub fn new(events: &[EventType]) -> Definitions {
        let pending = events.iter().map(|event| event.format.tracepoint().is_some()).collect();
        Definitions { pending, defined: HashSet::new(), field: None }
    }

    /// Calls the functions for the event with the index `at`, if this is the first sample of the event.
    #[inline]
    pub fn before(
        &mut self,
        main: &Bound<'_, PyDict>,
        at: usize,
        event: &EventType,
        kernel: &dyn Kernel,
    ) -> Result<(), Raised> {
        if !self.pending[at] {
            return Ok(());
        }
        self.pending[at] = false;
        match event.format.tracepoint() {
            Some(format) if self.defined.insert(format.id) => self.define(main, event, format, kernel),
            _ => Ok(()),
        }
    }

    #[cold]
    fn define(
        &mut self,
        main: &Bound<'_, PyDict>,
        event: &EventType,
        format: &EventFormat,
        kernel: &dyn Kernel,
    ) -> Result<(), Raised> {
        let name = event.handler_name();
        for definition in format.definitions(kernel, &mut self.field) {
            let function = function_of(&definition.defined);
            let Some(found) = parameters::callable(main, function) else { continue };
            let arguments = arguments(main.py(), &name, &definition);
            let result = arguments.and_then(|arguments| found.call1(arguments));
            result.map_err(|error| Raised { function: function.to_owned(), error })?;
        }
        Ok(())
    }
}

fn function_of(defined: &Defined) -> &'static str {
    match defined {
        Defined::Flags { .. } => "define_flag_field",
        Defined::Flag { .. } => "define_flag_value",
        Defined::Symbols => "define_symbolic_field",
        Defined::Symbol { .. } => "define_symbolic_value",
    }
}

fn arguments<'py>(py: Python<'py>, event: &str, definition: &Definition) -> PyResult<Bound<'py, PyTuple>> {
    let field = definition.field.as_str();
    match &definition.defined {
        Defined::Flags { delimiter } => (event, field, text(py, delimiter)?).into_pyobject(py),
        Defined::Symbols => (event, field).into_pyobject(py),
        Defined::Flag { value, name } | Defined::Symbol { value, name } => {
            let name = text(py, name)?;
            match value {
                Value::Int(value) => (event, field, *value, name).into_pyobject(py),
                Value::Uint(value) => (event, field, *value, name).into_pyobject(py),
                Value::Bool(_) | Value::Str(_) | Value::Bytes(_) | Value::Words(_) => {
                    (event, field, 0, name).into_pyobject(py)
                }
            }
        }
    }
}
