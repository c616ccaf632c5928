//! Counts of what was delivered and lost, kept by the run loop and read by the program.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::record::LossCounts;

/// One event's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Samples delivered to the program, with or without a handler.
    pub delivered: u64,
    /// Samples that the kernel dropped; `None` where it does not count them per event.
    pub lost: Option<u64>,
}

/// Counts by event and ring. Written by one thread, read by any.
#[derive(Debug)]
pub struct Stats {
    rings: usize,
    delivered: Vec<AtomicU64>,
    /// Per ring, what PERF_RECORD_LOST said.
    lost_in_ring: Vec<AtomicU64>,
    /// Samples of which nobody can tell the event.
    unattributed: AtomicU64,
    /// How often the kernel paused the sampling of an event.
    throttled: AtomicU64,
    /// What the kernel counted itself, when it was last asked.
    kernel: Mutex<Option<LossCounts>>,
}

impl Stats {
    /// Counts for so many events and rings.
    pub fn new(events: usize, rings: usize) -> Self {
        let zeros = |count| std::iter::repeat_with(|| AtomicU64::new(0)).take(count).collect();
        Self {
            rings,
            delivered: zeros(events * rings),
            lost_in_ring: zeros(rings),
            unattributed: 0.into(),
            throttled: 0.into(),
            kernel: Mutex::new(None),
        }
    }

    /// A sample was delivered.
    #[inline]
    pub fn delivered(&self, event: usize, ring: usize) {
        // There is one writer, so no locked instruction is needed.
        if let Some(count) = self.delivered.get(event * self.rings + ring) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    /// The kernel said that it dropped so many records of a ring.
    pub fn lost(&self, ring: usize, count: u64) {
        if let Some(lost) = self.lost_in_ring.get(ring) {
            lost.fetch_add(count, Relaxed);
        }
    }

    /// A sample came of which nobody can tell the event.
    pub fn unattributed(&self) {
        self.unattributed.fetch_add(1, Relaxed);
    }

    /// Samples of which nobody could tell the event.
    pub fn total_unattributed(&self) -> u64 {
        self.unattributed.load(Relaxed)
    }

    /// The kernel paused the sampling of an event.
    pub fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// How often the kernel paused the sampling of events.
    pub fn total_throttled(&self) -> u64 {
        self.throttled.load(Relaxed)
    }

    /// Puts in what the kernel counted.
    pub fn set_kernel_counts(&self, counts: Option<LossCounts>) {
        if let (Some(counts), Ok(mut kernel)) = (counts, self.kernel.lock()) {
            *kernel = Some(counts);
        }
    }

    /// What was counted here, for [`Stats::add`] in another process.
    pub fn counts(&self) -> Vec<u64> {
        self.delivered.iter().chain(&self.lost_in_ring).map(|count| count.load(Relaxed)).collect()
    }

    /// Adds what [`Stats::counts`] gave of as many events and rings.
    pub fn add(&self, counts: &[u64]) {
        for (count, more) in self.delivered.iter().chain(&self.lost_in_ring).zip(counts) {
            count.fetch_add(*more, Relaxed);
        }
    }

    /// Each event's counts, in the order in which they were selected.
    pub fn per_event(&self) -> Vec<EventCounts> {
        let kernel = self.kernel();
        let lost = |event: usize| kernel.as_ref().and_then(|counts| counts.per_event.get(event).copied());
        let rows = self.delivered.chunks(self.rings.max(1));
        rows.enumerate()
            .map(|(event, row)| EventCounts {
                delivered: row.iter().map(|count| count.load(Relaxed)).sum(),
                lost: lost(event),
            })
            .collect()
    }

    /// Each ring's delivered and lost counts.
    pub fn per_ring(&self) -> Vec<(u64, u64)> {
        let column = |ring| self.delivered.iter().skip(ring).step_by(self.rings.max(1)).map(|c| c.load(Relaxed)).sum();
        // Samples alone where the kernel tells them apart; its records count lost side-band too.
        let kernel = self.kernel();
        let counted = |ring: usize| kernel.as_ref().and_then(|counts| counts.samples_per_ring.get(ring).copied());
        (0..self.rings).map(|ring| (column(ring), counted(ring).unwrap_or_else(|| self.lost_records(ring)))).collect()
    }

    /// What PERF_RECORD_LOST said of one ring.
    pub fn lost_records(&self, ring: usize) -> u64 {
        self.lost_in_ring.get(ring).map_or(0, |lost| lost.load(Relaxed))
    }

    /// All samples delivered.
    pub fn total_delivered(&self) -> u64 {
        self.delivered.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// All samples lost: by the kernel's own count where it keeps one, else by what its records said. Between two times
    /// that the kernel is asked, its records may know more.
    pub fn total_lost(&self) -> u64 {
        match self.kernel() {
            Some(counts) => counts.per_event.iter().sum(),
            None => self.told(),
        }
    }

    /// Whether some record said that records were lost.
    pub fn has_losses_told(&self) -> bool {
        self.told() != 0
    }

    fn told(&self) -> u64 {
        self.lost_in_ring.iter().map(|lost| lost.load(Relaxed)).sum()
    }

    /// What the kernel counted itself, when it was last asked.
    pub fn kernel(&self) -> Option<LossCounts> {
        self.kernel.lock().ok().and_then(|kernel| kernel.clone())
    }
}
