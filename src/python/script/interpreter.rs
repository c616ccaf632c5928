//! Starts and ends CPython, and releases the GIL while the run loop waits.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use perf_prof_system::{fork_lock, output, signals};
use pyo3::{ffi, prelude::*};

use super::{
    choice::{self, ChoiceSource, PythonChoice},
    error::ScriptError,
    host, package,
    perf_script::perf_trace_context,
    running,
};

/// The interpreter that runs a script. A process creates this object only once, in Python's main thread.
pub struct Interpreter {
    end: End,
}

/// How the interpreter ends.
enum End {
    /// perf-prof has started the interpreter, so perf-prof ends it.
    Finalize { main_thread: *mut ffi::PyThreadState },
    /// The interpreter ran before perf-prof, so it continues.
    GoOn,
}

impl Interpreter {
    /// Starts CPython with the settings of `choice`, and releases the GIL. If CPython runs already, prepares it for
    /// scripts.
    pub fn start(choice: &PythonChoice) -> Result<Interpreter, ScriptError> {
        HOST.store(true, Relaxed);
        fork_lock::watch_forks();
        let error = |error: PyErr| ScriptError::Start(error.to_string());
        if choice.source == ChoiceSource::Running {
            Python::attach(|py| running::prepare(py).and_then(|()| configure_streams_and_packages(py, choice)))
                .map_err(error)?;
            return Ok(Interpreter { end: End::GoOn });
        }
        package::register_native()?;
        running::note_embedded();
        pyo3::append_to_inittab!(perf_trace_context);
        signals::stop_ignoring_interrupt();
        // SAFETY: CPython does not run yet. Only CPython uses the config, which is cleared in all cases.
        unsafe {
            let mut config = std::mem::zeroed::<ffi::PyConfig>();
            ffi::PyConfig_InitPythonConfig(&mut config);
            let started = configure(&mut config, choice).and_then(|()| check(ffi::Py_InitializeFromConfig(&config)));
            ffi::PyConfig_Clear(&mut config);
            started?;
        }
        Python::attach(|py| package::install(py).and_then(|()| configure_streams_and_packages(py, choice)))
            .map_err(error)?;
        // SAFETY: this thread has just initialised CPython and holds the GIL.
        Ok(Interpreter { end: End::Finalize { main_thread: unsafe { ffi::PyEval_SaveThread() } } })
    }

    /// Ends CPython: joins the script's threads, runs the `atexit` functions, and flushes stdout and stderr. If CPython
    /// ran before perf-prof, does the same without ending CPython. Returns 0, or another number if a flush failed.
    pub fn finish(self) -> c_int {
        output::before_messages(None);
        match self.end {
            // SAFETY: this is the thread that released the GIL in `start`, and Python is not used afterwards.
            End::Finalize { main_thread } => unsafe {
                ffi::PyEval_RestoreThread(main_thread);
                ffi::Py_FinalizeEx()
            },
            End::GoOn => Python::attach(running::end_script),
        }
    }
}

/// Sets up the config: standard streams, executable and home.
///
/// # Safety
/// `config` has been initialised.
unsafe fn configure(config: &mut ffi::PyConfig, choice: &PythonChoice) -> Result<(), ScriptError> {
    config.parse_argv = 0;
    // Without its own signal handlers, CPython would ignore `PyErr_SetInterrupt`, which perf-prof calls at the second
    // Ctrl-C.
    config.install_signal_handlers = 1;
    // Python must write no `__pycache__`: the script's folder belongs to the user, and a tool run as root must leave no
    // files there.
    config.write_bytecode = 0;
    let set = |place: *mut *mut libc::wchar_t, text: &[u8], config: *mut ffi::PyConfig| {
        let text = CString::new(text).map_err(|_| ScriptError::Start("a path contains a NUL byte".into()))?;
        // SAFETY: `place` is a string member of `config`, and the text ends with a NUL.
        check(unsafe { ffi::PyConfig_SetBytesString(config, place, text.as_ptr()) })
    };
    let this: *mut ffi::PyConfig = config;
    // The streams use UTF-8 with surrogateescape in every locale: a comm may contain any bytes, and printing it must
    // not raise an exception.
    set(&mut config.stdio_encoding, b"utf-8", this)?;
    set(&mut config.stdio_errors, b"surrogateescape", this)?;
    set(&mut config.executable, choice.executable.as_os_str().as_bytes(), this)?;
    // Packages may come from another Python. But the standard library must belong to the linked libpython, even in the
    // patch level: a module may be compiled into libpython in one build and be a separate file in another. `site` still
    // finds a venv through the path of the executable.
    let home = std::env::var_os("PYTHONHOME").is_none() && Path::new(choice::BUILD_PREFIX).is_dir();
    if home {
        set(&mut config.home, choice::BUILD_PREFIX.as_bytes(), this)?;
    }
    Ok(())
}

fn check(status: ffi::PyStatus) -> Result<(), ScriptError> {
    // SAFETY: the status came from CPython; its message is a static string.
    unsafe {
        if ffi::PyStatus_Exception(status) == 0 {
            return Ok(());
        }
        let text: *const c_char = status.err_msg;
        let text = if text.is_null() { "unknown error".into() } else { CStr::from_ptr(text).to_string_lossy() };
        Err(ScriptError::Start(text.into_owned()))
    }
}

