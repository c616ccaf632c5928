//! Selects samples from a recording by event, CPU, process, thread and time. Records are checked before they are
//! sorted. Only the members at fixed offsets in a record are read for this check.

use perf_prof_format::{
    abi::{
        PERF_RECORD_CGROUP, PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_KSYMBOL,
        PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MMAP, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE,
        PERF_RECORD_THROTTLE,
    },
    record::{OtherRecords, record_type},
    spec::CpuSet,
};

use super::format::layouts::Layouts;

/// The selected samples. By default, all samples are selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The selected attrs: for each attr index, true if the samples of this attr are selected. `None` selects all
    /// attrs.
    pub attrs: Option<Vec<bool>>,
    /// The selected CPUs; `None` for all.
    pub cpus: Option<CpuSet>,
    /// The selected processes; `None` for all.
    pub pids: Option<Vec<u32>>,
    /// The selected threads; `None` for all.
    pub tids: Option<Vec<u32>>,
    /// The selected ranges of time. Each range is given by its first and its last nanosecond. If there is no range, all
    /// times are selected.
    pub times: Vec<(u64, u64)>,
    /// The times between the ranges that the user selected, as [`Selection::holes`] returns them. Nothing that is made of
    /// several samples goes on over a hole, also if the replay is divided there.
    pub holes: Vec<(u64, u64)>,
    /// The types of records other than samples that the program requests. Records of these types are selected by CPU
    /// and time.
    pub others: OtherRecords,
    /// Whether markers show where losses start.
    pub gaps: Gaps,
}

/// Whether a replay adds markers at the times at which rings begin to lose events. To find these times, the replay
/// reads the blocks with losses in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// There are no markers: only the records about losses are delivered.
    #[default]
    NotMarked,
    /// There are markers only where records cannot be read, where the user selected none, and where the events were off,
    /// because no other record says so.
    Unread,
    /// There are markers. Spans and other events that are made of several samples need them.
    Marked,
}

/// The result of checking a record against a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A selected sample.
    Sample,
    /// A side-band record: a comm, fork, exit, mapping or cgroup record, a record about lost events or throttling, or a
    /// record that the program requests (see [`Selection::others`]).
    SideBand,
    /// The record is not delivered.
    No,
}

/// Returns whether records of this type are side-band records, which are delivered regardless of which samples are
/// selected.
#[inline]
pub(crate) fn is_side_band(kind: u32) -> bool {
    matches!(
        kind,
        PERF_RECORD_COMM
            | PERF_RECORD_FORK
            | PERF_RECORD_EXIT
            | PERF_RECORD_MMAP
            | PERF_RECORD_MMAP2
            | PERF_RECORD_KSYMBOL
            | PERF_RECORD_CGROUP
            | PERF_RECORD_LOST
            | PERF_RECORD_LOST_SAMPLES
    )
}

/// Returns whether no recorder writes records of the type `kind`, so that the record's header must be damaged. So far,
/// kernels use the types 1 to 22, and perf uses the types 64 to 90. Both the kernel and perf add types over time. A
/// replay leaves out records of unknown types.
#[inline]
pub(crate) fn is_impossible(kind: u32) -> bool {
    kind == 0 || kind > u8::MAX.into()
}

impl Selection {
    /// Returns the range of time if samples are selected only by one range of time. Returns `None` if there are several
    /// ranges, or if there is another condition.
    #[inline]
    pub(crate) fn sole_range(&self) -> Option<(u64, u64)> {
        let Selection { attrs, cpus, pids, tids, times, .. } = self;
        if attrs.is_some() || cpus.is_some() || pids.is_some() || tids.is_some() {
            return None;
        }
        match times.as_slice() {
            [] => Some((0, u64::MAX)),
            [range] => Some(*range),
            _ => None,
        }
    }

    /// Returns whether all times are selected.
    pub(crate) fn takes_all_times(&self) -> bool {
        self.times.is_empty() || self.times.contains(&(0, u64::MAX))
    }

    /// Returns whether samples of this time are selected.
    pub fn time(&self, time: u64) -> bool {
        self.times.is_empty() || self.times.iter().any(|&(first, last)| first <= time && time <= last)
    }

    /// Returns whether any time from `from` to `to`, both included, is selected.
    pub fn some_time(&self, from: u64, to: u64) -> bool {
        self.times.is_empty() || self.times.iter().any(|&(first, last)| first <= to && from <= last)
    }

    /// Leaves out samples before `first` and after `last`.
    pub fn limit_times(&mut self, first: u64, last: u64) {
        if (first, last) == (0, u64::MAX) {
            return;
        }
        if self.times.is_empty() {
            self.times.push((first, last));
        }
        let both = self.times.iter().map(|&(from, to)| (from.max(first), to.min(last)));
        let both: Vec<_> = both.filter(|(from, to)| from <= to).collect();
        // An empty list would select all times. The range from `u64::MAX` to 0 selects no samples.
        self.times = if both.is_empty() { vec![(u64::MAX, 0)] } else { both };
    }

