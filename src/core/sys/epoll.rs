//! epoll: waits for many descriptors at once. Does not know what the descriptors are.

use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::call::{CallError, check};

/// An epoll set. Each descriptor in it has a token.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// The state of one descriptor that a wait reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The descriptor's token.
    pub token: u64,
    /// True if the other end was closed or has failed. Every wait reports such a descriptor until it is removed.
    pub hung_up: bool,
}

impl Epoll {
    /// Creates an empty set.
    pub fn new() -> Result<Self, CallError> {
        // SAFETY: no pointers are passed.
        let fd = check("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; 64] })
    }

    /// Adds `fd` to the set, to be reported when it is readable.
    pub fn add(&self, fd: RawFd, token: u64) -> Result<(), CallError> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: `event` outlives the call.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        check("epoll_ctl", result).map(drop)
    }

    /// Removes `fd` from the set.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: EPOLL_CTL_DEL ignores the event since Linux 2.6.9. For an unknown descriptor it only returns an
        // error.
        unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits until a descriptor is ready or `timeout` has passed. Replaces the content of `ready` by the descriptors
    /// that are ready. If a signal interrupts the wait, `ready` is empty.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> Result<(), CallError> {
        ready.clear();
        // Rounded up to milliseconds, so that a shorter wait does not become a busy loop.
        let milliseconds =
            timeout.map_or(-1, |timeout| timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
        let (events, room) = (self.events.as_mut_ptr(), self.events.len() as i32);
        // SAFETY: `events` has room for `room` entries.
        let count =
            match check("epoll_wait", unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events, room, milliseconds) }) {
                Ok(count) => count as usize,
                Err(error) if error.errno() == libc::EINTR => 0,
                Err(error) => return Err(error),
            };
        ready.extend(self.events[..count].iter().map(|event| Ready {
            token: event.u64,
            hung_up: event.events & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0,
        }));
        Ok(())
    }
}
