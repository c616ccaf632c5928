//! What can go wrong between a script's name and its callbacks.

use std::path::PathBuf;

/// Why the script could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// No interpreter is where one was said to be.
    #[error(
        "{because}: no usable Python at '{}'; name an interpreter or the folder of a virtual environment", path.display()
    )]
    NoPython {
        /// The place.
        path: PathBuf,
        /// Who said so.
        because: &'static str,
    },
    /// An interpreter of another minor version than the linked libpython.
    #[error(
        "{because}: '{}' is Python {theirs}, but perf-prof is linked with Python {ours}: use a Python {ours} environment, \
         or build perf-prof for the other one (PYO3_PYTHON=/path/to/python{theirs} cargo build --release)", path.display()
    )]
    OtherVersion {
        /// The place.
        path: PathBuf,
        /// Who asked for it.
        because: &'static str,
        /// Its version.
        theirs: String,
        /// The linked version.
        ours: &'static str,
    },
    /// CPython did not start.
    #[error("Python did not start: {0}")]
    Start(String),
    /// The script's file is not there.
    #[error("cannot load '{module}': {cause}")]
    NotFound {
        /// As typed.
        module: String,
        /// Why.
        cause: String,
    },
    /// The script raised while it was imported; the traceback has been printed.
    #[error("cannot load '{module}': it raised {exception} (see above)")]
    Raised {
        /// As typed.
        module: String,
        /// The exception's type.
        exception: String,
    },
    /// The script ended the program while it was imported (`sys.exit`, argparse).
    #[error("the script ended with status {0}")]
    Exited(u8),
    /// A callback that can never do anything.
    #[error("{place}: {name}() is {what}, its body would never run: make it a plain function")]
    NotPlain {
        /// The callback.
        name: String,
        /// `an async function`, `a generator`.
        what: &'static str,
        /// File and line.
        place: String,
    },
    /// A script without callbacks.
    #[error(
        "{module}: no callback for the selected events: define {expected} or __sample__(event) \
         (`perf-prof python -e ... help` prints a template)"
    )]
    NoCallback {
        /// The script.
        module: String,
        /// The names of handlers that would be called.
        expected: String,
    },
    /// A recording without an event that the script needs.
    #[error("{module} needs {events}, which {recording} does not have; this records what it needs: {command}")]
    Lacks {
        /// The script.
        module: String,
        /// The events' names.
        events: String,
        /// The recording's name.
        recording: String,
        /// A command line that records what the script needs.
        command: String,
    },
    /// A `__without__` that cannot be understood.
    #[error("{0}: __without__ has to be a dict: an event's name, and what the result lacks without it (or None)")]
    Without(String),
    /// A script that cannot be run by several processes.
    #[error(
        "--jobs runs the script in several processes, each on a part of the recording: for one result it needs __partial__(), \
         which returns the result of a part, and __merge__(partials), which puts them together; without them, leave --jobs out"
    )]
    NoParts,
    /// What a part returned cannot be handed to another process.
    #[error("what __partial__() returned cannot be handed on ({0}); return dicts, lists, numbers and strings")]
    Pickle(String),
    /// One of the two raised; the traceback has been printed.
    #[error("{0}() failed")]
    Part(&'static str),
    /// `__init__` raised; the traceback has been printed.
    #[error("__init__() failed")]
    Init,
}
