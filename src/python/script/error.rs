//! The errors of choosing the Python, and of loading, binding and merging a script.

use std::path::{Path, PathBuf};

use perf_prof_events::{aggregate::PlanError, event::InterpreterFrameUse};
use pyo3::{PyErr, exceptions::PyTypeError};

use super::running;

/// Returns advice for an exception during the import, to be appended to a message.
fn way_out(exception: &str) -> String {
    match exception {
        "ModuleNotFoundError" => format!("; {}", running::way_to_packages()),
        _ => String::new(),
    }
}

/// Returns advice for a value of `--python` that is one of `--python-frames`, or that is the next option. Other commands call
/// that option `--python`.
fn other_option(value: &Path, because: &str) -> String {
    match value.to_str() {
        Some(word) if because == "--python" && InterpreterFrameUse::NAMES.contains(&word) => {
            format!("; for the frames of Python programs, write --python-frames={word}")
        }
        Some(word) if because == "--python" && word.starts_with('-') => {
            "; for the frames of Python programs, write --python-frames".into()
        }
        _ => String::new(),
    }
}

impl From<ScriptError> for PyErr {
    /// Returns the error as an exception. Used for a function that the script defined while it ran.
    fn from(error: ScriptError) -> PyErr {
        PyTypeError::new_err(error.to_string())
    }
}

