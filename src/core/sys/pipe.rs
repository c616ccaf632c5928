//! Pipes. Does not know what is sent through them.

use std::os::fd::{FromRawFd, OwnedFd};

use super::call::{CallError, check};

/// Creates a pipe. Returns the end for reading and the end for writing. Both are closed by exec.
pub(super) fn new() -> Result<(OwnedFd, OwnedFd), CallError> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    check("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel just returned these descriptors, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
