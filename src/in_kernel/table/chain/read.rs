//! Puts the segments of call chains together again.

use std::collections::HashMap;

use perf_prof_events::event::AddressChain;

use super::{HEADER, SEGMENT};

/// The call chain in the key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainAt {
    /// The index of the key's part.
    pub part: usize,
    /// The id that stands for the chain.
    pub id: u64,
}

/// The segments of chains, by id.
#[derive(Debug, Default)]
pub struct Segments(HashMap<u64, SegmentKey>);

/// The id of the segment before, and the words of this segment.
#[derive(Clone, Copy, Debug)]
struct SegmentKey {
    before: u64,
    words: [u64; SEGMENT],
}

impl Segments {
    /// Adds a segment, given by its key and its value in the hash.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let word = |bytes: &[u8], at: usize| {
            let bytes = bytes.get(8 * at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let words = std::array::from_fn(|at| word(key, at + 1));
        self.0.insert(word(value, 0), SegmentKey { before: word(key, 0), words });
    }

    /// Returns the memory of the segments, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u64, SegmentKey)>()
    }

    /// Returns the chain that an id stands for; `None` if one of its segments is unknown.
    pub fn chain(&self, id: u64) -> Option<AddressChain> {
        let mut segments = vec![self.0.get(&id)?];
        while let Some(&&SegmentKey { before, .. }) = segments.last()
            && before != 0
        {
            segments.push(self.0.get(&before)?);
        }
        let words: Vec<u64> = segments.iter().rev().flat_map(|segment| segment.words).collect();
        let (lengths, frames) = (words[0], &words[HEADER..]);
        let of_kernel = (lengths & 0xffff) as usize / 8;
        let of_both = (lengths >> 16 & 0xffff) as usize / 8;
        let (kernel, user) = frames.get(..of_both)?.split_at_checked(of_kernel)?;
        Some(AddressChain { pid: (lengths >> 32) as u32, kernel: kernel.to_vec(), user: user.to_vec() })
    }
}
