//! Waits until a descriptor of any kind can be read. epoll cannot do this, because it does not accept regular files.
//! Reads no data.

use std::{
    os::fd::{BorrowedFd, RawFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    call::{CallError, borrowed, failed},
    eventfd,
};

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// There is data to read, or the other end was closed.
    Yes,
    /// The eventfd `wake` was signalled. It was drained.
    Woken,
}

/// Waits until `fd` can be read, or the eventfd `wake` is signalled.
pub fn wait(fd: BorrowedFd<'_>, wake: Option<RawFd>) -> Result<Readable, CallError> {
    let wake_fd = wake.map(borrowed);
    loop {
        let entry = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut entries = [entry(fd), entry(wake_fd.unwrap_or(fd))];
        match poll(&mut entries, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed("poll")(error)),
        }
        if let Some(wake) = wake.filter(|_| !entries[1].revents().is_empty()) {
            eventfd::drain(wake);
            return Ok(Readable::Woken);
        }
        if !entries[0].revents().is_empty() {
            return Ok(Readable::Yes);
        }
    }
}

/// Waits until one of the descriptors can be read, at most for `timeout`. Returns how many can be read. Fails with
/// EINTR if a signal arrives.
pub fn poll_all(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<usize, CallError> {
    let mut entries: Vec<PollFd<'_>> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout =
        timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
    poll(&mut entries, timeout.as_ref()).map_err(failed("poll"))
}
