//! A batch: records in their order of delivery, with the memory that holds them.

use std::{fmt, ops::ControlFlow, sync::Arc};

use super::parse::{Records, record_size};
use crate::abi::PERF_RECORD_LOST;

/// The owner of the memory of chunks. It gets the memory of a chunk back when the chunk is dropped.
pub trait Recycle: Send + Sync {
    /// Takes back `memory`, the buffer of a dropped chunk. The buffer has the length of the chunk.
    fn recycle(&self, memory: Vec<u8>);
}

/// Complete records of one ring without gaps between them, as the kernel wrote them.
pub struct Chunk {
    /// The index of the ring in the source.
    pub ring: u32,
    bytes: Vec<u8>,
    home: Option<Arc<dyn Recycle>>,
}

impl Chunk {
    /// Creates a chunk. When the chunk is dropped, its memory goes back to `home`. If `home` is `None`, the memory is
    /// freed.
    pub fn new(ring: u32, bytes: Vec<u8>, home: Option<Arc<dyn Recycle>>) -> Self {
        Self { ring, bytes, home }
    }

    /// Returns the bytes of all records.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns an iterator over the records. It stops at the first record that is cut off.
    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.bytes)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.recycle(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk {{ ring: {}, bytes: {} }}", self.ring, self.bytes.len())
    }
}

/// The position of one record of a sorted batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedRecord {
    /// The record's time, which is the sort key.
    pub time: u64,
    /// The number of the record's chunk. The batch's first chunk has the number `Sorted::first`.
    pub chunk: u32,
    /// The offset of the record in its chunk, in bytes.
    pub offset: u32,
}

/// Records of several rings, in time order.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// The chunks with consecutive numbers, from the first chunk that contains a record of this batch to the last one.
    /// Chunks between these two may contain no record of this batch. A chunk can be in several batches.
    pub chunks: Vec<Arc<Chunk>>,
    /// The number of the first element of `chunks`. Numbers wrap around.
    pub first: u32,
    /// The positions of the records, in their order of delivery.
    pub records: Vec<SortedRecord>,
}

/// Whether a ring had space for another record when perf-prof read it. When this changes for a ring, a sorted batch
/// contains a marker: a PERF_RECORD_LOST with 0 lost records. Such a record cannot be a real one: the kernel writes no
/// PERF_RECORD_LOST with 0 lost records, and PERF_RECORD_LOST in recordings ends with a sample id. A replay computes
/// when a ring was losing events, and adds markers for these times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingRoom {
    /// The ring had space, so the kernel has not dropped a record.
    #[default]
    Left,
    /// The ring had no space. The kernel may drop records until the ring is read again.
    Used,
}

impl RingRoom {
    const fn record(self) -> [u8; 24] {
        let mut record = [0; 24];
        record[0] = PERF_RECORD_LOST as u8;
        record[6] = 24;
        // A PERF_RECORD_LOST of the kernel contains the event's id at this offset. A marker contains the number of the
        // variant there.
        record[8] = self as u8;
        record
    }

    /// Returns the marker for a ring, as a chunk.
    pub fn chunk(self, ring: u32) -> Chunk {
        Chunk::new(ring, self.record().to_vec(), None)
    }

    /// The ring number of chunks with markers in a replay. Only this number tells markers from the bytes of a
    /// recording, which may look like a marker.
    pub const IN_REPLAY: u32 = u32::MAX;

    /// Returns what a marker says; `None` for the kernel's records.
    #[inline]
    pub fn of_record(record: &[u8]) -> Option<RingRoom> {
        const RECORDS: [(RingRoom, [u8; 24]); 2] =
            [(RingRoom::Left, RingRoom::Left.record()), (RingRoom::Used, RingRoom::Used.record())];
        RECORDS.iter().find(|(_, of)| record == of).map(|(room, _)| *room)
    }
}

/// A marker of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayMarker {
    /// The time of the marker, in ns.
    pub time: u64,
    /// What the marker says.
    pub room: RingRoom,
    /// If the marker is about records that cannot be read: they were between these times.
    pub unread: Option<(u64, u64)>,
}

impl ReplayMarker {
    /// Appends the marker to a chunk of the ring [`RingRoom::IN_REPLAY`].
    pub fn write(self, bytes: &mut Vec<u8>) {
        let begin = bytes.len();
        bytes.extend(self.room.record());
        bytes[begin + 16..].copy_from_slice(&self.time.to_ne_bytes());
        if let Some((start, end)) = self.unread {
            bytes.extend([start, end].map(u64::to_ne_bytes).as_flattened());
            bytes[begin + 6] += 16;
        }
    }

    /// Reads a marker.
    pub fn read(record: &[u8]) -> Option<ReplayMarker> {
        let number = |at: usize| record.get(at..).and_then(|bytes| bytes.first_chunk()).map(|b| u64::from_ne_bytes(*b));
        let room = if *record.get(8)? == RingRoom::Left as u8 { RingRoom::Left } else { RingRoom::Used };
        Some(ReplayMarker { time: number(16)?, room, unread: number(24).zip(number(32)) })
    }
}

