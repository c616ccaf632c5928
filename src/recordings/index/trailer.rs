//! What `perf-prof record` stores at the end of a file: the block index, the numbers of hardware queues of block devices, and
//! the times at which the events were turned off.
//! perf does not read this part of the file. With a stored index, a reader can deliver the first record without reading the
//! times of all records.
//!
//! All numbers have 8 bytes and the byte order of the file. The index has an entry for each file with records. An entry
//! consists of the number of the file ([`StoredIndex::DATA`] for the file with the header), the offset of the first
//! block, the number of blocks, and `WORDS` numbers for each block. There are no gaps between the blocks, and the last
//! block ends at the end of the records.
//!
//! An entry whose file number is `QUEUES` stands for a block device. In place of the offset, such an entry has the
//! device's number in the upper half and the number of hardware queues in the lower half. It has no blocks, so older
//! readers skip it. An entry whose file number is `END` has the time in place of the offset, and no blocks either. The same
//! holds for `OFF` and `ON`: two such entries, in this order, are a time in which the events were off.
//! A file of a ring whose records are compressed has no blocks; its entry has the size of the file in place of the offset.
//!
//! After the entries come the size of all entries in bytes, the CRC-32 of all entries, and `MAGIC`, which ends the
//! file.
//!
//! The index is not a feature section, because `perf inject` copies feature sections into another recording, and
//! crashes at a feature that it does not know.

use std::{collections::BTreeMap, io};

use super::blocks::{BLOCK, Block, BlockIndex};
use crate::{
    format::{
        bytes::{ByteOrder, ByteReader},
        header::Section,
    },
    input::random_access::Input,
    limits::MemoryLimit,
};

/// The last bytes of a file with a stored index. The last of these bytes is the version.
const MAGIC: [u8; 8] = *b"blocks\0\x02";

/// The memory that is counted for reading and parsing the stored index, divided by the size of the stored index.
const PARSED: u64 = 4;

/// How many numbers are stored for each block.
const WORDS: usize = 8;

/// The file number in entries that stand for block devices.
const QUEUES: u64 = u64::MAX - 1;

/// The file number in the entry that stands for the end of the recording.
const END: u64 = u64::MAX - 2;

/// The file numbers in the entries that stand for the start and the end of a time in which the events were off.
const OFF: u64 = u64::MAX - 3;
const ON: u64 = u64::MAX - 4;

/// The stored block indexes of a recording, its block devices, and the time of its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredIndex {
    files: Vec<(u64, BlockIndex)>,
    /// The sizes of the files without a block index, by the number of the ring, in bytes.
    pub sizes: BTreeMap<u64, u64>,
    /// The block devices with hardware queues. Empty if the recorder did not store them.
    pub devices: Vec<BlockDevice>,
    /// When the events were turned off, in ns of the records' clock. `None` if the recorder did not store it.
    pub end: Option<u64>,
    /// The times before the end in which the events were off, in ns of the records' clock. The first and the last nanosecond
    /// belong to them.
    pub off: Vec<(u64, u64)>,
}

/// A block device of the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The number of the device, in the kernel's own layout of dev_t (include/linux/kdev_t.h).
    pub dev: u32,
    /// The number of hardware queues of the device.
    pub queues: u32,
}

/// Collects the indexes of files, with the numbers of the files.
impl FromIterator<(u64, BlockIndex)> for StoredIndex {
    fn from_iter<T: IntoIterator<Item = (u64, BlockIndex)>>(files: T) -> Self {
        StoredIndex { files: files.into_iter().collect(), ..StoredIndex::default() }
    }
}

impl StoredIndex {
    /// The number of the file with the header. The other files in a directory contain the records of one ring each.
    /// Their number is the number of the ring.
    pub const DATA: u64 = u64::MAX;

    /// Removes and returns the index of the file with the number `file`. `section` is the section with the records of
    /// this file. Returns `None` if the index does not match the section, because records were appended or cut off
    /// after the index was made. The returned index contains no side-band records.
    pub fn take_matching(&mut self, file: u64, section: Section) -> Option<BlockIndex> {
        let at = self.files.iter().position(|(number, _)| *number == file)?;
        let (_, index) = self.files.swap_remove(at);
        let begin = index.blocks.first()?.offset;
        (begin == section.offset && index.bytes() == section.size).then_some(index)
    }

    /// Returns how long the records of a ring's file are, in bytes. Returns `None` if the recorder did not store it.
    pub(crate) fn size(&self, file: u64) -> Option<u64> {
        let of_index = || self.files.iter().find(|(number, _)| *number == file).map(|(_, index)| index.bytes());
        self.sizes.get(&file).copied().or_else(of_index)
    }

