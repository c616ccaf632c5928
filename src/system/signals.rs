//! Catches signals: a handler counts them, and the run loop reads the counts. The run loop decides what a signal does.

use std::{
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    call::{CallError, check},
    eventfd::{self, EventFd},
};

/// The signals that are caught. `COUNTS` and `BEFORE` have the same order.
const CAUGHT: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The signals that request the end of the process. They are counted together, because each of them must be able to end
/// an event handler that does not return: a user sends SIGINT with Ctrl-C, a supervisor sends SIGTERM.
const ASKS_TO_END: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// How often each signal arrived since [`Signals::take_pending`] last read its count.
static COUNTS: [AtomicU32; CAUGHT.len()] = [const { AtomicU32::new(0) }; CAUGHT.len()];
/// How many end requests (see [`ASKS_TO_END`]) arrived since [`Signals::install`]. [`Signals::take_pending`] does not
/// reset this number.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The last end request that the leader of the process group sent, and when it arrived, in ns of CLOCK_MONOTONIC.
static LAST_OF_LEADER: AtomicI32 = AtomicI32::new(0);
static LAST_TIME: AtomicU64 = AtomicU64::new(0);

/// An end request that the leader of the process group sends again within this time is not a second one. `timeout` makes itself the
/// leader, and sends its signal to the command and then to the group, with the command in it (`cleanup()` in src/timeout.c of
/// coreutils). On a busy machine, the kernel delivers both.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// The previous handler of each signal, for forked children.
static BEFORE: [AtomicUsize; CAUGHT.len()] = [const { AtomicUsize::new(libc::SIG_DFL) }; CAUGHT.len()];
/// The eventfd that the handler signals; -1 if no handlers are installed.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// The hook that the handler calls at the second end request: an `extern "C" fn()`, or null.
static ON_SECOND_INTERRUPT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// True if a signal arrived since the last [`Signals::take_pending`]. A check costs only one load, so it can be made
/// often.
static PENDING: AtomicBool = AtomicBool::new(false);

/// The signals that arrived since the last [`Signals::take_pending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The number of times that SIGINT arrived.
    pub interrupt: u32,
    /// The number of times that SIGTERM arrived.
    pub terminate: u32,
    /// The number of times that SIGHUP arrived.
    pub hangup: u32,
    /// The number of times that SIGUSR1 arrived.
    pub user1: u32,
    /// The number of times that SIGUSR2 arrived.
    pub user2: u32,
}

impl Pending {
    /// Returns a pair for each of SIGINT, SIGTERM and SIGHUP that arrived: how often the signal arrived, and its
    /// number.
    pub fn end_requests(&self) -> impl Iterator<Item = (u32, i32)> + use<> {
        let Pending { interrupt, terminate, hangup, .. } = *self;
        let of_each = [(interrupt, libc::SIGINT), (terminate, libc::SIGTERM), (hangup, libc::SIGHUP)];
        of_each.into_iter().filter(|&(count, _)| count != 0)
    }
}

/// What ends a run: signals to this process, or requests of a program that has its own signal handlers. Dropping the
/// value restores the previous handlers.
#[derive(Debug)]
pub struct Signals {
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Handlers { wake: EventFd, before: Vec<(i32, libc::sigaction)> },
    Program(Arc<EndRequests>),
}

/// Requests of a program to end a run. Each request counts as a SIGINT: after the first one, the recorded events are
/// still delivered; after the second one, they are not.
#[derive(Debug)]
pub struct EndRequests {
    wake: EventFd,
    count: AtomicU32,
    /// True after the first request.
    has_requests: AtomicBool,
}

impl EndRequests {
    /// Creates a value without requests.
    pub fn new() -> Result<EndRequests, CallError> {
        Ok(EndRequests { wake: EventFd::new()?, count: AtomicU32::new(0), has_requests: AtomicBool::new(false) })
    }

    /// Requests the end of the run, after the recorded events have been delivered. Further calls have no effect.
    pub fn end(&self) {
        if !self.has_requests.swap(true, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
            eventfd::signal(self.wake.as_raw_fd());
        }
    }

    /// Requests the end of the run at once. Events that were recorded and not delivered are dropped.
    pub fn end_now(&self) {
        self.has_requests.store(true, Ordering::SeqCst);
        self.count.fetch_add(2, Ordering::SeqCst);
        eventfd::signal(self.wake.as_raw_fd());
    }
}

