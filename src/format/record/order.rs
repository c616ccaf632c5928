//! Sorts the records of several rings by time.
//!
//! The reader empties all rings in rounds. After a ring was emptied in a round, the ring can only give records that are
//! younger than the start of that round. So at the end of a round, all records up to the highest time *seen when the
//! round began* have been read.
//!
//! ```text
//!             round 1            round 2            round 3
//!            |-------|          |-------|          |-------|
//!   ring 0    a   c      e       g                  i
//!   ring 1      b    d       f                h
//!            ^                  ^                  ^
//!            seen: nothing      seen: a..e         seen: a..g        (the highest time of the records added so far)
//!                    ^                  ^                  ^
//!                    releases nothing   releases a..e      releases f and g, after a..e
//! ```
//!
//! This is only true for records that are already in their ring. A writer first reads the time for its record, and then
//! reserves space in the ring. An interrupt or a hypervisor may stop the writer between these two steps. If this
//! happens during a round, the round misses the record. So a round releases only records up to the highest time that
//! had been seen a *margin* before the round began. A ring without records delays the other rings by the margin and two
//! rounds at most.
//!
//! Each record is sorted once, when it is released. The records of one ring are nearly sorted: only a record that an
//! interrupt wrote may be in front of the older record whose writer the interrupt stopped. The standard library's
//! stable sort is fast for records in this order.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Chunk, SampleLayout, Sorted, SortedRecord, TrailerLayout, parse::record_type};
use crate::abi::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE};

/// The default margin.
pub const MARGIN: Duration = Duration::from_millis(20);

/// The maximum memory in bytes that the sorter needs for one record, in addition to the record itself. Each pending
/// record has one entry in the list of its ring. While the record is released, it also has an entry in `ready`.
pub const INDEX_PER_RECORD: usize = 2 * size_of::<SortedRecord>();

/// The maximum number of records in a batch. The run loop should not need more than a few milliseconds for a batch.
const BATCH: usize = 4096;

/// Sorts the records of several rings by time, as the module documentation describes.
#[derive(Debug)]
pub struct Sorter {
    sample: SampleLayout,
    trailer: TrailerLayout,
    margin: Duration,
    rings: Vec<Pending>,
    /// The chunks from the oldest that is still needed to the newest. The number of a chunk is its index in this list
    /// plus `first`. A record's field `chunk` is such a number.
    chunks: VecDeque<Arc<Chunk>>,
    /// The number of the first element of `chunks`. Numbers wrap around.
    first: u32,
    /// The rounds that began less than a margin before the last round. Each entry contains the time at which the round
    /// began, and the highest record time that had been seen before the round.
    begins: VecDeque<(Instant, u64)>,
    /// The highest time of all records that were passed to `push`.
    highest: u64,
    /// The highest time of all records that were released.
    released: u64,
    late: u64,
    /// The released records in time order. The records from index `next` on have not been returned by `next_batch` yet.
    ready: Vec<SortedRecord>,
    next: usize,
}

/// The records of one ring that have not been released yet.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<SortedRecord>,
    /// The sort key of the ring's last record: the time of this record, or the time of an earlier record if `push` does
    /// not use the record's own time.
    last: u64,
    /// The highest time of all records of the ring.
    highest: u64,
    disordered: bool,
    sorted: PendingOrder,
}

/// The order of a ring's pending records.
#[derive(Clone, Copy, Debug, Default)]
enum PendingOrder {
    /// The order in which the records were passed to `push`.
    #[default]
    AsReceived,
    /// Sorted by time, because some records were out of order.
    SortedByTime,
}

impl Sorter {
    /// Returns a sorter for records with these layouts. All samples must have their time at the same offset.
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

