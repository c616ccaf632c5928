//! The counts in a recording of `perf stat record`, round by round.
//!
//! The recorder writes totals since the start. At the end of a round, the counts of the round are computed as in perf
//! (`perf_stat_process_counter()` in `tools/perf/util/stat.c`). They are the differences from the totals of the
//! previous round. A count is scaled if the event was counted only part of the time.

use std::sync::Arc;

use perf_prof_format::{
    abi::perf_data::{
        PERF_RECORD_CPU_MAP, PERF_RECORD_EVENT_UPDATE, PERF_RECORD_STAT, PERF_RECORD_STAT_CONFIG,
        PERF_RECORD_STAT_ROUND, PERF_RECORD_THREAD_MAP,
    },
    record::{OtherRecords, record_type},
};
use perf_prof_recordings::{Aggregation, CpuMap, EventCpus, Layouts, Scaling, Stat, StatConfig, StatRound, ThreadMap};
use rustc_hash::FxHashMap;

/// The maximum number of counts in a round. A damaged recording may state any number of CPUs and threads.
const MAX_COUNTS: usize = 1 << 20;

/// A count, and the times in ns for which its event was enabled and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of events.
    pub val: u64,
    /// The time for which the event was enabled.
    pub ena: u64,
    /// The time for which the event was counted.
    pub run: u64,
}

impl Count {
    /// Returns the difference from an earlier total. Like perf, it wraps around if a total has become smaller.
    fn since(self, before: Count) -> Count {
        Count {
            val: self.val.wrapping_sub(before.val),
            ena: self.ena.wrapping_sub(before.ena),
            run: self.run.wrapping_sub(before.run),
        }
    }

    fn plus(self, other: Count) -> Count {
        Count {
            val: self.val.wrapping_add(other.val),
            ena: self.ena.wrapping_add(other.ena),
            run: self.run.wrapping_add(other.run),
        }
    }

    /// Returns the count that the event would probably have if it had been counted all the time.
    fn scaled(self, scaling: Scaling) -> Count {
        let val = match scaling {
            Scaling::Off => self.val,
            Scaling::On if self.run == 0 => 0,
            Scaling::On if self.run < self.ena => (self.val as f64 * self.ena as f64 / self.run as f64) as u64,
            Scaling::On => self.val,
        };
        Count { val, ..self }
    }
}

/// The count of one event at the end of a round, on one CPU or all CPUs, and for one thread or all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundCount {
    /// The index of the event in the recording.
    pub event: usize,
    /// The CPU, or -1 for all of them.
    pub cpu: i32,
    /// The thread id, or -1 for all threads.
    pub thread: i32,
    /// The count.
    pub count: Count,
}

/// Why a count cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatError {
    /// No event has the id.
    #[error("the recording is damaged: a count has the id {0}, but no event has it")]
    UnknownEvent(u64),
    /// The event was not counted on the CPU.
    #[error("the recording is damaged: a count is for CPU {0}, where its event was not counted")]
    UnknownCpu(i32),
    /// The recording does not list the thread.
    #[error(
        "the recording is damaged: a count is for entry {0} of the list of threads, and the list has fewer entries"
    )]
    UnknownThread(u32),
    /// There are more counts than a recording may have.
    #[error("a round has more than {MAX_COUNTS} counts")]
    TooMany,
}

/// The counts of an event on one CPU and in one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    total: Count,
    before: Count,
    /// The count that is shown after a round.
    shown: Count,
}

/// The counts of an event.
#[derive(Debug, Default)]
struct EventCounts {
    /// The CPUs of the event. `places` has the index of each CPU.
    cpus: Vec<i32>,
    places: FxHashMap<i32, usize>,
    /// The counts by thread and CPU: first all CPUs of the first thread, then all CPUs of the second thread, and so on.
    cells: Vec<Cell>,
    /// The sum of all totals, and its increase in the last round.
    sum: Count,
    increase: Count,
}

impl EventCounts {
    fn new(cpus: &[i32], threads: usize) -> EventCounts {
        let places = cpus.iter().enumerate().map(|(place, &cpu)| (cpu, place)).collect();
        let cells = vec![Cell::default(); cpus.len() * threads];
        EventCounts { cpus: cpus.to_vec(), places, cells, ..EventCounts::default() }
    }
}

/// The counts of a recording. Its records are added one by one.
#[derive(Debug)]
pub struct StatCounts {
    layouts: Arc<Layouts>,
    config: StatConfig,
    cpus: Vec<i32>,
    /// The CPUs of the events that have other CPUs than the recording.
    cpus_of: FxHashMap<usize, Vec<i32>>,
    /// The thread ids.
    threads: Vec<i32>,
    /// One element for each event of the recording. Empty before the first count.
    events: Vec<EventCounts>,
}

impl StatCounts {
    /// Creates the counts of a recording with these events.
    pub fn new(layouts: Arc<Layouts>) -> StatCounts {
        StatCounts {
            layouts,
            config: StatConfig::default(),
            cpus: vec![-1],
            cpus_of: FxHashMap::default(),
            threads: vec![-1],
            events: Vec::new(),
        }
    }

