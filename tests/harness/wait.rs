//! Waits for what other programs do, and ends what works beside a test.

use std::{
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for something that usually comes at once. Other tests may keep the machine busy.
const SOON: Duration = Duration::from_secs(60);

/// Waits until a condition holds. If it does not hold soon, the test fails, and says what has not happened.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "this has not happened in {} s: {what}", SOON.as_secs());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed when this is dropped, also if the test fails: it would disturb other tests.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells the threads of a scope to end when it is dropped, also if the test fails: the scope waits for its threads even then.
pub struct EndsThreads<'a>(pub &'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
