//! Records that can be read from front to back only: those of a pipe, and compressed ones.
//!
//! What is unread may be older than what was read. How much is told by the rounds that perf marks (when a round has ended,
//! nothing comes any more that is older than the newest of the round before); where it marks none, a window of bytes is read
//! ahead, and what is unread is taken to be newer than the oldest in the window. Who writes a record takes its time first, and
//! its place in the ring then: one that a hypervisor stopped in between misses its round, so rounds are believed but for a
//! margin, as in `record/order.rs`. Not where somebody waits for each record, who would wait for one more event.

use std::{collections::VecDeque, os::fd::RawFd};

use super::{
    error::PerfDataError,
    feed::{Next, Records},
    index::{BLOCK, payload},
    select::Wanted,
    stream::{Found, Gate, Stream, Warnings},
    swap,
    unpack::{Unpacker, begins_frame},
};
use crate::{
    abi::perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2, PERF_RECORD_FINISHED_ROUND},
    record::{Chunk, MARGIN, SortedRecord, record_type},
};

/// Whether records lie there, or are still being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// All are there.
    Stored,
    /// Somebody waits for each: what is complete is handed out at once.
    Live,
}

/// Records that are read from front to back.
pub(super) struct SequentialStream {
    records: Records,
    unpacker: Option<Unpacker>,
    unpacking: Unpacking,
    /// At how many places compressed records were damaged.
    damaged: u64,
    arrival: Arrival,
    warnings: Warnings,
    window: Window,
    /// The newest time when the last round ended, and when the one before it did.
    rounds: [u64; 2],
    /// What is unread is newer than this, where the window was not enough for more.
    floor: u64,
    ended: bool,
}

/// Whether compressed records are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unpacking {
    Works,
    /// One was damaged. Those after it need what was in it, as far as the frame goes.
    Failed,
}

/// At so many places damage is told of one by one: there may be one in each 16 bytes.
const TOLD: u64 = 8;

/// Blocks that were read and not handed out.
struct Window {
    gate: Gate,
    blocks: VecDeque<Ready>,
    /// How many bytes they have, and may have.
    bytes: usize,
    limit: usize,
    /// The block that is being filled, its records and its least time.
    block: Vec<u8>,
    listed: Vec<SortedRecord>,
    first: u64,
    /// The time of the last record, and the newest.
    before: u64,
    newest: u64,
    /// The number of the next block, and the distance between numbers: streams number theirs in turns.
    number: u32,
    stride: u32,
}

struct Ready {
    number: u32,
    first: u64,
    bytes: Vec<u8>,
    listed: Vec<SortedRecord>,
}

impl Window {
    /// The block that begins first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let firsts = self.blocks.iter().map(|ready| ready.first).enumerate();
        firsts.min_by_key(|&(at, first)| (first, at))
    }

    /// Puts a record into the block, if it is wanted.
    fn add(&mut self, record: &[u8]) {
        let Gate { layouts, selection, .. } = &self.gate;
        let time = layouts.time(record).unwrap_or(self.before);
        self.before = time;
        self.newest = self.newest.max(time);
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

    fn finish_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let bytes = std::mem::replace(&mut self.block, self.gate.pool.take(0));
        let listed = std::mem::take(&mut self.listed);
        let first = std::mem::replace(&mut self.first, u64::MAX);
        self.bytes += bytes.len();
        self.blocks.push_back(Ready { number: self.number, first, bytes, listed });
        self.number = self.number.wrapping_add(self.stride);
    }
}

impl SequentialStream {
    /// The records, of which `limit` bytes may be read ahead. Blocks are numbered from `number` on, `stride` apart.
    pub fn new(
        records: Records,
        gate: Gate,
        arrival: Arrival,
        limit: usize,
        (number, stride): (u32, u32),
        warnings: Warnings,
    ) -> Self {
        let window = Window {
            block: gate.pool.take(0),
            gate,
            blocks: VecDeque::new(),
            bytes: 0,
            limit,
            listed: Vec::new(),
            first: u64::MAX,
            before: 0,
            newest: 0,
            number,
            stride,
        };
        let (unpacker, unpacking, damaged) = (None, Unpacking::Works, 0);
        let (rounds, floor, ended) = ([0; 2], 0, false);
        Self { records, unpacker, unpacking, damaged, arrival, warnings, window, rounds, floor, ended }
    }

    fn warn(&self, what: impl std::fmt::Display) {
        self.warnings.add(Found::ByAll, format!("{}: {what}", self.records.name));
    }

