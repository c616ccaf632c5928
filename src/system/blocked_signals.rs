//! Blocks signals for a while. Blocked signals stay pending and are delivered afterwards.

use super::call::{CallError, check};

/// Blocks signals in this thread until this value is dropped.
#[derive(Debug)]
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks SIGINT, SIGTERM and SIGHUP.
    ///
    /// Used while CPython starts, because a signal must not interrupt the start. CPython installs its own handler for
    /// SIGINT during the start, and perf-prof installs its handlers only later.
    pub fn new() -> Result<BlockedSignals, CallError> {
        // SAFETY: sigemptyset initialises the set, which outlives the calls.
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            set
        };
        Self::block(&set)
    }

    /// Blocks all signals.
    ///
    /// Used while a thread is started. The new thread inherits the mask, so signals never interrupt it. If it blocked them
    /// itself, a signal could come before that: the kernel takes another thread if the main thread still has a signal to
    /// handle (`wants_signal()` in kernel/signal.c). CPython does not notice a signal that another thread handles until the
    /// main thread takes the GIL again, so a second Ctrl-C could be lost.
    pub fn all() -> Result<BlockedSignals, CallError> {
        // SAFETY: sigfillset initialises the set, which outlives the call.
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&mut set);
            set
        };
        Self::block(&set)
    }

    fn block(set: &libc::sigset_t) -> Result<BlockedSignals, CallError> {
        // SAFETY: both sets outlive the call, which fills `before`.
        unsafe {
            let mut before = std::mem::zeroed();
            // pthread_sigmask returns the error number and does not set errno.
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, set, &mut before);
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
