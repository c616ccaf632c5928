//! Finds the times in which each ring was losing events, and adds markers for these times to the records. The kernel
//! writes PERF_RECORD_LOST only when the ring has space again. The loss began earlier, right after the previous record
//! of the same ring. Other rings may have records between the start of the loss and PERF_RECORD_LOST.
//!
//! ```text
//!   ring 0   a  b  . . . . . .  LOST  g       . is lost
//!   ring 1         c  d  e  f
//!                 ^            ^
//!                 marker       LOST
//! ```
//!
//! Records that cannot be read, because bytes of the recording are damaged or missing, are a loss too. No record reports
//! it, so a second marker shows where it ends.

use std::{collections::VecDeque, sync::Arc};

use perf_prof_format::{
    abi::{PERF_RECORD_LOST_SAMPLES, perf_data::FIRST_USER_RECORD_TYPE},
    record::{Chunk, Record, Records, ReplayMarker, RingRoom, SortedRecord, record_type},
};
use perf_prof_system::mutex::Mutex;
use rustc_hash::FxHashMap;

use super::block_stream::{Numbers, Stream};
use crate::{
    error::PerfDataError,
    format::layouts::Layouts,
    index::blocks::{Block, BlockIndex},
    order::{block_stream::ReplayContext, merge},
    select::Selection,
};

/// A time in which a ring was losing events. All times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The time of the last record before the loss; 0 if there is none.
    pub begin: u64,
    /// The time of the record after the loss.
    pub end: u64,
    /// The time at which the record about the loss is delivered. It is not the same as `end` if this record contains no
    /// time.
    delivered: u64,
    /// The CPU of the ring; [`NO_CPU`] if the records do not contain it.
    cpu: u32,
    /// Whether records are missing that cannot be read, or are not to be read. No other record says so.
    is_unread: bool,
}

impl Gap {
    /// Returns the gap of a time of which no records are read, or in which the events were off.
    pub fn of_hole((first, last): (u64, u64)) -> Gap {
        Gap::of_unread(first.saturating_sub(1), last.saturating_add(1))
    }

    /// Returns the gap of a damaged block. A block may have records of several rings, one ring after another. So the records
    /// that cannot be read may have any time of the block.
    pub fn of_block(block: &Block) -> Gap {
        Gap::of_unread(block.first.saturating_sub(1), block.sampled.1)
    }

    /// Returns the gap of records that cannot be read. Their times are after `begin` and not after `end`. It is not known
    /// which rings have lost records, so the gap belongs to no CPU.
    pub fn of_unread(begin: u64, end: u64) -> Gap {
        Gap { begin: begin.min(end), end, delivered: u64::MAX, cpu: NO_CPU, is_unread: true }
    }
}

/// The gaps that the streams of a replay find while they read.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundGaps(Arc<Mutex<Vec<Gap>>>);

impl FoundGaps {
    pub fn add(&self, gap: Gap) {
        self.0.lock().push(gap);
    }

    pub(super) fn take(&self) -> Vec<Gap> {
        std::mem::take(&mut self.0.lock())
    }
}

/// The value of `Gap::cpu` for records without a CPU. All these records are treated as records of one ring.
const NO_CPU: u32 = u32::MAX;

/// Finds the gaps of a section. Reads only the blocks with losses, and the blocks that contain the last record before a
/// loss. No block is read twice.
pub(crate) struct GapFinder<'a, R> {
    index: &'a BlockIndex,
    layouts: &'a Layouts,
    /// Reads the records of the block with this number.
    read: R,
    is_read: Vec<bool>,
    /// For each CPU, the last record that was found: the number of its block, and its time.
    last: FxHashMap<u32, (usize, u64)>,
    found: Vec<Gap>,
}

impl<'a, R: FnMut(usize) -> Result<Vec<u8>, PerfDataError>> GapFinder<'a, R> {
    pub fn new(index: &'a BlockIndex, layouts: &'a Layouts, read: R) -> Self {
        let is_read = vec![false; index.blocks.len()];
        Self { index, layouts, read, is_read, last: FxHashMap::default(), found: Vec::new() }
    }

    pub fn find(mut self) -> Result<Vec<Gap>, PerfDataError> {
        // For each loss whose record contains no time, this list contains the time at which the record is delivered.
        // Such a loss belongs to the ring of the next record with a time.
        let mut untimed = Vec::new();
        for (at, block) in self.index.blocks.iter().enumerate() {
            if untimed.is_empty() && !self.index.side_band.may_have_losses(block) {
                continue;
            }
            let bytes = (self.read)(at)?;
            if untimed.is_empty() && !Records::new(&bytes).any(is_loss) {
                continue;
            }
            self.is_read[at] = true;
            let mut before = block.before;
            for record in Records::new(&bytes) {
                let time = self.layouts.time(record);
                let delivered = time.unwrap_or(before);
                before = delivered;
                if is_loss(record) {
                    match time {
                        Some(time) => self.add(at, self.cpu(record), time, delivered)?,
                        None if record_type(record) != PERF_RECORD_LOST_SAMPLES => untimed.push(delivered),
                        // This is the record with a total count that perf writes at the end of a recording. It belongs
                        // to no gap.
                        None => {}
                    }
                }
                if let Some(time) = time.filter(|_| record_type(record) < FIRST_USER_RECORD_TYPE) {
                    let cpu = self.cpu(record);
                    for delivered in std::mem::take(&mut untimed) {
                        self.add(at, cpu, time, delivered)?;
                    }
                    self.last.insert(cpu, (at, time));
                }
            }
        }
        Ok(self.found)
    }

