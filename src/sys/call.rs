//! A failed system call, with its name: "Permission denied" alone helps nobody.

use std::io;

/// A system call failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The call, and where it helps what it was called with: `perf_event_open`, `open /proc/kallsyms`.
    pub call: String,
    /// Its errno.
    pub source: io::Error,
}

impl CallError {
    /// The error of `call`, which set errno just now.
    pub fn last(call: &str) -> Self {
        Self::new(call, io::Error::last_os_error())
    }

    /// The error of `call`.
    pub fn new(call: impl Into<String>, source: io::Error) -> Self {
        Self { call: call.into(), source }
    }

    /// The errno, 0 when the error is not the kernel's.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// `result` of `call`, or its error where it is negative.
pub(super) fn check<T: Default + PartialOrd>(call: &str, result: T) -> Result<T, CallError> {
    if result < T::default() { Err(CallError::last(call)) } else { Ok(result) }
}
