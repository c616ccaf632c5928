//! How much of a recording's time is selected.

use perf_prof_recordings::Selection;

/// The selected ranges of time, in ns of the recording's clock.
pub struct SelectedTimes {
    /// The ranges by their starts. Both ends are included. They have no nanosecond in common.
    ranges: Vec<(u64, u64)>,
    /// The times in which the events were off, without a nanosecond in common.
    off: Vec<(u64, u64)>,
}

impl SelectedTimes {
    /// Creates the times from ranges that may overlap, and from the times in which the events were off. If there is no range,
    /// all times are selected.
    pub fn new(selected: &[(u64, u64)], off: &[(u64, u64)]) -> SelectedTimes {
        let ranges = if selected.is_empty() { vec![(0, u64::MAX)] } else { Selection::merged(selected) };
        SelectedTimes { ranges, off: Selection::merged(off) }
    }

    /// Returns the length in ns of the selected times from `first` to `last` without those in which the events were off.
    pub fn length_within(&self, first: u64, last: u64) -> u64 {
        let within = |times: &[(u64, u64)], (first, last): (u64, u64)| -> u64 {
            times.iter().map(|&(from, to)| to.min(last).saturating_sub(from.max(first))).sum()
        };
        let of_range = |&(from, to): &(u64, u64)| {
            let range = (from.max(first), to.min(last));
            within(&[range], range).saturating_sub(within(&self.off, range))
        };
        self.ranges.iter().map(of_range).sum()
    }
}
