//! Signals as data: counted in a handler, taken by the run loop.

use std::{
    os::fd::{AsRawFd, RawFd},
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use super::{
    call::{CallError, check},
    eventfd::{self, EventFd},
};

/// The signals that are caught, in the order of `COUNTS`.
const CAUGHT: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Those that ask the process to end. They are counted together: a supervisor may send SIGTERM where a user presses
/// Ctrl-C, and a handler that does not return must end by either.
const ASKS_TO_END: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// How often each came since it was taken.
static COUNTS: [AtomicU32; CAUGHT.len()] = [const { AtomicU32::new(0) }; CAUGHT.len()];
/// How often any of those that ask to end came since [`Signals::install`]; unlike `COUNTS` never taken.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// What handled each before, for forked children.
static BEFORE: [AtomicUsize; CAUGHT.len()] = [const { AtomicUsize::new(libc::SIG_DFL) }; CAUGHT.len()];
/// The eventfd to signal, -1 while nothing is installed.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// An `extern "C" fn()`, or null.
static ON_SECOND_INTERRUPT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Whether anything came since it was last taken: one load, for those who ask often.
static PENDING: AtomicBool = AtomicBool::new(false);

/// What came since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// SIGINTs.
    pub interrupt: u32,
    /// SIGTERMs.
    pub terminate: u32,
    /// SIGHUPs.
    pub hangup: u32,
    /// SIGUSR1s.
    pub user1: u32,
    /// SIGUSR2s.
    pub user2: u32,
}

impl Pending {
    /// How often each signal came that asks for the end, of those that came.
    pub fn to_end(&self) -> impl Iterator<Item = (u32, i32)> + use<> {
        let Pending { interrupt, terminate, hangup, .. } = *self;
        let of_each = [(interrupt, libc::SIGINT), (terminate, libc::SIGTERM), (hangup, libc::SIGHUP)];
        of_each.into_iter().filter(|&(count, _)| count != 0)
    }
}

/// The handlers are in place as long as this lives.
#[derive(Debug)]
pub struct Signals {
    wake: EventFd,
    before: Vec<(i32, libc::sigaction)>,
}

impl Signals {
    /// Catches SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 from now on. There can be one at a time.
    ///
    /// A signal that the parent had ignored stays ignored (`nohup`). Calls are interrupted, not restarted, so that
    /// a callback that blocks in a system call notices.
    pub fn install() -> Result<Signals, CallError> {
        let wake = EventFd::new()?;
        COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        ASKED.store(0, Ordering::Relaxed);
        PENDING.store(false, Ordering::Relaxed);
        WAKE.store(wake.as_raw_fd(), Ordering::SeqCst);
        let mut signals = Signals { wake, before: Vec::new() };
        for (which, signal) in CAUGHT.into_iter().enumerate() {
            // SAFETY: all zeroes is a sigaction: no flags, an empty mask, SIG_DFL.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as extern "C" fn(i32) as usize;
            // SAFETY: as above.
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: both live across the call, and the handler only does what is async-signal-safe.
            check("sigaction", unsafe { libc::sigaction(signal, &action, &mut before) })?;
            signals.before.push((signal, before));
            BEFORE[which].store(before.sa_sigaction, Ordering::SeqCst);
            if signal != libc::SIGUSR1 && signal != libc::SIGUSR2 && before.sa_sigaction == libc::SIG_IGN {
                // SAFETY: as above; this puts back what was there.
                check("sigaction", unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) })?;
            }
        }
        Ok(signals)
    }

    /// Called in the signal handler at the second SIGINT, SIGTERM or SIGHUP, whichever they are: must be
    /// async-signal-safe. (The third ends the process whether or not this is set.)
    pub fn on_second_interrupt(&self, hook: extern "C" fn()) {
        ON_SECOND_INTERRUPT.store(hook as *mut (), Ordering::SeqCst);
    }

    /// An eventfd that becomes readable when a signal came.
    pub fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Whether [`Signals::take`] would give anything.
    #[inline]
    pub fn is_pending(&self) -> bool {
        PENDING.load(Ordering::Relaxed)
    }

    /// What came since the last time.
    pub fn take(&self) -> Pending {
        // Before the counts: a signal in between is pending again rather than forgotten.
        PENDING.store(false, Ordering::SeqCst);
        let [interrupt, terminate, hangup, user1, user2] =
            std::array::from_fn(|signal| COUNTS[signal].swap(0, Ordering::SeqCst));
        Pending { interrupt, terminate, hangup, user1, user2 }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, before) in &self.before {
            // SAFETY: puts back what was there before `install`.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
        WAKE.store(-1, Ordering::SeqCst);
        ON_SECOND_INTERRUPT.store(std::ptr::null_mut(), Ordering::SeqCst);
    }
}

