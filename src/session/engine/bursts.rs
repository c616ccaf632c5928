//! Bursts of lost events: finds the ring size that would have been large enough for the largest burst.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use perf_prof_format::record::Batch;

/// Losses of one ring belong to the same burst if they are at most this far apart.
const APART: Duration = Duration::from_secs(1);

/// Rings of at least this size, in bytes, are not recommended, because each CPU has one ring.
const LARGEST: u64 = 1 << 30;

/// The number of records that are measured to estimate the average size of a record.
const MEASURED: u64 = 1000;

/// The bursts of a run.
#[derive(Default)]
pub struct Bursts {
    /// The size of each ring in bytes; 0 if events come from a recording.
    ring: u64,
    /// For each ring: the number of records that were lost in its last burst, and the time of the last loss.
    last: Vec<(u64, Option<Instant>)>,
    /// The number of records that the largest burst of a ring has lost.
    largest: u64,
    /// The number and the bytes of the records that were measured.
    measured: (u64, u64),
}

impl Bursts {
    /// Creates an object without bursts. `ring` is the size of each ring in bytes.
    pub fn new(rings: usize, ring: Option<usize>) -> Self {
        Self { ring: ring.unwrap_or(0) as u64, last: vec![(0, None); rings], ..Self::default() }
    }

    /// Adds the numbers of records that each ring has lost since the last call.
    pub fn add(&mut self, losses: &[u64], now: Instant) {
        for ((burst, last), &lost) in self.last.iter_mut().zip(losses).filter(|(_, lost)| **lost != 0) {
            if last.is_none_or(|last| now - last > APART) {
                *burst = 0;
            }
            (*burst, *last) = (*burst + lost, Some(now));
            self.largest = self.largest.max(*burst);
        }
    }

    /// Measures the records of a batch. Called for batches with losses.
    pub fn measure(&mut self, batch: &Batch) {
        let (records, bytes) = &mut self.measured;
        let _ = batch.for_each(|_, record| {
            if *records >= MEASURED {
                return ControlFlow::Break(());
            }
            (*records, *bytes) = (*records + 1, *bytes + record.len() as u64);
            ControlFlow::Continue(())
        });
    }

    /// Returns the ring size that would have held the largest burst, as text for `-m`, and the number of records in
    /// this burst. Returns `None` if no record was lost, or if the size would be `LARGEST` or more.
    pub fn ring_that_holds_all(&self) -> Option<(String, u64)> {
        let (records, bytes) = self.measured;
        if self.ring == 0 || self.largest == 0 || records == 0 {
            return None;
        }
        let needed = self.ring + self.largest.saturating_mul(bytes.div_ceil(records));
        let size = needed.checked_next_power_of_two().filter(|&size| size < LARGEST)?;
        let text = if size < 1 << 20 { format!("{}K", size >> 10) } else { format!("{}M", size >> 20) };
        Some((text, self.largest))
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::record::Chunk;

    use super::*;

    fn batch(records: usize, size: u16) -> Batch {
        let mut record = vec![0; size.into()];
        record[6..8].copy_from_slice(&size.to_ne_bytes());
        Batch::Ring(Chunk::new(0, record.repeat(records), None))
    }

    #[test]
    fn a_ring_that_holds_the_largest_burst_has_room_for_what_was_lost() {
        let mut bursts = Bursts::new(2, Some(64 << 10));
        let start = Instant::now();
        assert_eq!(bursts.ring_that_holds_all(), None);
        bursts.measure(&batch(10, 96));
        bursts.measure(&batch(10, 104));
        bursts.add(&[1000, 0], start);
        // The ring has 64 KiB. The new ring also needs space for 1000 lost records of 100 bytes.
        assert_eq!(bursts.ring_that_holds_all(), Some(("256K".to_owned(), 1000)));
        bursts.add(&[2000, 500], start + APART / 2);
        bursts.add(&[0, 400], start + APART);
        assert_eq!(bursts.ring_that_holds_all(), Some(("512K".to_owned(), 3000)));
        // Another burst begins, and is smaller.
        bursts.add(&[2500, 0], start + 3 * APART);
        assert_eq!(bursts.ring_that_holds_all(), Some(("512K".to_owned(), 3000)));
        bursts.add(&[20_000, 0], start + 4 * APART);
        assert_eq!(bursts.ring_that_holds_all(), Some(("4M".to_owned(), 22_500)));
        bursts.add(&[20_000_000, 0], start + 5 * APART);
        assert_eq!(bursts.ring_that_holds_all(), None);
    }

    #[test]
    fn no_ring_is_named_for_a_recording() {
        let mut bursts = Bursts::new(1, None);
        bursts.measure(&batch(1, 8));
        bursts.add(&[5], Instant::now());
        assert_eq!(bursts.ring_that_holds_all(), None);
    }
}
