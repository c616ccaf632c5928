//! eventfd: lets a thread or a signal handler wake another thread that waits in epoll.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::{
    event::{EventfdFlags, eventfd},
    io,
};

use super::call::{CallError, borrowed, failed};

/// An eventfd: a counter whose descriptor is readable while the counter is not zero.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a non-blocking eventfd with a counter of zero.
    pub fn new() -> Result<Self, CallError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self).map_err(failed("eventfd"))
    }

    /// Returns another descriptor of the same counter.
    pub fn duplicate(&self) -> Result<EventFd, CallError> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map(EventFd).map_err(failed("fcntl"))
    }

    /// Makes the eventfd readable.
    pub fn signal(&self) {
        signal(self.0.as_raw_fd());
    }

    /// Makes the eventfd unreadable again.
    pub fn drain(&self) {
        drain(self.0.as_raw_fd());
    }

    /// Makes the eventfd unreadable again, and returns whether it was readable. If several processes share the eventfd
    /// after a fork, only one of them gets true.
    pub fn take(&self) -> bool {
        io::read(&self.0, &mut [0u8; 8]).is_ok()
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

/// Makes the eventfd `fd` readable. Async-signal-safe. The write fails only if the counter is near its maximum; the
/// eventfd is then readable already.
pub fn signal(fd: RawFd) {
    let _ = io::write(borrowed(fd), &1u64.to_ne_bytes());
}

/// Makes the eventfd `fd` unreadable again.
pub fn drain(fd: RawFd) {
    let _ = io::read(borrowed(fd), &mut [0u8; 8]);
}
