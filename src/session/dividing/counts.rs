//! The counts of a part of a recording, and their sum for the run.

use perf_prof_events::event::Stats;
use perf_prof_format::record::LossCounts;

/// The counts of a part of a recording, or of several parts together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartCounts {
    /// The counts of delivered and lost events, from [`Stats::counts`].
    pub stats: Vec<u64>,
    /// The number of lost samples of each event, as perf stored it at the end of the recording. Empty if perf stored no
    /// numbers.
    pub lost: Vec<u64>,
    /// The number of lost samples of each ring, as perf stored it.
    pub lost_per_ring: Vec<u64>,
    /// The tasks whose spans are incomplete, from [`Stats::incomplete`].
    pub incomplete: Vec<u64>,
    /// The time of the last sample, in ns.
    pub last: u64,
}

impl PartCounts {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: &PartCounts) {
        add_each(&mut self.stats, &other.stats);
        add_each(&mut self.lost, &other.lost);
        add_each(&mut self.lost_per_ring, &other.lost_per_ring);
        self.incomplete.extend(&other.incomplete);
        self.last = self.last.max(other.last);
    }

    /// Returns the number of lost samples, as perf stored it at the end of the recording.
    pub fn stored_losses(&self) -> u64 {
        self.lost.iter().fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    /// Adds the lost samples that perf stored at the end of the recording to `stats`, the counts of the run. `stats`
    /// must already contain the counts of all parts. Returns the number of stored losses that no PERF_RECORD_LOST
    /// reports, because they happened after the last record of a ring.
    pub fn count_losses(&self, stats: &Stats) -> u64 {
        if self.lost.is_empty() {
            return 0;
        }
        let rings = stats.per_ring().len();
        let samples_per_ring = self.known_per_ring(stats, rings).unwrap_or_default();
        let unreported = self.stored_losses().saturating_sub(stats.total_lost());
        stats.count_lost(rings.saturating_sub(1), unreported);
        let mut per_event = self.lost.clone();
        per_event.resize(stats.per_event().len(), 0);
        stats.set_kernel_counts(Some(LossCounts {
            per_event,
            per_ring: vec![0; rings],
            samples_per_ring,
            unwritten: 0,
        }));
        unreported
    }

    /// Returns the number of lost samples of each ring; `None` if perf did not store all of them.
    fn known_per_ring(&self, stats: &Stats, rings: usize) -> Option<Vec<u64>> {
        let mut per_ring = self.lost_per_ring.clone();
        per_ring.resize(rings, 0);
        let is_whole = per_ring.iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost)) == self.stored_losses();
        let is_known = per_ring.iter().enumerate().all(|(ring, &lost)| lost != 0 || stats.lost_records(ring) == 0);
        (is_whole && is_known).then_some(per_ring)
    }
}

/// Adds each number to the sum with the same index. Missing sums count as 0.
fn add_each(sums: &mut Vec<u64>, numbers: &[u64]) {
    if sums.len() < numbers.len() {
        sums.resize(numbers.len(), 0);
    }
    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.saturating_add(*number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_losses_count_once() {
        let stats = Stats::new(3, 2);
        stats.count_lost(0, 4);
        let part = |lost: &[u64], last| {
            let (stats, lost, incomplete) = (stats.counts(), lost.to_vec(), vec![last]);
            PartCounts { stats, lost, incomplete, last, ..PartCounts::default() }
        };
        let mut all = PartCounts::default();
        for part in [part(&[], 5), part(&[1, 2], 9), part(&[3, 0], 7)] {
            all.add(&part);
        }
        let of_run = Stats::new(3, 2);
        of_run.add(&part(&[], 0).stats);
        assert_eq!((all.last, all.lost.as_slice(), all.count_losses(&of_run)), (9, &[4, 2][..], 2));
        assert_eq!(of_run.total_lost(), 6);
        assert_eq!(of_run.per_event().iter().map(|event| event.lost).collect::<Vec<_>>(), [Some(4), Some(2), Some(0)]);
        assert_eq!((of_run.lost_records(0), of_run.lost_records(1)), (4, 2));
    }

    /// PERF_RECORD_LOST counts lost records of all kinds.
    #[test]
    fn the_stored_losses_of_the_rings_are_those_of_samples() {
        let stats = Stats::new(1, 3);
        [(0, 5), (1, 3)].into_iter().for_each(|(ring, lost)| stats.count_lost(ring, lost));
        let per_ring = |of_parts: &[&[u64]]| {
            let mut all = PartCounts::default();
            for lost_per_ring in of_parts {
                let lost = vec![lost_per_ring.iter().sum()];
                all.add(&PartCounts { lost, lost_per_ring: lost_per_ring.to_vec(), ..PartCounts::default() });
            }
            let of_run = Stats::new(1, 3);
            of_run.add(&stats.counts());
            all.count_losses(&of_run);
            (of_run.per_ring().iter().map(|(_, lost)| *lost).collect::<Vec<_>>(), of_run.total_lost())
        };
        assert_eq!(per_ring(&[&[4, 0, 0], &[0, 3, 0]]), (vec![4, 3, 0], 7));
        // The number for the second ring is missing, so nobody knows which CPU lost the other samples.
        assert_eq!(per_ring(&[&[4, 0, 3]]), (vec![5, 3, 0], 7));
    }

    #[test]
    fn a_recording_without_stored_losses_changes_no_counts() {
        let stats = Stats::new(1, 1);
        stats.count_lost(0, 4);
        assert_eq!(PartCounts::default().count_losses(&stats), 0);
        assert_eq!((stats.total_lost(), stats.kernel()), (4, None));
    }
}
