//! Adds up the results of parts.

use super::{PartCounts, PartResult};
use crate::{
    engine::{exit_status::Callbacks, sample_counts::SampleCounts},
    plan::SplitBy,
    symbol::UnnamedFrames,
};

/// The results of several parts together.
#[derive(Clone, Debug)]
pub struct Results {
    split: SplitBy,
    /// The counts. They are those of the run only if all parts are of one recording.
    pub counts: PartCounts,
    /// The number of lost events.
    pub lost: u64,
    /// How many samples were delivered or left out.
    pub sample_counts: SampleCounts,
    /// The latest time that was reached, in ns since the Unix epoch.
    pub reached: u64,
    /// Says whether a callback raised an exception in a part.
    pub callbacks: Callbacks,
    /// The frames without names.
    pub unnamed_frames: UnnamedFrames,
    /// The partial results of the script, pickled, in the order of the parts.
    pub partials: Vec<Vec<u8>>,
}

impl Results {
    /// Creates the sum of no results. `split` says how the recording was divided.
    pub fn new(split: SplitBy) -> Results {
        Results {
            split,
            counts: PartCounts::default(),
            lost: 0,
            sample_counts: SampleCounts::default(),
            reached: 0,
            callbacks: Callbacks::Returned,
            unnamed_frames: UnnamedFrames::default(),
            partials: Vec::new(),
        }
    }

    /// Adds the result of the next part.
    pub fn add(&mut self, part: PartResult) {
        let PartResult { counts, lost, sample_counts, reached, callbacks, unnamed_frames, partial } = part;
        self.counts.add(&counts);
        self.lost = self.lost.saturating_add(lost);
        let unknown_ids = self.sample_counts.unknown_ids;
        self.sample_counts.add(&sample_counts);
        // If a sample belongs to no event, its CPU is unknown. So if the recording is divided by CPU, each part has
        // counted all of these samples.
        if self.split == SplitBy::Cpu {
            self.sample_counts.unknown_ids = unknown_ids.max(sample_counts.unknown_ids);
        }
        self.reached = self.reached.max(reached);
        if callbacks == Callbacks::Raised {
            self.callbacks = Callbacks::Raised;
        }
        self.unnamed_frames.add_text(&unnamed_frames.text());
        self.partials.push(partial);
    }
}
