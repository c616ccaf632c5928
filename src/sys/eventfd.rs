//! eventfd: one thread, or a signal handler, wakes another that waits in epoll.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::call::{CallError, check};

/// A counter that is readable while it is not zero.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, at zero, non-blocking.
    pub fn new() -> Result<Self, CallError> {
        // SAFETY: no pointers are passed.
        let fd = check("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        signal(self.0.as_raw_fd());
    }

    /// Makes it unreadable again.
    pub fn drain(&self) {
        drain(self.0.as_raw_fd());
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Makes the eventfd `fd` readable. Async-signal-safe. The only failure is a counter near its maximum, which is readable
/// already.
pub fn signal(fd: RawFd) {
    let one = 1u64;
    // SAFETY: write reads 8 bytes of a live u64.
    unsafe { libc::write(fd, (&raw const one).cast(), 8) };
}

/// Makes the eventfd `fd` unreadable again.
pub fn drain(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: read writes at most 8 bytes into a live u64.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
}