extern "C" fn handler(signal: i32) {
    // SAFETY: the address of this thread's errno is always valid. The interrupted code must find it unchanged.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(which) = CAUGHT.iter().position(|&caught| caught == signal) {
        COUNTS[which].fetch_add(1, Ordering::SeqCst);
        PENDING.store(true, Ordering::SeqCst);
    }
    if ASKS_TO_END.contains(&signal) {
        match ASKED.fetch_add(1, Ordering::SeqCst) {
            0 => {}
            1 => {
                let hook = ON_SECOND_INTERRUPT.load(Ordering::SeqCst);
                if !hook.is_null() {
                    // SAFETY: only `on_second_interrupt` stores here, and what it stores is such a function.
                    unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(hook)() };
                }
            }
            _ => {
                // Somebody insists. The default disposition ends the process as soon as this handler returns and
                // unblocks the signal.
                // SAFETY: both calls are async-signal-safe.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    libc::raise(signal);
                }
            }
        }
    }
    let wake = WAKE.load(Ordering::SeqCst);
    if wake >= 0 {
        eventfd::signal(wake);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Keeps signals away from the calling thread, so that they interrupt the main thread's calls and nobody else's.
pub fn block_in_this_thread() {
    // SAFETY: the set is initialised by sigfillset before it is read; the mask that was there is not wanted.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Puts back what handled our signals before, in a child that a script forked: it must end when it is told to
/// (`multiprocessing` ends its workers with SIGTERM), and what it is told is none of the run's business.
/// Async-signal-safe, and without effect where nothing is installed.
pub fn restore_in_forked_child() {
    if WAKE.swap(-1, Ordering::SeqCst) < 0 {
        return;
    }
    for (signal, before) in CAUGHT.iter().zip(&BEFORE) {
        // SAFETY: all zeroes is a sigaction with an empty mask and no flags; the handler is one that was in place.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = before.load(Ordering::SeqCst);
            libc::sigaction(*signal, &action, std::ptr::null_mut());
        }
    }
}

/// Nothing of our handlers in a forked child: they would count its signals as ours. What our parent had ignored stays
/// ignored (`nohup`), but SIGPIPE, which every Rust program ignores.
///
/// # Safety
///
/// Only in a forked child. Async-signal-safe.
pub(super) unsafe fn reset_in_child() {
    // SAFETY: all zeroes is a sigaction with SIG_DFL and an empty mask. An error (SIGKILL, SIGSTOP) changes nothing.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            if now.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE {
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, &default.sa_mask, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// There can be one `Signals` at a time, but tests run side by side.
    static INSTALLED: Mutex<()> = Mutex::new(());

    /// Tests that run in the background of a shell, or under nohup, inherit signals that are ignored; we leave those so.
    fn as_in_the_foreground() {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: no handler that could be called.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }

    #[test]
    fn signals_are_counted_and_wake() {
        let _installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        as_in_the_foreground();
        let signals = Signals::install().unwrap();
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGUSR2, libc::SIGHUP] {
            // SAFETY: a handler is installed for each of them.
            unsafe { libc::raise(signal) };
        }
        let mut count = 0u64;
        // SAFETY: the eventfd gives 8 bytes.
        let size = unsafe { libc::read(signals.wake_fd(), (&raw mut count).cast(), 8) };
        assert_eq!((size, count), (8, 4));
        assert_eq!(signals.take(), Pending { hangup: 1, user1: 1, user2: 2, ..Pending::default() });
        assert_eq!(signals.take(), Pending::default());
    }

    /// Raises three signals in a child; gives its status.
    fn status_after(signals: [i32; 3]) -> i32 {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        extern "C" fn hook() {
            CALLS.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the child installs handlers, raises signals and ends; nothing there needs another thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            as_in_the_foreground();
            if let Ok(installed) = Signals::install() {
                installed.on_second_interrupt(hook);
                for (signal, calls) in signals.into_iter().zip([0, 1]) {
                    // SAFETY: a handler is installed.
                    unsafe { libc::raise(signal) };
                    if CALLS.load(Ordering::SeqCst) != calls {
                        // SAFETY: ends the child at once.
                        unsafe { libc::_exit(2) };
                    }
                }
                // SAFETY: as above; this one ends the process.
                unsafe { libc::raise(signals[2]) };
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(1) };
        }
        let mut status = 0;
        // SAFETY: `status` lives across the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status
    }

    /// SIGTERM and SIGHUP only asked, however often they came.
    #[test]
    fn the_second_request_to_end_calls_and_the_third_ends() {
        let (int, term, hup) = (libc::SIGINT, libc::SIGTERM, libc::SIGHUP);
        for signals in [[int; 3], [term; 3], [hup; 3], [int, hup, term]] {
            let status = status_after(signals);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signals[2], "{signals:?}: {status:#x}");
        }
    }

    #[test]
    fn nothing_is_pending_of_a_former_run() {
        let _installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        PENDING.store(true, Ordering::SeqCst);
        assert!(!Signals::install().unwrap().is_pending());
    }
}
