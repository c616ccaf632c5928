//! A handler that forks: the child is a copy of this process without its reader thread, and must not go on as if it
//! were the run. When its callback returns it ends.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use pyo3::{exceptions::PySystemExit, prelude::*};

use super::{
    failure::{exit_status, print_traceback},
    host,
};
use crate::sys::process;

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// From now on, notices forks.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| process::in_forked_child(mark));
}

extern "C" fn mark() {
    IS_CHILD.store(true, Relaxed);
}

/// Ends the process if it is a script's child, after flushing what it printed.
#[inline]
pub fn leave_if_child(py: Python<'_>, status: impl FnOnce() -> u8) {
    if IS_CHILD.load(Relaxed) {
        let status = status();
        // What cannot be flushed has nowhere to be reported to.
        let _ = host::flush(py);
        process::exit_now(status);
    }
}

/// The status that a Python program would end with whose last act was this callback; a traceback is printed.
pub fn status(py: Python<'_>, raised: Option<&PyErr>) -> u8 {
    match raised {
        None => 0,
        Some(error) if error.is_instance_of::<PySystemExit>(py) => exit_status(py, error),
        Some(error) => {
            print_traceback(py, error);
            1
        }
    }
}
