//! Where a recording's records lie in time, as the recording itself says at its very end, where `perf-prof record` writes it
//! and perf does not look. Who has it need not look at all records before the first one is delivered.
//!
//! All numbers have 8 bytes, in the byte order of the file: of each file with records its number ([`StoredIndex::DATA`] for
//! the one with the header), the offset of its first block, how many blocks there are, and of each block its [`WORDS`]. Blocks
//! lie one behind the other, up to the end of the records. Behind them the size of all that, its CRC-32, and [`MAGIC`],
//! which ends the file. It is no feature section: to perf, which takes the features of a recording over into another (`perf inject`), one
//! that it does not know is a crash.

use std::io;

use super::{
    bytes::{ByteOrder, Bytes},
    header::Section,
    index::{BLOCK, Block, BlockIndex},
    input::Input,
};

/// What ends a recording that says it; its last byte is the version.
const MAGIC: [u8; 8] = *b"blocks\0\x01";

/// So many numbers a block has.
const WORDS: usize = 8;

/// What a recording says of where its records lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredIndex {
    files: Vec<(u64, BlockIndex)>,
}

/// What is known of files, by their numbers.
impl FromIterator<(u64, BlockIndex)> for StoredIndex {
    fn from_iter<T: IntoIterator<Item = (u64, BlockIndex)>>(files: T) -> Self {
        StoredIndex { files: files.into_iter().collect() }
    }
}

impl StoredIndex {
    /// The number of the file that has the header; the others' are those of a directory's rings.
    pub const DATA: u64 = u64::MAX;

    /// What is known of a file whose records are these; `None` if it is of others: something was written or cut off since.
    /// No side-band is kept in it.
    pub fn take(&mut self, file: u64, section: Section) -> Option<BlockIndex> {
        let at = self.files.iter().position(|(number, _)| *number == file)?;
        let (_, index) = self.files.swap_remove(at);
        let begin = index.blocks.first()?.offset;
        (begin == section.offset && index.bytes() == section.size).then_some(index)
    }

