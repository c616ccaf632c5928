//! Sorts records that can only be read from front to back: the records of a pipe, and compressed records.
//!
//! Unread records may be older than the records that were already read. Rounds limit how much older they can be (see
//! [`Rounds`]). Some recordings have no such marks. For these recordings, a window of bytes is read ahead, and unread records
//! are assumed to be newer than the oldest record in the window.
//!
//! The kernel takes the time of a record before it reserves the record's space in the ring. If a hypervisor stops the
//! kernel between these two steps, the record misses its round. So a margin is subtracted from the time that a round
//! guarantees, as in `record/order.rs`. If a consumer waits for each record, no margin is subtracted, because the
//! margin would delay each record until another event happens.

use std::{collections::VecDeque, os::fd::RawFd};

use perf_prof_format::{
    abi::{
        PERF_RECORD_SAMPLE,
        perf_data::{
            PERF_RECORD_AUXTRACE, PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2, PERF_RECORD_FINISHED_ROUND,
            PERF_RECORD_STAT_ROUND,
        },
    },
    record::{Chunk, SortedRecord, record_size, record_type},
};
use rustc_hash::FxHashMap;

use super::{
    block_stream::{FoundBy, Numbers, ReplayContext, Stream, StreamSetup, Warnings},
    rounds::{Ending, Rounds},
};
use crate::{
    error::{PerfDataError, unfinished_pipe, wrong_types},
    format::{
        checksums::Checksums,
        first_records::{AuxTrace, Rings, aux_warning},
        swap,
    },
    index::blocks::{BLOCK, payload},
    input::{
        decompress::{Decompressor, begins_frame, is_compressed, packed},
        feed::{Next, RecordReader},
    },
    select::{Wanted, is_impossible},
};

/// The state of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The input is complete.
    Stored,
    /// The input is still being made, and a consumer waits for each record. A record is delivered as soon as it is
    /// complete.
    Live,
}

/// A stream of records that are read from front to back.
pub(crate) struct SequentialStream {
    records: RecordReader,
    unpacker: Option<Decompressor>,
    /// The memory of the decompressor in bytes.
    memory: usize,
    unpacking: Unpacking,
    checksums: Checksums,
    /// The number of places in the file with damaged compressed records.
    damaged: u64,
    /// The AUX area data that was found so far.
    aux: AuxTrace,
    arrival: Arrival,
    ending: Ending,
    warnings: Warnings,
    window: Window,
    ended: bool,
}

/// The state of decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unpacking {
    Works,
    /// A compressed record was damaged. The records after it depend on the damaged record, up to the start of the next
    /// zstd frame. They are missing since this time.
    Failed(u64),
}

/// The maximum number of damaged places that get a warning each. Further places are only counted, because there may be
/// a damaged place in every 16 bytes.
const REPORTED_PLACES: u64 = 8;

/// Blocks that were read and not delivered yet.
struct Window {
    context: ReplayContext,
    blocks: VecDeque<Ready>,
    /// `bytes` is the memory of the blocks in bytes, and `limit` is the maximum for this memory.
    bytes: usize,
    limit: usize,
    rings: Rings,
    /// The block that is being filled (`block`), its selected records (`listed`), and the earliest time of these
    /// records (`first`).
    block: Vec<u8>,
    listed: Vec<SortedRecord>,
    first: u64,
    /// The number of records with a type that no recorder writes.
    wrong_types: u64,
    /// The time of the last record.
    before: u64,
    rounds: Rounds,
    /// A second lower bound for the times of unread records. It is set when a block has to be delivered because the
    /// window is full: unread records are assumed to be newer than the earliest record of this block.
    floor: u64,
    /// The time since which records are missing, if records of this round could not be read.
    missing_since: Option<u64>,
    /// `number` is the number of the block that is being filled, and `numbers` gives the numbers of the blocks after
    /// it.
    number: u32,
    numbers: Numbers,
}

struct Ready {
    number: u32,
    first: u64,
    bytes: Vec<u8>,
    listed: Vec<SortedRecord>,
}

impl Ready {
    /// Returns the memory of the block, in bytes. If the records of the block are short, the list of records takes more
    /// memory than their bytes.
    fn size(&self) -> usize {
        self.bytes.len() + self.listed.len() * size_of::<SortedRecord>()
    }
}

