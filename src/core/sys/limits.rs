//! The limits of this process on open files and on memory. Does not know what the files and the memory are for.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::call::{CallError, check};

/// The number of files that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force.
    pub soft: u64,
    /// The highest value to which this process may raise the soft limit.
    pub hard: u64,
}

/// Returns the limit in force.
pub fn file_limit() -> Result<FileLimit, CallError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check("getrlimit", unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(FileLimit { soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// True if the limits belong to a program that uses perf-prof as a library.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Keeps the limits as they are from now on.
pub fn keep_limits() {
    KEPT.store(true, Relaxed);
}

/// Raises the soft limit to the hard one. Returns whether that changed it. Has no effect after [`keep_limits`].
pub fn raise_file_limit() -> Result<bool, CallError> {
    if KEPT.load(Relaxed) {
        return Ok(false);
    }
    let FileLimit { soft, hard } = file_limit()?;
    if soft >= hard {
        return Ok(false);
    }
    let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: `limit` outlives the call.
    check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(true)
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
    let [address_space, data] = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call.
        let result = unsafe { libc::getrlimit(resource, &mut limit) };
        (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    });
    MemoryLimits { address_space, data }
}