/// Makes stderr flush stdout before each write, so that lines keep their order if both streams go to the same file.
/// Also flushes stdout before a fork: otherwise the child would write its copy of the buffered lines again.
const STREAMS: &CStr = c"
import io, os, sys

class Stderr(io.FileIO):
    def write(self, data):
        try:
            sys.__stdout__.flush()
        except (OSError, ValueError):
            pass
        return super().write(data)

def collect(is_one_file):
    os.register_at_fork(before=lambda: sys.__stdout__.closed or sys.__stdout__.flush())
    if is_one_file and sys.stderr is not None:
        errors = sys.stderr.errors
        raw = io.BufferedWriter(Stderr(2, 'w', closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding='utf-8', errors=errors, line_buffering=True)
        sys.stderr.mode = 'w'
        sys.__stderr__ = sys.stderr
";

/// Sets up buffering and package folders, which is simpler in Python than with `PyConfig`.
///
/// On a terminal, stdout writes each line at once. For files and pipes, stdout buffers lines: see [`flush_collected`].
fn configure_streams_and_packages(py: Python<'_>, choice: &PythonChoice) -> PyResult<()> {
    let sys = py.import("sys")?;
    for name in ["stdout", "stderr"] {
        // The stream is None if its descriptor is closed, for example after `python3 >&-`.
        let stream = sys.getattr(name)?;
        if stream.is_none() {
            continue;
        }
        // With PYTHONUNBUFFERED, each piece of text is written at once.
        let is_unbuffered = stream.getattr("write_through")?.is_truthy()?;
        let is_terminal = stream.call_method0("isatty")?.is_truthy()?;
        let options = pyo3::types::PyDict::new(py);
        options.set_item("line_buffering", is_terminal || name == "stderr")?;
        stream.call_method("reconfigure", (), Some(&options))?;
        if name == "stdout" && !is_terminal && !is_unbuffered {
            COLLECTS.store(true, Relaxed);
        }
    }
    if collects_output() {
        let module = PyModule::from_code(py, STREAMS, c"perf-prof", c"perf_prof_streams")?;
        module.getattr("collect")?.call1((output::are_the_same(),))?;
        output::before_messages(Some(flush_collected));
    }
    if !choice.packages.is_empty() {
        let site = py.import("site")?;
        for dir in &choice.packages {
            site.call_method1("addsitedir", (dir.as_os_str(),))?;
        }
    }
    Ok(())
}

/// True if this process is perf-prof, and not a program that uses perf-prof as a library.
static HOST: AtomicBool = AtomicBool::new(false);

/// Returns whether this process is perf-prof, and not a program that uses perf-prof as a library.
pub fn is_host() -> bool {
    HOST.load(Relaxed)
}

/// True if stdout buffers lines.
static COLLECTS: AtomicBool = AtomicBool::new(false);

/// Returns whether stdout buffers lines instead of writing each line at once.
pub fn collects_output() -> bool {
    COLLECTS.load(Relaxed)
}

/// Writes the lines that stdout has buffered.
fn flush_collected() {
    // If this fails, the next write of the script fails too, and reports the error.
    let _ = Python::attach(host::flush);
}

/// Raises KeyboardInterrupt in the script. The signal handler calls this function at the second Ctrl-C. A signal
/// handler may call `PyErr_SetInterrupt`, because CPython documents it as async-signal-safe.
pub extern "C" fn interrupt() {
    // SAFETY: may be called at any time, from a signal handler, and without the GIL.
    unsafe { ffi::PyErr_SetInterrupt() }
}

/// Returns the version of the linked libpython, for example `3.11.7`.
pub fn version() -> String {
    // SAFETY: returns a static string, even before CPython is started.
    let text = unsafe { CStr::from_ptr(ffi::Py_GetVersion()) }.to_string_lossy();
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Describes the libpython in use, its version, the standard library and the chosen Python. Used by `-V -v` and the
/// doctor.
pub fn description(choice: &PythonChoice) -> String {
    let version = version();
    let library = libpython().unwrap_or_else(|| "linked statically".into());
    let because = match choice.source {
        ChoiceSource::Build => String::new(),
        ChoiceSource::Named(name) => format!(" (from {name})"),
        ChoiceSource::Running => " (runs perf-prof)".to_owned(),
    };
    let standard_library = match choice.source {
        ChoiceSource::Running => running::base_prefix(),
        _ if Path::new(choice::BUILD_PREFIX).is_dir() => choice::BUILD_PREFIX.to_owned(),
        _ => "found by CPython itself".to_owned(),
    };
    let python = choice.executable.display();
    format!("libpython: {library}\nversion:   {version}\nstdlib:    {standard_library}\npython:    {python}{because}")
}

/// Returns the file that contains CPython's code.
pub fn libpython() -> Option<String> {
    // SAFETY: if dladdr returns nonzero, it has filled the struct for this address of the process. The name lives as
    // long as the library, which is never unloaded.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        let address = ffi::Py_GetVersion as *const () as *const libc::c_void;
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}
