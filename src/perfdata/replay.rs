//! A recording as a source of records: what was selected of it, in the order of time.

use std::time::Instant;

use super::{
    error::PerfDataError,
    merge::{Merger, Release},
    recording::{Part, Recording},
    stream::{Gate, IndexedStream, Stream},
};
use crate::record::{Batch, Ended, LossCounts, Source, Wait};

/// The CPUs of a recording that does not say how many there were.
const CPUS: u32 = 256;

/// How far a replay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the recording that were read.
    pub done: u64,
    /// Bytes that there are to be read; 0 where nobody knows.
    pub total: u64,
}

/// A recording that is replayed.
pub struct Replay {
    merger: Merger,
    warnings: Vec<String>,
    failure: Option<PerfDataError>,
    cpus: u32,
    total: u64,
    stopped: Option<Ended>,
    flush: bool,
}

impl Replay {
    pub(super) fn new(mut recording: Recording, gate: Gate) -> Result<Replay, PerfDataError> {
        let mut streams: Vec<Box<dyn Stream>> = Vec::new();
        let (mut base, mut total) = (0, 0);
        for Part { name, input, indexed, .. } in recording.take_parts() {
            let Some(index) = indexed else {
                return Err(PerfDataError::damaged(&name, "compressed recordings are not read yet"));
            };
            let wanted = index.wanted(&gate.selection);
            total += wanted.iter().map(|&number| u64::from(index.blocks[number as usize].size)).sum::<u64>();
            let blocks = index.blocks.len() as u32;
            let gate = gate.clone();
            streams.push(Box::new(IndexedStream { input, name, gate, index, wanted, next: 0, base, consumed: 0 }));
            base += blocks;
        }
        let cpus = recording.features.cpus.map_or(CPUS, |(available, _)| available.clamp(1, 1 << 16));
        Ok(Replay {
            merger: Merger::new(streams, Release::InRounds),
            warnings: std::mem::take(&mut recording.warnings),
            failure: None,
            cpus,
            total,
            stopped: None,
            flush: false,
        })
    }

    /// What went wrong since this was last asked, and cost some records.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// What ended the replay before its end.
    pub fn take_failure(&mut self) -> Option<PerfDataError> {
        self.failure.take()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress { done: self.merger.consumed(), total: self.total }
    }
}

impl Source for Replay {
    fn wait(&mut self, _until: Option<Instant>) -> Wait {
        if let Some(ended) = self.stopped {
            return Wait::Ended(ended);
        }
        if std::mem::take(&mut self.flush) {
            return Wait::Flushed;
        }
        match self.merger.next_batch() {
            Ok(Some(sorted)) => return Wait::Batch(Batch::Sorted(sorted)),
            Ok(None) => {}
            Err(error) => self.failure = Some(error),
        }
        self.stopped = Some(Ended::EndOfInput);
        Wait::Ended(Ended::EndOfInput)
    }

    fn flush(&mut self) {
        self.flush = true;
    }

    fn stop(&mut self) {
        self.merger.stop();
        self.stopped.get_or_insert(Ended::Stopped);
    }

    fn losses(&mut self) -> Option<LossCounts> {
        None
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        // The last one takes what says no CPU.
        (0..self.cpus).map(Some).chain([None]).collect()
    }

    fn late(&self) -> u64 {
        self.merger.late()
    }

    fn limited(&self) -> u64 {
        0
    }

    fn backlog(&self) -> usize {
        self.merger.bytes()
    }
}

/// The ring that a record of this CPU counts for.
pub fn ring_of(cpu: Option<u32>, rings: usize) -> usize {
    let last = rings.saturating_sub(1);
    cpu.map_or(last, |cpu| (cpu as usize).min(last))
}
