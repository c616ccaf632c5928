//! The handlers of a script of `perf script`: chooses the function in `__main__` that gets a sample, and calls it.

use perf_prof_session::spine::About;
use std::sync::Arc;

use perf_prof_events::event::{EventType, Sample};
use pyo3::{prelude::*, types::PyDict};

use super::{
    super::{callbacks::Callback, error::ScriptError},
    Options,
    arguments::{Arguments, ArgumentsOf, EventArguments},
    context::SampleContext,
    db_export::{self, Export},
    definitions::Definitions,
    function::{BindError, Function, Known},
    parameters,
    passing::{Passing, Value},
    records::RecordFunctions,
};

/// The handlers of a script.
pub struct Handlers {
    run: Arc<About>,
    /// The dict of `__main__`.
    main: Py<PyDict>,
    events: Vec<EventHandler>,
    /// `trace_unhandled`, for tracepoints that have no function of their own.
    unhandled: Function,
    /// `process_event`, for events other than tracepoints.
    process: Function,
    definitions: Definitions,
    /// The database export, which gets the samples of events other than tracepoints; `None` if the script does not
    /// request it.
    export: Option<Box<Export>>,
    records: RecordFunctions,
    arguments: Arguments,
    context: Py<SampleContext>,
}

// SAFETY: the pointers to Python objects in `Found` and `KeptDict` are only used with the GIL held.
unsafe impl Send for Handlers {}

/// An event, and the function that handles it.
pub struct EventHandler {
    kind: Kind,
    function: Function,
    pub arguments: EventArguments,
}

/// The kind of an event. It determines which function handles the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A tracepoint. The function that is named after the tracepoint handles it, or `trace_unhandled` if there is no
    /// such function.
    Tracepoint,
    /// Another event. `process_event` handles it.
    Other,
}

/// The exception that a function of the script raised.
pub struct Raised {
    /// The name of the function.
    pub function: String,
    /// The exception.
    pub error: PyErr,
}

impl Handlers {
    /// Creates the handlers. Fails if the script has a handler that cannot be called with the values of its event.
    pub fn new(
        py: Python<'_>,
        main: &Bound<'_, PyDict>,
        run: &Arc<About>,
        options: Options,
    ) -> Result<Handlers, ScriptError> {
        let mut handlers =
            Handlers::prepare(py, main, run, options).map_err(|error| ScriptError::Start(error.to_string()))?;
        handlers.check_functions(main)?;
        for event in &mut handlers.events {
            if event.kind == Kind::Tracepoint
                && let Some(function) = event.function.look_up(main)
            {
                event.bind(&function)?;
            }
        }
        let unhandled = &mut handlers.unhandled;
        if let Some(function) = unhandled.look_up(main) {
            unhandled.bind(&function, String::new, Passing::to_unhandled)?;
        }
        Ok(handlers)
    }

    /// Fails if a global of the script is named like a handler and is not a function.
    fn check_functions(&self, main: &Bound<'_, PyDict>) -> Result<(), ScriptError> {
        let own = self.events.iter().filter(|event| event.kind == Kind::Tracepoint).map(|event| &event.function);
        let named =
            own.chain([&self.unhandled, &self.process]).map(|function| function.name.bind(main.py()).to_string());
        for name in named.chain(["trace_begin", "trace_end"].map(str::to_owned)) {
            if let Some(value) = main.get_item(&name).ok().flatten()
                && !value.is_callable()
            {
                let kind = value.get_type().name().map(|kind| kind.to_string()).unwrap_or_default();
                return Err(ScriptError::NoFunction { name, kind });
            }
        }
        Ok(())
    }

    fn prepare(py: Python<'_>, main: &Bound<'_, PyDict>, run: &Arc<About>, options: Options) -> PyResult<Handlers> {
        let event = |event: &EventType| {
            let kind = if event.format.tracepoint().is_some() { Kind::Tracepoint } else { Kind::Other };
            let arguments = EventArguments::new(py, event, options)?;
            Ok(EventHandler { kind, function: Function::new(py, &event.handler_name()), arguments })
        };
        let events = run.events.iter().map(event).collect::<PyResult<Vec<_>>>()?;
        let arguments = Arguments::new(py, run, &events)?;
        let handlers = Handlers {
            run: run.clone(),
            main: main.clone().unbind(),
            events,
            unhandled: Function::new(py, "trace_unhandled"),
            process: Function::new(py, "process_event"),
            definitions: Definitions::new(&run.events),
            export: None,
            records: RecordFunctions::new(py, run),
            context: arguments.context.clone_ref(py),
            arguments,
        };
        for place in [main, &py.import("perf_trace_context")?.dict()] {
            place.set_item("perf_script_context", &handlers.context)?;
        }
        Ok(handlers)
    }

