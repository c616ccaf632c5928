//! Closes descriptors in a child process, so that perf-prof does not have to wait for the kernel. While other perf-prof
//! processes open events, the child waits.

use std::{
    ffi::CStr,
    fs::File,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use super::{
    call::{CallError, check},
    capability::with_right_to_read,
    pipe, signals,
};

/// The folder that perf-prof locks (flock(2)) while it opens or closes events. Only users who may read the folder can
/// lock it. Only these users can open tracepoints.
const TRACEFS: &CStr = c"/sys/kernel/tracing";

/// While this value exists, the children of other perf-prof processes close no descriptors. To close a tracepoint, the
/// kernel holds its lock of all tracepoints (`event_mutex`) for about 40 ms. To read a format file or to open a
/// tracepoint, the kernel takes the same lock. So without this value, each read of a format file and each open of a
/// tracepoint could wait for 40 ms.
#[derive(Debug)]
pub struct ClosingHeldOff {
    /// The locked folder. Closing the file releases the lock. `None` if the folder could not be opened or locked.
    _folder: Option<File>,
}

impl ClosingHeldOff {
    /// Waits until no child is closing a descriptor, and keeps all children from closing further ones. Without
    /// permission to read tracefs, this function does nothing.
    pub fn new() -> ClosingHeldOff {
        /// The maximum wait. On a busy machine, a close may take longer.
        const PATIENCE: Duration = Duration::from_millis(300);
        let Ok(folder) = with_right_to_read(|| File::open(TRACEFS.to_str().unwrap_or_default())) else {
            return ClosingHeldOff { _folder: None };
        };
        let begun = Instant::now();
        loop {
            if flock(&folder, FlockOperation::NonBlockingLockShared).is_ok() {
                return ClosingHeldOff { _folder: Some(folder) };
            }
            if begun.elapsed() > PATIENCE {
                return ClosingHeldOff { _folder: None };
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

impl Default for ClosingHeldOff {
    fn default() -> Self {
        Self::new()
    }
}

/// A descriptor whose close takes a long time.
#[derive(Debug)]
pub enum Slow {
    /// The descriptor of a link that keeps a program attached. When it is closed, the kernel waits some 10 ms, until no
    /// CPU runs the program any more.
    Program(OwnedFd),
    /// The descriptor of an event. When the last descriptor of a tracepoint is closed, the kernel holds its lock of all
    /// tracepoints during the close.
    Event(OwnedFd),
}

impl From<OwnedFd> for Slow {
    fn from(event: OwnedFd) -> Slow {
        Slow::Event(event)
    }
}

impl AsRawFd for Slow {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Slow::Program(descriptor) | Slow::Event(descriptor) => descriptor.as_raw_fd(),
        }
    }
}

/// Closes `descriptors`. The kernel's slow work happens in a forked child. The child gets copies of the descriptors,
/// and closes its copies last. The child closes programs at once. It closes events while no other perf-prof process
/// opens events.
pub fn close(descriptors: impl IntoIterator<Item = impl Into<Slow>>) {
    let mut descriptors: Vec<Slow> = descriptors.into_iter().map(Into::into).collect();
    if descriptors.is_empty() {
        return;
    }
    descriptors.sort_by_key(|descriptor| matches!(descriptor, Slow::Event(_)));
    // A pipe needs two descriptors. If this process is at its limit of open files, two descriptors are closed first.
    let pipe = pipe::new().or_else(|_| {
        descriptors.truncate(descriptors.len().saturating_sub(2));
        pipe::new()
    });
    // If no child can be created, the close only takes longer.
    let held = pipe.and_then(|(read, write)| hold(&descriptors, read, &write).map(|()| write));
    drop(descriptors);
    // Dropping the writing end tells the child to close its copies. The order matters: whoever closes the last copy has
    // to wait. This process has closed its descriptors already, so the child closes the last copies.
    drop(held);
}

/// Forks a process that keeps only `descriptors` open. The process waits until no writing end of a pipe is open any
/// more, and then closes `descriptors`. `ends` is the reading end of the pipe, and `write` is its writing end in this
/// process.
fn hold(descriptors: &[Slow], ends: OwnedFd, write: &OwnedFd) -> Result<(), CallError> {
    let programs = descriptors.iter().filter(|descriptor| matches!(descriptor, Slow::Program(_))).count();
    let descriptors: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut kept: Vec<u32> = descriptors.iter().chain([&ends.as_raw_fd()]).map(|&fd| fd as u32).collect();
    kept.sort_unstable();
    let gaps = gaps(&kept);
    debug_assert!(!kept.contains(&(write.as_raw_fd() as u32)));
    // SAFETY: between fork and _exit the children make only async-signal-safe calls. At the moment of the fork another
    // thread may have held any lock, including the allocator's.
    let child = check("fork", unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: as above. The child exits at once, so that init adopts the grandchild and the grandchild never
        // becomes a zombie of this process.
        unsafe {
            libc::setsid();
            if libc::fork() == 0 {
                wait_and_close(descriptors.split_at(programs), &gaps, ends.as_raw_fd());
            }
            libc::_exit(0)
        }
    }
    // SAFETY: this process forked the child and has not reaped it; a null pointer means that its status is not stored.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1
        && CallError::last("waitpid").errno() == libc::EINTR
    {}
    Ok(())
}

/// # Safety
///
/// To be called only in a forked child.
unsafe fn wait_and_close((programs, events): (&[RawFd], &[RawFd]), gaps: &[(u32, u32)], ends: RawFd) -> ! {
    // SAFETY: all calls are async-signal-safe and get live memory.
    unsafe {
        // The child closes all other descriptors now, because the reader of perf-prof's standard output must see the
        // end of the output when perf-prof ends. Besides, the child must not keep a terminal or a file system busy.
        for &(first, last) in gaps {
            if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
                (first..=last.min(1 << 16)).for_each(|fd| {
                    libc::close(fd as i32);
                });
            }
        }
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"perf-prof-close".as_ptr());
        signals::reset_in_child();
        let mut byte = 0u8;
        while libc::read(ends, (&raw mut byte).cast(), 1) == -1 && *libc::__errno_location() == libc::EINTR {}
        // 19 is the lowest priority of ordinary processes. SCHED_IDLE would be too low: on a busy machine, the child
        // would get no CPU while it holds the kernel's lock. All tracing programs would then wait.
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        for &fd in programs {
            libc::close(fd);
        }
        let folder = libc::open(TRACEFS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut pauses = MOST_PAUSES;
        for &fd in events {
            while folder != -1 && pauses != 0 && libc::flock(folder, libc::LOCK_EX | libc::LOCK_NB) != 0 {
                pauses -= 1;
                libc::usleep(PAUSE_US);
            }
            let begun = monotonic_us();
            libc::close(fd);
            libc::flock(folder, libc::LOCK_UN);
            if monotonic_us() - begun > SLOW_US {
                // The pause gives a process that waits for the lock the time to take it.
                libc::usleep(GAP_US);
            }
        }
        libc::_exit(0)
    }
}

/// The maximum number of pauses that the child makes while other processes open events: a minute of pauses. After that,
/// the child goes on, because a process that holds the lock may have been stopped.
const MOST_PAUSES: u32 = 60_000_000 / PAUSE_US;
const PAUSE_US: u32 = 10_000;
/// A close that takes longer than this has waited for a lock in the kernel. In microseconds.
const SLOW_US: i64 = 2_000;
/// The pause after a close that took longer than `SLOW_US`, in microseconds.
const GAP_US: u32 = 2_000;

fn monotonic_us() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which is async-signal-safe. The clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// Returns the ranges (first, last) of all descriptors that are not in `kept`. `kept` must be sorted.
fn gaps(kept: &[u32]) -> Vec<(u32, u32)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for &fd in kept {
        if next < fd {
            gaps.push((next, fd - 1));
        }
        next = fd + 1;
    }
    gaps.push((next, u32::MAX));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_descriptors() {
        assert_eq!(gaps(&[3, 4, 7]), [(0, 2), (5, 6), (8, u32::MAX)]);
        assert_eq!(gaps(&[0]), [(1, u32::MAX)]);
        assert_eq!(gaps(&[]), [(0, u32::MAX)]);
    }
}