impl Window {
    /// Returns the index of the block that has the earliest record, and the time of this record.
    fn earliest(&self) -> Option<(usize, u64)> {
        let firsts = self.blocks.iter().map(|ready| ready.first).enumerate();
        firsts.min_by_key(|&(at, first)| (first, at))
    }

    /// Adds a record to the current block if it is selected.
    fn add(&mut self, record: &[u8]) {
        let own = self.context.layouts.time(record);
        let time = own.unwrap_or(self.before);
        if is_impossible(record_type(record)) {
            self.wrong_types += 1;
            let since = if self.has_rounds() { self.bound() } else { self.before };
            self.missing_since.get_or_insert(since);
        } else if self.missing_since.is_some() && !self.has_rounds() && own.is_some() {
            self.end_gap(time);
        }
        let ReplayContext { layouts, selection, .. } = &self.context;
        self.before = time;
        self.rounds.newest = self.rounds.newest.max(time);
        if selection.wants(record, time, layouts) == Wanted::No {
            return;
        }
        if self.block.len() + record.len() > BLOCK {
            self.finish_block();
        }
        self.first = self.first.min(time);
        self.listed.push(SortedRecord { time, chunk: self.number, offset: self.block.len() as u32 });
        self.block.extend_from_slice(record);
    }

    /// Returns whether only rounds tell since when and until when records may be missing.
    fn has_rounds(&self) -> bool {
        self.rings == Rings::Several || self.rounds.have_ended()
    }

    /// Returns the lower bound for the times of unread records.
    fn bound(&self) -> u64 {
        self.rounds.bound().max(self.floor)
    }

    /// Returns a time since which records are missing, if the next bytes cannot be read. In an input with rounds, these bytes
    /// may have records of a ring that had none for a long time. In other inputs, the last samples of any CPU may be in these
    /// bytes; then all records in the window are read.
    fn missing_from(&self) -> u64 {
        if self.has_rounds() {
            return self.bound();
        }
        let mut last: FxHashMap<Option<u32>, u64> = FxHashMap::default();
        let blocks = self.blocks.iter().map(|ready| (&ready.bytes, &ready.listed)).chain([(&self.block, &self.listed)]);
        for (bytes, at) in blocks.flat_map(|(bytes, listed)| listed.iter().map(move |at| (bytes, at))) {
            let rest = &bytes[at.offset as usize..];
            if record_type(rest) == PERF_RECORD_SAMPLE {
                let cpu = self.context.layouts.cpu(&rest[..record_size(rest).min(rest.len())]);
                let last = last.entry(cpu).or_default();
                *last = at.time.max(*last);
            }
        }
        last.into_values().min().unwrap_or(self.before).max(self.bound())
    }

    /// Notes the gap of records that could not be read, if there is one. The next records that can be read have the time
    /// `end`.
    fn end_gap(&mut self, end: u64) {
        if let Some(since) = self.missing_since.take() {
            self.context.note_unread(since, end);
        }
    }

    /// Ends a round of `perf stat record`. Records of counts have no times and are delivered in the order of the input.
    /// For sorting, records after the round get a later time than the records of the round, so that the records of the
    /// round can be delivered at once.
    fn end_round_of_counts(&mut self) {
        self.before = self.rounds.newest.saturating_add(1);
        self.rounds.newest = self.before;
        self.rounds.end_sorted();
        self.finish_block();
    }

    fn finish_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let bytes = std::mem::replace(&mut self.block, self.context.pool.buffer(0));
        let listed = std::mem::take(&mut self.listed);
        let first = std::mem::replace(&mut self.first, u64::MAX);
        let ready = Ready { number: self.number, first, bytes, listed };
        self.bytes += ready.size();
        self.blocks.push_back(ready);
        self.number = self.numbers.next_number();
    }
}

