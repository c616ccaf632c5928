//! Plans the parts of a recording: ranges of time with about the same number of samples, or sets of CPUs.

use std::time::Duration;

use perf_prof_events::derive::Derived;
use perf_prof_format::abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_READ};
use perf_prof_recordings::{PerfDataError, Recording, index::shards};
use thiserror::Error;

use super::Part;
use crate::{
    engine::sample_routes::{MAX_INTERVALS, Route, Span},
    plan::{Jobs, SplitBy},
};

/// A whole recording that is to be divided.
pub struct Whole<'a> {
    /// The recording.
    pub recording: &'a mut Recording,
    /// For each attr, the selected events that get its samples.
    pub routes: &'a [Vec<Route>],
    /// The selected events that are derived from others.
    pub derived: &'a [Derived],
    /// The time that is replayed. `None` if there are no samples.
    pub span: Option<Span>,
    /// How often `__interval__` is called.
    pub interval: Option<Duration>,
}

/// Why a recording cannot be divided.
#[derive(Debug, Error)]
pub enum Undividable {
    /// There are too many intervals to report each one. A replay of the whole recording then reports only one interval
    /// for a long time without samples. A part does not know whether this time continues in other parts. So the parts
    /// together would report different intervals than one replay.
    #[error(
        "--jobs: {recording} has {intervals} intervals of {every:?}, too many to call __interval__() for each one; use a \
         longer -i, or remove --jobs"
    )]
    Intervals {
        /// The name of the recording.
        recording: String,
        /// The number of intervals.
        intervals: u64,
        /// The length of an interval.
        every: Duration,
    },
    /// The samples of the recording with this name have counter values.
    #[error(
        "--jobs: the samples of {0} contain counter values, and a count is the difference from the previous sample, which \
         may be in another part; use `--split cpu`"
    )]
    CounterValues(String),
    /// The span with this selector may begin on one CPU and end on another.
    #[error("--split cpu cannot be used with {0}: a span may begin on one CPU and end on another; remove --split cpu")]
    SpanByCpu(String),
    /// Not all samples of the recording with this name have a CPU.
    #[error("--split cpu: not all samples of {0} contain their CPU; remove --split cpu")]
    NoCpu(String),
}

/// Returns the members of the samples (PERF_SAMPLE_...) of each selected event.
fn members<'a>(recording: &'a Recording, routes: &'a [Vec<Route>]) -> impl Iterator<Item = u64> + 'a {
    let events = recording.events.iter().zip(routes).filter(|(_, routes)| !routes.is_empty());
    events.map(|(event, _)| event.attr.format.sample_type)
}

/// Returns whether selected samples contain counter values. A count is the difference from the previous sample. A part
/// cannot compute it, because the previous sample may be in another part.
pub fn has_readings(recording: &Recording, routes: &[Vec<Route>]) -> bool {
    members(recording, routes).any(|members| members & PERF_SAMPLE_READ != 0)
}

impl Whole<'_> {
    /// Checks that the parts together have the same result as a replay of the whole recording.
    pub fn check(&self, split: SplitBy) -> Result<(), Undividable> {
        let Whole { recording, routes, derived, span, interval } = self;
        let name = || recording.name.clone();
        if let (Some(every), Some(span)) = (*interval, span)
            && span.intervals(every) > MAX_INTERVALS
        {
            return Err(Undividable::Intervals { recording: name(), intervals: span.intervals(every), every });
        }
        match split {
            SplitBy::Time if has_readings(recording, routes) => Err(Undividable::CounterValues(name())),
            SplitBy::Time => Ok(()),
            SplitBy::Cpu => {
                let lacks_cpu = |members| members & PERF_SAMPLE_CPU == 0;
                match derived.first() {
                    Some(derived) => Err(Undividable::SpanByCpu(derived.span.name())),
                    None if members(recording, routes).any(lacks_cpu) => Err(Undividable::NoCpu(name())),
                    None => Ok(()),
                }
            }
        }
    }

    /// Divides the recording into parts, one for each process in `jobs`. There may be fewer parts than processes.
    pub fn divide(self, jobs: &Jobs) -> Result<Vec<Part>, PerfDataError> {
        let limits = match jobs.split {
            SplitBy::Time => self.times(jobs.count)?.into_iter().map(|time| (time, None)).collect(),
            SplitBy::Cpu => {
                let available = self.recording.features.cpus.map_or(jobs.count, |(available, _)| available as usize);
                let sets = shards::by_cpu(jobs.count.min(available)).into_iter();
                sets.map(|cpus| ((0, u64::MAX), Some(cpus))).collect::<Vec<_>>()
            }
        };
        let (count, split) = (limits.len(), jobs.split);
        let parts = limits.into_iter().enumerate();
        Ok(parts.map(|(number, (time, cpus))| Part { number, count, split, time, cpus }).collect())
    }

    /// Returns ranges of time with about the same number of samples. No interval crosses the border of two ranges.
    fn times(self, count: usize) -> Result<Vec<(u64, u64)>, PerfDataError> {
        let indexes = self.recording.unpacked_index()?;
        let Some(span) = self.span else { return Ok(shards::between(&[])) };
        let mut borders = shards::by_time(&indexes, (span.start, span.end), count);
        if let Some(every) = self.interval {
            borders = shards::aligned(&borders, span.start, every);
        }
        Ok(shards::between(&borders))
    }
}