impl Signals {
    /// Catches SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 from now on. Only one `Signals` may exist at a time.
    ///
    /// SIGTERM and SIGHUP stay ignored if the parent ignored them (`nohup`). SIGINT is caught even if the parent
    /// ignored it: a shell without job control starts background jobs with SIGINT ignored (POSIX, 2.11 Signals and
    /// Error Handling). `kill -INT` has to end such a run, as it ends perf. System calls that a signal interrupts are
    /// not restarted. So a callback that is blocked in a system call notices the signal.
    pub fn install() -> Result<Signals, CallError> {
        let wake = EventFd::new()?;
        COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        ASKED.store(0, Ordering::Relaxed);
        LAST_OF_LEADER.store(0, Ordering::Relaxed);
        PENDING.store(false, Ordering::Relaxed);
        WAKE.store(wake.as_raw_fd(), Ordering::SeqCst);
        // If one handler cannot be installed, dropping `signals` restores the handlers that were already replaced.
        let mut signals = Signals { origin: Origin::Handlers { wake, before: Vec::new() } };
        for (which, signal) in CAUGHT.into_iter().enumerate() {
            // SAFETY: all zeroes is a valid sigaction: no flags, an empty mask, SIG_DFL.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as Handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            // SAFETY: as above.
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: both outlive the call, and the handler is async-signal-safe.
            check("sigaction", unsafe { libc::sigaction(signal, &action, &mut before) })?;
            if let Origin::Handlers { before: replaced, .. } = &mut signals.origin {
                replaced.push((signal, before));
            }
            BEFORE[which].store(before.sa_sigaction, Ordering::SeqCst);
            if matches!(signal, libc::SIGTERM | libc::SIGHUP) && before.sa_sigaction == libc::SIG_IGN {
                // SAFETY: as above; this restores the previous action.
                check("sigaction", unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) })?;
            }
        }
        Ok(signals)
    }

    /// Returns a value without signal handlers: only the program's requests end the run.
    pub fn of_program(requests: Arc<EndRequests>) -> Signals {
        Signals { origin: Origin::Program(requests) }
    }

    /// Returns whether a program's requests end the run, instead of signals. The program knows that it ended the run,
    /// so it needs no message.
    pub fn are_requests(&self) -> bool {
        matches!(self.origin, Origin::Program(_))
    }

    /// Sets a hook that the signal handler calls at the second SIGINT, SIGTERM or SIGHUP, in any combination. The hook
    /// must be async-signal-safe. The third of these signals ends the process, whether there is a hook or not.
    pub fn on_second_interrupt(&self, hook: extern "C" fn()) {
        ON_SECOND_INTERRUPT.store(hook as *mut (), Ordering::SeqCst);
    }

    /// Returns an eventfd that becomes readable when a signal arrives.
    pub fn wake_fd(&self) -> RawFd {
        match &self.origin {
            Origin::Handlers { wake, .. } => wake.as_raw_fd(),
            Origin::Program(requests) => requests.wake.as_raw_fd(),
        }
    }

    /// Returns a duplicate of the eventfd. Another thread may signal it to wake the run without a signal.
    pub fn waker(&self) -> Result<EventFd, CallError> {
        match &self.origin {
            Origin::Handlers { wake, .. } => wake.duplicate(),
            Origin::Program(requests) => requests.wake.duplicate(),
        }
    }

    /// Returns whether a signal arrived since the last [`Signals::take_pending`].
    #[inline]
    pub fn is_pending(&self) -> bool {
        match &self.origin {
            Origin::Handlers { .. } => PENDING.load(Ordering::Relaxed),
            Origin::Program(requests) => requests.count.load(Ordering::Relaxed) != 0,
        }
    }

    /// Returns the counts of the signals that arrived since the last call, and resets the counts.
    pub fn take_pending(&self) -> Pending {
        if let Origin::Program(requests) = &self.origin {
            return Pending { interrupt: requests.count.swap(0, Ordering::SeqCst), ..Pending::default() };
        }
        // The flag is reset before the counts are read. So a signal that arrives in between sets the flag again and is
        // not lost.
        PENDING.store(false, Ordering::SeqCst);
        let [interrupt, terminate, hangup, user1, user2] =
            std::array::from_fn(|signal| COUNTS[signal].swap(0, Ordering::SeqCst));
        Pending { interrupt, terminate, hangup, user1, user2 }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let Origin::Handlers { before, .. } = &self.origin else { return };
        for (signal, before) in before {
            // SAFETY: restores the action from before `install`.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
        WAKE.store(-1, Ordering::SeqCst);
        ON_SECOND_INTERRUPT.store(std::ptr::null_mut(), Ordering::SeqCst);
    }
}

