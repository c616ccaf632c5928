//! Exceptions of callbacks: prints the traceback of each exception once, counts them, and decides whether they end the
//! run.

use std::{collections::HashMap, fmt};

use pyo3::{
    exceptions::{PyBrokenPipeError, PyKeyboardInterrupt, PyOSError, PySystemExit},
    ffi,
    prelude::*,
};

use perf_prof_events::event::{Flow, Stop};
use perf_prof_system::{output, signals};

use super::interpreter::is_host;

/// What a KeyboardInterrupt means if no signal caused it, because the script itself raised it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnInterrupt {
    /// The script wants to end the run.
    #[default]
    EndsRun,
    /// The run fails as python3 would fail: with a traceback, and the exit status of SIGINT.
    Fails,
}

/// What a failed callback does to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The traceback is printed, and the run continues.
    #[default]
    Continue,
    /// The first failure ends the run.
    Stop,
    /// The first failure ends the run, and the program that started the run gets the exception.
    Raise,
}

/// Identifies a failure: the type of the exception and the innermost frame of its traceback. If the callback could not
/// be called, there is no traceback; `file` is then the name of the callback, and `line` is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailureKey {
    exception: String,
    file: String,
    line: u32,
}

/// Counts the exceptions of all callbacks of a run.
#[derive(Debug, Default)]
pub struct Failures {
    on_error: OnError,
    own_interrupt: OwnInterrupt,
    counts: HashMap<FailureKey, u64>,
    /// The exception that ended the run. Always `None` without [`OnError::Raise`].
    raised: Option<PyErr>,
    /// True if the reader of the output has closed the pipe. In this case, nothing more is printed.
    silent: bool,
}

impl Failures {
    /// Returns an object without failures.
    pub fn new(on_error: OnError, own_interrupt: OwnInterrupt) -> Self {
        Self { on_error, own_interrupt, ..Self::default() }
    }

    /// Returns whether no callback has failed. An exception that only ends the run, such as SystemExit, is not a
    /// failure.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Takes the exception that ended the run. Returns `None` without [`OnError::Raise`].
    pub fn take_raised(&mut self) -> Option<PyErr> {
        self.raised.take()
    }

    /// Handles the exception that `callback` raised. Prints or counts it, and returns whether the run continues.
    pub fn handle(&mut self, py: Python<'_>, error: &PyErr, callback: &str) -> Flow {
        if self.on_error == OnError::Raise {
            self.raised.get_or_insert_with(|| error.clone_ref(py));
            return Flow::Break(Stop::Failed);
        }
        if error.is_instance_of::<PySystemExit>(py) {
            return Flow::Break(Stop::Exit(exit_status(py, error)));
        }
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            if self.own_interrupt == OwnInterrupt::Fails && signals::end_requests() == 0 {
                print_traceback(py, error);
                return Flow::Break(Stop::Exit(128 + libc::SIGINT as u8));
            }
            return Flow::Break(Stop::Interrupted);
        }
        // If the reader of stdout or stderr has closed the pipe, the run ends silently. All other BrokenPipeErrors are
        // ordinary errors: in a library, all of them, because stdout belongs to the program; in a script, those that
        // come from sockets of the script.
        if error.is_instance_of::<PyBrokenPipeError>(py) && is_host() && output::reader_is_gone() {
            if !self.silent {
                self.silent = true;
                output::discard();
            }
            return Flow::Break(Stop::ClosedPipe);
        }
        if let Some(error) = output_error(py, error) {
            // perf-prof reports this error once, at the end of the run.
            output::note_write_error(&error);
            return match self.on_error {
                OnError::Continue => Flow::Continue(()),
                OnError::Stop | OnError::Raise => Flow::Break(Stop::Failed),
            };
        }
        let key = FailureKey::from_error(py, error, callback);
        let count = self.counts.entry(key.clone()).or_default();
        *count += 1;
        match *count {
            1 => print_traceback(py, error),
            2 => output::say(format_args!("{callback}: {key} again; from now on, this exception is only counted")),
            _ => {}
        }
        match self.on_error {
            OnError::Continue => Flow::Continue(()),
            OnError::Stop | OnError::Raise => Flow::Break(Stop::Failed),
        }
    }

    /// Prints how often each failure occurred, if it occurred more than once.
    pub fn print_totals(&self) {
        let mut beyond: Vec<_> = self.counts.iter().filter(|&(_, &count)| count > 1).collect();
        beyond.sort_by_key(|&(key, count)| (std::cmp::Reverse(*count), key.file.clone(), key.line));
        for (key, count) in beyond {
            output::say(format_args!("{key}: {count} times in total"));
        }
    }
}

