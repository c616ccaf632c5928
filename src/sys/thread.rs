//! The calling thread's standing with the scheduler.

/// Asks that this thread is preferred over ordinary ones, as far as we may (CAP_SYS_NICE).
pub fn prefer() {
    // SAFETY: no pointers are passed. On Linux 0 means the calling thread, not its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}
