//! Blocks signals for a while. Blocked signals stay pending and are delivered afterwards.

use super::call::{CallError, check};

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread until this value is dropped.
///
/// Used while CPython starts, because a signal must not interrupt the start. CPython installs its own handler for
/// SIGINT during the start, and perf-prof installs its handlers only later.
#[derive(Debug)]
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks the signals from now on.
    pub fn new() -> Result<BlockedSignals, CallError> {
        // SAFETY: sigemptyset initialises the set before it is used; both sets outlive the calls.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            // pthread_sigmask returns the error number and does not set errno.
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            check("pthread_sigmask", -error)?;
            Ok(BlockedSignals { before })
        }
    }

    /// Returns whether one of the signals is pending.
    pub fn is_pending(&self) -> bool {
        // SAFETY: sigpending fills the set before it is read, and the set outlives the calls.
        unsafe {
            let mut pending = std::mem::zeroed();
            libc::sigpending(&mut pending) == 0
                && [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].iter().any(|&it| libc::sigismember(&pending, it) == 1)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores the previous mask, which `new` has filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