/// Gives SIGINT its default action if it is ignored. CPython installs no handler for SIGINT if SIGINT is ignored, and
/// without a handler `PyErr_SetInterrupt` has no effect.
pub fn stop_ignoring_interrupt() {
    // SAFETY: all zeroes is a valid sigaction: SIG_DFL, no flags, an empty mask. Both actions outlive the calls.
    unsafe {
        let (mut now, default): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigaction(libc::SIGINT, std::ptr::null(), &mut now);
        if now.sa_sigaction == libc::SIG_IGN {
            libc::sigaction(libc::SIGINT, &default, std::ptr::null_mut());
        }
    }
}

/// The signals for which Python installs an action at its start. Python also ignores SIGPIPE. SIGPIPE is not in this
/// list, because every Rust program ignores it anyway.
const OF_PYTHON: [i32; 2] = [libc::SIGINT, libc::SIGXFSZ];

/// While this value exists, signals have the actions of the perf-prof executable instead of Python's actions. Dropping
/// the value restores Python's actions.
#[derive(Debug)]
pub struct WithoutPython {
    before: Vec<(i32, libc::sigaction)>,
}

impl WithoutPython {
    /// Gives the signals their default actions. Python ignores SIGXFSZ, and a command that perf-prof starts must not
    /// inherit this. SIGINT stays ignored if it was ignored before Python started.
    pub fn set() -> WithoutPython {
        let set = |signal: i32| {
            // SAFETY: all zeroes is a valid sigaction: SIG_DFL, no flags, an empty mask. Both actions outlive the calls.
            unsafe {
                let (mut before, default): (libc::sigaction, libc::sigaction) =
                    (std::mem::zeroed(), std::mem::zeroed());
                libc::sigaction(signal, std::ptr::null(), &mut before);
                if signal != libc::SIGINT || before.sa_sigaction != libc::SIG_IGN {
                    libc::sigaction(signal, &default, std::ptr::null_mut());
                }
                (signal, before)
            }
        };
        WithoutPython { before: OF_PYTHON.map(set).to_vec() }
    }
}

