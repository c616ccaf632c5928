//! Decides when the output of a program is written: before the run loop waits, and once a second while it has no time
//! to wait.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use perf_prof_events::event::Deliver;

use super::pump::BreakReason;

/// The longest time for which output is collected while the program receives events.
const EVERY: Duration = Duration::from_secs(1);
/// The number of samples between two readings of the clock. Reading the clock takes as long as delivering a sample to a
/// program without a handler.
const SAMPLES: u32 = 16;

/// When output was last written.
#[derive(Debug)]
pub(super) struct Flushing {
    /// True if the program collects its output.
    is_needed: bool,
    /// True if the program was called since the last flush, so that it may have new output.
    is_due: bool,
    samples: u32,
    last: Instant,
}

impl Flushing {
    pub fn new(is_needed: bool, now: Instant) -> Self {
        Self { is_needed, is_due: false, samples: 0, last: now }
    }

    /// Notes that the program was called, so it may have new output.
    pub fn called(&mut self) {
        self.is_due = self.is_needed;
    }

    /// Returns whether the program has to be flushed before the loop waits.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns the time at which the loop has to flush at the latest. Threads of the program may write at any time.
    pub fn next(&self) -> Option<Instant> {
        self.is_needed.then(|| self.last + EVERY)
    }

    /// Called before each sample. Flushes the program if a second has passed since the last flush.
    #[inline]
    pub fn before_sample(&mut self, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        self.samples = self.samples.wrapping_add(1);
        if self.is_needed && self.samples.is_multiple_of(SAMPLES) {
            return self.flush_if_late(program);
        }
        ControlFlow::Continue(())
    }

    #[cold]
    fn flush_if_late(&mut self, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        if self.last.elapsed() < EVERY { ControlFlow::Continue(()) } else { self.flush(program) }
    }

    /// Flushes the program.
    pub fn flush(&mut self, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        (self.is_due, self.last) = (false, Instant::now());
        program.flush().map_break(BreakReason::Stop)
    }
}
