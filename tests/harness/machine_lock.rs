//! Locks between tests that disturb each other. All runs of the tests on this machine share them.

use std::{env, fs::File, os::fd::AsRawFd};

/// Waits until no test holds the lock alone. Holds it beside others until the file is dropped.
pub fn shared(name: &str) -> File {
    locked(name, libc::LOCK_SH)
}

/// Waits until no other test holds the lock. Holds it alone until the file is dropped.
pub fn alone(name: &str) -> File {
    locked(name, libc::LOCK_EX)
}

fn locked(name: &str, how: libc::c_int) -> File {
    let path = env::temp_dir().join(format!("perf-prof-tests.{name}"));
    let file = File::options().create(true).append(true).open(path).unwrap();
    // SAFETY: flock takes no pointer, and the file is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    file
}
