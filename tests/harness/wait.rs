//! Waits for other programs, and ends the processes and threads of a test.

use std::{
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for something that usually happens at once. Other tests may keep the machine busy.
const SOON: Duration = Duration::from_secs(60);

/// Waits until a condition holds. If it does not hold in time, the test fails with `what`, which has not happened.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "this has not happened in {} s: {what}", SOON.as_secs());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed when this value is dropped, also after a failure. Otherwise it would disturb other tests.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells the threads of a scope to end when this value is dropped, also after a failure. Otherwise the scope would wait
/// for them for ever.
pub struct EndsThreads<'a>(pub &'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
