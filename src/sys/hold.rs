//! Signals that are held back for a while: they stay pending, and come when the time is over.

use super::call::{CallError, check};

/// SIGINT, SIGTERM and SIGHUP do not come to this thread while this lives.
///
/// CPython's start is not prepared to be interrupted, and installs a handler of its own for SIGINT before ours.
#[derive(Debug)]
pub struct Held {
    before: libc::sigset_t,
}

impl Held {
    /// Holds them back from now on.
    pub fn new() -> Result<Held, CallError> {
        // SAFETY: sigemptyset initialises the set before it is used; both sets live across the calls.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            // pthread_sigmask gives its error as its result.
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            check("pthread_sigmask", -error)?;
            Ok(Held { before })
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: puts back what was there; the set was filled by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
