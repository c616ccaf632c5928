//! The error of a failed system call, together with the name of the call, because "Permission denied" alone would not
//! show what failed.

use std::{
    io,
    os::fd::{BorrowedFd, RawFd},
};

use rustix::io::Errno;

/// The error of a failed system call.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// Name of the call, with its argument if that helps: `perf_event_open`, `open /proc/kallsyms`.
    pub call: String,
    /// The call's errno.
    pub source: io::Error,
}

impl CallError {
    /// Makes the error of `call` from the current errno. `call` must be the last call that failed.
    pub fn last(call: &str) -> Self {
        Self::new(call, io::Error::last_os_error())
    }

    /// Makes the error of `call` from `source`.
    pub fn new(call: impl Into<String>, source: io::Error) -> Self {
        Self { call: call.into(), source }
    }

    /// Returns the errno, or 0 if the error does not come from the kernel.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Returns `result`, the result of `call`, or the error from errno if `result` is negative.
pub(super) fn check<T: Default + PartialOrd>(call: &str, result: T) -> Result<T, CallError> {
    if result < T::default() { Err(CallError::last(call)) } else { Ok(result) }
}

/// Returns a function that makes the error of `call` from its errno.
pub(super) fn failed(call: &str) -> impl FnOnce(Errno) -> CallError {
    move |errno| CallError::new(call, errno.into())
}

/// Returns the descriptor `fd` in the form that a call needs. Use the result only for a call that is made at once. If
/// another thread closes the descriptor meanwhile, the call only fails. `fd` must not be -1.
pub(super) fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the kernel checks the number in each call. Nothing keeps the result longer than the calls take.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
