//! A batch: records that are ready to be delivered in this order, with the memory that holds them.

use std::{fmt, ops::ControlFlow, sync::Arc};

use super::parse::{Records, record_size};

/// Takes a chunk's memory back when the last user is done with it.
pub trait Recycle: Send + Sync {
    /// `memory` is the chunk's buffer, with the length that it had.
    fn recycle(&self, memory: Vec<u8>);
}

/// Whole records of one ring, back to back, as the kernel wrote them.
pub struct Chunk {
    /// Which ring, by its index in the source.
    pub ring: u32,
    bytes: Vec<u8>,
    home: Option<Arc<dyn Recycle>>,
}

impl Chunk {
    /// A chunk whose memory goes back to `home`, or is freed when there is none.
    pub fn new(ring: u32, bytes: Vec<u8>, home: Option<Arc<dyn Recycle>>) -> Self {
        Self { ring, bytes, home }
    }

    /// The records' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records one by one; stops at the first that is cut off.
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

/// Where one record of a sorted batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedRecord {
    /// The record's time, the key.
    pub time: u64,
    /// The number of its chunk; the batch's first chunk has the number `Sorted::first`.
    pub chunk: u32,
    /// Offset in that chunk.
    pub offset: u32,
}

/// Records of several rings in the order of their time.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// The chunks that the records lie in, and those numbered between them; shared with the batches before and after.
    pub chunks: Vec<Arc<Chunk>>,
    /// The number of the first of `chunks`; numbers wrap.
    pub first: u32,
    /// The order of delivery.
    pub records: Vec<SortedRecord>,
}

impl Sorted {
    #[inline]
    fn chunk(&self, number: u32) -> &Chunk {
        &self.chunks[number.wrapping_sub(self.first) as usize]
    }

    /// The records in the order of delivery, each with its ring.
    #[inline]
    pub fn in_order(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.records.iter().map(|at| {
            let chunk = self.chunk(at.chunk);
            let bytes = &chunk.bytes[at.offset as usize..];
            (chunk.ring, &bytes[..record_size(bytes).min(bytes.len())])
        })
    }
}

/// Records that are ready to be delivered in this order.
#[derive(Debug)]
pub enum Batch {
    /// A block of one ring, in the ring's order.
    Ring(Chunk),
    /// Several rings, in time order.
    Sorted(Sorted),
}

impl Batch {
    /// Calls `take` with the bytes of the first `count` records, in order: with many at a time where they lie side by side.
    pub fn for_each_run(&self, count: usize, mut take: impl FnMut(&[u8])) {
        match self {
            Batch::Ring(chunk) if count == usize::MAX => take(&chunk.bytes),
            Batch::Ring(chunk) => take(&chunk.bytes[..chunk.records().take(count).map(<[u8]>::len).sum()]),
            Batch::Sorted(sorted) => {
                let (mut of, mut run) = (sorted.first, 0..0);
                for at in sorted.records.iter().take(count) {
                    let (bytes, start) = (&sorted.chunk(at.chunk).bytes, at.offset as usize);
                    if (at.chunk, start) != (of, run.end) {
                        take(&sorted.chunk(of).bytes[run]);
                        (of, run) = (at.chunk, start..start);
                    }
                    run.end = (start + record_size(&bytes[start..])).min(bytes.len());
                }
                if !run.is_empty() {
                    take(&sorted.chunk(of).bytes[run]);
                }
            }
        }
    }

    /// Calls `deliver(ring, record)` for each record in order, until it breaks.
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

    /// A record of this size, with a number for its body.
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