    /// Fails if the script has functions for tracepoints, but none of them is for an event of this run. `names`
    /// contains the names of these functions.
    pub fn check_handles_an_event(&self, py: Python<'_>, script: &str, names: &[String]) -> Result<(), ScriptError> {
        let main = self.main.bind(py);
        let has_other = self.records.is_any_defined(main);
        let is_of_counts = |name: &String| name.starts_with("stat__");
        if names.is_empty() || has_other || names.iter().any(is_of_counts) || self.has_functions(py) {
            return Ok(());
        }
        let events: Vec<String> = self.run.events.iter().map(|event| event.real_name()).collect();
        Err(ScriptError::NoEvents { module: script.to_owned(), functions: names.join(", "), events: events.join(", ") })
    }

    /// Returns whether the script has a function for at least one event.
    pub fn has_functions(&self, py: Python<'_>) -> bool {
        let main = self.main.bind(py);
        let is_defined = |function: &Function| function.look_up(main).is_some();
        self.events.iter().any(|event| match event.kind {
            Kind::Tracepoint => is_defined(&event.function) || is_defined(&self.unhandled),
            Kind::Other => is_defined(&self.process) || db_export::is_requested(main),
        })
    }

    /// Starts the database export if the script requests it. Must be called after `trace_begin`, where scripts request
    /// it.
    pub fn begin(&mut self, py: Python<'_>) -> Result<(), Raised> {
        let main = self.main.bind(py);
        if db_export::is_requested(main) {
            self.export = Some(Box::new(Export::new(main, &self.run)?));
        }
        Ok(())
    }

    /// Returns the function for the end of the run; `None` if the script does not define the function.
    pub fn trace_end(&self, py: Python<'_>) -> Option<Callback> {
        let name = "trace_end";
        let function = parameters::callable(self.main.bind(py), name)?;
        Some(Callback { function: function.unbind(), name: name.to_owned() })
    }

    /// Calls the function for a record that is not a sample, if the script defines this function.
    pub fn other_record(&mut self, py: Python<'_>, record: &[u8]) -> Result<(), Raised> {
        match &mut self.export {
            Some(export) if db_export::exports(record) => export.record(py, record),
            _ => self.records.record(self.main.bind(py), &self.run, record),
        }
    }

    /// Calls the function that handles a sample, if the script defines this function.
    #[inline]
    pub fn sample(&mut self, py: Python<'_>, event: usize, record: &[u8]) -> Result<(), Raised> {
        let main = self.main.bind(py);
        self.definitions.before(main, event, &self.run.events[event], &*self.run.context.kernel)?;
        let sample = Sample { event: &self.run.events[event], record };
        let handler = &mut self.events[event];
        if let Some(export) = &mut self.export {
            match handler.kind {
                Kind::Tracepoint => export.note_task(&sample),
                Kind::Other => return export.sample(py, event, &sample),
            }
        }
        let own = if handler.kind == Kind::Tracepoint { handler.function.find(main) } else { Known::Missing };
        let function = match own {
            Known::Bound => &mut handler.function,
            Known::Other(object) => {
                handler.bind(&object).map_err(|error| Raised::new(py, &handler.function, error.into()))?;
                &mut handler.function
            }
            Known::Missing => {
                let function = if handler.kind == Kind::Tracepoint { &mut self.unhandled } else { &mut self.process };
                match function.find(main) {
                    Known::Bound => {}
                    Known::Missing => return Ok(()),
                    Known::Other(object) => {
                        let bound = function.bind(&object, String::new, |parameters| match handler.kind {
                            Kind::Tracepoint => Passing::to_unhandled(parameters),
                            // `process_event` must have exactly one parameter. Otherwise, Python raises an exception at
                            // the call.
                            Kind::Other => Ok(Passing { positional: vec![Value::Sample], named: Vec::new() }),
                        });
                        bound.map_err(|error| Raised::new(py, function, error.into()))?;
                    }
                }
                function
            }
        };
        let context = self.context.get();
        // SAFETY: the GIL is held now and at `clear` below. The sample lives until `clear` has returned.
        unsafe { context.set(&sample) };
        let of = ArgumentsOf { at: event, event: &handler.arguments, sample: &sample, raw: sample.raw() };
        let arguments = &mut self.arguments;
        let result = match function.found() {
            Some(found) => found.call(py, |made| arguments.make(py, made, of)),
            None => Ok(()),
        };
        context.clear();
        result.map_err(|error| Raised::new(py, function, error))
    }
}

impl EventHandler {
    /// Determines which values the function of the event gets.
    #[inline]
    fn bind(&mut self, function: &Bound<'_, PyAny>) -> Result<(), BindError> {
        let names = || self.arguments.field_names().map(str::to_owned).collect::<Vec<_>>();
        self.function.bind(function, || names().join(", "), |parameters| Passing::to(parameters, &names()))
    }
}

impl Raised {
    /// Adds the name of `function` to the exception that it raised.
    #[cold]
    pub fn new(py: Python<'_>, function: &Function, error: PyErr) -> Raised {
        Raised { function: function.name.bind(py).to_string(), error }
    }
}