    /// What ends a file; nothing where nothing is known.
    pub fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        for (file, index) in &self.files {
            let offset = index.blocks.first().map_or(0, |block| block.offset);
            out.extend([*file, offset, index.blocks.len() as u64].map(u64::to_ne_bytes).as_flattened());
            for block in &index.blocks {
                let &Block { size, records, samples, side_band, first, sampled, before, .. } = block;
                let counts = [size, records, samples, side_band].map(u64::from);
                out.extend(counts.map(u64::to_ne_bytes).as_flattened());
                out.extend([first, sampled.0, sampled.1, before].map(u64::to_ne_bytes).as_flattened());
            }
        }
        let size = out.len() - begin;
        if size != 0 {
            let sum = crc32fast::hash(&out[begin..]);
            out.extend([size as u64, sum.into()].map(u64::to_ne_bytes).as_flattened());
            out.extend(MAGIC);
        }
    }

    /// What a file says at its end: nothing where that is damaged, or of another version. Then all records are looked at.
    pub(super) fn read(input: &dyn Input, order: ByteOrder) -> io::Result<StoredIndex> {
        let nothing = Ok(StoredIndex::default());
        let Some(end) = input.size()?.checked_sub(24) else { return nothing };
        let last = input.bytes(end, 24)?;
        let mut numbers = Bytes::new(last.strip_suffix(&MAGIC).unwrap_or_default(), order);
        let (Some(size), Some(sum)) = (numbers.u64(), numbers.u64()) else { return nothing };
        let Some(begin) = end.checked_sub(size) else { return nothing };
        let bytes = input.bytes(begin, size)?;
        let is_whole = u64::from(crc32fast::hash(&bytes)) == sum;
        Ok(is_whole.then(|| StoredIndex::parse(&bytes, order)).flatten().unwrap_or_default())
    }

    fn parse(bytes: &[u8], order: ByteOrder) -> Option<StoredIndex> {
        let mut read = Bytes::new(bytes, order);
        let mut files = Vec::new();
        while !read.rest().is_empty() {
            let (file, mut offset, count) = (read.u64()?, read.u64()?, read.u64()?);
            if count > (read.rest().len() / (8 * WORDS)) as u64 {
                return None;
            }
            let (mut index, mut side_band_from) = (BlockIndex::default(), 0u32);
            for _ in 0..count {
                let mut count = || read.u64().and_then(|word| u32::try_from(word).ok());
                let (size, records, samples, side_band) = (count()?, count()?, count()?, count()?);
                let (first, sampled, before) = (read.u64()?, (read.u64()?, read.u64()?), read.u64()?);
                // A block is in memory as a whole.
                let is_possible = size as usize <= BLOCK && samples.checked_add(side_band)? <= records;
                if !is_possible || (samples != 0 && (sampled.0 > sampled.1 || first > sampled.0)) {
                    return None;
                }
                let counts = Block { size, records, samples, side_band, ..Block::default() };
                index.add(Block { offset, side_band_from, first, sampled, before, ..counts });
                offset = offset.checked_add(size.into())?;
                side_band_from = side_band_from.checked_add(side_band)?;
            }
            files.push((file, index));
        }
        Some(StoredIndex { files })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(offset: u64, blocks: &[(u32, u32, u32, u64, u64)]) -> BlockIndex {
        let mut index = BlockIndex::default();
        let (mut offset, mut side_band_from) = (offset, 0);
        for &(size, samples, side_band, first, length) in blocks {
            let records = samples + side_band + 1;
            let sampled = (first, first + length);
            let counts = Block { size, records, samples, side_band, ..Block::default() };
            index.add(Block { offset, side_band_from, first, sampled, before: first, ..counts });
            offset += u64::from(size);
            side_band_from += side_band;
        }
        index
    }

    #[test]
    fn of_other_records_nothing_is_believed() {
        const DATA: u64 = StoredIndex::DATA;
        let found = index(104, &[(800, 10, 0, 5, 3), (80, 1, 0, 4, 0)]);
        let mut stored: StoredIndex = [(DATA, found)].into_iter().collect();
        let takes = |offset, size| stored.clone().take(DATA, Section { offset, size }).is_some();
        assert!(takes(104, 880));
        assert!(!takes(104, 872) && !takes(104, 888) && !takes(112, 880));
        assert!(stored.clone().take(0, Section { offset: 104, size: 880 }).is_none());
        assert!(stored.take(DATA, Section { offset: 104, size: 880 }).is_some());
        assert!(stored.take(DATA, Section { offset: 104, size: 880 }).is_none());
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let good = (800, 10, 0, 5, 3);
        let parsed = |blocks: &[_], change: &dyn Fn(&mut Block)| {
            let mut index = index(0, blocks);
            index.blocks.iter_mut().for_each(change);
            let mut bytes = Vec::new();
            StoredIndex { files: vec![(0, index)] }.write(&mut bytes);
            StoredIndex::read(&bytes, ByteOrder::Native).unwrap() != StoredIndex::default()
        };
        assert!(parsed(&[good], &|_| {}));
        assert!(!parsed(&[good], &|block| block.size = BLOCK as u32 + 8));
        assert!(!parsed(&[good], &|block| block.records = 9));
        assert!(!parsed(&[good], &|block| block.sampled.1 = 4));
        assert!(!parsed(&[good], &|block| block.first = 6));
        assert!(!parsed(&[(8, 0, u32::MAX - 1, 0, 0), good], &|block| block.side_band = u32::MAX - 10));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            files in prop::collection::vec(
                (any::<u64>(), 0u64..1 << 50, prop::collection::vec(
                    (0u32..BLOCK as u32, 0u32..999, 0u32..999, 0u64..1 << 60, 0u64..1 << 50), 0..9)), 0..4),
            cut in 1usize..999,
        ) {
            let files: Vec<_> = files.into_iter().map(|(file, offset, blocks)| {
                let offset = if blocks.is_empty() { 0 } else { offset };
                (file, index(offset, &blocks))
            }).collect();
            let stored = StoredIndex { files };
            let mut bytes = vec![7; 100];
            stored.write(&mut bytes);
            prop_assert_eq!(&StoredIndex::read(&bytes, ByteOrder::Native).unwrap(), &stored);
            let mut turned = bytes[100..].to_vec();
            let magic_at = turned.len().saturating_sub(MAGIC.len());
            let (rest, magic) = turned.split_at_mut(magic_at);
            rest.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            if let Some((numbers, sum)) = rest.split_last_chunk_mut::<8>() {
                let numbers = &numbers[..numbers.len() - 8];
                *sum = u64::from(crc32fast::hash(numbers)).swap_bytes().to_ne_bytes();
                prop_assert_eq!(&*magic, &MAGIC);
            }
            prop_assert_eq!(&StoredIndex::read(&turned, ByteOrder::Foreign).unwrap(), &stored);
            // A bit of it is another.
            if bytes.len() > 100 {
                let (at, mut damaged) = (100 + cut % (bytes.len() - 100), bytes.clone());
                damaged[at] ^= 1 << (cut % 8);
                prop_assert_eq!(StoredIndex::read(&damaged, ByteOrder::Native).unwrap(), StoredIndex::default());
            }
            // Its end is missing.
            let cut = bytes.len().saturating_sub(cut);
            prop_assert_eq!(StoredIndex::read(&bytes[..cut].to_vec(), ByteOrder::Native).unwrap(), StoredIndex::default());
        }

        #[test]
        fn anything_is_read_without_a_panic(words in prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 0..60)) {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let sum = u64::from(crc32fast::hash(&words)).to_ne_bytes();
            let bytes = [&words[..], &(words.len() as u64).to_ne_bytes(), &sum, &MAGIC].concat();
            let blocks = |(_, index): &(u64, BlockIndex)| index.blocks.len();
            let stored = StoredIndex::read(&bytes, ByteOrder::Native).unwrap();
            prop_assert!(stored.files.iter().map(blocks).sum::<usize>() <= words.len());
            let _ = StoredIndex::read(&[words, MAGIC.to_vec()].concat(), ByteOrder::Native).unwrap();
        }
    }
}
