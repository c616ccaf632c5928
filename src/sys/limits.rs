//! The limit of open files.

use super::call::{CallError, check};

/// How many files this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force.
    pub soft: u64,
    /// What we may raise it to.
    pub hard: u64,
}

/// The limit in force.
pub fn file_limit() -> Result<FileLimit, CallError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives across the call.
    check("getrlimit", unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(FileLimit { soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// Raises the soft limit to the hard one; says whether that gave anything.
pub fn raise_file_limit() -> Result<bool, CallError> {
    let FileLimit { soft, hard } = file_limit()?;
    if soft >= hard {
        return Ok(false);
    }
    let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: `limit` lives across the call.
    check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(true)
}