    /// Returns the times of the first and the last sample in all files. `None` if the samples of some files are not known, because these
    /// are compressed.
    pub(crate) fn sampled(&self) -> Option<(u64, u64)> {
        if !self.sizes.is_empty() {
            return None;
        }
        let times = self.files.iter().filter_map(|(_, index)| index.samples);
        times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Appends the stored index to `out`; appends nothing if there is none.
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
        for (&file, &size) in &self.sizes {
            out.extend([file, size, 0].map(u64::to_ne_bytes).as_flattened());
        }
        for BlockDevice { dev, queues } in &self.devices {
            let device = u64::from(*dev) << 32 | u64::from(*queues);
            out.extend([QUEUES, device, 0].map(u64::to_ne_bytes).as_flattened());
        }
        if let Some(end) = self.end {
            out.extend([END, end, 0].map(u64::to_ne_bytes).as_flattened());
        }
        for &(off, on) in &self.off {
            out.extend([OFF, off, 0, ON, on, 0].map(u64::to_ne_bytes).as_flattened());
        }
        let size = out.len() - begin;
        if size != 0 {
            let sum = crc32fast::hash(&out[begin..]);
            out.extend([size as u64, sum.into()].map(u64::to_ne_bytes).as_flattened());
            out.extend(MAGIC);
        }
    }

    /// Reads the stored index at the end of a file. If the stored index is missing, damaged or of another version,
    /// returns an empty index, and all records have to be read to make an index.
    pub(crate) fn read(input: &dyn Input, order: ByteOrder, limit: &MemoryLimit) -> io::Result<StoredIndex> {
        let at_end = Self::at_end(input, order)?;
        let Some((at, sum)) = at_end.filter(|(at, _)| limit.check(at.size.saturating_mul(PARSED)).is_ok()) else {
            return Ok(StoredIndex::default());
        };
        let bytes = input.bytes(at.offset, at.size)?;
        let is_whole = u64::from(crc32fast::hash(&bytes)) == sum;
        Ok(is_whole.then(|| StoredIndex::parse(&bytes, order)).flatten().unwrap_or_default())
    }

    /// Returns where the entries of the index at the end of a file are, and their checksum.
    pub(crate) fn at_end(input: &dyn Input, order: ByteOrder) -> io::Result<Option<(Section, u64)>> {
        let Some(end) = input.size()?.checked_sub(24) else { return Ok(None) };
        let last = input.bytes(end, 24)?;
        let mut numbers = ByteReader::new(last.strip_suffix(&MAGIC).unwrap_or_default(), order);
        let (Some(size), Some(sum)) = (numbers.u64(), numbers.u64()) else { return Ok(None) };
        Ok(end.checked_sub(size).map(|offset| (Section { offset, size }, sum)))
    }

    /// Takes an entry that has no blocks, and `value` in place of the offset. Returns false if it is the index of a file
    /// without records.
    fn take_without_blocks(&mut self, file: u64, value: u64) -> bool {
        match file {
            QUEUES => self.devices.push(BlockDevice { dev: (value >> 32) as u32, queues: value as u32 }),
            END => self.end = Some(value),
            OFF => self.off.push((value, value)),
            ON => self.off.last_mut().into_iter().for_each(|(off, on)| *on = value.max(*off)),
            // The index of a file without records has the offset 0.
            _ if value == 0 => return false,
            _ => _ = self.sizes.insert(file, value),
        }
        true
    }

