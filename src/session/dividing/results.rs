//! Adds up the results of parts.

use perf_prof_symbols::symbol::UnnamedFrames;

use super::{PartCounts, PartResult};
use crate::{
    engine::{exit_status::Callbacks, sample_counts::SampleCounts},
    plan::SplitBy,
};

/// The results of several parts together.
#[derive(Clone, Debug, Default)]
pub struct Results {
    split: SplitBy,
    /// The counts of all parts. They are the counts of the run only if all parts belong to one recording.
    pub counts: PartCounts,
    /// The number of lost events.
    pub lost: u64,
    /// True if something was found damaged in the recordings.
    pub damaged: bool,
    /// How many samples were delivered or left out.
    pub sample_counts: SampleCounts,
    /// The latest time up to which a recording was read, in ns since the Unix epoch.
    pub reached: u64,
    /// Says whether a callback raised an exception in a part.
    pub callbacks: Callbacks,
    /// The frames without names.
    pub unnamed_frames: UnnamedFrames,
    /// The partial results of the script, pickled, in the order of the parts.
    pub partials: Vec<Vec<u8>>,
}

impl Results {
    /// Creates an empty sum. `split` says how the recording was divided.
    pub fn new(split: SplitBy) -> Results {
        Results { split, ..Results::default() }
    }

    /// Adds the results of all parts of a recording. Returns how many of its events were lost.
    ///
    /// perf's counts of lost samples are at the end of the recording, so only the last part has them. They are exact: the
    /// records about losses, which the other parts have counted, are also about events that were not selected.
    pub fn add_recording(&mut self, parts: Vec<PartResult>) -> u64 {
        let has_counts = parts.iter().any(|part| !part.counts.lost.is_empty());
        let of_part = |part: &PartResult| if has_counts { part.counts.stored_losses() } else { part.lost };
        let lost = parts.iter().map(of_part).fold(0, u64::saturating_add);
        let all = self.lost.saturating_add(lost);
        parts.into_iter().for_each(|part| self.add(part));
        self.lost = all;
        lost
    }

    /// Adds the result of the next part.
    pub fn add(&mut self, part: PartResult) {
        let PartResult { counts, lost, sample_counts, reached, callbacks, unnamed_frames, damage, partial } = part;
        self.counts.add(&counts);
        self.lost = self.lost.saturating_add(lost);
        self.damaged |= !damage.is_empty() || sample_counts.unknown_ids != 0;
        let unknown_ids = self.sample_counts.unknown_ids;
        self.sample_counts.add(&sample_counts);
        // A sample without an event has no known CPU. So if the recording is divided by CPU, every part has read and
        // counted all such samples.
        if self.split == SplitBy::Cpu {
            self.sample_counts.unknown_ids = unknown_ids.max(sample_counts.unknown_ids);
        }
        self.reached = self.reached.max(reached);
        self.callbacks = self.callbacks.and(callbacks);
        self.unnamed_frames.add_text(&unnamed_frames.text());
        self.partials.push(partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sample_counts::ReadExtent;

    fn part(delivered: u64, callbacks: Callbacks, reach: ReadExtent) -> PartResult {
        PartResult {
            counts: PartCounts { stats: vec![delivered], last: delivered, ..PartCounts::default() },
            lost: 1,
            sample_counts: SampleCounts { delivered, unknown_ids: 5, guests: 2, reach },
            reached: delivered,
            callbacks,
            unnamed_frames: UnnamedFrames::default(),
            damage: Vec::new(),
            partial: vec![delivered as u8],
        }
    }

    fn sum(split: SplitBy) -> Results {
        let mut results = Results::new(split);
        results.add(part(8, Callbacks::Raised, ReadExtent::Short));
        results.add(part(7, Callbacks::Returned, ReadExtent::End));
        results
    }

    #[test]
    fn results_are_added_up_in_the_order_of_the_parts() {
        let Results { counts, lost, sample_counts, reached, callbacks, partials, .. } = sum(SplitBy::Time);
        assert_eq!((counts.stats, counts.last, lost, reached), (vec![15], 8, 2, 8));
        let all = SampleCounts { delivered: 15, unknown_ids: 10, guests: 4, reach: ReadExtent::Short };
        assert_eq!((sample_counts, callbacks, partials), (all, Callbacks::Raised, vec![vec![8], vec![7]]));
    }

    /// The losses of each part and those of the whole recording were added up.
    #[test]
    fn the_counts_of_a_recording_replace_those_of_its_parts() {
        let part = |records: u64, stored: &[u64]| {
            let counts = PartCounts { lost: stored.to_vec(), ..PartCounts::default() };
            let lost = records.max(counts.stored_losses());
            PartResult { lost, counts, ..part(0, Callbacks::Returned, ReadExtent::End) }
        };
        let mut all = Results::new(SplitBy::Time);
        let lost = |all: &mut Results, parts: Vec<PartResult>| (all.add_recording(parts), all.lost);
        assert_eq!(lost(&mut all, vec![part(70, &[]), part(8, &[90, 10])]), (100, 100));
        // Only events that were not selected were lost.
        assert_eq!(lost(&mut all, vec![part(70, &[]), part(8, &[0])]), (0, 100));
        // The recording has no counts.
        assert_eq!(lost(&mut all, vec![part(70, &[]), part(8, &[])]), (78, 178));
        assert_eq!(lost(&mut all, vec![part(70, &[])]), (70, 248));
    }

    #[test]
    fn samples_without_a_cpu_count_once_if_the_parts_are_sets_of_cpus() {
        assert_eq!(sum(SplitBy::Cpu).sample_counts.unknown_ids, 5);
    }
}
