//! epoll: waits for many descriptors at once.

use std::{
    mem::MaybeUninit,
    os::fd::{OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};

use super::call::{CallError, borrowed, failed};

/// The maximum number of descriptors that one wait reports. The next wait reports the rest.
const REPORTED: usize = 64;

/// The longest wait. Before Linux 5.11, epoll_wait takes the time as an int, in milliseconds.
const LONGEST_WAIT: Duration = Duration::from_millis(i32::MAX as u64);

/// An epoll set. Each descriptor in it has a token.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// The state of one descriptor that a wait reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The descriptor's token.
    pub token: u64,
    /// True if the other end was closed or has failed. Every wait reports such a descriptor again, until it is removed
    /// from the set.
    pub hung_up: bool,
}

impl Epoll {
    /// Creates an empty set.
    pub fn new() -> Result<Self, CallError> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self).map_err(failed("epoll_create1"))
    }

    /// Adds `fd` to the set. A wait then reports `fd` when it is readable.
    pub fn add(&self, fd: RawFd, token: u64) -> Result<(), CallError> {
        let token = epoll::EventData::new_u64(token);
        epoll::add(&self.0, borrowed(fd), token, epoll::EventFlags::IN).map_err(failed("epoll_ctl"))
    }

    /// Removes `fd` from the set.
    pub fn remove(&self, fd: RawFd) {
        // If the descriptor is not in the set, the call fails and changes nothing.
        let _ = epoll::delete(&self.0, borrowed(fd));
    }

    /// Waits until a descriptor is ready or `timeout` has passed. Replaces the content of `ready` by the descriptors
    /// that are ready. If a signal interrupts the wait, `ready` is empty.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> Result<(), CallError> {
        ready.clear();
        // rustix rounds up to milliseconds, so a wait below 1 ms does not become a busy loop.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout.min(LONGEST_WAIT)).ok());
        let mut events = [const { MaybeUninit::uninit() }; REPORTED];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|&epoll::Event { flags, data, .. }| Ready {
                token: data.u64(),
                hung_up: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            })),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("epoll_wait")(error)),
        }
        Ok(())
    }
}
