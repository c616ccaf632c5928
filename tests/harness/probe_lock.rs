//! Who defines probes, and who must not see that.
//!
//! When the definition of a probe is removed the kernel empties the buffers of all instances of tracefs, as the numbers of
//! events are used again (`dyn_event_release()` in kernel/trace/trace_dynevent.c). perf-prof has definitions of its own.

use std::{cell::RefCell, env, fs::File, os::fd::AsRawFd};

thread_local! {
    /// What a test's thread holds until its end.
    static HELD: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Keeps those away until the end of this test who read the buffers of tracefs.
pub fn shared() {
    if HELD.with_borrow(Option::is_none) {
        HELD.set(Some(locked(libc::LOCK_SH)));
    }
}

/// Keeps those away until the end of this test who define probes, and who read the buffers as well.
pub fn alone() {
    HELD.set(Some(locked(libc::LOCK_EX)));
}

/// Other runs of the tests on this machine wait as well.
fn locked(how: libc::c_int) -> File {
    let path = env::temp_dir().join("perf-prof-tests.probes");
    let file = File::options().create(true).append(true).open(path).unwrap();
    // SAFETY: takes no pointer; the file is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    file
}
