//! Detects that this process is a forked child, in which the threads of runs do not exist.

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

/// The number of forks that led to this process. The number of a child differs from the number of the process that
/// forked the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Returns the number of this process.
    pub fn current() -> Generation {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| process::in_forked_child(count));
        Generation(FORKS.load(Relaxed))
    }

    /// Returns true in the process that got this number, and false in children that were forked later.
    #[inline]
    pub fn is_this(self) -> bool {
        FORKS.load(Relaxed) == self.0
    }
}

/// Closes the copies of perf events in a forked child of a program. Called only after `os.fork()`: runs fork children
/// too, but manage the copies in these children themselves.
#[pyfunction]
pub fn close_copies() {
    perf_copies::close();
}
