//! pidfd: waits for the end of a task that is not our child.

use std::os::fd::{FromRawFd, OwnedFd};

use super::call::{CallError, check};

/// `PIDFD_THREAD` of `include/uapi/linux/pidfd.h`, Linux 6.9.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

/// Becomes readable when the process `pid` has exited (its last thread).
pub fn of_process(pid: u32) -> Result<OwnedFd, CallError> {
    open(pid, 0)
}

/// Becomes readable when the thread `tid` has exited. EINVAL before Linux 6.9.
pub fn of_thread(tid: u32) -> Result<OwnedFd, CallError> {
    open(tid, PIDFD_THREAD)
}

fn open(id: u32, flags: u32) -> Result<OwnedFd, CallError> {
    // SAFETY: no pointers are passed.
    let fd = check("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
