//! Calls from which no thread returns: they end with their thread.

use perf_prof_format::abi::system_calls;

use super::Engine;
use crate::derive::span::key::Key;

impl Engine {
    /// Drops the calls of a thread that exited at `time`. An open call that began later is of another thread with the same id.
    pub(super) fn drop_calls_of_exited(&mut self, tid: i32, time: u64) {
        let Some(definition) = self.span.definition else { return };
        for name in definition.without_return {
            for number in system_calls::numbers(self.context.machine(), name) {
                // The call still counts as open, as it does where a program in the kernel pairs the calls.
                self.close_begun_until(&Key::two(i64::from(tid) as u64, number as u64), time);
            }
        }
    }
}