impl SequentialStream {
    /// Creates a stream of these records. At most about `limit` bytes are read ahead.
    pub fn new(records: RecordReader, arrival: Arrival, limit: usize, setup: StreamSetup) -> Self {
        let StreamSetup { context, mut numbers, warnings, memory, ending, rings } = setup;
        let aux = context.aux;
        let window = Window {
            block: context.pool.buffer(0),
            context,
            blocks: VecDeque::new(),
            bytes: 0,
            limit,
            rings,
            listed: Vec::new(),
            first: u64::MAX,
            wrong_types: 0,
            before: 0,
            rounds: Rounds::default(),
            floor: 0,
            missing_since: None,
            number: numbers.next_number(),
            numbers,
        };
        Self {
            records,
            unpacker: None,
            memory,
            unpacking: Unpacking::Works,
            checksums: Checksums::default(),
            damaged: 0,
            aux,
            arrival,
            ending,
            warnings,
            window,
            ended: false,
        }
    }

    fn warn(&self, what: impl std::fmt::Display) {
        self.warnings.add_damage(FoundBy::AllReaders, format!("{}: {what}", self.records.name));
    }

    /// Reads more records until a block can be delivered, or the window is full, or the input ends.
    fn read_ahead(&mut self) -> Result<(), PerfDataError> {
        while !self.ended
            && self.window.bytes < self.window.limit
            && self.window.earliest().is_none_or(|(_, first)| first >= self.window.rounds.bound())
        {
            self.step()?;
        }
        Ok(())
    }

    /// Adds the records that are already decompressed. Then decompresses some more bytes. If there is nothing to
    /// decompress, reads the next record of the file instead.
    fn step(&mut self) -> Result<(), PerfDataError> {
        let order = self.records.order;
        if let Some(unpacker) = &mut self.unpacker {
            while let Some(record) = unpacker.next(order) {
                swap::record(record, order, &self.window.context.layouts);
                self.window.add(record);
            }
            if unpacker.has_packed() {
                return match unpacker.step(order) {
                    Ok(()) => Ok(()),
                    Err(why) => self.fail(&why),
                };
            }
        }
        let end = self.records.next()?;
        match end {
            Next::Record(size) => return self.record(size),
            Next::End => {}
            // The warning was added when the file was opened.
            Next::CutOff(0) => self.warnings.note_damage(),
            Next::Unfinished if self.ending == Ending::Killed => self.warnings.note_damage(),
            Next::Unfinished => self.warnings.add_damage(FoundBy::AllReaders, unfinished_pipe(&self.records.name)),
            Next::CutOff(left) => self.warn(format_args!("the last {left} bytes are left out: the input is cut off")),
            Next::Damaged => {
                let at = self.records.consumed();
                self.warn(format_args!(
                    "everything from byte {at} on is left out: the bytes there are not a valid record"
                ));
            }
        }
        if let Some(left) = self.unpacker.as_ref().map(Decompressor::left).filter(|&left| left > 0) {
            self.warn(format_args!("the last {left} decompressed bytes are left out: they are not a whole record"));
        }
        if self.damaged > REPORTED_PLACES {
            let more = self.damaged - REPORTED_PLACES;
            self.warn(format_args!("compressed records are also left out at other places (count: {more})"));
        }
        if self.window.wrong_types != 0 {
            let what = wrong_types(&self.records.name, self.window.wrong_types);
            self.warnings.add_damage(FoundBy::AllReaders, what);
        }
        if self.aux.bytes != 0 {
            self.warnings.add(FoundBy::AllReaders, aux_warning(&self.records.name, self.aux));
        }
        self.window.finish_block();
        self.note_unread_end(end);
        self.ended = true;
        Ok(())
    }

