//! CPython's start and end, and its lock while the run loop waits.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use pyo3::{ffi, prelude::*};

use super::{choice, choice::Choice, error::ScriptError, module};

/// The running interpreter. There is one in a process, started once; the thread that started it is its main thread.
pub struct Interpreter {
    main_thread: *mut ffi::PyThreadState,
}

impl Interpreter {
    /// Starts CPython as `choice` says and releases its lock.
    pub fn start(choice: &Choice) -> Result<Interpreter, ScriptError> {
        module::register();
        // SAFETY: CPython does not run yet; the config is cleared on every way out, and only handed to CPython.
        unsafe {
            let mut config = std::mem::zeroed::<ffi::PyConfig>();
            ffi::PyConfig_InitPythonConfig(&mut config);
            let started = configure(&mut config, choice).and_then(|()| check(ffi::Py_InitializeFromConfig(&config)));
            ffi::PyConfig_Clear(&mut config);
            started?;
        }
        Python::attach(|py| settle(py, choice)).map_err(|error| ScriptError::Start(error.to_string()))?;
        // SAFETY: this thread has just initialised CPython and holds its lock.
        Ok(Interpreter { main_thread: unsafe { ffi::PyEval_SaveThread() } })
    }

    /// Ends CPython: joins the script's threads, runs `atexit`, flushes. The status is not 0 when flushing failed.
    pub fn finish(self) -> c_int {
        // SAFETY: this is the thread that released the lock in `start`, and nothing of Python is used afterwards.
        unsafe {
            ffi::PyEval_RestoreThread(self.main_thread);
            ffi::Py_FinalizeEx()
        }
    }
}

/// # Safety
/// `config` has been initialised.
unsafe fn configure(config: &mut ffi::PyConfig, choice: &Choice) -> Result<(), ScriptError> {
    config.parse_argv = 0;
    // Only then does CPython know what to do when `PyErr_SetInterrupt` is called for the second Ctrl-C.
    config.install_signal_handlers = 1;
    // The script's folder is the user's; a tool that is run as root leaves no files in it.
    config.write_bytecode = 0;
    let set = |place: *mut *mut libc::wchar_t, text: &[u8], config: *mut ffi::PyConfig| {
        let text = CString::new(text).map_err(|_| ScriptError::Start("a path with a NUL byte".into()))?;
        // SAFETY: `place` is a string member of `config`, and the text ends with a NUL.
        check(unsafe { ffi::PyConfig_SetBytesString(config, place, text.as_ptr()) })
    };
    let this: *mut ffi::PyConfig = config;
    // Whatever the locale says: names of tasks are any bytes, and printing one must not raise.
    set(&mut config.stdio_encoding, b"utf-8", this)?;
    set(&mut config.stdio_errors, b"surrogateescape", this)?;
    set(&mut config.executable, choice.executable.as_os_str().as_bytes(), this)?;
    // The standard library must be that of the linked libpython, down to the patch level, wherever packages come
    // from: what one build has built in, another loads from files. `site` still finds a venv beside the executable.
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

/// What is simpler to say in Python than in its config.
fn settle(py: Python<'_>, choice: &Choice) -> PyResult<()> {
    let sys = py.import("sys")?;
    for name in ["stdout", "stderr"] {
        // Closed descriptors make these None, as for `python3 >&-`.
        let stream = sys.getattr(name)?;
        if !stream.is_none() {
            let options = pyo3::types::PyDict::new(py);
            options.set_item("line_buffering", true)?;
            stream.call_method("reconfigure", (), Some(&options))?;
        }
    }
    if !choice.packages.is_empty() {
        let site = py.import("site")?;
        for dir in &choice.packages {
            site.call_method1("addsitedir", (dir.as_os_str(),))?;
        }
    }
    Ok(())
}

/// Makes the second Ctrl-C raise KeyboardInterrupt. Async-signal-safe by its documentation.
pub extern "C" fn interrupt() {
    // SAFETY: callable at any time, without the lock, from a signal handler.
    unsafe { ffi::PyErr_SetInterrupt() }
}

/// The version of the linked libpython, `3.11.7`.
pub fn version() -> String {
    // SAFETY: a static string, also before CPython is started.
    let text = unsafe { CStr::from_ptr(ffi::Py_GetVersion()) }.to_string_lossy();
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// The libpython in use, its version and the prefix, for `-V -v` and the doctor.
pub fn description(choice: &Choice) -> String {
    let version = version();
    let library = libpython().unwrap_or_else(|| "linked statically".into());
    let because = choice.because.map(|who| format!(" (from {who})")).unwrap_or_default();
    format!(
        "libpython: {library}\nversion:   {version}\nstdlib:    {}\npython:    {}{because}",
        if Path::new(choice::BUILD_PREFIX).is_dir() { choice::BUILD_PREFIX } else { "found by CPython beside python" },
        choice.executable.display()
    )
}

/// The file that CPython's code was loaded from.
pub fn libpython() -> Option<String> {
    // SAFETY: dladdr fills the struct for an address of this process, and says so; the name lives as long as the
    // library, which is never unloaded.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        let address = ffi::Py_GetVersion as *const () as *const libc::c_void;
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}
