//! The error of a failed system call. It contains the name of the call, because "Permission denied" alone does not show
//! what failed.

use std::{
    io,
    os::fd::{BorrowedFd, RawFd},
};

use rustix::io::Errno;

/// The error of a failed system call.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The name of the call, with its argument if that helps: `perf_event_open`, `open /proc/kallsyms`.
    pub call: String,
    /// The error that the call returned.
    pub source: io::Error,
}

impl CallError {
    /// Creates the error of `call` from the current errno. No other system call may have failed since `call`.
    pub fn last(call: &str) -> Self {
        Self::new(call, io::Error::last_os_error())
    }

    /// Creates the error of `call` from `source`.
    pub fn new(call: impl Into<String>, source: io::Error) -> Self {
        Self { call: call.into(), source }
    }

    /// Returns the errno, or 0 if the error does not come from the kernel.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Returns `result`, which the system call `call` returned. If `result` is negative, returns the error from errno.
pub(super) fn check<T: Default + PartialOrd>(call: &str, result: T) -> Result<T, CallError> {
    if result < T::default() { Err(CallError::last(call)) } else { Ok(result) }
}

/// Returns a function that converts the errno of `call` to an error.
pub(super) fn failed(call: &str) -> impl FnOnce(Errno) -> CallError {
    move |errno| CallError::new(call, errno.into())
}

/// Returns `fd` as a `BorrowedFd`, the type that rustix needs. Use the result for one system call at once. If another
/// thread has closed the descriptor by then, the system call fails and does no harm. `fd` must not be -1.
pub(super) fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the kernel checks the number in each call. Nothing keeps the result longer than the calls take.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
