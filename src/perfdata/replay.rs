//! A recording as a source of records: what was selected of it, in the order of time.

use std::{os::fd::RawFd, time::Instant};

use super::{
    ahead::Batches,
    error::PerfDataError,
    feed::{FileFeed, Records},
    index::BLOCK,
    merge::{self, Merger, Release},
    recording::{Data, Part, Recording, Stored},
    sequential::{Arrival, SequentialStream},
    stream::{Found, Gate, IndexedStream, Stream, Warnings},
    unpacked::Unpacked,
};
use crate::record::{Batch, Ended, LossCounts, Source, Wait};

/// How much is read ahead of records that can only be read from front to back, all streams together. Runs of packed ones
/// that are read by themselves are in memory as a whole: they have no more than that either.
const AHEAD: usize = 64 << 20;

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
    batches: Batches,
    /// Whether what there is to be read lies in files.
    is_file: bool,
    warnings: Warnings,
    failure: Option<PerfDataError>,
    cpus: u32,
    total: u64,
    stopped: Option<Ended>,
    flush: bool,
}

impl Replay {
    pub(super) fn new(mut recording: Recording, gate: Gate) -> Result<Replay, PerfDataError> {
        let warnings = Warnings::default();
        recording.warnings.drain(..).for_each(|warning| warnings.add(Found::ByAll, warning));
        let cpus = recording.features.cpus.map_or(CPUS, |(available, _)| available.clamp(1, 1 << 16));
        let (data, order) = (recording.take_data(), recording.order);
        let is_file = !matches!(data, Data::Stream(_, _, None));
        let mut streams: Vec<Box<dyn Stream>> = Vec::new();
        let mut total = 0;
        let mut release = Release::InRounds;
        match data {
            Data::Stream(
                records,
                _,
                Some(Stored { input, unpacked: Some(Unpacked { runs: Some(index), .. }), .. }),
            ) => {
                total += index.read_for(&gate.selection);
                let warnings = warnings.clone();
                streams.push(Box::new(IndexedStream::new(input, records.name, gate, index, (0, 1), warnings)));
            }
            Data::Stream(records, arrival, _) => {
                if arrival == Arrival::Live {
                    release = Release::AtOnce;
                }
                streams.push(Box::new(SequentialStream::new(records, gate, arrival, AHEAD, (0, 1), warnings.clone())));
            }
            Data::Parts(parts) => {
                let stride = merge::stride(parts.len());
                let packed = || parts.iter().filter(|part| part.index().is_none());
                let ahead = (AHEAD / packed().count().max(1)).max(BLOCK);
                let runs: Vec<usize> =
                    packed().filter_map(Part::runs).map(|runs| runs.most_for(&gate.selection)).collect();
                // One run of each is in memory at a time, of what may be hundreds of files.
                let runs_fit = runs.iter().sum::<usize>() <= ahead * runs.len();
                for (number, part) in parts.into_iter().enumerate() {
                    let (gate, numbers) = (gate.clone(), (number as u32, stride));
                    let index = if runs_fit { part.runs() } else { part.index() }.cloned();
                    let Part { name, input, section, .. } = part;
                    if let Some(index) = index {
                        total += index.read_for(&gate.selection);
                        let warnings = warnings.clone();
                        streams.push(Box::new(IndexedStream::new(input, name, gate, index, numbers, warnings)));
                        continue;
                    }
                    total += section.size;
                    let records = Records::new(&name, order, Box::new(FileFeed::new(input, section)));
                    let warnings = warnings.clone();
                    let stream = SequentialStream::new(records, gate, Arrival::Stored, ahead, numbers, warnings);
                    streams.push(Box::new(stream));
                }
            }
        }
        let batches = Batches::new(Merger::new(streams, release));
        Ok(Replay { batches, is_file, warnings, failure: None, cpus, total, stopped: None, flush: false })
    }

    /// Interrupts waiting for a pipe when this eventfd is signalled.
    pub fn set_wake(&mut self, wake: RawFd) {
        self.batches.set_wake(wake);
    }

    /// Has a file's records read and put in order by a thread of their own, from when the first are waited for. Of others
    /// the one who waits may have to be woken.
    pub fn read_ahead(&mut self) {
        if self.is_file {
            self.batches.read_ahead();
        }
    }

    /// What went wrong since this was last asked, and cost some records.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warnings.take().into_iter().map(|(_, warning)| warning).collect()
    }

    /// The same, but for what everybody finds who reads any part of the recording.
    pub fn take_own_warnings(&mut self) -> Vec<String> {
        let own = self.warnings.take().into_iter().filter(|(found, _)| *found == Found::ByReader);
        own.map(|(_, warning)| warning).collect()
    }

    /// What ended the replay before its end.
    pub fn take_failure(&mut self) -> Option<PerfDataError> {
        self.failure.take()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress { done: self.batches.consumed(), total: self.total }
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
        match self.batches.next() {
            Ok(Some(sorted)) => return Wait::Batch(Batch::Sorted(sorted)),
            Ok(None) => {}
            Err(PerfDataError::Interrupted) => return Wait::Woken,
            Err(error) => self.failure = Some(error),
        }
        self.stopped = Some(Ended::EndOfInput);
        Wait::Ended(Ended::EndOfInput)
    }

    fn flush(&mut self) {
        self.flush = true;
    }

    fn stop(&mut self) {
        self.batches.stop();
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
        self.batches.late()
    }

    fn limited(&self) -> u64 {
        0
    }

    fn backlog(&self) -> usize {
        self.batches.bytes()
    }
}

/// The ring that a record of this CPU counts for.
pub fn ring_of(cpu: Option<u32>, rings: usize) -> usize {
    let last = rings.saturating_sub(1);
    cpu.map_or(last, |cpu| (cpu as usize).min(last))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        abi::perf_data::{PERF_MAGIC2, PERF_RECORD_HEADER_ATTR},
        perfdata::Selection,
    };

    fn patiently(replay: &mut Replay) -> Wait {
        loop {
            match replay.wait(None) {
                Wait::Woken => {}
                other => return other,
            }
        }
    }

    #[test]
    fn nothing_was_read_ahead_of_a_pipe_that_was_kept_in_a_file() {
        const ATTR: u32 = 64;
        let header = [&PERF_RECORD_HEADER_ATTR.to_ne_bytes()[..], &[0; 2], &(8 + ATTR as u16).to_ne_bytes()].concat();
        let attr = [&1u32.to_ne_bytes()[..], &ATTR.to_ne_bytes(), &[0; ATTR as usize - 8]].concat();
        let pipe = [&PERF_MAGIC2.to_ne_bytes()[..], &16u64.to_ne_bytes(), &header, &attr].concat();
        let recording = Recording::of_file(Arc::new(pipe), "x").unwrap();
        let mut replay = recording.replay(Selection::default()).unwrap();
        assert!(replay.is_file);
        replay.read_ahead();
        assert!(matches!(patiently(&mut replay), Wait::Ended(Ended::EndOfInput)));
    }
}