    /// Reads on until a block can be handed out of which nothing is missing, or there is no more room, or nothing is left.
    fn read_ahead(&mut self) -> Result<(), PerfDataError> {
        let complete = |first: u64, rounds: [u64; 2]| first < rounds[1];
        while !self.ended
            && self.window.bytes < self.window.limit
            && !self.window.earliest().is_some_and(|(_, first)| complete(first, self.rounds))
        {
            self.step()?;
        }
        Ok(())
    }

    /// Takes what was unpacked, or unpacks some more, or takes the next record of the file.
    fn step(&mut self) -> Result<(), PerfDataError> {
        let order = self.records.order;
        if let Some(unpacker) = &mut self.unpacker {
            while let Some(record) = unpacker.next(order) {
                swap::record(record, order, &self.window.gate.layouts);
                self.window.add(record);
            }
            if unpacker.has_packed() {
                if let Err(why) = unpacker.step(order) {
                    let at = self.records.consumed();
                    unpacker.restart().map_err(|error| PerfDataError::io("zstd", error))?;
                    self.unpacking = Unpacking::Failed;
                    self.damaged += 1;
                    if self.damaged <= TOLD {
                        self.warn(format_args!("compressed records are left out from byte {at} on: {why}"));
                    }
                }
                return Ok(());
            }
        }
        match self.records.next()? {
            Next::Record(size) => return self.record(size),
            Next::End => {}
            Next::CutOff(left) => self.warn(format_args!("its last {left} bytes are left out: it is cut off")),
            Next::Damaged => {
                let at = self.records.consumed();
                self.warn(format_args!("what follows byte {at} is left out: it is no record"));
            }
        }
        if let Some(left) = self.unpacker.as_ref().map(Unpacker::left).filter(|&left| left > 0) {
            self.warn(format_args!("its last {left} unpacked bytes are left out: they are no whole record"));
        }
        if self.damaged > TOLD {
            let more = self.damaged - TOLD;
            self.warn(format_args!("compressed records are left out at {more} more places"));
        }
        self.window.finish_block();
        self.ended = true;
        Ok(())
    }

    /// Takes a record of the file.
    fn record(&mut self, size: usize) -> Result<(), PerfDataError> {
        let order = self.records.order;
        let record = self.records.peek(size);
        swap::record(record, order, &self.window.gate.layouts);
        let mut skip = 0;
        match record_type(record) {
            PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2 => {
                if self.unpacking == Unpacking::Failed && begins_frame(record) {
                    self.unpacking = Unpacking::Works;
                    if self.damaged <= TOLD {
                        let at = self.records.consumed();
                        self.warn(format_args!("compressed records are read again from byte {at} on"));
                    }
                }
                let record = self.records.peek(size);
                if self.unpacking == Unpacking::Works {
                    if self.unpacker.is_none() {
                        self.unpacker = Some(Unpacker::new().map_err(|error| PerfDataError::io("zstd", error))?);
                    }
                    if let Some(unpacker) = &mut self.unpacker {
                        unpacker.take(record);
                    }
                }
            }
            PERF_RECORD_FINISHED_ROUND => {
                let margin = match self.arrival {
                    Arrival::Stored => MARGIN.as_nanos() as u64,
                    Arrival::Live => 0,
                };
                self.rounds = [self.window.newest.saturating_sub(margin), self.rounds[0]];
                if self.arrival == Arrival::Live {
                    self.window.finish_block();
                }
            }
            _ => {
                skip = payload(record);
                self.window.add(record);
            }
        }
        self.records.take(size);
        self.records.skip(skip);
        Ok(())
    }
}

impl Stream for SequentialStream {
    fn bound(&mut self) -> Result<u64, PerfDataError> {
        let unread = if self.ended { u64::MAX } else { self.rounds[1].max(self.floor) };
        let read = self.window.earliest().map_or(u64::MAX, |(_, first)| first).min(self.window.first);
        Ok(read.min(unread))
    }

    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
        self.read_ahead()?;
        let window = &mut self.window;
        let forced = window.bytes >= window.limit;
        let Some(ready) = window.earliest().and_then(|(at, _)| window.blocks.remove(at)) else { return Ok(None) };
        if forced {
            self.floor = self.floor.max(ready.first);
        }
        window.bytes -= ready.bytes.len();
        records.extend_from_slice(&ready.listed);
        Ok(Some((ready.number, window.gate.chunk(ready.bytes))))
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
