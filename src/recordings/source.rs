//! A recording as a source of records: the selected records, in time order.

use std::{os::fd::RawFd, sync::Arc, time::Instant};

use perf_prof_format::record::{Batch, Ended, LossCounts, OtherRecords, Source, Wait};

use super::{
    error::{PerfDataError, late_samples, short_samples},
    format::{bytes::ByteOrder, first_records::Rings},
    index::{
        blocks::{BLOCK, BlockIndex},
        compressed::CompressedIndex,
    },
    input::{
        feed::{FileFeed, RecordReader},
        random_access::Input,
    },
    order::{
        block_stream::{FoundBy, IndexedStream, Numbers, ReplayContext, Stream, StreamSetup, Warnings},
        gaps::{Gap, GapStream},
        merge::{self, Merger, ReleaseTime},
        read_ahead::Batches,
        rounds::Ending,
        sequential::{Arrival, SequentialStream},
    },
    parts::{Data, Part, Stored},
    recording::Recording,
    select::Gaps,
};

/// The maximum number of bytes to read ahead in a recording that can only be read from front to back, for all streams
/// together. This number is also the limit for runs of compressed records that are read independently, because each of
/// these runs is in memory as a whole.
const AHEAD: usize = 64 << 20;

/// The number of CPUs that is assumed if the recording does not state the number.
const CPUS: u32 = 256;

/// Progress of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of bytes of the recording that were read so far.
    pub done: u64,
    /// The number of bytes of the recording that the whole replay reads; 0 if it is unknown.
    pub total: u64,
}

/// How many samples of a replay are damaged. The reader of the replay counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamagedSamples {
    /// The samples of tracepoints that end before their last field.
    pub short: u64,
    /// The samples that are later than [`Recording::last_possible_time`].
    pub late: u64,
}

/// A replay of a recording.
pub struct Replay {
    /// The name of the recording, for messages.
    name: String,
    batches: Batches,
    /// True if the recording is in files, false if it comes through a pipe.
    is_file: bool,
    warnings: Warnings,
    failure: Option<PerfDataError>,
    cpus: u32,
    others: OtherRecords,
    total: u64,
    stopped: Option<Ended>,
    flush: bool,
}

/// Opens the streams of a recording.
struct StreamOpener {
    context: ReplayContext,
    warnings: Warnings,
    order: ByteOrder,
    /// The number of streams before the streams of the recording: 1 if gaps are marked, otherwise 0.
    before: u32,
    /// The memory for decompressors, in bytes.
    memory: usize,
    /// The number of bytes to read ahead.
    most_ahead: usize,
    ending: Ending,
    rings: Rings,
    opened: Streams,
    gaps: Vec<Arc<Vec<Gap>>>,
}

/// The streams of a recording.
struct Streams {
    streams: Vec<Box<dyn Stream>>,
    /// The number of bytes of the recording that all these streams together read; 0 if it is unknown.
    total: u64,
    release: ReleaseTime,
}

impl StreamOpener {
    fn open(mut self, data: Data) -> Result<Streams, PerfDataError> {
        match data {
            Data::Stream(
                records,
                _,
                Some(Stored { input, unpacked: Some(CompressedIndex { runs: Some(index), .. }), .. }),
            ) => {
                let setup = self.setup(0, 1, self.memory);
                self.add_indexed(input, records.name, index, setup)?;
            }
            Data::Stream(records, arrival, _) => {
                if arrival == Arrival::Live {
                    self.opened.release = ReleaseTime::AtOnce;
                }
                let setup = self.setup(0, 1, self.memory);
                let stream = SequentialStream::new(records, arrival, self.most_ahead.max(BLOCK), setup);
                self.opened.streams.push(Box::new(stream));
            }
            Data::Parts(parts) => self.add_parts(parts)?,
        }
        let Streams { streams, .. } = &mut self.opened;
        if self.before > 0 {
            let count = streams.len() + 1;
            streams.insert(0, Box::new(GapStream::new(&self.gaps, &self.context, count)));
        }
        Ok(self.opened)
    }

    fn add_parts(&mut self, parts: Vec<Part>) -> Result<(), PerfDataError> {
        let packed = || parts.iter().filter(|part| part.index().is_none());
        let ahead = (self.most_ahead / packed().count().max(1)).max(BLOCK);
        let memory = self.memory / packed().count().max(1);
        let runs: Vec<usize> =
            packed().filter_map(Part::runs).map(|runs| runs.most_for(&self.context.selection)).collect();
        // One run of each file is in memory at a time, and there may be hundreds of files. So runs are used only if the
        // largest runs of all files fit into memory together.
        let runs_fit = runs.iter().sum::<usize>() <= ahead * runs.len();
        let count = parts.len();
        for (number, part) in parts.into_iter().enumerate() {
            let setup = self.setup(number, count, memory);
            let index = if runs_fit { part.runs() } else { part.index() }.cloned();
            let Part { name, input, section, .. } = part;
            if let Some(index) = index {
                self.add_indexed(input, name, index, setup)?;
                continue;
            }
            self.opened.total = self.opened.total.saturating_add(section.size);
            let records = RecordReader::new(&name, self.order, Box::new(FileFeed::new(input, section)));
            self.opened.streams.push(Box::new(SequentialStream::new(records, Arrival::Stored, ahead, setup)));
        }
        Ok(())
    }

