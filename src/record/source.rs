//! The port through which records come in, live or recorded.

use std::time::Instant;

use super::Batch;

/// Why a source has no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// Every task that it was attached to has exited.
    TasksExited,
    /// The recording is at its end.
    EndOfInput,
}

/// What waiting for a source gave.
#[derive(Debug)]
pub enum Wait {
    /// Records to deliver.
    Batch(Batch),
    /// Everything that had happened when [`Source::flush`] was called has been handed out.
    Flushed,
    /// Something outside wants the run loop's attention: a signal came.
    Woken,
    /// The deadline passed.
    Timeout,
    /// No more records will come; all were handed out.
    Ended(Ended),
}

/// How many records the kernel dropped, exactly, as far as it tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Samples per event, in the order in which the events were asked for.
    pub per_event: Vec<u64>,
    /// All records per ring, side-band records (names, births and deaths of tasks) included: what PERF_RECORD_LOST
    /// counts, to be compared with that.
    pub per_ring: Vec<u64>,
    /// Samples alone per ring: the events that the user misses. Its sum is that of `per_event`.
    pub samples_per_ring: Vec<u64>,
}

/// Where records come from.
pub trait Source {
    /// Blocks until something is there, `until` passes or the source ends. Called without the interpreter's lock.
    fn wait(&mut self, until: Option<Instant>) -> Wait;

    /// The first `count` records of a batch were delivered, or all of them if there are not so many; the others will not be.
    fn delivered(&mut self, batch: &Batch, count: usize) {
        let _ = (batch, count);
    }

    /// Asks for all that has happened by now; [`Wait::Flushed`] follows it.
    fn flush(&mut self);

    /// Stops producing. What was recorded is still handed out, then [`Wait::Ended`].
    fn stop(&mut self);

    /// The kernel's own loss counts (PERF_FORMAT_LOST, kernel 6.0), or `None` where it does not keep them.
    fn losses(&mut self) -> Option<LossCounts>;

    /// Each ring's CPU, by ring index; `None` for a ring of a thread.
    fn ring_cpus(&self) -> Vec<Option<u32>>;

    /// Samples that came too late to be delivered in order.
    fn late(&self) -> u64;

    /// Samples left out because of a limit that the user set; they are no losses.
    fn limited(&self) -> u64;

    /// Bytes recorded and not yet handed back.
    fn backlog(&self) -> usize;
}
