//! A part of a recording: the times and CPUs to which its reader is limited.

use perf_prof_events::event::{Context, Stats};
use perf_prof_format::spec::CpuSet;
use perf_prof_recordings::Selection;

use super::PartCounts;
use crate::{
    engine::sample_routes::{CountedLosses, Span},
    plan::SplitBy,
};

/// A part of a recording that one process replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the part, from 0 on.
    pub number: usize,
    /// The number of all parts.
    pub count: usize,
    /// How the recording was divided.
    pub split: SplitBy,
    /// The first and the last time of the part, in ns.
    pub(super) time: (u64, u64),
    /// The CPUs of the part; `None` means all CPUs.
    pub(super) cpus: Option<CpuSet>,
}

impl Part {
    /// Returns whether this is the first part. Only its process prints messages about the whole recording.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Returns whether this is the last part.
    pub fn is_last(&self) -> bool {
        self.number + 1 == self.count
    }

    /// Limits `span` to the times of the part. Each interval is reported by exactly one part: the part in which the
    /// interval ends.
    pub fn part_of(&self, span: Span) -> Span {
        let (first, last) = self.time;
        Span { intervals_after: span.intervals_after.max(first), end: span.end.min(last.saturating_add(1)), ..span }
    }

    /// Limits a selection to the times and CPUs of the part.
    pub fn select(&self, selection: &mut Selection) {
        let (first, last) = self.time;
        selection.limit_times(first, last);
        if let Some(own) = &self.cpus {
            let asked = selection.cpus.take();
            selection.cpus =
                Some(own.iter().filter(|&cpu| asked.as_ref().is_none_or(|cpus| cpus.contains(cpu))).collect());
        }
    }

    /// Returns the counts of the part. `context` has the names of tasks, and `last` is the time of the last sample.
    pub fn counts(&self, stats: &Stats, context: &Context, stored: &CountedLosses, last: u64) -> PartCounts {
        // The stored numbers have no time. If the recording is divided by time, exactly one part finds each number. If
        // it is divided by CPU, all parts find all numbers, and only the first part reports them.
        let own =
            |lost: &[u64]| if self.cpus.is_none() || self.is_first() { lost.to_vec() } else { vec![0; lost.len()] };
        let (lost, lost_per_ring) = (own(&stored.per_event), own(&stored.per_ring));
        let incomplete = stats.incomplete(|task, time| context.comm(task, time));
        PartCounts { stats: stats.counts(), lost, lost_per_ring, incomplete, last }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::tracefs::NoKernel;

    use super::*;

    fn part(number: usize, time: (u64, u64), cpus: Option<&str>) -> Part {
        let split = if cpus.is_some() { SplitBy::Cpu } else { SplitBy::Time };
        Part { number, count: 3, split, time, cpus: cpus.map(|cpus| cpus.parse().unwrap()) }
    }

    #[test]
    fn a_part_selects_what_is_in_it_and_was_asked_for() {
        let selected = |part: Part, times: &[(u64, u64)], cpus: Option<&str>| {
            let cpus = cpus.map(|cpus| cpus.parse().unwrap());
            let mut selection = Selection { times: times.to_vec(), cpus, ..Selection::default() };
            part.select(&mut selection);
            (selection.times, selection.cpus.map(|cpus| cpus.to_string()))
        };
        assert_eq!(selected(part(0, (5, 9), None), &[], None), (vec![(5, 9)], None));
        assert_eq!(selected(part(0, (5, 9), None), &[(0, 5), (7, 8), (10, 20)], None), (vec![(5, 5), (7, 8)], None));
        let (nothing, _) = selected(part(0, (5, 9), None), &[(10, 20)], None);
        let nothing = Selection { times: nothing, ..Selection::default() };
        assert!([0, 5, 9, 10, u64::MAX].into_iter().all(|time| !nothing.time(time)));
        let by_cpu = selected(part(1, (0, u64::MAX), Some("1,3,5")), &[(1, 2)], Some("0-3"));
        assert_eq!(by_cpu, (vec![(1, 2)], Some("1,3".to_owned())));
    }

    #[test]
    fn an_interval_ends_in_one_part() {
        let span = Span { start: 0, last: 30, intervals_after: 0, end: 30 };
        let parts = [(0, 9), (10, 19), (20, u64::MAX)].map(|time| part(0, time, None).part_of(span));
        assert_eq!(parts.map(|span| (span.intervals_after, span.end)), [(0, 10), (10, 20), (20, 30)]);
    }

    #[test]
    fn losses_without_a_time_are_in_one_part() {
        let context = Context::new(Box::new(NoKernel), 0);
        let stored = CountedLosses { per_event: vec![3], per_ring: vec![1, 2] };
        let lost = |part: Part| {
            let counts = part.counts(&Stats::new(1, 2), &context, &stored, 0);
            [counts.lost, counts.lost_per_ring].concat()
        };
        assert_eq!([lost(part(0, (0, 9), None)), lost(part(1, (10, 19), None))], [[3, 1, 2]; 2]);
        assert_eq!([lost(part(0, (0, 9), Some("0"))), lost(part(1, (0, 9), Some("1")))], [[3, 1, 2], [0; 3]]);
    }
}
