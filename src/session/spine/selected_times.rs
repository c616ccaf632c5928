//! How much of a recording's time is selected.

use perf_prof_recordings::Selection;

/// The selected ranges of time, in ns of the recording's clock.
pub struct SelectedTimes {
    /// The ranges by their starts. Both ends are included. They have no nanosecond in common.
    ranges: Vec<(u64, u64)>,
}

impl SelectedTimes {
    /// Creates the times from ranges that may overlap. If there is no range, all times are selected.
    pub fn new(selected: &[(u64, u64)]) -> SelectedTimes {
        let ranges = if selected.is_empty() { vec![(0, u64::MAX)] } else { Selection::merged(selected) };
        SelectedTimes { ranges }
    }

    /// Returns the length in ns of the selected times from `first` to `last`.
    pub fn length_within(&self, first: u64, last: u64) -> u64 {
        let length = |&(from, to): &(u64, u64)| to.min(last).saturating_sub(from.max(first));
        self.ranges.iter().map(length).sum()
    }
}
