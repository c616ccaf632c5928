//! epoll: waits for many descriptors at once.

use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::call::{CallError, check};

/// An epoll set; each descriptor in it has a token.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What a wait reported of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The descriptor's token.
    pub token: u64,
    /// Whether its other side is gone: it will be reported for ever until it is removed.
    pub hung_up: bool,
}

impl Epoll {
    /// An empty set.
    pub fn new() -> Result<Self, CallError> {
        // SAFETY: no pointers are passed.
        let fd = check("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; 64] })
    }

    /// Watches `fd` for becoming readable.
    pub fn add(&self, fd: RawFd, token: u64) -> Result<(), CallError> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: `event` lives across the call.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        check("epoll_ctl", result).map(drop)
    }

    /// Watches `fd` no more.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: EPOLL_CTL_DEL ignores the event since Linux 2.6.9. An unknown descriptor is only an error code.
        unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits until something is ready or `timeout` passes, and puts what is ready in the place of `ready`. An
    /// interrupted wait gives nothing.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> Result<(), CallError> {
        ready.clear();
        // Rounded up, so that a wait for less than a millisecond does not become a busy loop.
        let milliseconds =
            timeout.map_or(-1, |timeout| timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
        let (events, room) = (self.events.as_mut_ptr(), self.events.len() as i32);
        // SAFETY: `events` has room for as many entries as is said.
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
