//! Puts the records of several rings in the order of their time. Knows nothing of where they come from.
//!
//! The reader goes round all rings, again and again. A ring that was emptied in a round cannot later give a record older
//! than the round's begin; so when a round has ended, everything that had been *seen when it began* is complete: all
//! that could still come before it has come in that round.
//!
//! ```text
//!             round 1            round 2            round 3
//!            |-------|          |-------|          |-------|
//!   ring 0    a   c      e       g                  i
//!   ring 1      b    d       f                h
//!            ^                  ^                  ^
//!            seen: nothing      seen: a..e         seen: a..g        (the highest time of the records handed in)
//!                    ^                  ^                  ^
//!                    releases nothing   releases a..e      releases a..g, f and h fall in their places
//! ```
//!
//! That holds for records that are in their ring. One that got its time but not its place yet (an interrupt came in
//! between, a hypervisor took the CPU away) can miss its round; so a round releases only what had been seen a *margin*
//! before it began. A quiet ring delays nobody by more than the margin and two rounds.
//!
//! Each record is sorted once, when it is released. The rings' records are runs that are sorted already, or nearly (an
//! interrupt's record may stand before the older one that it interrupted), and the standard library's stable sort makes
//! use of such runs.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Chunk, SampleLayout, Sorted, SortedRecord, TrailerLayout, parse::record_type};
use crate::abi::PERF_RECORD_SAMPLE;

/// The default margin.
pub const MARGIN: Duration = Duration::from_millis(20);

/// Records per batch: a batch should take the run loop no more than a few milliseconds.
const BATCH: usize = 4096;

/// The sorter.
#[derive(Debug)]
pub struct Sorter {
    sample: SampleLayout,
    trailer: TrailerLayout,
    margin: Duration,
    rings: Vec<Pending>,
    /// Chunks that pending or ready records lie in. A record's `chunk` is an index into this, counted from `first`.
    chunks: VecDeque<Held>,
    /// The number of the first of `chunks`; wraps.
    first: u32,
    /// When each round of the last margin began, and the highest time seen by then.
    begins: VecDeque<(Instant, u64)>,
    /// The highest time of all records handed in.
    highest: u64,
    /// Everything up to here was released.
    released: u64,
    late: u64,
    /// Released records in order, from `next` on not handed out yet.
    ready: Vec<SortedRecord>,
    next: usize,
}

/// Records of one ring that were not released.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<SortedRecord>,
    /// The time of the ring's last record that had one.
    last: u64,
    /// The highest time that the ring has given.
    highest: u64,
    disordered: bool,
}

#[derive(Debug)]
struct Held {
    chunk: Option<Arc<Chunk>>,
    /// Records that were not handed out.
    records: u32,
    /// Its index in the batch that is being made.
    in_batch: Option<u32>,
}

impl Sorter {
    /// A sorter for records with these layouts. All samples must have their time at the same place.
    pub fn new(sample: SampleLayout, trailer: TrailerLayout, margin: Duration) -> Self {
        Self {
            sample,
            trailer,
            margin,
            rings: Vec::new(),
            chunks: VecDeque::new(),
            first: 0,
            begins: VecDeque::new(),
            highest: 0,
            released: 0,
            late: 0,
            ready: Vec::new(),
            next: 0,
        }
    }

    /// Hands in what came out of a ring.
    pub fn push(&mut self, chunk: Chunk) {
        let ring = chunk.ring as usize;
        if self.rings.len() <= ring {
            self.rings.resize_with(ring + 1, Pending::default);
        }
        let pending = &mut self.rings[ring];
        let number = self.first.wrapping_add(self.chunks.len() as u32);
        let before = pending.records.len();
        let mut offset = 0;
        for record in chunk.records() {
            let time = if record_type(record) == PERF_RECORD_SAMPLE {
                self.sample.time(record)
            } else {
                self.trailer.time(record)
            };
            // A record without a time keeps its place behind the one before it.
            let time = time.unwrap_or(pending.last);
            pending.disordered |= time < pending.highest;
            pending.highest = pending.highest.max(time);
            pending.last = time;
            self.highest = self.highest.max(time);
            self.late += u64::from(time < self.released);
            pending.records.push(SortedRecord { time, chunk: number, offset });
            offset += record.len() as u32;
        }
        let records = (pending.records.len() - before) as u32;
        if records > 0 {
            self.chunks.push_back(Held { chunk: Some(Arc::new(chunk)), records, in_batch: None });
        }
    }

    /// The reader begins to empty all rings.
    pub fn begin_round(&mut self, at: Instant) {
        self.begins.push_back((at, self.highest));
    }

    /// The round that was begun last has ended: all rings were emptied.
    pub fn end_round(&mut self) {
        let Some(&(begin, _)) = self.begins.back() else { return };
        let mut horizon = None;
        while let Some(&(at, highest)) = self.begins.front()
            && at + self.margin <= begin
        {
            horizon = Some(highest);
            self.begins.pop_front();
        }
        if let Some(horizon) = horizon {
            self.release(horizon);
        }
    }

    /// Releases what is complete by the round that was ended last, without the margin: somebody waits for it, or for
    /// its memory.
    pub fn hurry(&mut self) {
        if let Some((_, highest)) = self.begins.pop_back() {
            self.begins.clear();
            self.release(highest);
        }
    }

    /// Releases everything: no more rounds will come.
    pub fn finish(&mut self) {
        self.release(u64::MAX);
    }

    /// The next records in order, as long as there are some that were released.
    pub fn next_batch(&mut self) -> Option<Sorted> {
        let end = self.ready.len().min(self.next + BATCH);
        if self.next == end {
            return None;
        }
        let mut sorted = Sorted { chunks: Vec::new(), records: self.ready[self.next..end].to_vec() };
        self.next = end;
        let lowest = self.first;
        for record in &mut sorted.records {
            let held = &mut self.chunks[record.chunk.wrapping_sub(lowest) as usize];
            record.chunk = match (held.in_batch, &held.chunk) {
                (Some(index), _) => index,
                (None, Some(chunk)) => {
                    let index = sorted.chunks.len() as u32;
                    sorted.chunks.push(Arc::clone(chunk));
                    held.in_batch = Some(index);
                    index
                }
                (None, None) => unreachable!("a chunk is held until its last record was handed out"),
            };
            held.records -= 1;
            if held.records == 0 {
                held.chunk = None;
            }
        }
        self.chunks.iter_mut().for_each(|held| held.in_batch = None);
        while self.chunks.front().is_some_and(|held| held.records == 0) {
            self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(sorted)
    }

    /// How many records came when newer ones had been released.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Whether records are held back.
    pub fn is_empty(&self) -> bool {
        self.next == self.ready.len() && self.rings.iter().all(|ring| ring.records.is_empty())
    }

    fn release(&mut self, horizon: u64) {
        self.ready.drain(..self.next);
        self.next = 0;
        let before = self.ready.len();
        let mut runs = 0;
        for ring in &mut self.rings {
            if std::mem::take(&mut ring.disordered) {
                ring.records.sort_by_key(|record| record.time);
            }
            let count = ring.records.partition_point(|record| record.time <= horizon);
            self.ready.extend(ring.records.drain(..count));
            runs += u32::from(count > 0);
        }
        if runs > 1 {
            self.ready[before..].sort_by_key(|record| record.time);
        }
        if let Some(last) = self.ready.last() {
            self.released = self.released.max(last.time);
        }
    }
}