    /// Returns the types of the records that [`StatCounts::add`] needs.
    pub fn records() -> OtherRecords {
        OtherRecords::of(&[
            PERF_RECORD_EVENT_UPDATE,
            PERF_RECORD_THREAD_MAP,
            PERF_RECORD_CPU_MAP,
            PERF_RECORD_STAT_CONFIG,
            PERF_RECORD_STAT,
            PERF_RECORD_STAT_ROUND,
        ])
    }

    /// Adds a record. If it ends a round, computes the counts of the round, and returns the round. Records of other types,
    /// and records that are cut off, are ignored.
    pub fn add(&mut self, record: &[u8]) -> Result<Option<StatRound>, StatError> {
        match record_type(record) {
            PERF_RECORD_STAT_CONFIG => self.config = StatConfig::parse(record).unwrap_or(self.config),
            PERF_RECORD_THREAD_MAP => {
                if let Some(map) = ThreadMap::parse(record).filter(|map| !map.threads.is_empty()) {
                    self.threads = map.threads.into_iter().map(|(tid, _)| tid).collect();
                    self.events.clear();
                }
            }
            PERF_RECORD_CPU_MAP => {
                if let Some(map) = CpuMap::parse(record).filter(|map| !map.cpus.is_empty()) {
                    self.cpus = distinct(map);
                    self.events.clear();
                }
            }
            PERF_RECORD_EVENT_UPDATE => {
                if let Some(EventCpus { id, cpus }) = EventCpus::parse(record)
                    && let Some(event) = self.layouts.attr_with(id)
                {
                    self.cpus_of.insert(event, distinct(cpus));
                    self.events.clear();
                }
            }
            PERF_RECORD_STAT => {
                if let Some(stat) = Stat::parse(record) {
                    self.count(stat)?;
                }
            }
            PERF_RECORD_STAT_ROUND => {
                let Some(round) = StatRound::parse(record) else { return Ok(None) };
                self.make_room()?;
                self.end_round();
                return Ok(Some(round));
            }
            _ => {}
        }
        Ok(None)
    }

    fn make_room(&mut self) -> Result<(), StatError> {
        if !self.events.is_empty() {
            return Ok(());
        }
        let cpus = |event: usize| self.cpus_of.get(&event).unwrap_or(&self.cpus);
        let events = 0..self.layouts.len();
        let counts: usize = events.clone().map(|event| cpus(event).len().saturating_mul(self.threads.len())).sum();
        if counts > MAX_COUNTS {
            return Err(StatError::TooMany);
        }
        self.events = events.map(|event| EventCounts::new(cpus(event), self.threads.len())).collect();
        Ok(())
    }

    fn count(&mut self, stat: Stat) -> Result<(), StatError> {
        self.make_room()?;
        let Stat { id, cpu, thread, val, ena, run } = stat;
        let event = self.layouts.attr_with(id).and_then(|event| self.events.get_mut(event));
        let event = event.ok_or(StatError::UnknownEvent(id))?;
        let place = event.places.get(&cpu).ok_or(StatError::UnknownCpu(cpu))?;
        let cell = event.cells.get_mut((thread as usize).saturating_mul(event.cpus.len()).saturating_add(*place));
        cell.ok_or(StatError::UnknownThread(thread))?.total = Count { val, ena, run };
        Ok(())
    }

    fn end_round(&mut self) {
        let StatConfig { aggregation, scale, .. } = self.config;
        for event in &mut self.events {
            let sum = event.cells.iter().fold(Count::default(), |sum, cell| sum.plus(cell.total));
            event.increase = sum.since(event.sum).scaled(scale);
            event.sum = sum;
            for cell in &mut event.cells {
                // As in perf: if counts are summed over all CPUs, the single counts stay totals and are not scaled.
                cell.shown = match aggregation {
                    Aggregation::Global => cell.total,
                    Aggregation::Other(_) => cell.total.since(cell.before).scaled(scale),
                };
                cell.before = cell.total;
            }
        }
    }

    /// Returns the counts of the last round for each event, thread and CPU. If the recorder summed the counts over all
    /// CPUs, these are the totals since the start.
    pub fn separate(&self) -> impl Iterator<Item = RoundCount> + '_ {
        self.events.iter().enumerate().flat_map(move |(event, counts)| {
            let places = self.threads.iter().flat_map(|&thread| counts.cpus.iter().map(move |&cpu| (thread, cpu)));
            let cells = places.zip(&counts.cells);
            cells.map(move |((thread, cpu), cell)| RoundCount { event, cpu, thread, count: cell.shown })
        })
    }

    /// Returns the counts of the last round as perf passes them to scripts: one sum for each event if the recorder
    /// summed the counts over all CPUs, otherwise all counts.
    pub fn for_scripts(&self) -> Vec<RoundCount> {
        match self.config.aggregation {
            Aggregation::Global => {
                let sums = self.events.iter().enumerate();
                sums.map(|(event, counts)| RoundCount { event, cpu: -1, thread: -1, count: counts.increase }).collect()
            }
            Aggregation::Other(_) => self.separate().collect(),
        }
    }
}

/// Returns the CPUs of a map without duplicates.
fn distinct(map: CpuMap) -> Vec<i32> {
    let mut seen = rustc_hash::FxHashSet::default();
    map.cpus.into_iter().filter(|&cpu| seen.insert(cpu)).collect()
}

#[cfg(test)]
mod tests;
