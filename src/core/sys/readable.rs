//! Waits until a descriptor of any kind can be read. epoll cannot do that, because it does not accept regular files.
//! Reads nothing itself.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::{call::CallError, eventfd};

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// There is data to read, or the other end was closed.
    Yes,
    /// The eventfd `wake` was signalled. It is reset already.
    Woken,
}

/// Waits until `fd` can be read, or the eventfd `wake` is signalled.
pub fn wait(fd: BorrowedFd<'_>, wake: Option<RawFd>) -> Result<Readable, CallError> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // poll ignores negative descriptors.
        let mut entries = [entry(fd.as_raw_fd()), entry(wake.unwrap_or(-1))];
        // SAFETY: the call gets the number of `entries`.
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
