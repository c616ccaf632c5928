//! pidfd: lets perf-prof wait for the exit of a process or thread that is not its child. Does not know why it waits.

use std::os::fd::{FromRawFd, OwnedFd};

use super::call::{CallError, check};

/// `PIDFD_THREAD` of `include/uapi/linux/pidfd.h`, since Linux 6.9.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

/// Returns a descriptor that becomes readable when the process `pid` has exited, with all its threads.
pub fn of_process(pid: u32) -> Result<OwnedFd, CallError> {
    open(pid, 0)
}

/// Returns a descriptor that becomes readable when the thread `tid` has exited. Fails with EINVAL before Linux 6.9.
pub fn of_thread(tid: u32) -> Result<OwnedFd, CallError> {
    open(tid, PIDFD_THREAD)
}

fn open(id: u32, flags: u32) -> Result<OwnedFd, CallError> {
    // SAFETY: no pointers are passed.
    let fd = check("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
