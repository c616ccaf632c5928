//! The limits of this process on open files and on memory.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::call::{CallError, failed};

/// The number of files that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force.
    pub soft: u64,
    /// The highest value to which this process may raise the soft limit.
    pub hard: u64,
}

/// Returns the limit in force.
pub fn file_limit() -> FileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    FileLimit { soft: current.unwrap_or(u64::MAX), hard: maximum.unwrap_or(u64::MAX) }
}

/// True if the limits belong to a program that uses perf-prof as a library.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Makes [`raise_file_limit`] leave the limits unchanged from now on.
pub fn keep_limits() {
    KEPT.store(true, Relaxed);
}

/// Raises the soft limit to the hard one. Returns whether that changed it. Has no effect after [`keep_limits`].
pub fn raise_file_limit() -> Result<bool, CallError> {
    if KEPT.load(Relaxed) {
        return Ok(false);
    }
    let FileLimit { soft, hard } = file_limit();
    if soft >= hard {
        return Ok(false);
    }
    let limit = Rlimit { current: Some(hard), maximum: Some(hard) };
    setrlimit(Resource::Nofile, limit).map(|()| true).map_err(failed("setrlimit"))
}

/// The limits on the memory of this process, in bytes; `None` if there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The limit on all of its memory (`RLIMIT_AS`).
    pub address_space: Option<u64>,
    /// The limit on its private writable memory (`RLIMIT_DATA`).
    pub data: Option<u64>,
}

/// Returns the limits in force.
pub fn memory_limits() -> MemoryLimits {
    let limit = |resource| getrlimit(resource).current;
    MemoryLimits { address_space: limit(Resource::As), data: limit(Resource::Data) }
}
