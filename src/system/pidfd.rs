//! pidfd: lets perf-prof wait for the exit of a process or thread that is not its child.

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::call::{CallError, failed};

/// `PIDFD_THREAD` of `include/uapi/linux/pidfd.h`, since Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Returns a descriptor that becomes readable when all threads of the process `pid` have exited.
pub fn of_process(pid: u32) -> Result<OwnedFd, CallError> {
    open(pid, PidfdFlags::empty())
}

/// Returns a descriptor that becomes readable when the thread `tid` has exited. Fails with EINVAL before Linux 6.9.
pub fn of_thread(tid: u32) -> Result<OwnedFd, CallError> {
    open(tid, PIDFD_THREAD)
}

fn open(id: u32, flags: PidfdFlags) -> Result<OwnedFd, CallError> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL);
    id.and_then(|id| pidfd_open(id, flags)).map_err(failed("pidfd_open"))
}
