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
    /// The records in the order of delivery, each with its ring.
    #[inline]
    pub fn in_order(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.records.iter().map(|at| {
            let chunk = &self.chunks[at.chunk.wrapping_sub(self.first) as usize];
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