    fn cpu(&self, record: &[u8]) -> u32 {
        self.layouts.cpu(record).unwrap_or(NO_CPU)
    }

    fn add(&mut self, block: usize, cpu: u32, end: u64, delivered: u64) -> Result<(), PerfDataError> {
        let begin = self.last_before(block, cpu)?.min(end);
        self.found.push(Gap { begin, end, delivered, cpu, is_unread: false });
        Ok(())
    }

    /// Returns the time of the last record of a CPU before a loss in `block`. This record is in the part of `block`
    /// that was read so far, or in an earlier block.
    fn last_before(&mut self, block: usize, cpu: u32) -> Result<u64, PerfDataError> {
        for at in (0..block).rev() {
            if self.last.get(&cpu).is_some_and(|&(found, _)| found >= at) {
                break;
            }
            if std::mem::replace(&mut self.is_read[at], true) {
                continue;
            }
            for record in Records::new(&(self.read)(at)?) {
                if record_type(record) < FIRST_USER_RECORD_TYPE
                    && let Some(time) = self.layouts.time(record)
                {
                    let last = self.last.entry(self.cpu(record)).or_insert((at, time));
                    if last.0 <= at {
                        *last = (at, time);
                    }
                }
            }
        }
        Ok(self.last.get(&cpu).map_or(0, |&(_, time)| time))
    }
}

/// Returns whether a record reports lost events.
pub(crate) fn is_loss(record: &[u8]) -> bool {
    // Most records are samples. They are not parsed.
    matches!(record_type(record), perf_prof_format::abi::PERF_RECORD_LOST | PERF_RECORD_LOST_SAMPLES)
        && matches!(Record::parse(record), Record::Lost { lost } if lost != 0)
}

/// Adds the markers of a gap. One marker shows where the gap begins. If the record about the loss is selected and has a
/// time, this record shows where the gap ends. Otherwise a second marker shows the end.
fn mark(gap: &Gap, selection: &Selection, marks: &mut VecDeque<ReplayMarker>) {
    let &Gap { begin, end, delivered, cpu, is_unread } = gap;
    let unread = is_unread.then_some((begin, end));
    let is_delivered = selection.time(delivered);
    let is_selected = cpu == NO_CPU || selection.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
    if !is_selected {
        return;
    }
    // The gap begins after the last record before the loss. The time of the marker is 1 ns later than the time of this
    // record, because markers are sorted before records of the same time.
    let begin = begin.saturating_add(1).min(end);
    let Some(begin) = selection.first_time_from(begin).filter(|&begin| begin <= end) else { return };
    marks.push_back(ReplayMarker { time: begin, room: RingRoom::Used, unread });
    // If a gap is still open at the end of the selected times, no marker shows its end, because
    // `Derivation::continue_in` handles such a gap.
    if (delivered != end || !is_delivered) && end <= selection.last_time() {
        marks.push_back(ReplayMarker { time: end, room: RingRoom::Left, unread });
    }
}

/// The markers of a recording, as a stream. This stream has to be the first of all streams, so that a marker comes
/// before records of the same time.
pub(crate) struct GapStream {
    /// The markers that were not loaded yet, in time order.
    marks: VecDeque<ReplayMarker>,
    selection: Arc<Selection>,
    found: FoundGaps,
    numbers: Numbers,
}

/// The number of markers that are loaded at once.
const LOT: usize = 1024;

impl GapStream {
    /// Creates a stream of the markers for the selected times and CPUs. `gaps` are the gaps of all sections that are known
    /// before the records are read.
    pub fn new(gaps: &[Arc<Vec<Gap>>], context: &ReplayContext, streams: usize) -> Self {
        let ReplayContext { selection, gaps: found, .. } = context.clone();
        let numbers = Numbers { first: 0, stride: merge::stride(streams) };
        let mut stream = Self { marks: VecDeque::new(), selection, found, numbers };
        stream.add(gaps.iter().flat_map(|gaps| gaps.iter()));
        stream
    }

    fn add<'a>(&mut self, gaps: impl Iterator<Item = &'a Gap>) {
        gaps.for_each(|gap| mark(gap, &self.selection, &mut self.marks));
        self.marks.make_contiguous().sort_unstable_by_key(|mark| (mark.time, mark.room == RingRoom::Left));
    }
}

impl Stream for GapStream {
    fn bound(&mut self) -> Result<u64, PerfDataError> {
        // A stream adds a gap before records of later times are released: it has not read these records yet.
        let found = self.found.take();
        if !found.is_empty() {
            self.add(found.iter());
        }
        Ok(self.marks.front().map_or(u64::MAX, |mark| mark.time))
    }

    fn load(&mut self, records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
        if self.marks.is_empty() {
            return Ok(None);
        }
        let number = self.numbers.next_number();
        let mut bytes = Vec::new();
        for mark in self.marks.drain(..self.marks.len().min(LOT)) {
            records.push(SortedRecord { time: mark.time, chunk: number, offset: bytes.len() as u32 });
            mark.write(&mut bytes);
        }
        Ok(Some((number, Chunk::new(RingRoom::IN_REPLAY, bytes, None))))
    }

    fn consumed(&self) -> u64 {
        0
    }
}