    fn add_indexed(
        &mut self,
        input: Arc<dyn Input>,
        name: String,
        index: Arc<BlockIndex>,
        setup: StreamSetup,
    ) -> Result<(), PerfDataError> {
        self.opened.total += index.read_for(&self.context.selection);
        let mut stream = IndexedStream::new(input, name, index, setup);
        if self.before > 0 {
            self.gaps.push(stream.gaps()?);
        }
        self.opened.streams.push(Box::new(stream));
        Ok(())
    }

    /// Returns the setup of the stream `number` of `count` streams of the recording.
    fn setup(&self, number: usize, count: usize, memory: usize) -> StreamSetup {
        let numbers =
            Numbers { first: self.before + number as u32, stride: merge::stride(count + self.before as usize) };
        let (context, warnings) = (self.context.clone(), self.warnings.clone());
        StreamSetup { context, numbers, warnings, memory, ending: self.ending, rings: self.rings }
    }
}

impl Replay {
    pub(crate) fn new(mut recording: Recording, context: ReplayContext) -> Result<Replay, PerfDataError> {
        let warnings = Warnings::default();
        recording.warnings.drain(..).for_each(|warning| warnings.add(FoundBy::AllReaders, warning));
        if recording.lacks_records {
            warnings.note_damage();
        }
        let cpus = recording.features.cpus.map_or(CPUS, |(available, _)| available.clamp(1, 1 << 16));
        let name = recording.name.clone();
        let (data, order, others) = (recording.take_data(), recording.order, context.selection.others);
        let is_file = !matches!(data, Data::Stream(_, _, None));
        let parts = if let Data::Parts(parts) = &data { parts.len() } else { 1 };
        let limit = recording.limit.clone().of_records();
        // A quarter of the allowed memory is for records that are read ahead, and a quarter for the decompressors. The
        // rest is for records that overlap in time.
        let share = limit.bytes() / 4;
        let holes = context.selection.holes.iter().chain(recording.off_times());
        let holes: Vec<_> = holes.map(|&hole| Gap::of_hole(hole)).collect();
        let opener = StreamOpener {
            before: u32::from(context.selection.gaps != Gaps::NotMarked),
            context,
            warnings: warnings.clone(),
            order,
            memory: share,
            most_ahead: AHEAD.min(share),
            ending: recording.ending,
            rings: recording.id_index.rings_of_part(parts),
            opened: Streams { streams: Vec::new(), total: 0, release: ReleaseTime::InRounds },
            gaps: [recording.missing_rings.into_iter().collect(), holes].map(Arc::new).into(),
        };
        let Streams { streams, total, release } = opener.open(data)?;
        let batches = Batches::new(Merger::new(streams, release, limit));
        Ok(Replay { name, batches, is_file, warnings, failure: None, cpus, others, total, stopped: None, flush: false })
    }

    /// Sets the eventfd that interrupts a wait for data from a pipe.
    pub fn set_wake(&mut self, wake: RawFd) {
        self.batches.set_wake(wake);
    }

    /// Lets a thread read and sort the records of a file. The thread starts when the first records are requested. No
    /// thread reads a pipe, because a wait for its data must be interruptible.
    pub fn read_ahead(&mut self) {
        if self.is_file {
            self.batches.read_ahead();
        }
    }

    /// Returns the warnings about problems of the recording that were found since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warnings.take_all().into_iter().map(|(_, warning)| warning).collect()
    }

    /// Like [`Replay::take_warnings`], but drops the warnings that all readers of the recording find. Returns the
    /// warnings that only the reader of this part finds.
    pub fn take_own_warnings(&mut self) -> Vec<String> {
        let own = self.warnings.take_all().into_iter().filter(|(found, _)| *found == FoundBy::OneReader);
        own.map(|(_, warning)| warning).collect()
    }

    /// Adds warnings about damaged samples.
    pub fn found_damage(&self, DamagedSamples { short, late }: DamagedSamples) {
        for (count, warning) in [(short, short_samples as fn(&str, u64) -> String), (late, late_samples)] {
            if count != 0 {
                self.warnings.add_damage(FoundBy::OneReader, warning(&self.name, count));
            }
        }
    }

    /// Returns whether records are known to be missing so far, because the recording is damaged or cut off.
    pub fn lacks_records(&self) -> bool {
        self.failure.is_some() || self.warnings.lack_records()
    }

    /// Returns the error that ended the replay early.
    pub fn take_failure(&mut self) -> Option<PerfDataError> {
        self.failure.take()
    }

    /// Returns the types of records other than samples that the program requested.
    pub fn other_records(&self) -> OtherRecords {
        self.others
    }

    /// Returns the progress of the replay.
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
        // The last ring is for records without a CPU.
        (0..self.cpus).map(Some).chain([None]).collect()
    }

    fn late(&self) -> u64 {
        self.batches.late()
    }

    fn dropped_by_limit(&self) -> u64 {
        0
    }

    fn backlog(&self) -> usize {
        self.batches.bytes()
    }
}

/// Returns the index of the ring for which records of this CPU are counted. Records without a CPU belong to the last
/// ring.
pub fn ring_of(cpu: Option<u32>, rings: usize) -> usize {
    let last = rings.saturating_sub(1);
    cpu.map_or(last, |cpu| (cpu as usize).min(last))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::abi::perf_data::{PERF_MAGIC2, PERF_RECORD_HEADER_ATTR};

    use super::*;
    use crate::Selection;

    fn patiently(replay: &mut Replay) -> Wait {
        loop {
            match replay.wait(None) {
                Wait::Woken => {}
                other => return other,
            }
        }
    }

    #[test]
    fn a_pipe_kept_in_a_file_can_be_read_ahead() {
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
