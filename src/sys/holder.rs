//! A child that closes descriptors in our place, so that it is not on our time.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::{
    call::{CallError, check},
    pipe, signals,
};

/// Closes `descriptors`. Those whose last holder pays for the closing are held by a child as well, so that it is not us.
pub fn close_elsewhere(mut descriptors: Vec<OwnedFd>) {
    // Two descriptors are needed for a pipe, which a process at its limit does not have.
    let pipe = pipe::new().or_else(|_| {
        descriptors.truncate(descriptors.len().saturating_sub(2));
        pipe::new()
    });
    // Without a child it takes its time, that is all.
    let held = pipe.and_then(|(read, write)| hold(&descriptors, read, &write).map(|()| write));
    drop(descriptors);
    // The child closes its copies when the pipe ends. Had it done so before us, we would be the last.
    drop(held);
}

/// Forks a process that holds `descriptors`, and nothing else of ours, until `ends` is at its end.
fn hold(descriptors: &[OwnedFd], ends: OwnedFd, write: &OwnedFd) -> Result<(), CallError> {
    let descriptors: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut kept: Vec<u32> = descriptors.iter().chain([&ends.as_raw_fd()]).map(|&fd| fd as u32).collect();
    kept.sort_unstable();
    let gaps = gaps(&kept);
    debug_assert!(!kept.contains(&(write.as_raw_fd() as u32)));
    // SAFETY: between fork and _exit the children do only what is async-signal-safe: another thread may have held any
    // lock, the allocator's included, at the moment of the fork.
    let child = check("fork", unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: as above. The child ends at once, so that the grandchild belongs to init and never is our zombie.
        unsafe {
            libc::setsid();
            if libc::fork() == 0 {
                wait_and_close(&descriptors, &gaps, ends.as_raw_fd());
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
unsafe fn wait_and_close(descriptors: &[RawFd], gaps: &[(u32, u32)], ends: RawFd) -> ! {
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
        let mut byte = 0u8;
        while libc::read(ends, (&raw mut byte).cast(), 1) == -1 && *libc::__errno_location() == libc::EINTR {}
        for &fd in descriptors {
            libc::close(fd);
        }
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
