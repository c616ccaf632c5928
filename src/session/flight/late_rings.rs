//! The rings that begin later than their dump, because the kernel overwrote more of their samples. Readers must not pair
//! samples from before and after the time at which such a ring begins. The time before it is not complete.
//!
//! ```text
//!   trigger  T             the dump begins at T, or at the first sample before T
//!   ring 0   . . b c d e   the samples between T and b are missing
//!   ring 1   . . . . h i   the samples between T and h are missing
//! ```

use perf_prof_capture::CopiedRing;

/// The first copy of a ring. Times are in ns of the events' clock.
#[derive(Clone, Copy, Debug)]
pub struct FirstCopy {
    /// The index of the ring.
    pub ring: u32,
    /// The time of the oldest sample. `None` if the copy contains no sample.
    pub oldest: Option<u64>,
    /// The number of copied bytes.
    pub bytes: u64,
    /// The bytes of the oldest samples in the copy, and the time in which they were written.
    pub early: (u64, u64),
    /// The number of bytes that were overwritten before the copy.
    pub overwritten: u64,
}

/// The times of a dump, in ns of the events' clock.
#[derive(Clone, Copy, Debug)]
pub struct DumpTimes {
    /// The time since which the rings keep events.
    pub began: u64,
    /// The start of the wanted time. If all time is wanted: the end of the last dump, or 0.
    pub from: u64,
    /// The time of the first trigger.
    pub trigger: u64,
    /// The time of the first copies.
    pub now: u64,
}

/// A ring that begins later than the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRing {
    /// The index of the ring.
    pub ring: u32,
    /// The time since which it is complete.
    pub begins: u64,
    /// The approximate number of bytes that are missing since the start of the dump.
    pub missing: u64,
}

/// The rate right after the missing samples is that of this part of the copied samples.
const EARLY_PART: usize = 4;

/// The rate is not known from fewer samples than this.
const FEWEST: usize = 16;

impl FirstCopy {
    /// Describes a copy. `time` returns the time of a record.
    pub fn new(copied: &CopiedRing, now: u64, time: impl Fn(&[u8]) -> Option<u64>) -> FirstCopy {
        let (oldest, bytes, starts) = (copied.oldest(&time), copied.size() as u64, copied.starts());
        let (later, early) = starts.split_at(starts.len() - starts.len() / EARLY_PART);
        let time_after = || later.last().and_then(|&start| time(copied.record(start)?));
        // With few samples, the rate is the mean of all the time since the oldest one.
        let (start, until) = match early.first().filter(|_| early.len() >= FEWEST).zip(time_after()) {
            Some((&start, after)) => (u64::from(start), after),
            None => (0, now),
        };
        let early = (bytes - start, oldest.map_or(0, |oldest| until.saturating_sub(oldest)));
        FirstCopy { ring: copied.ring, oldest, bytes, early, overwritten: copied.overwritten }
    }

    /// Returns the time since which the ring is complete. If all samples were overwritten during the copy, this is the time
    /// of the copy.
    pub fn complete_from(&self, times: &DumpTimes) -> u64 {
        match self.overwritten {
            0 => times.began,
            _ => self.oldest.unwrap_or(times.now).max(times.began),
        }
    }

    /// Returns about how many bytes were written in a time of this length before the oldest sample. A burst that
    /// overwrote the ring was as fast before that sample as right after it.
    fn written_before(&self, length: u64) -> u64 {
        let (bytes, time) = self.early;
        let written = u128::from(bytes) * u128::from(length) / u128::from(time.max(1));
        u64::try_from(written).unwrap_or(u64::MAX)
    }
}

