//! A child that holds descriptors until this process has exited, so that closing them for good is not on our time.

use std::os::fd::{AsRawFd, RawFd};

use super::{
    call::{CallError, check},
    pidfd, signals,
};

/// Forks a process that holds `descriptors`, and nothing else of ours, until we have exited.
///
/// It waits for our exit and not for the moment when we close ours: who drops a descriptor last is who pays for it.
/// (A pidfd becomes readable in exit_notify(), after exit_files() and the task work that it queued.)
pub fn hold_until_exit(descriptors: &[RawFd]) -> Result<(), CallError> {
    let own = pidfd::of_process(std::process::id())?;
    let mut kept: Vec<u32> = descriptors.iter().map(|&fd| fd as u32).chain([own.as_raw_fd() as u32]).collect();
    kept.sort_unstable();
    let gaps = gaps(&kept);
    // SAFETY: between fork and _exit the children do only what is async-signal-safe: another thread may have held any
    // lock, the allocator's included, at the moment of the fork.
    let child = check("fork", unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: as above. The child ends at once, so that the grandchild belongs to init and never is our zombie.
        unsafe {
            libc::setsid();
            if libc::fork() == 0 {
                hold(&gaps, own.as_raw_fd());
            }
            libc::_exit(0)
        }
    }
    // SAFETY: the child is ours and was not reaped; its status is of no interest.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1
        && CallError::last("waitpid").errno() == libc::EINTR
    {}
    Ok(())
}

/// # Safety
///
/// Only in a forked child.
unsafe fn hold(gaps: &[(u32, u32)], parent: RawFd) -> ! {
    // SAFETY: only async-signal-safe calls, on live memory.
    unsafe {
        // The reader of our standard output must see its end now, a terminal must not be kept, nor a file system.
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
        let mut exit = libc::pollfd { fd: parent, events: libc::POLLIN, revents: 0 };
        while libc::poll(&mut exit, 1, -1) == -1 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}

/// The descriptors between and around those that are kept.
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
