//! Limits the samples per second of each ring (`--sampling-limit`).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{RECORD_HEADER, Records, SampleLayout, record_size, record_type},
};

const SECOND: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Limiter {
    limit: u32,
    layout: SampleLayout,
    rings: Vec<Window>,
    removed: Arc<AtomicU64>,
}

/// The current second of a ring: the time of its first sample, in nanoseconds, and the number of samples since then.
#[derive(Clone, Debug, Default)]
struct Window {
    start: u64,
    samples: u32,
}

impl Limiter {
    /// Creates a limiter for `limit` samples per second and ring. It adds the number of removed samples to `removed`.
    pub fn new(limit: u32, layout: SampleLayout, rings: usize, removed: Arc<AtomicU64>) -> Self {
        Self { limit, layout, rings: vec![Window::default(); rings], removed }
    }

    /// Removes the samples above the limit from `bytes`, which contains whole records of `ring`.
    pub fn apply(&mut self, ring: usize, bytes: &mut Vec<u8>) {
        let window = &mut self.rings[ring];
        let (mut from, mut to, mut removed) = (0, 0, 0);
        while let Some(record) = Records::new(&bytes[from..]).next() {
            let size = record_size(record);
            debug_assert!(size >= RECORD_HEADER);
            let keep = record_type(record) != PERF_RECORD_SAMPLE || {
                let time = self.layout.time(record).unwrap_or(window.start);
                if time >= window.start.saturating_add(SECOND) {
                    *window = Window { start: time, samples: 0 };
                }
                window.samples = window.samples.saturating_add(1);
                window.samples <= self.limit
            };
            if keep {
                bytes.copy_within(from..from + size, to);
                to += size;
            } else {
                removed += 1;
            }
            from += size;
        }
        bytes.truncate(to);
        self.removed.fetch_add(removed, Relaxed);
    }
}