    fn parse(bytes: &[u8], order: ByteOrder) -> Option<StoredIndex> {
        let mut read = ByteReader::new(bytes, order);
        let mut stored = StoredIndex::default();
        while !read.rest().is_empty() {
            let (file, mut offset, count) = (read.u64()?, read.u64()?, read.u64()?);
            if count == 0 && stored.take_without_blocks(file, offset) {
                continue;
            }
            if count > (read.rest().len() / (8 * WORDS)) as u64 {
                return None;
            }
            let (mut index, mut side_band_from) = (BlockIndex::default(), 0u32);
            for _ in 0..count {
                let mut count = || read.u64().and_then(|word| u32::try_from(word).ok());
                let (size, records, samples, side_band) = (count()?, count()?, count()?, count()?);
                let (first, sampled, before) = (read.u64()?, (read.u64()?, read.u64()?), read.u64()?);
                // A block has to fit as a whole into a reader's buffer, which has `BLOCK` bytes.
                let is_possible = size as usize <= BLOCK && samples.checked_add(side_band)? <= records;
                if !is_possible || (samples != 0 && (sampled.0 > sampled.1 || first > sampled.0)) {
                    return None;
                }
                let counts = Block { size, records, samples, side_band, ..Block::default() };
                index.add(Block { offset, side_band_from, first, sampled, before, ..counts });
                offset = offset.checked_add(size.into())?;
                side_band_from = side_band_from.checked_add(side_band)?;
            }
            stored.files.push((file, index));
        }
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadLimits;

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
    fn an_index_of_other_records_is_not_used() {
        const DATA: u64 = StoredIndex::DATA;
        let found = index(104, &[(800, 10, 0, 5, 3), (80, 1, 0, 4, 0)]);
        let mut stored: StoredIndex = [(DATA, found)].into_iter().collect();
        let takes = |offset, size| stored.clone().take_matching(DATA, Section { offset, size }).is_some();
        assert!(takes(104, 880));
        assert!(!takes(104, 872) && !takes(104, 888) && !takes(112, 880));
        assert!(stored.clone().take_matching(0, Section { offset: 104, size: 880 }).is_none());
        assert!(stored.take_matching(DATA, Section { offset: 104, size: 880 }).is_some());
        assert!(stored.take_matching(DATA, Section { offset: 104, size: 880 }).is_none());
    }

    #[test]
    fn the_times_of_samples_in_compressed_files_are_not_known() {
        let mut stored = StoredIndex::from_iter([(StoredIndex::DATA, index(104, &[(800, 10, 0, 5, 3)]))]);
        assert!(stored.sampled().is_some());
        stored.sizes.insert(1, 80);
        assert_eq!(stored.sampled(), None);
    }

    #[test]
    fn impossible_indexes_are_not_used() {
        let good = (800, 10, 0, 5, 3);
        let parsed = |blocks: &[_], change: &dyn Fn(&mut Block)| {
            let mut index = index(0, blocks);
            index.blocks.iter_mut().for_each(change);
            let mut bytes = Vec::new();
            StoredIndex::from_iter([(0, index)]).write(&mut bytes);
            StoredIndex::read(&bytes, ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap()
                != StoredIndex::default()
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
                (0..ON, 0u64..1 << 50, prop::collection::vec(
                    (0u32..BLOCK as u32, 0u32..999, 0u32..999, 0u64..1 << 60, 0u64..1 << 50), 0..9)), 0..4),
            sizes in prop::collection::btree_map(0..ON, 1u64.., 0..3),
            devices in prop::collection::vec((any::<u32>(), any::<u32>()), 0..3),
            end in any::<Option<u64>>(),
            off in prop::collection::vec((0u64..1 << 60, 0u64..1 << 50), 0..3),
            cut in 1usize..999,
        ) {
            let files: Vec<_> = files.into_iter().map(|(file, offset, blocks)| {
                let offset = if blocks.is_empty() { 0 } else { offset };
                (file, index(offset, &blocks))
            }).collect();
            let devices = devices.into_iter().map(|(dev, queues)| BlockDevice { dev, queues }).collect();
            let off = off.into_iter().map(|(off, length)| (off, off + length)).collect();
            let stored = StoredIndex { files, sizes, devices, end, off };
            let mut bytes = vec![7; 100];
            stored.write(&mut bytes);
            prop_assert_eq!(&StoredIndex::read(&bytes, ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap(), &stored);
            let mut turned = bytes[100..].to_vec();
            let magic_at = turned.len().saturating_sub(MAGIC.len());
            let (rest, magic) = turned.split_at_mut(magic_at);
            rest.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            if let Some((numbers, sum)) = rest.split_last_chunk_mut::<8>() {
                let numbers = &numbers[..numbers.len() - 8];
                *sum = u64::from(crc32fast::hash(numbers)).swap_bytes().to_ne_bytes();
                prop_assert_eq!(&*magic, &MAGIC);
            }
            prop_assert_eq!(&StoredIndex::read(&turned, ByteOrder::Foreign, &ReadLimits::default().limit("x")).unwrap(), &stored);
            // A changed bit is detected.
            if bytes.len() > 100 {
                let (at, mut damaged) = (100 + cut % (bytes.len() - 100), bytes.clone());
                damaged[at] ^= 1 << (cut % 8);
                prop_assert_eq!(StoredIndex::read(&damaged, ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap(), StoredIndex::default());
            }
            // A missing end is detected.
            let cut = bytes.len().saturating_sub(cut);
            prop_assert_eq!(StoredIndex::read(&bytes[..cut].to_vec(), ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap(), StoredIndex::default());
        }

        #[test]
        fn anything_is_read_without_a_panic(words in prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 0..60)) {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let sum = u64::from(crc32fast::hash(&words)).to_ne_bytes();
            let bytes = [&words[..], &(words.len() as u64).to_ne_bytes(), &sum, &MAGIC].concat();
            let blocks = |(_, index): &(u64, BlockIndex)| index.blocks.len();
            let stored = StoredIndex::read(&bytes, ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap();
            prop_assert!(stored.files.iter().map(blocks).sum::<usize>() <= words.len());
            let _ = StoredIndex::read(&[words, MAGIC.to_vec()].concat(), ByteOrder::Native, &ReadLimits::default().limit("x")).unwrap();
        }
    }
}
