//! Pipes.

use std::os::fd::{FromRawFd, OwnedFd};

use super::call::{CallError, check};

/// A pipe: the end to read from, and the one to write to. Closed by exec.
pub(super) fn new() -> Result<(OwnedFd, OwnedFd), CallError> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    check("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel just gave us these descriptors; nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
