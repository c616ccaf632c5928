//! eventfd: lets a thread or a signal handler wake another thread that waits in epoll. Does not know what the wake-up
//! is for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::call::{CallError, check};

/// An eventfd. It is a counter, and its descriptor is readable while the counter is not zero.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a non-blocking eventfd with a counter of zero.
    pub fn new() -> Result<Self, CallError> {
        // SAFETY: no pointers are passed.
        let fd = check("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the eventfd readable.
    pub fn signal(&self) {
        signal(self.0.as_raw_fd());
    }

    /// Makes the eventfd unreadable again.
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

/// Makes the eventfd `fd` readable. Async-signal-safe. The write can fail only if the counter is near its maximum; the
/// eventfd is readable then anyway.
pub fn signal(fd: RawFd) {
    let one = 1u64;
    // SAFETY: write reads 8 bytes from a live u64.
    unsafe { libc::write(fd, (&raw const one).cast(), 8) };
}

/// Makes the eventfd `fd` unreadable again.
pub fn drain(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: read writes at most 8 bytes into a live u64.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
}