    /// Leaves out the rest of a zstd frame.
    fn fail(&mut self, why: &str) -> Result<(), PerfDataError> {
        let at = self.records.consumed();
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.restart().map_err(|error| PerfDataError::io("zstd", error))?;
        }
        self.damaged += 1;
        // With very many damaged places, reading the window for each of them would take too long.
        let is_told = self.damaged <= REPORTED_PLACES;
        let since = if is_told { self.window.missing_from() } else { self.window.bound() };
        self.unpacking = Unpacking::Failed(since);
        if is_told {
            self.warn(format_args!("compressed records are left out from byte {at} on: {why}"));
        }
        Ok(())
    }

    /// Notes the gap that lasts until the end of the input, if its last records cannot be read.
    fn note_unread_end(&mut self, end: Next) {
        let window = &mut self.window;
        window.end_gap(window.rounds.newest);
        match (self.unpacking, end, self.ending) {
            (Unpacking::Failed(since), ..) => window.context.note_unread(since, u64::MAX),
            (Unpacking::Works, Next::CutOff(_) | Next::Unfinished | Next::Damaged, _) | (_, _, Ending::Killed) => {
                window.context.note_unread(window.missing_from(), u64::MAX);
            }
            (Unpacking::Works, Next::Record(_) | Next::End, Ending::Finished) => {}
        }
    }

    /// Takes the next record of the file, which is compressed and has `size` bytes, as the next input of the decompressor.
    fn compressed(&mut self, size: usize) -> Result<(), PerfDataError> {
        let record = self.records.peek(size);
        let holds = self.checksums.compressed(packed(record).unwrap_or(&[]));
        if let Unpacking::Failed(since) = self.unpacking
            && holds
            && begins_frame(record)
        {
            self.unpacking = Unpacking::Works;
            self.window.missing_since.get_or_insert(since);
            if self.damaged <= REPORTED_PLACES {
                let at = self.records.consumed();
                self.warn(format_args!("compressed records are read again from byte {at} on"));
            }
        }
        if self.unpacking != Unpacking::Works {
            return Ok(());
        }
        if !holds {
            return self.fail("they are not what was recorded (CRC-32)");
        }
        if self.unpacker.is_none() {
            let made = Decompressor::new(self.memory);
            self.unpacker = Some(made.map_err(|error| PerfDataError::io("zstd", error))?);
        }
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.set_input(self.records.peek(size));
        }
        Ok(())
    }

    /// Processes the next record of the file, which has `size` bytes.
    fn record(&mut self, size: usize) -> Result<(), PerfDataError> {
        let order = self.records.order;
        let record = self.records.peek(size);
        swap::record(record, order, &self.window.context.layouts);
        if !is_compressed(record) && !self.checksums.plain(record) {
            if self.unpacking == Unpacking::Works {
                self.fail("a compressed record is missing")?;
            }
            // This may be the compressed record, with wrong bits in its type.
            self.records.advance(size);
            return Ok(());
        }
        let record = self.records.peek(size);
        let mut skip = 0;
        match record_type(record) {
            PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2 => {
                self.compressed(size)?;
            }
            PERF_RECORD_FINISHED_ROUND => {
                let margin = match self.arrival {
                    Arrival::Stored => Rounds::MARGIN,
                    Arrival::Live => 0,
                };
                if self.unpacking == Unpacking::Works {
                    let window = &mut self.window;
                    window.end_gap(window.rounds.newest);
                    // Without the damaged records, the newest time is not known. So the bound stays until they end, and no
                    // record after the start of their gap is released before the gap is noted.
                    window.rounds.end(margin);
                }
                if self.arrival == Arrival::Live {
                    self.window.finish_block();
                }
            }
            PERF_RECORD_STAT_ROUND if self.arrival == Arrival::Live => {
                self.window.add(record);
                self.window.end_round_of_counts();
            }
            _ => {
                skip = payload(record);
                if record_type(record) == PERF_RECORD_AUXTRACE {
                    self.aux.bytes = self.aux.bytes.saturating_add(skip);
                }
                self.window.add(record);
            }
        }
        self.records.advance(size);
        self.records.skip_payload(skip);
        Ok(())
    }
}

impl Stream for SequentialStream {
    fn bound(&mut self) -> Result<u64, PerfDataError> {
        let window = &self.window;
        let unread = if self.ended { u64::MAX } else { window.bound() };
        let read = window.earliest().map_or(u64::MAX, |(_, first)| first).min(window.first);
        Ok(read.min(unread))
    }

    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
        self.read_ahead()?;
        let window = &mut self.window;
        let forced = window.bytes >= window.limit;
        let Some(ready) = window.earliest().and_then(|(at, _)| window.blocks.remove(at)) else { return Ok(None) };
        if forced {
            window.floor = window.floor.max(ready.first);
        }
        window.bytes -= ready.size();
        records.extend_from_slice(&ready.listed);
        Ok(Some((ready.number, window.context.chunk(ready.bytes))))
    }

    fn consumed(&self) -> u64 {
        self.records.consumed()
    }

    fn set_wake(&mut self, wake: RawFd) {
        self.records.set_wake(wake);
    }
}

#[cfg(test)]
mod tests;
