//! Which samples of a recording are wanted. What is told by the record's fixed members is looked at here, before anything
//! is put in order.

use super::layouts::Layouts;
use crate::{
    abi::{
        PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_KSYMBOL, PERF_RECORD_LOST,
        PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MMAP, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE,
    },
    record::record_type,
    spec::CpuSet,
};

/// Which samples are wanted; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The attrs whose samples are, by index; `None` for all.
    pub attrs: Option<Vec<bool>>,
    /// The CPUs.
    pub cpus: Option<CpuSet>,
    /// The processes.
    pub pids: Option<Vec<u32>>,
    /// The threads.
    pub tids: Option<Vec<u32>>,
    /// The ranges of time, first and last nanosecond; none for all times.
    pub times: Vec<(u64, u64)>,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A sample that was asked for.
    Sample,
    /// Names, births, deaths and mappings of tasks, and losses.
    SideBand,
    /// Nobody asks for it.
    No,
}

/// Whether records of a kind are wanted beside the samples, whatever is selected.
#[inline]
pub(super) fn is_side_band(kind: u32) -> bool {
    matches!(
        kind,
        PERF_RECORD_COMM
            | PERF_RECORD_FORK
            | PERF_RECORD_EXIT
            | PERF_RECORD_MMAP
            | PERF_RECORD_MMAP2
            | PERF_RECORD_KSYMBOL
            | PERF_RECORD_LOST
            | PERF_RECORD_LOST_SAMPLES
    )
}

impl Selection {
    /// Whether every sample is wanted.
    pub fn takes_all(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether the time of a sample is no reason to leave it out.
    pub(super) fn takes_all_times(&self) -> bool {
        self.times.is_empty() || self.times.contains(&(0, u64::MAX))
    }

    /// Whether samples of a time are wanted.
    pub fn time(&self, time: u64) -> bool {
        self.times.is_empty() || self.times.iter().any(|&(first, last)| first <= time && time <= last)
    }

    /// Whether some wanted time lies between these two.
    pub fn some_time(&self, from: u64, to: u64) -> bool {
        self.times.is_empty() || self.times.iter().any(|&(first, last)| first <= to && from <= last)
    }

    /// The last time that is wanted: behind it, side-band is of no use any more.
    pub fn last_time(&self) -> u64 {
        self.times.iter().map(|&(_, last)| last).max().unwrap_or(u64::MAX)
    }

    /// Whether a record is wanted, whose time this is.
    #[inline]
    pub fn wants(&self, record: &[u8], time: u64, layouts: &Layouts) -> Wanted {
        match record_type(record) {
            PERF_RECORD_SAMPLE if self.sample(record, time, layouts) => Wanted::Sample,
            PERF_RECORD_LOST | PERF_RECORD_LOST_SAMPLES if !self.lost(record, time, layouts) => Wanted::No,
            kind if is_side_band(kind) && time <= self.last_time() => Wanted::SideBand,
            _ => Wanted::No,
        }
    }

    #[inline]
    fn sample(&self, record: &[u8], time: u64, layouts: &Layouts) -> bool {
        let Selection { attrs, cpus, pids, tids, times } = self;
        if !times.is_empty() && !self.time(time) {
            return false;
        }
        if attrs.is_none() && cpus.is_none() && pids.is_none() && tids.is_none() {
            return true;
        }
        // One that belongs to no event is counted by whoever looks for its event.
        let Some(attr) = layouts.attr_of(record) else { return true };
        let layout = layouts.sample(attr);
        if attrs.as_ref().is_some_and(|attrs| !attrs[attr]) {
            return false;
        }
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

    /// Whether a loss concerns what was asked for, as far as its record tells.
    fn lost(&self, record: &[u8], time: u64, layouts: &Layouts) -> bool {
        if record_type(record) == PERF_RECORD_LOST_SAMPLES && layouts.time(record).is_none() {
            // Counts of the recording's end: perf's say CPU 0 whatever the CPU, so whoever takes them needs all.
            return self.time(time);
        }
        let cpu = || layouts.cpu(record);
        self.time(time) && self.cpus.as_ref().is_none_or(|cpus| cpu().is_none_or(|cpu| cpus.contains(cpu)))
    }
}
