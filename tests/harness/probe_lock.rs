//! A lock between the tests that define probes and the tests that this would disturb.
//!
//! When the definition of a probe is removed, the kernel empties the buffers of all instances of tracefs, because it
//! uses the ids of events again (`dyn_event_release()` in kernel/trace/trace_dynevent.c). perf-prof defines probes,
//! too.

use std::{cell::RefCell, env, fs::File, os::fd::AsRawFd};

thread_local! {
    /// The lock that a test's thread holds until it ends.
    static HELD: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// For tests that define probes. Until this test ends, tests that read the buffers of tracefs wait.
pub fn shared() {
    if HELD.with_borrow(Option::is_none) {
        HELD.set(Some(locked(libc::LOCK_SH)));
    }
}

/// For tests that read the buffers of tracefs. Until this test ends, tests that define probes wait, and so do other
/// tests that read the buffers.
pub fn alone() {
    HELD.set(Some(locked(libc::LOCK_EX)));
}

/// Other runs of the tests on this machine wait as well.
fn locked(how: libc::c_int) -> File {
    let path = env::temp_dir().join("perf-prof-tests.probes");
    let file = File::options().create(true).append(true).open(path).unwrap();
    // SAFETY: flock takes no pointer, and the file is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    file
}