/// Returns the rings that begin later than the dump. The dump begins with its first sample, or with its trigger if all
/// samples before the trigger were overwritten until they were copied.
pub fn late_rings(copies: &[FirstCopy], times: &DumpTimes) -> Vec<LateRing> {
    let DumpTimes { began, from, trigger, .. } = *times;
    let first = copies.iter().filter_map(|copy| copy.oldest).min().map_or(trigger, |first| first.max(began));
    let start = first.min(trigger).max(from);
    let late = |copy: &FirstCopy| {
        let begins = Some(copy.complete_from(times)).filter(|&begins| begins > start)?;
        let missing = copy.written_before(begins - start);
        // What a ring before this one has dropped is not counted.
        let missing = if start < began { missing } else { missing.min(copy.overwritten) };
        Some(LateRing { ring: copy.ring, begins, missing })
    };
    copies.iter().filter_map(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: DumpTimes = DumpTimes { began: 1, from: 1, trigger: 2900, now: 3000 };

    /// Returns the copy of a ring that was written with a byte in each ns.
    fn copy(ring: u32, oldest: u64, overwritten: u64) -> FirstCopy {
        FirstCopy { ring, oldest: Some(oldest), bytes: 3000 - oldest, early: (50, 50), overwritten }
    }

    fn late(ring: u32, begins: u64, missing: u64) -> LateRing {
        LateRing { ring, begins, missing }
    }

    #[test]
    fn a_ring_that_begins_after_the_first_sample_is_late() {
        let since = |copies: &[FirstCopy], from| late_rings(copies, &DumpTimes { from, ..TIMES });
        let both = [copy(0, 2000, 9000), copy(1, 2500, 9000)];
        assert_eq!(since(&both, 1), [late(1, 2500, 500)]);
        assert_eq!(since(&both, 2400), [late(1, 2500, 100)]);
        assert_eq!(since(&both, 2500), [], "all rings reach back to the wanted time");
        // A ring that was not overwritten is complete, also if its first sample is late.
        assert_eq!(since(&[copy(0, 2900, 0), copy(1, 2500, 600)], 1), []);
        assert_eq!(since(&[copy(0, 2000, 0), copy(1, 2500, 300)], 1), [late(1, 2500, 300)]);
        // Without samples in other rings, no span can begin before this ring does.
        let empty = FirstCopy { oldest: None, bytes: 0, early: (0, 0), ..copy(0, 0, 0) };
        assert_eq!(since(&[empty, copy(1, 2500, 600)], 1), []);
        // All samples were overwritten during the copy.
        let gone = FirstCopy { ring: 2, overwritten: 9000, ..empty };
        assert_eq!(since(&[copy(0, 2000, 1), gone], 1), [late(2, 3000, 0)]);
    }

    #[test]
    fn as_much_is_missing_when_all_time_is_wanted() {
        let all = |overwritten| {
            let copies = [copy(0, 2000, 9000), copy(1, 2500, overwritten)];
            late_rings(&copies, &DumpTimes { from: 0, ..TIMES })
        };
        assert_eq!(all(9000), [late(1, 2500, 500)]);
        assert_eq!(all(70), [late(1, 2500, 70)], "no more than was overwritten");
    }

    #[test]
    fn rings_that_begin_after_the_trigger_are_late() {
        let triggered = |copies: &[FirstCopy], trigger| late_rings(copies, &DumpTimes { trigger, ..TIMES });
        assert_eq!(triggered(&[copy(0, 2500, 9000)], 2500), []);
        assert_eq!(triggered(&[copy(0, 2500, 9000)], 2400), [late(0, 2500, 100)]);
        let both = [copy(0, 2500, 9000), copy(1, 2700, 9000)];
        assert_eq!(triggered(&both, 2400), [late(0, 2500, 100), late(1, 2700, 300)]);
        assert_eq!(triggered(&both, 2600), [late(1, 2700, 200)]);
        let gone = FirstCopy { oldest: None, bytes: 0, early: (0, 0), ..copy(0, 0, 9000) };
        assert_eq!(triggered(&[gone], 2400), [late(0, 3000, 0)]);
    }

    #[test]
    fn rings_that_were_replaced_after_the_trigger_are_late() {
        let times = DumpTimes { began: 2600, trigger: 2500, ..TIMES };
        assert_eq!(late_rings(&[copy(0, 2610, 0)], &times), [late(0, 2600, 100)]);
        // Samples of the time in which the events were turned on are no part of the dump.
        assert_eq!(late_rings(&[copy(0, 2590, 0)], &DumpTimes { trigger: 2700, ..times }), []);
    }
}
