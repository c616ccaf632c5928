//! Finds the blocks of a stored index if bytes are missing before them, or were added: then they are not where the index says.
//!
//! The place of the list of features shows how far they were moved. The header says where this list was, and the list says
//! it too, because the first feature that was written after the records directly follows the list.

use std::io;

use super::{
    blocks::{BLOCK, Block, BlockIndex, IndexInput},
    trailer::StoredIndex,
};
use crate::{
    error::PerfDataError,
    format::{
        bytes::ByteOrder,
        header::{FileHeader, Section},
    },
    input::random_access::Input,
};

/// The maximum number of bytes that are missing or were added, if the blocks behind them are to be found.
const FARTHEST: u64 = 16 << 20;

/// The maximum number of places that are looked at more closely.
const CANDIDATES: usize = 1000;

/// The size in bytes of an entry in the list of features.
const ENTRY: usize = 16;

/// Returns by how many bytes what follows the records was moved: negative if bytes are missing. Returns 0 if it is not known,
/// and if no index is stored.
pub(crate) fn distance(input: &dyn Input, header: &FileHeader, stored: &StoredIndex) -> io::Result<i64> {
    if *stored == StoredIndex::default() { Ok(0) } else { distance_of(input, header.order, header.feature_list()) }
}

fn distance_of(input: &dyn Input, order: ByteOrder, list: Section) -> io::Result<i64> {
    let bytes = input.bytes(list.offset, list.size)?;
    if list.size == 0 || end_of_features(&bytes, order, list).is_some() {
        return Ok(0);
    }
    let from = list.offset.saturating_sub(FARTHEST);
    let bytes = input.bytes(from, (list.offset - from).saturating_add(list.size).saturating_add(FARTHEST))?;
    let size = usize::try_from(list.size).unwrap_or(usize::MAX);
    // The first feature behind the list says where the list ended. Few bytes of a recording look like that.
    let behind = list.offset.saturating_add(list.size);
    let says_end = |bytes: &[u8]| bytes.first_chunk().is_some_and(|word| order.u64(*word) == behind);
    let entries =
        bytes.windows(ENTRY).enumerate().filter(|(_, entry)| says_end(entry)).map(|(at, _)| at).take(CANDIDATES);
    let places =
        entries.flat_map(|entry| (0..size / ENTRY).filter_map(move |before| entry.checked_sub(before * ENTRY)));
    let at_place = |at: usize| Some((end_of_features(bytes.get(at..at.checked_add(size)?)?, order, list)?, at));
    // What is before the list may look like an entry of a feature that comes before the records. The right place has all features.
    let found = places.filter_map(at_place).max();
    Ok(found.map_or(0, |(_, at)| (from + at as u64).cast_signed().wrapping_sub(list.offset.cast_signed())))
}

/// Returns where the last feature ends if these bytes can be the list of features that the header says is in `list`. Features
/// that were written before the records come before it; all others follow it without gaps.
fn end_of_features(bytes: &[u8], order: ByteOrder, list: Section) -> Option<u64> {
    let begin = list.offset.saturating_add(list.size);
    let mut end = begin;
    for entry in bytes.chunks(ENTRY) {
        let (offset, size) = entry.split_first_chunk()?;
        let (offset, size) = (order.u64(*offset), order.u64(*size.first_chunk()?));
        if offset == end {
            end = end.saturating_add(size);
        } else if offset >= list.offset {
            return None;
        }
    }
    (bytes.len() as u64 == list.size && end > begin).then_some(end)
}

impl IndexInput<'_> {
    /// Sets the places of the blocks of an index if what follows the records was moved by `distance` bytes.
    pub(crate) fn follow(&self, index: &mut BlockIndex, distance: i64) -> Result<(), PerfDataError> {
        let mut buffer = vec![0; BLOCK];
        let mut first_moved = None;
        for (number, block) in index.blocks.iter_mut().enumerate() {
            let moved = Block { offset: block.offset.saturating_add_signed(distance), ..*block };
            if first_moved.is_some() {
                *block = moved;
            } else if !self.is_there(block, &mut buffer)? && self.is_there(&moved, &mut buffer)? {
                *block = moved;
                first_moved = Some((number, moved.offset));
            }
        }
        // The blocks before lack bytes. What follows these bytes in the file belongs to the next block.
        let Some((number, offset)) = first_moved else { return Ok(()) };
        for block in &mut index.blocks[..number] {
            let there = offset.saturating_sub(block.offset);
            block.size = block.size.min(u32::try_from(there).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with 100 bytes of records and two features, of which one was written before the records.
    fn file() -> (Vec<u8>, Section) {
        let (begin, list) = (40u64, Section { offset: 140, size: 32 });
        let mut bytes: Vec<u8> = (0..begin as u8 + 100).collect();
        bytes.extend([8, 4, list.offset + list.size, 5].map(u64::to_ne_bytes).as_flattened());
        bytes.extend([7; 5]);
        (bytes, list)
    }

    #[test]
    fn the_list_of_features_shows_how_far_the_end_was_moved() {
        let (bytes, list) = file();
        let moved = |bytes: &Vec<u8>| distance_of(bytes, ByteOrder::Native, list).unwrap();
        assert_eq!(moved(&bytes), 0);
        for count in [1, 8, 60] {
            let without = [&bytes[..50], &bytes[50 + count..]].concat();
            assert_eq!(moved(&without), -(count as i64));
            let with = [&bytes[..50], &vec![9; count], &bytes[50..]].concat();
            assert_eq!(moved(&with), count as i64);
        }
        // Without the list, nothing is known.
        assert_eq!(moved(&bytes[..160].to_vec()), 0);
        assert_eq!(distance_of(&bytes, ByteOrder::Native, Section { offset: u64::MAX, size: 32 }).unwrap(), 0);
    }
}
