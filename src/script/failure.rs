//! What happens when a callback raises: the traceback is printed, but not without end; some exceptions end the run.

use std::collections::HashMap;

use pyo3::{
    exceptions::{PyBrokenPipeError, PyKeyboardInterrupt, PySystemExit},
    ffi,
    prelude::*,
};

use crate::{
    event::{Flow, Stop},
    sys::output,
};

/// How often the traceback of one place is printed.
const PRINTED: u64 = 10;

/// What a failed callback means for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Print the traceback and go on.
    #[default]
    Continue,
    /// The first failure ends the run.
    Stop,
}

/// Where a callback failed, and how: the exception's type and the innermost frame of its traceback.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    exception: String,
    file: String,
    line: u32,
}

/// All failures of a run's callbacks.
#[derive(Debug, Default)]
pub struct Failures {
    on_error: OnError,
    counts: HashMap<Place, u64>,
    /// The output's reader is gone; nothing more is printed.
    silent: bool,
}

impl Failures {
    /// No failures yet.
    pub fn new(on_error: OnError) -> Self {
        Self { on_error, ..Self::default() }
    }

    /// Deals with what `callback` raised.
    pub fn take(&mut self, py: Python<'_>, error: &PyErr, callback: &str) -> Flow {
        if error.is_instance_of::<PySystemExit>(py) {
            return Flow::Break(Stop::Exit(exit_status(py, error)));
        }
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return Flow::Break(Stop::Interrupted);
        }
        // Only a closed stdout or stderr is a quiet end. A script's own socket may break too, and that is an error.
        if error.is_instance_of::<PyBrokenPipeError>(py) && output::reader_is_gone() {
            if !self.silent {
                self.silent = true;
                output::discard();
            }
            return Flow::Break(Stop::ClosedPipe);
        }
        let place = Place::of(py, error);
        let count = self.counts.entry(place.clone()).or_default();
        *count += 1;
        if *count <= PRINTED {
            print_traceback(py, error);
        } else if *count == PRINTED + 1 {
            let Place { exception, file, line } = place;
            output::say(format_args!("{callback}: {exception} at {file}:{line} again; from now on it is only counted"));
        }
        match self.on_error {
            OnError::Continue => Flow::Continue(()),
            OnError::Stop => Flow::Break(Stop::Failed),
        }
    }

    /// Prints how often each place failed beyond what was printed.
    pub fn print_totals(&self) {
        let mut beyond: Vec<_> = self.counts.iter().filter(|&(_, &count)| count > PRINTED).collect();
        beyond.sort_by_key(|&(place, count)| (std::cmp::Reverse(*count), place.file.clone(), place.line));
        for (Place { exception, file, line }, count) in beyond {
            output::say(format_args!("{exception} at {file}:{line}: {count} times in total"));
        }
    }
}

impl Place {
    fn of(py: Python<'_>, error: &PyErr) -> Place {
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
        let (file, line) = innermost().unwrap_or_default();
        Place { exception, file, line }
    }
}

/// Prints an exception as Python would at the end of a program: through `sys.excepthook`.
pub fn print_traceback(py: Python<'_>, error: &PyErr) {
    // `PyErr_Print` would end the process for a SystemExit; callers never bring one here, and this never does so.
    error.clone_ref(py).restore(py);
    // SAFETY: the lock is held (`py`) and an exception is set. 0: `sys.last_value` would keep the event alive.
    unsafe { ffi::PyErr_PrintEx(0) }
}

/// The exit status that a SystemExit asks for. What is no number is printed, and is status 1, as Python does.
pub fn exit_status(py: Python<'_>, error: &PyErr) -> u8 {
    let Ok(code) = error.value(py).getattr("code") else { return 1 };
    if code.is_none() {
        return 0;
    }
    match code.extract::<i64>() {
        // The kernel keeps the low eight bits of a status.
        Ok(number) => number as u8,
        Err(_) => {
            if let Ok(text) = code.str() {
                output::write_line(&text.to_string_lossy());
            }
            1
        }
    }
}
