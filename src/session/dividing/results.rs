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

    #[test]
    fn samples_without_a_cpu_count_once_if_the_parts_are_sets_of_cpus() {
        assert_eq!(sum(SplitBy::Cpu).sample_counts.unknown_ids, 5);
    }
}