    /// Returns these ranges of time in their order. Ranges that overlap or follow each other become one.
    pub fn merged(times: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut times = times.to_vec();
        times.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in times {
            match merged.last_mut() {
                Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        merged
    }

    /// Returns the times between ranges of time: for each hole, its first and its last nanosecond.
    pub fn holes(times: &[(u64, u64)]) -> Vec<(u64, u64)> {
        Selection::merged(times).windows(2).map(|ranges| (ranges[0].1 + 1, ranges[1].0 - 1)).collect()
    }

    /// Returns the last selected time. Side-band records after this time are not needed.
    pub fn last_time(&self) -> u64 {
        self.times.iter().map(|&(_, last)| last).max().unwrap_or(u64::MAX)
    }

    /// Returns the first and the last selected time of a recording with these times. `None` if no time is selected.
    pub fn times_within(&self, times: Option<(u64, u64)>) -> Option<(u64, u64)> {
        let (first, last) = times?;
        let (first, last) = (self.first_time_from(first)?, last.min(self.last_time()));
        (first <= last).then_some((first, last))
    }

    /// Returns the first selected time that is not before `time`.
    pub(crate) fn first_time_from(&self, time: u64) -> Option<u64> {
        if self.times.is_empty() {
            return Some(time);
        }
        self.times.iter().filter(|&&(_, last)| time <= last).map(|&(first, _)| first.max(time)).min()
    }

    /// Returns whether a record is delivered, and whether it is a sample or a side-band record. `time` is the record's
    /// time.
    #[inline(always)]
    pub fn wants(&self, record: &[u8], time: u64, layouts: &Layouts) -> Wanted {
        if record_type(record) == PERF_RECORD_SAMPLE {
            return if self.sample(record, time, layouts) { Wanted::Sample } else { Wanted::No };
        }
        self.wants_other(record, time, layouts)
    }

    #[inline(never)]
    fn wants_other(&self, record: &[u8], time: u64, layouts: &Layouts) -> Wanted {
        match record_type(record) {
            PERF_RECORD_LOST | PERF_RECORD_LOST_SAMPLES if !self.is_near(record, time, layouts) => Wanted::No,
            // Samples may be missing after a throttle record, but no other record depends on it. So a throttle record
            // is delivered only together with the samples around it. Indexes do not count throttle records.
            PERF_RECORD_THROTTLE if self.is_near(record, time, layouts) => Wanted::SideBand,
            kind if is_side_band(kind) && time <= self.last_time() => Wanted::SideBand,
            kind if self.others.contains(kind) && self.is_near(record, time, layouts) => Wanted::SideBand,
            _ => Wanted::No,
        }
    }

    #[inline(always)]
    fn sample(&self, record: &[u8], time: u64, layouts: &Layouts) -> bool {
        let Selection { attrs, cpus, pids, tids, times, .. } = self;
        if !times.is_empty() && !self.time(time) {
            return false;
        }
        if attrs.is_none() && cpus.is_none() && pids.is_none() && tids.is_none() {
            return true;
        }
        // A sample with an unknown id is delivered, because the code that looks up its event counts such samples.
        let Some(attr) = layouts.attr_of(record) else { return true };
        if attrs.as_ref().is_some_and(|attrs| !attrs[attr]) {
            return false;
        }
        cpus.is_none() && pids.is_none() && tids.is_none() || self.place(record, attr, layouts)
    }

    /// Returns whether the CPU and the task of a sample are selected.
    #[inline(never)]
    fn place(&self, record: &[u8], attr: usize, layouts: &Layouts) -> bool {
        let Selection { cpus, pids, tids, .. } = self;
        let layout = layouts.sample(attr);
        if let Some(cpus) = cpus
            && !layout.cpu(record).is_some_and(|cpu| cpus.contains(cpu))
        {
            return false;
        }
        if pids.is_none() && tids.is_none() {
            return true;
        }
        let Some((pid, tid)) = layout.pid_tid(record) else { return false };
        let among = |ids: &Option<Vec<u32>>, id: u32| ids.as_ref().is_none_or(|ids| ids.contains(&id));
        among(pids, pid) && among(tids, tid)
    }

    /// Returns whether a record about lost events, throttling or context switches may concern the selected samples.
    /// Checks the time of the record, and its CPU if the record contains it.
    fn is_near(&self, record: &[u8], time: u64, layouts: &Layouts) -> bool {
        if record_type(record) == PERF_RECORD_LOST_SAMPLES && layouts.time(record).is_none() {
            // perf writes this record with a total count at the end of a recording. The CPU in the record is always 0,
            // even if the samples were lost on another CPU. So the record is delivered whichever CPUs are selected.
            return self.time(time);
        }
        let cpu = || layouts.cpu(record);
        self.time(time) && self.cpus.as_ref().is_none_or(|cpus| cpu().is_none_or(|cpu| cpus.contains(cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_the_times_between_ranges() {
        for (times, holes) in [
            (&[][..], &[][..]),
            (&[(10, 19)], &[]),
            (&[(10, 19), (20, 29)], &[]),
            (&[(50, 59), (10, 19)], &[(20, 49)]),
            (&[(0, 90), (10, 19), (95, u64::MAX)], &[(91, 94)]),
        ] {
            assert_eq!(Selection::holes(times), holes, "{times:?}");
        }
    }
}
