//! Prepares and cleans up an interpreter that ran before perf-prof, and has imported perf-prof as a package. For the
//! embedded interpreter, which perf-prof starts and ends, see `interpreter`.

use std::{
    borrow::Cow,
    ffi::c_int,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use pyo3::{ffi, prelude::*, types::PyDict, wrap_pymodule};

use super::perf_script::perf_trace_context;

/// True if perf-prof has started the embedded interpreter.
static IS_EMBEDDED: AtomicBool = AtomicBool::new(false);

/// Notes that perf-prof starts the embedded interpreter.
pub fn note_embedded() {
    IS_EMBEDDED.store(true, Relaxed);
}

/// Returns whether perf-prof is a package in an interpreter that runs already.
pub fn is_running() -> bool {
    // SAFETY: may be called at any time.
    !IS_EMBEDDED.load(Relaxed) && unsafe { ffi::Py_IsInitialized() } != 0
}

/// Returns `sys.executable` of the interpreter that has imported perf-prof as a package; `None` if there is no such
/// interpreter. In a program that embeds Python, the path is empty.
pub fn executable() -> Option<PathBuf> {
    let of = |py: Python<'_>| py.import("sys")?.getattr("executable")?.extract::<Option<PathBuf>>();
    is_running().then(|| Python::attach(of).ok().flatten().unwrap_or_default())
}

/// Returns the folder of the standard library.
pub fn base_prefix() -> String {
    let of = |py: Python<'_>| py.import("sys")?.getattr("base_prefix")?.extract();
    Python::attach(of).unwrap_or_default()
}

/// Returns where the user can install packages for scripts, for errors about missing modules.
pub fn way_to_packages() -> Cow<'static, str> {
    match executable() {
        None => "for the packages of a venv, use --python VENV".into(),
        Some(python) => format!("scripts use the packages of '{}'", python.display()).into(),
    }
}

/// Prepares the running interpreter for scripts. Afterwards, the running interpreter is in the state that the embedded
/// interpreter has after its start.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    // Sets the signal actions that Python itself sets at its start. If SIGINT was ignored at that time, Python has no
    // handler for SIGINT, and `PyErr_SetInterrupt` would have no effect.
    let signal = py.import("signal")?;
    for (name, action) in [("SIGINT", "default_int_handler"), ("SIGXFSZ", "SIG_IGN")] {
        signal.call_method1("signal", (signal.getattr(name)?, signal.getattr(action)?))?;
    }
    let sys = py.import("sys")?;
    // The script's folder belongs to the user, and a tool run as root must leave no files there.
    sys.setattr("dont_write_bytecode", true)?;
    sys.getattr("modules")?.set_item("perf_trace_context", wrap_pymodule!(perf_trace_context)(py))?;
    // The streams use UTF-8 with surrogateescape in every locale: a comm may contain any bytes, and printing it must
    // not raise an exception. stderr escapes all characters that it cannot encode.
    for (name, errors) in [("stdin", Some("surrogateescape")), ("stdout", Some("surrogateescape")), ("stderr", None)] {
        let stream = sys.getattr(name)?;
        // The stream is None if its descriptor is closed.
        if !stream.is_none() {
            let options = PyDict::new(py);
            options.set_item("encoding", "utf-8")?;
            options.set_item("errors", errors.unwrap_or("backslashreplace"))?;
            stream.call_method("reconfigure", (), Some(&options))?;
        }
    }
    Ok(())
}

/// Joins the threads that the script has started, runs the `atexit` functions, and flushes stdout and stderr, as at the
/// end of an interpreter. Must be called before the results of the run are reported. Returns 0, or another number if a
/// flush failed.
pub fn end_script(py: Python<'_>) -> c_int {
    // Python has no public function for this. CPython itself calls the first of these functions by its name
    // (`wait_for_thread_shutdown` in `Python/pylifecycle.c`). If one of the functions is missing, the interpreter does
    // the work of this function when the interpreter ends.
    let run = |module: &str, function: &str| match py.import(module)?.getattr_opt(function)? {
        Some(function) => function.call0().map(drop),
        None => Ok(()),
    };
    for (module, function) in [("threading", "_shutdown"), ("atexit", "_run_exitfuncs")] {
        if let Err(error) = run(module, function) {
            error.write_unraisable(py, None);
        }
    }
    let mut status = 0;
    for name in ["stdout", "stderr"] {
        if let Err(error) = flush(py, name) {
            error.write_unraisable(py, None);
            status = -1;
        }
    }
    status
}

fn flush(py: Python<'_>, name: &str) -> PyResult<()> {
    let sys = py.import("sys")?;
    // The script may have removed or closed the stream.
    let Some(stream) = sys.getattr_opt(name)?.filter(|stream| !stream.is_none()) else { return Ok(()) };
    if stream.getattr("closed").and_then(|closed| closed.is_truthy()).unwrap_or(false) {
        return Ok(());
    }
    let flushed = stream.call_method0("flush");
    if flushed.is_err() {
        // Otherwise Python would flush the stream again when the interpreter ends, fail again, and change the exit
        // status.
        sys.setattr(name, py.None())?;
    }
    flushed.map(drop)
}

/// Prepares a running interpreter for a fork of this process.
#[derive(Clone, Copy)]
pub struct Fork {
    /// The state of the GIL before `prepare`; `None` if no interpreter runs.
    gil: Option<ffi::PyGILState_STATE>,
}

impl Fork {
    /// Prepares the interpreter. Takes the GIL until `in_child` or `in_parent` returns. This thread must not hold the
    /// GIL already.
    pub fn prepare() -> Fork {
        // SAFETY: the interpreter runs, and the second call is made with the GIL.
        let lock = || unsafe {
            let gil = ffi::PyGILState_Ensure();
            ffi::PyOS_BeforeFork();
            gil
        };
        Fork { gil: is_running().then(lock) }
    }

    /// Must be called in the child only.
    pub fn in_child(self) {
        if let Some(gil) = self.gil {
            // SAFETY: this is a copy of the thread that `prepare` was called in, and holds the GIL.
            unsafe {
                ffi::PyOS_AfterFork_Child();
                ffi::PyGILState_Release(gil);
            }
        }
    }

    /// Must be called in the parent, even if the fork failed.
    pub fn in_parent(self) {
        if let Some(gil) = self.gil {
            // SAFETY: this thread has held the GIL since `prepare`.
            unsafe {
                ffi::PyOS_AfterFork_Parent();
                ffi::PyGILState_Release(gil);
            }
        }
    }
}