impl Drop for WithoutPython {
    fn drop(&mut self) {
        for (signal, before) in &self.before {
            // SAFETY: restores the action from before `set`.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to a handler with SA_SIGINFO.
    if ASKS_TO_END.contains(&signal) && is_same_request(signal, unsafe { &*info }) {
        return;
    }
    // SAFETY: the address of this thread's errno is always valid. The handler saves errno and restores it at its end,
    // because the interrupted code must find it unchanged.
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
                    // SAFETY: only `on_second_interrupt` stores a value here, and it stores a function of this type.
                    unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(hook)() };
                }
            }
            _ => {
                // The third request ends the process. The default action does this as soon as the handler returns and
                // the signal is unblocked.
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

/// Returns whether this is the last end request once more (see [`SAME_REQUEST`]). Async-signal-safe.
fn is_same_request(signal: i32, info: &libc::siginfo_t) -> bool {
    // SAFETY: a signal with this code has a sender. The other calls have no preconditions.
    let is_of_leader = info.si_code == libc::SI_USER && unsafe { info.si_pid() == libc::getpgrp() };
    // SAFETY: as above.
    if !is_of_leader || unsafe { libc::getpgrp() == libc::getpid() } {
        return false;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call, which is async-signal-safe and cannot fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let before = (LAST_OF_LEADER.swap(signal, Ordering::SeqCst), LAST_TIME.swap(now, Ordering::SeqCst));
    before.0 == signal && now.saturating_sub(before.1) < SAME_REQUEST.as_nanos() as u64
}

/// Returns how many requests to end the process have arrived since the handlers were installed.
pub fn end_requests() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// Restores the previous signal handlers in a child that a script forked. Signals must be able to end such a child
/// (`multiprocessing` ends its workers with SIGTERM). Signals to the child must not count as signals to perf-prof.
/// Async-signal-safe. Does nothing if no handlers are installed.
pub fn restore_in_forked_child() {
    if WAKE.swap(-1, Ordering::SeqCst) < 0 {
        return;
    }
    for (signal, before) in CAUGHT.iter().zip(&BEFORE) {
        // SAFETY: all zeroes is a valid sigaction with an empty mask and no flags. The handler was installed before.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = before.load(Ordering::SeqCst);
            libc::sigaction(*signal, &action, std::ptr::null_mut());
        }
    }
}

/// Removes perf-prof's signal handlers in a forked child. Signals to the child must not count as signals to perf-prof.
/// Signals that perf-prof's parent ignored stay ignored (`nohup`). SIGPIPE gets its default action, because only Rust's
/// startup code made it ignored.
///
/// # Safety
///
/// To be called only in a forked child. Async-signal-safe.
pub(super) unsafe fn reset_in_child() {
    // SAFETY: all zeroes is a valid sigaction with SIG_DFL and an empty mask. A call that fails (SIGKILL, SIGSTOP)
    // changes nothing.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            if let Some(which) = CAUGHT.iter().position(|&caught| caught == signal)
                && now.sa_sigaction == handler as Handler as usize
                && BEFORE[which].load(Ordering::SeqCst) == libc::SIG_IGN
            {
                let mut ignored = default;
                ignored.sa_sigaction = libc::SIG_IGN;
                libc::sigaction(signal, &ignored, std::ptr::null_mut());
                continue;
            }
            if now.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE {
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, &default.sa_mask, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutex::Mutex;

    /// Held by each test that installs handlers. Tests run in parallel, but only one `Signals` may exist at a time.
    static INSTALLED: Mutex<()> = Mutex::new(());

    /// Gives SIGINT and SIGHUP their default actions. Tests that run in the background of a shell or under nohup
    /// inherit ignored signals, and `install` would leave these signals ignored.
    fn as_in_the_foreground() {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: no handler is installed that could be called.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }

    #[test]
    fn signals_are_counted_and_wake() {
        let _installed = INSTALLED.lock();
        as_in_the_foreground();
        let signals = Signals::install().unwrap();
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGUSR2, libc::SIGHUP] {
            // SAFETY: a handler is installed for each of these signals.
            unsafe { libc::raise(signal) };
        }
        let mut count = 0u64;
        // SAFETY: the call writes at most 8 bytes into a live u64.
        let size = unsafe { libc::read(signals.wake_fd(), (&raw mut count).cast(), 8) };
        assert_eq!((size, count), (8, 4));
        assert_eq!(signals.take_pending(), Pending { hangup: 1, user1: 1, user2: 2, ..Pending::default() });
        assert_eq!(signals.take_pending(), Pending::default());
    }

    /// Raises three signals in a forked child. Returns the child's wait status.
    fn status_after(signals: [i32; 3]) -> i32 {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        extern "C" fn hook() {
            CALLS.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the child installs handlers, raises signals and exits. It needs no other thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            as_in_the_foreground();
            if let Ok(installed) = Signals::install() {
                installed.on_second_interrupt(hook);
                for (signal, calls) in signals.into_iter().zip([0, 1]) {
                    // SAFETY: a handler is installed.
                    unsafe { libc::raise(signal) };
                    if CALLS.load(Ordering::SeqCst) != calls {
                        // SAFETY: the call has no preconditions; it ends the child at once.
                        unsafe { libc::_exit(2) };
                    }
                }
                // SAFETY: as above; this signal ends the process.
                unsafe { libc::raise(signals[2]) };
            }
            // SAFETY: the call has no preconditions; it ends the child at once.
            unsafe { libc::_exit(1) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status
    }

    /// Checks each signal three times in a row, and a mixture. SIGTERM and SIGHUP count in the same way as SIGINT.
    #[test]
    fn the_second_request_to_end_calls_and_the_third_ends() {
        let (int, term, hup) = (libc::SIGINT, libc::SIGTERM, libc::SIGHUP);
        for signals in [[int; 3], [term; 3], [hup; 3], [int, hup, term]] {
            let status = status_after(signals);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signals[2], "{signals:?}: {status:#x}");
        }
    }

    #[test]
    fn install_clears_pending_signals() {
        let _installed = INSTALLED.lock();
        PENDING.store(true, Ordering::SeqCst);
        assert!(!Signals::install().unwrap().is_pending());
    }
}
