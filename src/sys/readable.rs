//! Waits until something can be read from a descriptor of any kind: epoll does not take regular files.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::{call::CallError, eventfd};

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// There is something to be read, or the other side is gone.
    Yes,
    /// The eventfd `wake` was signalled; it is drained.
    Woken,
}

/// Waits until `fd` can be read, or the eventfd `wake` is signalled.
pub fn wait(fd: BorrowedFd<'_>, wake: Option<RawFd>) -> Result<Readable, CallError> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // A negative descriptor is passed over.
        let mut entries = [entry(fd.as_raw_fd()), entry(wake.unwrap_or(-1))];
        // SAFETY: there are as many entries as is said.
        let result = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
        if result < 0 {
            let error = CallError::last("poll");
            if error.errno() == libc::EINTR {
                continue;
            }
            return Err(error);
        }
        if let Some(wake) = wake.filter(|_| entries[1].revents != 0) {
            eventfd::drain(wake);
            return Ok(Readable::Woken);
        }
        if entries[0].revents != 0 {
            return Ok(Readable::Yes);
        }
    }
}