impl Sorted {
    #[inline]
    fn chunk(&self, number: u32) -> &Chunk {
        &self.chunks[number.wrapping_sub(self.first) as usize]
    }

    /// Returns the records in their order of delivery, each with the index of its ring.
    #[inline]
    pub fn in_order(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.records.iter().map(|at| {
            let chunk = self.chunk(at.chunk);
            let bytes = &chunk.bytes[at.offset as usize..];
            (chunk.ring, &bytes[..record_size(bytes).min(bytes.len())])
        })
    }
}

/// Records in their order of delivery.
#[derive(Debug)]
pub enum Batch {
    /// A chunk of one ring, in the ring's order.
    Ring(Chunk),
    /// Records of several rings, in time order.
    Sorted(Sorted),
}

impl Batch {
    /// Calls `consume` with the bytes of the first `count` records, in order. Records that are adjacent in memory are
    /// passed in one call.
    pub fn for_each_run(&self, count: usize, mut consume: impl FnMut(&[u8])) {
        match self {
            Batch::Ring(chunk) if count == usize::MAX => consume(&chunk.bytes),
            Batch::Ring(chunk) => consume(&chunk.bytes[..chunk.records().take(count).map(<[u8]>::len).sum()]),
            Batch::Sorted(sorted) => {
                let (mut of, mut run) = (sorted.first, 0..0);
                for at in sorted.records.iter().take(count) {
                    let (bytes, start) = (&sorted.chunk(at.chunk).bytes, at.offset as usize);
                    if RingRoom::of_record(&bytes[start..]).is_some() {
                        continue;
                    }
                    if (at.chunk, start) != (of, run.end) {
                        consume(&sorted.chunk(of).bytes[run]);
                        (of, run) = (at.chunk, start..start);
                    }
                    run.end = (start + record_size(&bytes[start..])).min(bytes.len());
                }
                if !run.is_empty() {
                    consume(&sorted.chunk(of).bytes[run]);
                }
            }
        }
    }

    /// Calls `deliver` with the ring's index and the record, for each record in order, until `deliver` returns `Break`.
    #[inline]
    pub fn for_each<B>(&self, mut deliver: impl FnMut(u32, &[u8]) -> ControlFlow<B>) -> ControlFlow<B> {
        match self {
            Batch::Ring(chunk) => {
                for record in chunk.records() {
                    deliver(chunk.ring, record)?;
                }
            }
            Batch::Sorted(sorted) => {
                for (ring, record) in sorted.in_order() {
                    deliver(ring, record)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a record of `size` bytes that are filled with `number`.
    fn record(number: u8, size: u16) -> Vec<u8> {
        let mut bytes = vec![number; size.into()];
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    fn chunk(ring: u32, numbers: std::ops::Range<u8>) -> Chunk {
        Chunk::new(ring, numbers.flat_map(|number| record(number, 16 + 8 * u16::from(number % 3))).collect(), None)
    }

    fn runs(batch: &Batch, count: usize) -> Vec<Vec<u8>> {
        let mut runs = Vec::new();
        batch.for_each_run(count, |run| runs.push(run.to_vec()));
        runs
    }

    #[test]
    fn runs_hold_the_first_records_in_order() {
        let batch = Batch::Ring(chunk(0, 0..9));
        assert_eq!(runs(&batch, usize::MAX), [chunk(0, 0..9).bytes()]);
        assert_eq!(runs(&batch, 3), [chunk(0, 0..3).bytes()]);

        let (one, other) = (chunk(0, 0..9), chunk(1, 20..29));
        let places = |chunk: &Chunk, number: u32| {
            let mut offset = 0;
            let at = |record: &[u8]| {
                let at = SortedRecord { time: 0, chunk: number, offset };
                offset += record.len() as u32;
                at
            };
            chunk.records().map(at).collect::<Vec<_>>()
        };
        let (first, second) = (places(&one, u32::MAX), places(&other, 0));
        let records = [&first[2..5], &second[..1], &first[5..7], &first[8..], &second[1..4]].concat();
        let batch = Batch::Sorted(Sorted { chunks: vec![one.into(), other.into()], first: u32::MAX, records });
        for count in 0..12 {
            let mut expected: Vec<u8> = Vec::new();
            let mut left = count;
            let _ = batch.for_each(|_, record| {
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                expected.extend(record);
                ControlFlow::Continue(())
            });
            assert_eq!(runs(&batch, count).concat(), expected);
        }
        let lengths: Vec<usize> = runs(&batch, usize::MAX).iter().map(|run| Records::new(run).count()).collect();
        assert_eq!(lengths.into_iter().filter(|&len| len != 0).collect::<Vec<_>>(), [3, 1, 2, 1, 3]);
    }
}
