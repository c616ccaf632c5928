//! A handler that forks: the child is a copy of this process without its reader thread, and must not go on as if it
//! were the run. When its handler returns it ends.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use pyo3::prelude::*;

use super::host;
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
pub fn leave_if_child(py: Python<'_>) {
    if IS_CHILD.load(Relaxed) {
        // What cannot be flushed has nowhere to be reported to.
        let _ = host::flush(py);
        process::exit_now(0);
    }
}
