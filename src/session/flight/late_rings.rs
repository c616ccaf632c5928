//! The rings that begin later than the other rings of a dump, because the kernel overwrote more of their samples. Readers
//! must not pair a sample from before the begin of such a ring with a sample from after this begin.
//!
//! ```text
//!   ring 0   a b c d e f       the dump begins at a
//!   ring 1   . . . g h i       the samples before g are missing
//! ```

/// The first copy of a ring. Times are in ns of the events' clock.
#[derive(Clone, Copy, Debug)]
pub struct FirstCopy {
    /// The index of the ring.
    pub ring: u32,
    /// The time of the oldest sample. `None` if the copy contains no sample.
    pub oldest: Option<u64>,
    /// The number of copied bytes.
    pub bytes: u64,
    /// The number of bytes that were overwritten before the copy.
    pub overwritten: u64,
}

/// A ring that begins later than the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRing {
    /// The index of the ring.
    pub ring: u32,
    /// The time of its oldest sample.
    pub begins: u64,
    /// The approximate number of bytes that are missing since the start of the dump.
    pub missing: u64,
}

impl FirstCopy {
    /// Returns the time since which the ring is complete. If all samples were overwritten during the copy, this is `now`.
    pub fn complete_from(&self, now: u64) -> Option<u64> {
        (self.overwritten != 0).then(|| self.oldest.unwrap_or(now))
    }
}

/// Returns the rings that begin later than the first sample of the dump. `from` is the start of the wanted time; 0 if all
/// time is wanted. If `from` is 0, the numbers of missing bytes are 0, because a ring of an idle CPU may reach back for
/// hours. `now` is the time of the copies.
pub fn late_rings(copies: &[FirstCopy], from: u64, now: u64) -> Vec<LateRing> {
    let Some(first) = copies.iter().filter_map(|copy| copy.oldest).min() else { return Vec::new() };
    let start = first.max(from);
    let late = |copy: &FirstCopy| {
        let begins = copy.complete_from(now).filter(|&begins| begins > start)?;
        let (copied, missing) = (now.saturating_sub(begins).max(1), begins - start);
        let bytes = u128::from(copy.bytes) * u128::from(missing) / u128::from(copied);
        let missing = if from == 0 { 0 } else { u64::try_from(bytes).unwrap_or(u64::MAX).min(copy.overwritten) };
        Some(LateRing { ring: copy.ring, begins, missing })
    };
    copies.iter().filter_map(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_begins_after_the_first_sample_is_late() {
        let copy = |ring, oldest, overwritten| FirstCopy { ring, oldest: Some(oldest), bytes: 500, overwritten };
        let late = |copies: &[FirstCopy], from| late_rings(copies, from, 3000);
        let both = [copy(0, 2000, 9000), copy(1, 2500, 9000)];
        assert_eq!(late(&both, 1), [LateRing { ring: 1, begins: 2500, missing: 500 }]);
        assert_eq!(late(&both, 2400), [LateRing { ring: 1, begins: 2500, missing: 100 }]);
        assert_eq!(late(&both, 2500), [], "all rings reach back to the wanted time");
        assert_eq!(late(&both, 0), [LateRing { ring: 1, begins: 2500, missing: 0 }], "all time is wanted");
        // A ring that was not overwritten is complete, also if its first sample is late.
        assert_eq!(late(&[copy(0, 2900, 0), copy(1, 2500, 600)], 1), []);
        assert_eq!(
            late(&[copy(0, 2000, 0), copy(1, 2500, 300)], 1),
            [LateRing { ring: 1, begins: 2500, missing: 300 }]
        );
        // Without samples in other rings, no span can begin before this ring does.
        let empty = FirstCopy { oldest: None, bytes: 0, ..copy(0, 0, 0) };
        assert_eq!(late(&[empty, copy(1, 2500, 600)], 1), []);
        // All samples were overwritten during the copy.
        let gone = FirstCopy { ring: 2, overwritten: 9000, ..empty };
        assert_eq!(late(&[copy(0, 2000, 1), gone], 1), [LateRing { ring: 2, begins: 3000, missing: 0 }]);
    }
}
