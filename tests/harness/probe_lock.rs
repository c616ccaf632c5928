//! A lock between tests that define probes and tests that read the buffers of tracefs.
//!
//! When the definition of a probe is removed, the kernel empties the buffers of all instances of tracefs, because it
//! reuses the ids of events (`dyn_event_release()` in kernel/trace/trace_dynevent.c). perf-prof defines probes too.

use std::{cell::RefCell, fs::File};

use super::machine_lock;

const NAME: &str = "probes";

thread_local! {
    /// The lock that a test's thread holds until it ends.
    static HELD: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// For tests that define probes. Tests that read the buffers of tracefs wait until this test ends.
pub fn shared() {
    if HELD.with_borrow(Option::is_none) {
        HELD.set(Some(machine_lock::shared(NAME)));
    }
}

/// For tests that read the buffers of tracefs. Tests that define probes, and other tests that read the buffers, wait
/// until this test ends.
pub fn alone() {
    HELD.set(Some(machine_lock::alone(NAME)));
}