/// Why the script could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// There is no usable interpreter at the given path.
    #[error(
        "{because}: no usable Python at '{}'; give the path of an interpreter or of a virtual environment{}",
        path.display(), other_option(path, because)
    )]
    NoPython {
        /// The path that was given.
        path: PathBuf,
        /// The option or variable that contains the path.
        because: &'static str,
    },
    /// The interpreter has another minor version than the linked libpython.
    #[error(
        "{because}: '{}' is Python {theirs}, but perf-prof is linked with Python {ours}: use a Python {ours} environment, \
         or build perf-prof for Python {theirs} \
         (PYO3_PYTHON=/path/to/python{theirs} cargo build --release)", path.display()
    )]
    OtherVersion {
        /// The path that was given.
        path: PathBuf,
        /// The option or variable that contains the path.
        because: &'static str,
        /// The version of the interpreter.
        theirs: String,
        /// The version of the linked libpython.
        ours: &'static str,
    },
    /// perf-prof is a package of an interpreter, and the user chose another interpreter.
    #[error(
        "--python: this perf-prof is installed for '{}' and runs scripts in it; leave --python out, or install perf-prof \
         for the other Python too, with its pip{}", executable.display(), other_option(asked, "--python")
    )]
    RunningPython {
        /// The path that was given.
        asked: PathBuf,
        /// The interpreter that perf-prof is a package of.
        executable: PathBuf,
    },
    /// CPython did not start.
    #[error("Python could not be started: {0}")]
    Start(String),
    /// The script's file or module was not found.
    #[error("cannot load '{module}': {cause}")]
    NotFound {
        /// The script as the user typed it.
        module: String,
        /// The cause.
        cause: String,
    },
    /// The import of the script raised an exception. The traceback has been printed.
    #[error("cannot load '{module}': it raised {exception} (see above){}", way_out(exception))]
    Raised {
        /// The script as the user typed it.
        module: String,
        /// The exception's type.
        exception: String,
    },
    /// The metrics of the script cannot be served.
    #[error("cannot serve metrics at {listen}: {cause}")]
    Serve {
        /// The address, as the user typed it.
        listen: String,
        /// The cause.
        cause: String,
    },
    /// The script ended the program during its import or in a callback, with `sys.exit` or through argparse.
    #[error("the script ended with status {0}")]
    Exited(u8),
    /// A callback is a generator or an async function, so a call would not run its body.
    #[error("{place}: {name}() is {what}, so a call would not run its body; make it a plain function")]
    BodyNeverRuns {
        /// The callback's name.
        name: String,
        /// `an async function` or `a generator`.
        what: &'static str,
        /// The file, and the line if it is known.
        place: String,
    },
    /// The script has no callback for the selected events.
    #[error(
        "{module}: no callback for the selected events: define {expected} or __sample__(event) \
         (`perf-prof python -e ... help` prints a template)"
    )]
    NoCallback {
        /// The script.
        module: String,
        /// The handlers that would be called for the selected events.
        expected: String,
    },
    /// The handler of a script of `perf script` cannot be called with the values of its event.
    #[error(
        "{place}: {name}() has {parameters} parameters, and its event has {values} values{}{}",
        if unknown.is_empty() { String::new() } else { format!("; no field has the name of {unknown}") },
        if fields.is_empty() { String::new() } else { format!("; the fields are {fields}") }
    )]
    Parameters {
        /// The file, and the line if it is known.
        place: String,
        /// The handler's name.
        name: String,
        /// The names of parameters that are not fields of the event.
        unknown: String,
        /// The number of parameters.
        parameters: usize,
        /// The number of values that are passed by position.
        values: usize,
        /// The names of the event's fields.
        fields: String,
    },
    /// The handler of a script of `perf script` computes its own signature, and the computation raised an exception.
    #[error("the parameters of {name}() are not known: {error}")]
    Signature {
        /// The handler's name.
        name: String,
        /// The exception as text, because the error is reported after the interpreter has ended.
        error: String,
    },
    /// The script has a value with the name of a handler, and the value is not a function.
    #[error("{name} has to be a function, but it is {kind}: define {name}(...), or give the value another name")]
    NoFunction {
        /// The name.
        name: String,
        /// The type of the value.
        kind: String,
    },
    /// A tuple or list that is named like a handler contains an item that cannot get events.
    #[error("{name} has to be a function or an aggregator, and it is {kind}")]
    NoHandler {
        /// The name of the handler, and the index of the item.
        name: String,
        /// The type of the item.
        kind: String,
    },
    /// An aggregator uses a name that its event does not have, or the aggregator cannot add up the event's values.
    #[error("{module}: {handler}: {error}")]
    Aggregator {
        /// The script.
        module: String,
        /// The name of the handler.
        handler: String,
        /// Why the aggregator cannot add the event.
        error: Box<PlanError>,
    },
    /// The recording has no event that the script handles.
    #[error(
        "{module} has no function for any event of this run; its functions: {functions}; events of this run: {events}"
    )]
    NoEvents {
        /// The script.
        module: String,
        /// The names of the script's functions.
        functions: String,
        /// The names of the events.
        events: String,
    },
    /// The recording does not contain an event that the script needs.
    #[error(
        "{module} needs {events}, which {recording} does not have; to record all events that {module} needs, run: \
         {command}"
    )]
    MissingEvents {
        /// The script.
        module: String,
        /// The names of the missing events.
        events: String,
        /// The name of the recording.
        recording: String,
        /// A command line that records all events that the script needs.
        command: String,
    },
    /// `__without__` is not a dict from event names to strings or `None`.
    #[error(
        "{0}: __without__ has to be a dict: each key is the name of an event, and its value is a string that says what \
         is missing in the result without this event, or None"
    )]
    Without(String),
    /// The script lacks `__partial__` or `__merge__`, so several processes cannot run it.
    #[error(
        "--jobs, --executor and map_reduce() run the script in several processes, each on a part of the recordings. To \
         get one result, the script has to define __partial__(), which returns the result of a part, and \
         __merge__(partials), which combines the results of all parts. Without these functions, only one process can \
         run the script. A script whose handlers are all aggregators does not need them. A script that \
         keeps its results in tables has both with perf_prof.Parts"
    )]
    NoParts,
    /// A script of `perf script` without `__partial__` and `__merge__` has more results than counts. The text says which.
    #[error(
        "--jobs runs the script in several processes, each on a part of the recording, and adds up what the script \
         counts. {0}. Define __partial__(), which returns the result of a part, and __merge__(partials), which combines \
         the results of all parts, or leave --jobs out"
    )]
    NotCounted(String),
    /// The result of `__partial__` cannot be pickled or unpickled.
    #[error(
        "the result of __partial__() cannot be sent to another process ({0}); return dicts, lists, numbers and strings"
    )]
    Pickle(String),
    /// The output of the script cannot be written.
    #[error("cannot write the output of the script: {0}")]
    Output(String),
    /// `__partial__` or `__merge__` raised an exception. The traceback has been printed.
    #[error("{0}() failed")]
    PartialOrMergeFailed(&'static str),
    /// `__init__` or `trace_begin` raised an exception. The traceback has been printed.
    #[error("{0}() failed")]
    Init(String),
}