/// Returns the system's error if the exception says that stdout cannot be written because the disk is full.
pub(super) fn output_error(py: Python<'_>, error: &PyErr) -> Option<std::io::Error> {
    if !is_host() || !error.is_instance_of::<PyOSError>(py) {
        return None;
    }
    let errno: Option<i32> = error.value(py).getattr("errno").and_then(|errno| errno.extract()).ok();
    output::full_stdout().filter(|full| full.raw_os_error() == errno)
}

/// Drops the text in Python's buffer of stdout that cannot be written. Otherwise Python would report a failed write
/// when the interpreter ends.
pub fn discard_unwritable_output() {
    if output::write_error().is_some() && output::full_stdout().is_some() {
        output::discard_stdout();
    }
}

impl FailureKey {
    fn from_error(py: Python<'_>, error: &PyErr, callback: &str) -> FailureKey {
        let exception = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let innermost = || -> PyResult<(String, u32)> {
            let mut at = error.traceback(py).map(Bound::into_any).ok_or_else(|| error.clone_ref(py))?;
            loop {
                let next = at.getattr("tb_next")?;
                if next.is_none() {
                    break;
                }
                at = next;
            }
            let file = at.getattr("tb_frame")?.getattr("f_code")?.getattr("co_filename")?.extract()?;
            Ok((file, at.getattr("tb_lineno")?.extract()?))
        };
        let (file, line) = innermost().unwrap_or_else(|_| (callback.to_owned(), 0));
        FailureKey { exception, file, line }
    }
}

impl fmt::Display for FailureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailureKey { exception, file, line } = self;
        match line {
            0 => write!(f, "{exception} in the call of {file}()"),
            _ => write!(f, "{exception} at {file}:{line}"),
        }
    }
}

/// Prints an exception through `sys.excepthook`, as Python prints an uncaught exception.
pub fn print_traceback(py: Python<'_>, error: &PyErr) {
    // `PyErr_PrintEx` ends the process if the exception is a SystemExit. The callers handle SystemExit themselves, so
    // it is never passed here.
    error.clone_ref(py).restore(py);
    // SAFETY: the GIL is held (`py`) and an exception is set. The argument 0 means that `sys.last_value` is not set:
    // the exception in it would keep the event alive.
    unsafe { ffi::PyErr_PrintEx(0) }
}

/// Returns the exit status of a SystemExit. If the exit code is not a number, prints it and returns 1, as Python does.
pub fn exit_status(py: Python<'_>, error: &PyErr) -> u8 {
    let Ok(code) = error.value(py).getattr("code") else { return 1 };
    if code.is_none() {
        return 0;
    }
    match code.extract::<i64>() {
        // The kernel keeps only eight bits of an exit status.
        Ok(number) => number as u8,
        Err(_) => {
            if let Ok(text) = code.str() {
                // Python prints the text to `sys.stderr`, which the program may have replaced.
                let stderr = py.import("sys").and_then(|sys| sys.getattr("stderr")).ok().filter(|to| !to.is_none());
                let line = format!("{}\n", text.to_string_lossy());
                // If this fails, the text cannot be shown anywhere.
                let _ = stderr.map(|to| to.call_method1("write", (line,)).map(drop));
            }
            1
        }
    }
}
