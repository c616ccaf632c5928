//! Notices that this process is a forked child, in which the threads of runs do not exist.

use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_system::{perf_copies, process};
use pyo3::prelude::*;

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count() {
    FORKS.fetch_add(1, Relaxed);
}

/// How often this process and its ancestors were forked, when a run was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Returns the number for this process.
    pub fn current() -> Generation {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| process::in_forked_child(count));
        Generation(FORKS.load(Relaxed))
    }

    /// Returns whether this process is still the one with this number, and not a child that was forked since.
    #[inline]
    pub fn is_this(self) -> bool {
        FORKS.load(Relaxed) == self.0
    }
}

/// Closes the copies of perf events in a forked child of a program. The threads of runs fork too, and manage the copies
/// of these children themselves, so this is called only after `os.fork()`.
#[pyfunction]
pub fn close_copies() {
    perf_copies::close();
}
