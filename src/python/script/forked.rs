//! Ends the children that a script forks. A child is a copy of this process without the reader thread, so it must not
//! continue the run. The child ends when the callback that forked it returns.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use perf_prof_system::{process, signals};
use pyo3::{exceptions::PySystemExit, prelude::*};

use super::{
    failure::{exit_status, print_traceback},
    host,
};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Installs the hook that marks forked children. Only the first call has an effect.
pub fn install_fork_hook() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| process::in_forked_child(mark));
}

extern "C" fn mark() {
    IS_CHILD.store(true, Relaxed);
    signals::restore_in_forked_child();
}

/// Lets this forked child continue, because perf-prof itself forked it for a part of a run.
pub fn stay() {
    IS_CHILD.store(false, Relaxed);
}

/// Ends the process if it is a child that the script forked. Flushes Python's stdout and stderr first.
#[inline]
pub fn leave_if_child(py: Python<'_>, status: impl FnOnce() -> u8) {
    if IS_CHILD.load(Relaxed) {
        let status = status();
        // A failed flush cannot be reported anywhere.
        let _ = host::flush(py);
        process::exit_now(status);
    }
}

/// Returns the exit status of a forked child. `raised` is the exception that ended the child's callback, if any. Prints
/// its traceback, unless it is a SystemExit.
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
