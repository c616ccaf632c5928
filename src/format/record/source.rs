//! The interface of a source of records. A source reads from live events or from a recording.

use std::time::Instant;

use super::Batch;

/// Why a source has no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The source was stopped.
    Stopped,
    /// Every task that the source was attached to has exited.
    TasksExited,
    /// The end of the recording was reached.
    EndOfInput,
}

/// The result of waiting for a source.
#[derive(Debug)]
pub enum Wait {
    /// Records to deliver.
    Batch(Batch),
    /// All records from before the call of [`Source::flush`] have been returned.
    Flushed,
    /// A signal arrived that the run loop has to handle.
    Woken,
    /// The deadline passed.
    Timeout,
    /// There are no more records. All records have been returned.
    Ended(Ended),
}

/// The exact numbers of records that the kernel dropped, as far as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// The lost samples per event, in the order in which the events were requested.
    pub per_event: Vec<u64>,
    /// All lost records per ring, including side-band records (names, forks and exits of tasks). PERF_RECORD_LOST
    /// reports the same losses, so these numbers can be compared with the numbers in PERF_RECORD_LOST.
    pub per_ring: Vec<u64>,
    /// The lost samples per ring, without side-band records. The user misses the events of these samples. The sum of
    /// these numbers equals the sum of `per_event`.
    pub samples_per_ring: Vec<u64>,
    /// How many of the lost samples the kernel never tried to write into a ring, so that larger rings change nothing. Known
    /// at the end of a live run; 0 before.
    pub unwritten: u64,
}

/// A source of records.
pub trait Source {
    /// Blocks until there is something to report, until the time `until`, or until the source ends. The caller must not
    /// hold the interpreter's lock.
    fn wait(&mut self, until: Option<Instant>) -> Wait;

    /// Tells the source that the first `count` records of `batch` have been delivered (all records if `batch` has fewer
    /// than `count`). The other records of the batch will not be delivered.
    fn delivered(&mut self, batch: &Batch, count: usize) {
        let _ = (batch, count);
    }

    /// Requests the records of all events that have happened before this call. `wait` returns these records and then
    /// [`Wait::Flushed`].
    fn flush(&mut self);

    /// Stops recording. `wait` returns the records that were recorded before, and then [`Wait::Ended`].
    fn stop(&mut self);

    /// Called after [`Source::stop`] if nobody wants the records that are left. If a live source needs them to know all losses
    /// ([`LossCounts::unwritten`]), it reads and drops them.
    fn drop_rest(&mut self) {}

    /// Returns the kernel's own loss counts (PERF_FORMAT_LOST, kernel 6.0), or `None` if the kernel does not keep them.
    fn losses(&mut self) -> Option<LossCounts>;

    /// Returns how many of the lost records of each ring are side-band records, or `None` if this is not known. The
    /// call is cheaper than [`Source::losses`].
    fn lost_side_band(&mut self) -> Option<Vec<u64>> {
        None
    }

    /// Returns the CPUs that went offline since the last call. The events on these CPUs have ended for good.
    fn take_offline_cpus(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the CPU of each ring, by ring index. The entry is `None` for a ring of a thread.
    fn ring_cpus(&self) -> Vec<Option<u32>>;

    /// Returns the size of each ring in bytes; `None` if there are no rings.
    fn ring_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns the time of day at which live events were turned off, in ns. Returns `None` while live events are on,
    /// and for recordings. The source may deliver events from before this time much later.
    fn off_at(&self) -> Option<i64> {
        None
    }

    /// Returns the number of samples that arrived too late to be delivered in order.
    fn late(&self) -> u64;

    /// Returns the number of samples that were left out because of a limit that the user set. These samples are not
    /// counted as lost.
    fn dropped_by_limit(&self) -> u64;

    /// Returns the number of bytes of the records in memory. The source has read these records, and their memory has
    /// not been handed back to the source yet.
    fn backlog(&self) -> usize;
}