    /// Adds a chunk of records that was read from a ring.
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
            let is_sample = record_type(record) == PERF_RECORD_SAMPLE;
            let time = if is_sample { self.sample.time(record) } else { self.trailer.time(record) };
            // A record without a time gets the time of the previous record of its ring, so that it stays after the
            // previous record. PERF_RECORD_LOST gets the time of the previous record too, because the loss began right
            // after that record. The kernel writes PERF_RECORD_LOST later, when there is space again. With its own
            // time, PERF_RECORD_LOST could come after events of other CPUs that end spans from before the loss.
            let time = time.filter(|_| record_type(record) != PERF_RECORD_LOST).unwrap_or(pending.last);
            pending.disordered |= time < pending.highest;
            pending.highest = pending.highest.max(time);
            pending.last = time;
            self.highest = self.highest.max(time);
            self.late += u64::from(is_sample && time < self.released);
            pending.records.push(SortedRecord { time, chunk: number, offset });
            offset += record.len() as u32;
        }
        if pending.records.len() > before {
            self.chunks.push_back(Arc::new(chunk));
        }
    }

    /// Starts a round at the time `at`: the reader begins to empty all rings.
    pub fn begin_round(&mut self, at: Instant) {
        self.begins.push_back((at, self.highest));
    }

    /// Ends the round that was started last: all rings have been emptied. Releases the records up to the highest time
    /// that had been seen a margin before the round began.
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

    /// Releases all records up to the highest time that had been seen when the last ended round began, without waiting
    /// for the margin. The source calls this method if the run loop waits for these records, or if their memory is
    /// needed.
    pub fn release_without_margin(&mut self) {
        if let Some((_, highest)) = self.begins.pop_back() {
            self.begins.clear();
            self.release(highest);
        }
    }

    /// Releases all records. After this call, no round may be started.
    pub fn finish(&mut self) {
        self.release(u64::MAX);
    }

    /// Returns the next released records in time order, or `None` if all released records have been returned.
    pub fn next_batch(&mut self) -> Option<Sorted> {
        let end = self.ready.len().min(self.next + BATCH);
        if self.next == end {
            return None;
        }
        let records = self.ready[self.next..end].to_vec();
        self.next = end;
        // The distances from `first` are compared, because the numbers wrap around.
        let distances = records.iter().map(|record| record.chunk.wrapping_sub(self.first));
        let (low, high) = distances.fold((u32::MAX, 0), |(low, high), at| (low.min(at), high.max(at)));
        let chunks = self.chunks.range(low as usize..=high as usize).map(Arc::clone).collect();
        let sorted = Sorted { chunks, first: self.first.wrapping_add(low), records };
        if self.next == self.ready.len() {
            self.ready.clear();
            self.next = 0;
            shrink_after_backlog(&mut self.ready);
            self.drop_unused_chunks();
        }
        Some(sorted)
    }

    /// Returns the number of samples that were added after newer records had been released.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Drops the chunks before the first chunk that holds a pending or ready record. Chunks are dropped in the order in
    /// which they were added. So an old chunk of one ring keeps newer chunks of other rings in memory, but not
    /// longer than one round.
    fn drop_unused_chunks(&mut self) {
        let first = self.first;
        let lowest = |records: &[SortedRecord]| records.iter().map(|record| record.chunk.wrapping_sub(first)).min();
        let ready = lowest(&self.ready[self.next..]);
        let pending = self.rings.iter().filter_map(|ring| match ring.sorted {
            // In this case, records are in the order of their chunks, so the first record has the lowest chunk number.
            PendingOrder::AsReceived => lowest(ring.records.get(..1)?),
            PendingOrder::SortedByTime => lowest(&ring.records),
        });
        let unused = pending.chain(ready).min().map_or(self.chunks.len(), |lowest| lowest as usize);
        self.chunks.drain(..unused);
        self.first = first.wrapping_add(unused as u32);
    }

    fn release(&mut self, horizon: u64) {
        self.ready.drain(..self.next);
        self.next = 0;
        let before = self.ready.len();
        let mut runs = 0;
        for ring in &mut self.rings {
            if std::mem::take(&mut ring.disordered) {
                ring.records.sort_by_key(|record| record.time);
                ring.sorted = PendingOrder::SortedByTime;
            }
            let count = ring.records.partition_point(|record| record.time <= horizon);
            self.ready.extend(ring.records.drain(..count));
            // The list is shrunk before the sort, because the sort needs memory too.
            shrink_after_backlog(&mut ring.records);
            if ring.records.is_empty() {
                ring.sorted = PendingOrder::AsReceived;
            }
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

/// Frees memory that was needed for a backlog and that normal rounds do not need.
fn shrink_after_backlog(records: &mut Vec<SortedRecord>) {
    if records.capacity() > 4 * records.len().max(BATCH) {
        records.shrink_to(BATCH);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        abi::{PERF_RECORD_COMM, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
        record::{Batch, record_type},
    };

    const SAMPLE_TYPE: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;

    fn bytes(kind: u32, time: u64, tag: u64) -> Vec<u8> {
        let mut record = Vec::from(kind.to_ne_bytes());
        record.extend([0, 0]);
        record.extend(32u16.to_ne_bytes());
        // A sample has tid and time at its start, other records have them at their end.
        let words = if kind == PERF_RECORD_SAMPLE { [0, time, tag] } else { [tag, 0, time] };
        words.into_iter().for_each(|word| record.extend(word.to_ne_bytes()));
        record
    }

    fn samples(ring: u32, times: &[u64]) -> Chunk {
        Chunk::new(ring, times.iter().flat_map(|&time| bytes(PERF_RECORD_SAMPLE, time, ring.into())).collect(), None)
    }

    fn sorter(margin: u64) -> Sorter {
        let (sample, trailer) = (SampleLayout::new(SAMPLE_TYPE, 0), TrailerLayout::new(SAMPLE_TYPE));
        Sorter::new(sample, trailer, Duration::from_millis(margin))
    }

    fn holds_nothing(sorter: &Sorter) -> bool {
        sorter.chunks.is_empty() && sorter.ready.is_empty() && sorter.rings.iter().all(|ring| ring.records.is_empty())
    }

    /// Returns the ring and the time of each record that is ready, with a `c` for a PERF_RECORD_COMM.
    fn ready(sorter: &mut Sorter) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(sorted) = sorter.next_batch() {
            assert!(sorted.records.len() <= BATCH);
            let mut times = sorted.records.iter().map(|record| record.time);
            let _ = Batch::Sorted(sorted.clone()).for_each(|ring, record| {
                let kind = if record_type(record) == PERF_RECORD_COMM { "c" } else { "" };
                all.push(format!("{ring}:{}{kind}", times.next().unwrap()));
                ControlFlow::<()>::Continue(())
            });
        }
        all
    }

    fn check(sorter: &mut Sorter, expected: Expect) {
        let ready = ready(sorter);
        expected.assert_eq(&format!("{}; late {}", ready.join(" "), sorter.late()));
    }

    /// Runs a round that starts at `at` milliseconds and reads these chunks.
    fn round(sorter: &mut Sorter, start: Instant, at: u64, chunks: impl IntoIterator<Item = Chunk>) {
        sorter.begin_round(start + Duration::from_millis(at));
        chunks.into_iter().for_each(|chunk| sorter.push(chunk));
        sorter.end_round();
    }

    #[test]
    fn the_timeline_of_the_doc() {
        let (start, mut sorter) = (Instant::now(), sorter(0));
        round(&mut sorter, start, 0, [samples(0, &[1, 3]), samples(1, &[2, 4])]);
        check(&mut sorter, expect!["; late 0"]);
        sorter.push(samples(0, &[5]));
        round(&mut sorter, start, 10, [samples(0, &[7]), samples(1, &[6])]);
        check(&mut sorter, expect!["0:1 1:2 0:3 1:4 0:5; late 0"]);
        round(&mut sorter, start, 20, [samples(0, &[9]), samples(1, &[8])]);
        check(&mut sorter, expect!["1:6 0:7; late 0"]);
        sorter.finish();
        check(&mut sorter, expect!["1:8 0:9; late 0"]);
        assert!(holds_nothing(&sorter));
    }

    #[test]
    fn a_margin_waits_for_an_interrupted_writer() {
        let (start, mut sorter) = (Instant::now(), sorter(20));
        round(&mut sorter, start, 0, [samples(0, &[10])]);
        round(&mut sorter, start, 10, []);
        check(&mut sorter, expect!["; late 0"]);
        // The record's time is before the previous round, but the record arrives in this round.
        round(&mut sorter, start, 20, [samples(1, &[9])]);
        check(&mut sorter, expect!["; late 0"]);
        round(&mut sorter, start, 30, []);
        check(&mut sorter, expect!["1:9 0:10; late 0"]);
    }

    #[test]
    fn a_quiet_ring_does_not_delay_other_rings() {
        let (start, mut sorter) = (Instant::now(), sorter(20));
        round(&mut sorter, start, 0, [samples(0, &[1]), samples(1, &[2])]);
        for at in 1..6 {
            round(&mut sorter, start, at * 10, [samples(0, &[at * 10])]);
        }
        check(&mut sorter, expect!["0:1 1:2 0:10 0:20; late 0"]);
    }

    #[test]
    fn a_late_record_is_delivered_and_counted() {
        let (start, mut sorter) = (Instant::now(), sorter(0));
        round(&mut sorter, start, 0, [samples(0, &[10])]);
        round(&mut sorter, start, 10, [samples(0, &[20])]);
        check(&mut sorter, expect!["0:10; late 0"]);
        sorter.push(samples(1, &[5, 15]));
        sorter.finish();
        check(&mut sorter, expect!["1:5 1:15 0:20; late 1"]);
    }

    #[test]
    fn late_side_band_records_are_not_counted_as_late() {
        let (start, mut sorter) = (Instant::now(), sorter(0));
        round(&mut sorter, start, 0, [samples(0, &[10])]);
        round(&mut sorter, start, 10, []);
        check(&mut sorter, expect!["0:10; late 0"]);
        sorter.push(Chunk::new(1, bytes(PERF_RECORD_COMM, 5, 0), None));
        sorter.finish();
        check(&mut sorter, expect!["1:5c; late 0"]);
    }

    #[test]
    fn records_are_released_without_the_margin_on_request() {
        let (start, mut sorter) = (Instant::now(), sorter(1000));
        round(&mut sorter, start, 0, [samples(0, &[1])]);
        round(&mut sorter, start, 1, [samples(0, &[3]), samples(1, &[2])]);
        check(&mut sorter, expect!["; late 0"]);
        sorter.release_without_margin();
        check(&mut sorter, expect!["0:1; late 0"]);
    }

    #[test]
    fn records_out_of_order_in_one_ring_are_sorted() {
        let mut sorter = sorter(0);
        sorter.push(samples(0, &[10, 30, 20]));
        sorter.push(samples(0, &[25, 40]));
        sorter.finish();
        check(&mut sorter, expect!["0:10 0:20 0:25 0:30 0:40; late 0"]);
    }

    #[test]
    fn other_records_are_in_order_too() {
        let mut sorter = sorter(0);
        let mut first = bytes(PERF_RECORD_SAMPLE, 10, 0);
        first.extend(bytes(PERF_RECORD_COMM, 20, 0));
        sorter.push(Chunk::new(0, first, None));
        sorter.push(samples(1, &[15, 20, 25]));
        // The record is too short for a trailer. It has no time, so it stays after its predecessor.
        let short = [PERF_RECORD_COMM.to_ne_bytes(), [0, 0, 8, 0]].concat();
        sorter.push(Chunk::new(0, short, None));
        sorter.finish();
        check(&mut sorter, expect!["0:10 1:15 0:20c 0:20c 1:20 1:25; late 0"]);
    }

    #[test]
    fn a_chunk_is_dropped_after_its_last_record() {
        let (start, mut sorter) = (Instant::now(), sorter(0));
        round(&mut sorter, start, 0, [samples(0, &[1, 2]), samples(1, &[3])]);
        round(&mut sorter, start, 10, [samples(0, &[4])]);
        ready(&mut sorter);
        assert_eq!(sorter.chunks.len(), 1);
    }

    #[test]
    fn memory_of_a_backlog_is_freed() {
        let mut sorter = sorter(0);
        (0..100).for_each(|chunk| sorter.push(samples(0, &(chunk * 1000..(chunk + 1) * 1000).collect::<Vec<u64>>())));
        sorter.finish();
        assert_eq!(ready(&mut sorter).len(), 100_000);
        let entries = sorter.ready.capacity() + sorter.rings[0].records.capacity();
        assert!(entries <= 2 * BATCH, "{entries} entries are kept");
    }

    #[test]
    fn chunk_numbers_may_wrap() {
        let mut sorter = sorter(0);
        sorter.first = u32::MAX;
        (0..3).for_each(|time| sorter.push(samples(0, &[time])));
        sorter.finish();
        check(&mut sorter, expect!["0:0 0:1 0:2; late 0"]);
    }

    proptest! {
        /// Reads the records of up to four rings in arbitrary rounds. The records of each ring are in order. If each
        /// round reads all records that are in the rings, the output is in order and no record is missing.
        #[test]
        fn any_rounds_give_the_sorted_whole(
            rings in prop::collection::vec(prop::collection::vec(0u64..1000, 0..40), 1..5),
            cuts in prop::collection::vec(0u64..1000, 0..12),
            margin in 0u64..30,
        ) {
            let rings: Vec<Vec<u64>> = rings.into_iter().map(|mut ring| { ring.sort_unstable(); ring }).collect();
            let (start, mut sorter) = (Instant::now(), sorter(margin));
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut taken = vec![0; rings.len()];
            let mut output = Vec::new();
            for cut in cuts.into_iter().chain([1000]) {
                let chunks: Vec<Chunk> = rings.iter().zip(&mut taken).enumerate().map(|(index, (ring, taken))| {
                    let from = std::mem::replace(taken, ring.partition_point(|&time| time < cut));
                    samples(index as u32, &ring[from..*taken])
                }).collect();
                round(&mut sorter, start, cut, chunks);
                output.extend(times(&mut sorter));
            }
            sorter.finish();
            output.extend(times(&mut sorter));
            let mut expected: Vec<u64> = rings.into_iter().flatten().collect();
            expected.sort_unstable();
            prop_assert_eq!(output, expected);
            prop_assert_eq!(sorter.late(), 0);
            prop_assert!(holds_nothing(&sorter));
        }

        /// Records are added in arbitrary order, with rounds and batches in between. No record is lost, and no record
        /// is delivered twice.
        #[test]
        fn nothing_is_lost_in_any_disorder(
            chunks in prop::collection::vec((0u32..3, prop::collection::vec(0u64..100, 0..10), 0u8..4), 0..30),
        ) {
            let (start, mut sorter) = (Instant::now(), sorter(1));
            let (mut output, mut expected) = (Vec::<u64>::new(), Vec::<u64>::new());
            for (step, (ring, all, then)) in chunks.into_iter().enumerate() {
                expected.extend(&all);
                sorter.push(samples(ring, &all));
                match then {
                    0 => round(&mut sorter, start, step as u64, []),
                    1 => sorter.release_without_margin(),
                    2 => output.extend(times(&mut sorter)),
                    _ => {}
                }
            }
            sorter.finish();
            output.extend(times(&mut sorter));
            output.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(output, expected);
        }
    }

    fn times(sorter: &mut Sorter) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(sorted) = sorter.next_batch() {
            let layout = SampleLayout::new(SAMPLE_TYPE, 0);
            let _ = Batch::Sorted(sorted).for_each(|_, record| {
                times.push(layout.time(record).unwrap());
                ControlFlow::<()>::Continue(())
            });
        }
        times
    }
}
