//! Indexes the blocks of an uncompressed section. The index contains the position of each block in the file, and the
//! range of times of the block's records. To make the index, the header and the time of each record are read once.
//!
//! With the index, a replay sorts the records exactly, even if their order in the file is arbitrary. Only blocks that
//! overlap in time have to be in memory. Blocks outside the requested range of times are not read.

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, perf_data::*},
    record::{RECORD_HEADER, Records, record_size, record_type},
};
use perf_prof_system::own_threads;

use super::side_band::SideBand;
use crate::{
    error::PerfDataError,
    format::{
        bytes::ByteOrder,
        first_records::{Rings, inner_tracing_data},
        header::Section,
        layouts::Layouts,
        swap,
    },
    input::random_access::Input,
    order::{
        gaps::Gap,
        rounds::{Ending, Rounds},
    },
    select::{Selection, is_impossible, is_side_band},
};

/// The maximum size of a block in bytes.
pub const BLOCK: usize = 128 << 10;

/// A block of consecutive records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The offset of the block in the file, in bytes.
    pub offset: u64,
    /// The size of the block in bytes. A block contains whole records only.
    pub size: u32,
    /// The size in bytes of the block's records after decompression; 0 if no record in the block is compressed.
    pub unpacked: u32,
    /// The number of records in the block.
    pub records: u32,
    /// The number of samples in the block.
    pub samples: u32,
    /// The number of side-band records in the block: records about tasks, mappings and lost events. Ends of rounds and
    /// throttle records do not count as side-band records here. A replay delivers ends of rounds and throttle records
    /// only if the program requests them, or together with the samples around them.
    pub side_band: u32,
    /// The number of side-band records in the section before this block.
    pub side_band_from: u32,
    /// The earliest time of the block's records.
    pub first: u64,
    /// The earliest and the latest time of the block's samples.
    pub sampled: (u64, u64),
    /// The time of the last record before this block. Records at the start of the block that contain no time get this
    /// time.
    pub before: u64,
}

impl Block {
    /// Returns whether records of the block cannot be read, if this is what was found in it.
    pub(crate) fn lacks(&self, records: u32, samples: u32, impossible: u64) -> bool {
        records != self.records || impossible != 0 || samples < self.samples
    }

    pub(crate) fn empty(offset: u64, side_band_from: u32, before: u64) -> Block {
        let sampled = (u64::MAX, 0);
        Block { offset, side_band_from, before, sampled, first: u64::MAX, ..Block::default() }
    }

    /// Counts a record of this type and time.
    pub(crate) fn count(&mut self, kind: u32, time: u64) {
        self.records += 1;
        if kind == PERF_RECORD_SAMPLE {
            self.samples += 1;
            self.sampled = (self.sampled.0.min(time), self.sampled.1.max(time));
        } else if is_side_band(kind) {
            self.side_band += 1;
        }
        self.first = self.first.min(time);
    }
}

/// The blocks of a section of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIndex {
    /// The blocks in the order of the file.
    pub blocks: Vec<Block>,
    /// The earliest and the latest time of all samples. `None` if there are no samples.
    pub samples: Option<(u64, u64)>,
    /// The number of bytes of AUX area data.
    pub aux_bytes: u64,
    /// The number of records with a type that no recorder writes; 0 if the index was stored in the recording.
    pub(crate) impossible: u64,
    /// Since when records may be missing, if the section has bytes at its end that cannot be read, or if the recorder was
    /// killed.
    pub(crate) missing_from: Option<u64>,
    /// The side-band records that are kept in memory. If there are too many, only the first ones are kept.
    pub side_band: SideBand,
    /// The numbers of the blocks that were found damaged when their side-band records were read.
    pub(crate) damaged: Vec<usize>,
    /// The gaps of the section: the times in which its rings were losing records. Empty until the first search for
    /// gaps.
    pub(crate) gaps: OnceLock<Arc<Vec<Gap>>>,
}

/// How a replay gets the selected records of a block, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The block has to be read.
    Read,
    /// The block does not have to be read: the selected records are side-band records that are kept in memory.
    Kept,
    Nothing,
}

impl BlockIndex {
    pub(crate) fn add(&mut self, block: Block) {
        if block.samples != 0 {
            self.add_samples(block.sampled);
        }
        self.blocks.push(block);
    }

    fn add_samples(&mut self, (first, last): (u64, u64)) {
        let so_far = self.samples.unwrap_or((first, last));
        self.samples = Some((so_far.0.min(first), so_far.1.max(last)));
    }

    /// Returns the size of all blocks in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.size)).sum()
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.samples)).sum()
    }

    /// Returns how to get the selected records of a block. The block has to be read if it may contain selected samples,
    /// or other records that the program requests. The block also has to be read if some of its side-band records up to
    /// the last selected time are not kept in memory.
    pub(crate) fn need(&self, block: &Block, selection: &Selection) -> Need {
        if block.samples != 0 && selection.some_time(block.sampled.0, block.sampled.1) {
            return Need::Read;
        }
        let others = block.records.saturating_sub(block.samples).saturating_sub(block.side_band);
        if !selection.others.is_empty() && others != 0 && block.first <= selection.last_time() {
            return Need::Read;
        }
        match block.side_band != 0 && block.first <= selection.last_time() {
            true if self.side_band.has(block) => Need::Kept,
            true => Need::Read,
            false => Need::Nothing,
        }
    }

    /// Returns the numbers of the blocks with selected records, sorted by the earliest time in each block. The sort is
    /// stable, so blocks with the same earliest time keep the order of the file.
    pub(crate) fn wanted(&self, selection: &Selection) -> Vec<u32> {
        let wanted = |&number: &u32| self.need(&self.blocks[number as usize], selection) != Need::Nothing;
        let mut numbers: Vec<u32> = (0..self.blocks.len() as u32).filter(wanted).collect();
        numbers.sort_by_key(|&number| self.blocks[number as usize].first);
        numbers
    }

    /// Returns how many bytes have to be read for a selection.
    pub fn read_for(&self, selection: &Selection) -> u64 {
        let read = self.blocks.iter().filter(|block| self.need(block, selection) == Need::Read);
        read.map(|block| u64::from(block.size)).sum()
    }

    /// Returns the size in bytes of the largest block that has to be read for a selection, after decompression.
    pub(crate) fn most_for(&self, selection: &Selection) -> usize {
        let read = self.blocks.iter().filter(|block| self.need(block, selection) == Need::Read);
        read.map(|block| block.size.max(block.unpacked) as usize).max().unwrap_or(0)
    }
}

/// The result of indexing a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// No record is compressed. The value is the index of the records.
    Plain(Arc<BlockIndex>),
    /// Some records are compressed.
    Compressed,
}

/// Returns the size in bytes of the payload after a record. Examples of payloads are AUX area data and, in a pipe,
/// tracing data. `record` is the whole record, in native byte order.
pub(crate) fn payload(record: &[u8]) -> u64 {
    let word = |at: usize| record.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
    match record_type(record) {
        PERF_RECORD_AUXTRACE => word(8),
        PERF_RECORD_HEADER_TRACING_DATA => {
            let size = record.get(8..).and_then(|bytes| bytes.first_chunk()).map(|b| u32::from_ne_bytes(*b));
            if inner_tracing_data(record, size).is_some() { 0 } else { size.map_or(0, u64::from) }
        }
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// The bytes that were read contain no further whole record.
    Bytes,
    /// A payload comes next: `size` bytes that are no records. `is_aux` says whether the payload is AUX area data.
    Payload { size: u64, is_aux: bool },
    /// The next bytes are not a record.
    Damaged,
    /// The next record is compressed.
    Compressed,
}

/// The result of `scan_block` for some bytes.
pub(super) struct ScannedBlock {
    pub block: Block,
    end: BlockEnd,
    /// The time of the last record.
    before: u64,
    rounds: Rounds,
    /// The number of records with a type that no recorder writes.
    pub impossible: u64,
}

/// The end of a section that was indexed.
struct SectionEnd {
    /// The time of the last record.
    before: u64,
    rounds: Rounds,
    /// Whether all of its records can be read.
    is_whole: bool,
}

/// Reads the records in `bytes` and adds their side-band records to `kept`. `block.offset` is the offset of `bytes` in
/// the file. `rounds` are the rounds before.
pub(super) fn scan_block(
    bytes: &mut [u8],
    walk: &IndexInput,
    block: Block,
    mut rounds: Rounds,
    kept: &mut SideBand,
) -> ScannedBlock {
    let IndexInput { order, layouts, room, .. } = *walk;
    let side_band_from = kept.seen_count();
    // All values that change with each record are local variables, so that the compiler keeps them in registers.
    let (mut at, mut records, mut samples, mut side_band) = (0, 0, 0, 0);
    let (mut first, mut before, mut newest) = (u64::MAX, block.before, rounds.newest);
    let (mut first_sample, mut last_sample, mut impossible) = (u64::MAX, 0, 0);
    let end = loop {
        let rest = &mut bytes[at..];
        let size = swap::record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break if size < RECORD_HEADER && rest.len() >= RECORD_HEADER {
                BlockEnd::Damaged
            } else {
                BlockEnd::Bytes
            };
        }
        let record = &mut rest[..size];
        swap::record(record, order, layouts);
        let kind = record_type(record);
        if kind == PERF_RECORD_COMPRESSED || kind == PERF_RECORD_COMPRESSED2 {
            break BlockEnd::Compressed;
        }
        let time = layouts.time(record).unwrap_or(before);
        before = time;
        (first, newest) = (first.min(time), newest.max(time));
        records += 1;
        at += size;
        if kind == PERF_RECORD_SAMPLE {
            samples += 1;
            first_sample = first_sample.min(time);
            last_sample = last_sample.max(time);
        } else if is_side_band(kind) {
            side_band += 1;
            kept.add(record, time, room);
        } else if is_impossible(kind) {
            impossible += 1;
        } else if kind == PERF_RECORD_FINISHED_ROUND {
            rounds.newest = newest;
            rounds.end(Rounds::MARGIN);
        } else if let size @ 1.. = payload(record) {
            break BlockEnd::Payload { size, is_aux: kind == PERF_RECORD_AUXTRACE };
        }
    };
    let (size, sampled) = (at as u32, (first_sample, last_sample));
    let block = Block { size, records, samples, side_band, side_band_from, first, sampled, ..block };
    rounds.newest = newest;
    ScannedBlock { block, end, before, rounds, impossible }
}

/// The minimum size in bytes of a section that is indexed by two threads.
const LARGE: u64 = 64 << 20;

/// Indexes all records of a section. If a record is cut off or damaged, the index ends before this record, and a
/// warning is added.
pub(crate) fn index(walk: IndexInput, section: Section, warnings: &mut Vec<String>) -> Result<Indexed, PerfDataError> {
    if section.size >= LARGE
        && thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
        && let Some(indexed) = walk.index_in_halves(section, warnings)?
    {
        return Ok(indexed);
    }
    let found = walk.index_serially(section, warnings)?;
    Ok(found.map_or(Indexed::Compressed, |(found, end)| walk.finish(found, end)))
}

#[derive(Clone, Copy)]
pub(crate) struct IndexInput<'a> {
    pub input: &'a dyn Input,
    pub name: &'a str,
    pub order: ByteOrder,
    pub layouts: &'a Layouts,
    /// The maximum number of bytes of side-band records to keep in memory.
    pub room: usize,
    pub ending: Ending,
    pub rings: Rings,
}

impl IndexInput<'_> {
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, PerfDataError> {
        self.input.read_at(buffer, offset).map_err(|error| PerfDataError::io(self.name, error))
    }

    /// Indexes the records of a section from front to back. Returns `None` if some records are compressed.
    fn index_serially(
        &self,
        section: Section,
        warnings: &mut Vec<String>,
    ) -> Result<Option<(BlockIndex, SectionEnd)>, PerfDataError> {
        let mut found = BlockIndex::default();
        let mut buffer = vec![0; BLOCK];
        let end = section.offset.saturating_add(section.size);
        let (mut offset, mut before, mut rounds) = (section.offset, 0, Rounds::default());
        while offset < end {
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BLOCK);
            let filled = self.read(&mut buffer[..room], offset)?;
            let block = Block { offset, before, ..Block::default() };
            let scanned = scan_block(&mut buffer[..filled], self, block, rounds, &mut found.side_band);
            let ScannedBlock { block, end: ended, .. } = scanned;
            (before, rounds) = (scanned.before, scanned.rounds);
            found.impossible += scanned.impossible;
            if ended == BlockEnd::Compressed {
                return Ok(None);
            }
            if block.size != 0 {
                found.add(block);
            }
            offset = offset.saturating_add(u64::from(block.size));
            let left = end.saturating_sub(offset);
            let why = match ended {
                BlockEnd::Payload { size, is_aux } if size <= left => {
                    offset += size;
                    found.aux_bytes = found.aux_bytes.saturating_add(if is_aux { size } else { 0 });
                    continue;
                }
                BlockEnd::Bytes if block.size != 0 => continue,
                BlockEnd::Damaged => format!("its last {left} bytes are left out: they are not valid records"),
                // Payloads that fit into the section were handled above. So a payload that comes here is longer than
                // the rest of the section.
                BlockEnd::Bytes | BlockEnd::Payload { .. } | BlockEnd::Compressed => {
                    format!("it is cut off: the last {left} bytes of its records are incomplete")
                }
            };
            warnings.push(format!("{}: {why}", self.name));
            before = self.before_damage(&found.blocks, offset, before)?;
            return Ok(Some((found, SectionEnd { before, rounds, is_whole: false })));
        }
        Ok(Some((found, SectionEnd { before, rounds, is_whole: true })))
    }

    /// Indexes the records of a section with two threads. One thread begins at the start of the section. The other
    /// thread begins near the middle, at an offset where a record probably starts (see `guess`). If the last record of
    /// the first half does not end at this offset, the guess was wrong, and the function returns `None`.
    fn index_in_halves(&self, section: Section, warnings: &mut Vec<String>) -> Result<Option<Indexed>, PerfDataError> {
        let Some(middle) = self.guess(section)? else { return Ok(None) };
        let halves = [
            Section { offset: section.offset, size: middle - section.offset },
            Section { offset: middle, size: section.offset.saturating_add(section.size) - middle },
        ];
        let all = |half: Section| {
            let mut warnings = Vec::new();
            self.index_serially(half, &mut warnings).map(|found| (found, warnings))
        };
        let both = thread::scope(|scope| {
            let second = own_threads::spawn_scoped(scope, "perf-prof-index", || all(halves[1])).ok()?;
            let first = all(halves[0]);
            Some((first, second.join().ok()?))
        });
        let Some((first, second)) = both else { return Ok(None) };
        let ((first, at_middle), (second, at_end)) = (first?, second?);
        let (Some((mut found, end)), Some((mut second, end_of_second))) = (first, second) else {
            return Ok(Some(Indexed::Compressed));
        };
        if !at_middle.is_empty() {
            return Ok(None);
        }
        if let Some(block) = second.blocks.first_mut() {
            block.before = end.before;
        }
        found.side_band.append(&second.side_band, &mut second.blocks, self.room);
        found.blocks.append(&mut second.blocks);
        second.samples.into_iter().for_each(|samples| found.add_samples(samples));
        found.aux_bytes += second.aux_bytes;
        found.impossible += second.impossible;
        warnings.extend(at_end);
        let rounds = end.rounds.followed_by(end_of_second.rounds);
        Ok(Some(self.finish(found, SectionEnd { rounds, ..end_of_second })))
    }

    /// Completes an index. In a recording of a killed recorder, a file without samples has only records about tasks: it says
    /// nothing about the files with samples.
    fn finish(&self, mut found: BlockIndex, end: SectionEnd) -> Indexed {
        if !end.is_whole || self.ending == Ending::Killed && found.samples.is_some() {
            found.missing_from = Some(end.rounds.missing_from(end.before, self.rings));
        }
        Indexed::Plain(Arc::new(found))
    }

    /// Guesses an offset near the middle of a section where a record starts. The bytes at this offset must be a sample
    /// with a time. All bytes after the sample, up to the end of the checked `WINDOW`, must be plausible records.
    fn guess(&self, section: Section) -> Result<Option<u64>, PerfDataError> {
        const WINDOW: usize = 1 << 20;
        const LARGEST_RECORD: usize = 64 << 10;
        if self.order != ByteOrder::Native {
            return Ok(None);
        }
        let mut bytes = vec![0; WINDOW];
        // The sizes of records are multiples of 8.
        let offset = section.offset.saturating_add((section.size / 2).next_multiple_of(8));
        let filled = self.read(&mut bytes, offset)?;
        bytes.truncate(filled);
        let begins = |&at: &usize| {
            let mut records = Records::new(&bytes[at..]);
            let is_sample =
                |record: &[u8]| record_type(record) == PERF_RECORD_SAMPLE && self.layouts.time(record).is_some();
            records.next().is_some_and(is_sample) && records.all(is_plausible) && {
                // The last record in the window may continue after the window's end.
                let size = record_size(records.rest());
                size == 0 || size > records.rest().len()
            }
        };
        let at = (0..filled.min(LARGEST_RECORD)).step_by(8).find(begins);
        Ok(at.map(|at| offset + at as u64))
    }
}

/// Returns whether a record has a plausible type and size.
fn is_plausible(record: &[u8]) -> bool {
    const KERNEL: u32 = 32;
    const USER: std::ops::Range<u32> = 64..96;
    let kind = record_type(record);
    record.len().is_multiple_of(8) && ((1..KERNEL).contains(&kind) || USER.contains(&kind))
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_RECORD_COMM, PERF_RECORD_LOST, PERF_RECORD_THROTTLE, PERF_SAMPLE_RAW, PERF_SAMPLE_TIME},
        record::SampleFormat,
    };

    use super::*;
    use crate::{Attr, AttrIds, index::side_band::ROOM};

    fn layouts() -> Layouts {
        let format = SampleFormat { sample_type: PERF_SAMPLE_TIME | PERF_SAMPLE_RAW, ..SampleFormat::default() };
        let attr = Attr { format, ..Attr::default() };
        Layouts::new(&[AttrIds { attr, ids: Vec::new() }])
    }

    fn sample(time: u64, raw: &[u8]) -> Vec<u8> {
        let size = 8 + 8 + 8 + raw.len() as u16;
        let header = [&PERF_RECORD_SAMPLE.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes()].concat();
        [&header, &time.to_ne_bytes()[..], &(raw.len() as u64).to_ne_bytes(), raw].concat()
    }

    /// Returns the index that one thread makes, and the index that two threads make.
    fn both(bytes: Vec<u8>) -> (BlockIndex, Option<BlockIndex>) {
        both_in(bytes, ROOM)
    }

    fn both_in(bytes: Vec<u8>, room: usize) -> (BlockIndex, Option<BlockIndex>) {
        let section = Section { offset: 0, size: bytes.len() as u64 };
        let (order, ending, rings) = (ByteOrder::Native, Ending::Finished, Rings::One);
        let walk = IndexInput { input: &bytes, name: "x", order, layouts: &layouts(), room, ending, rings };
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (serial, _) = walk.index_serially(section, &mut one).unwrap().unwrap();
        let halves = walk.index_in_halves(section, &mut two).unwrap().map(|indexed| match indexed {
            Indexed::Plain(index) => (*index).clone(),
            Indexed::Compressed => panic!("nothing is compressed"),
        });
        assert!(halves.is_none() || one == two);
        (serial, halves)
    }

    #[test]
    fn two_threads_find_what_one_does() {
        let count = 60_000;
        let times = |number: u64| 1_000_000 + number * 7 % 1000 + number;
        let bytes: Vec<u8> = (0..count).flat_map(|n| sample(times(n), &vec![1; (n % 5) as usize * 8])).collect();
        // With `cut`, the last record is cut off. The index is the same with one and with two threads.
        for cut in [0, 5] {
            let (one, two) = both(bytes[..bytes.len() - cut].to_vec());
            let two = two.unwrap();
            assert_eq!((one.samples, one.bytes(), one.sample_count()), (two.samples, two.bytes(), two.sample_count()));
            assert!(two.blocks.windows(2).all(|two| two[0].offset + u64::from(two[0].size) == two[1].offset));
            assert_eq!(two.side_band, one.side_band);
        }
    }

    #[test]
    fn kept_records_are_right_with_little_memory() {
        const NAME: usize = 8;
        let name = [&PERF_RECORD_COMM.to_ne_bytes()[..], &[0, 0, NAME as u8, 0]].concat();
        // There are comm records in both halves, or only in the second half. A comm record has the time of the sample
        // before it.
        for (from, names) in [(0, 12), (35_000, 5)] {
            let record = |number: u64| match number >= from && number.is_multiple_of(5000) {
                true => [sample(number, &[]), name.clone()].concat(),
                false => sample(number, &[]),
            };
            let bytes: Vec<u8> = (0..60_000).flat_map(record).collect();
            for room in 0..=names {
                let (one, two) = both_in(bytes.clone(), room * NAME);
                let last = Selection { times: vec![(59_999, u64::MAX)], ..Selection::default() };
                for index in [one, two.unwrap()] {
                    let mut kept = 0;
                    for block in &index.blocks {
                        let (first, last_sample) = block.sampled;
                        let own: Vec<u64> =
                            (first..=last_sample).filter(|time| *time >= from && time % 5000 == 0).collect();
                        assert_eq!(block.side_band as usize, own.len());
                        let times = index.side_band.times(block).filter(|_| !own.is_empty());
                        assert!(times.is_none() || times.as_ref() == Some(&own));
                        if last_sample < 59_999 && !own.is_empty() {
                            let need = index.need(block, &last);
                            assert_eq!(need, if times.is_some() { Need::Kept } else { Need::Read });
                        }
                        kept += times.map_or(0, |times| times.len());
                    }
                    assert!(kept <= room && (kept == room || room < names), "{kept} of {room}");
                }
            }
        }
    }

    #[test]
    fn blocks_without_selected_or_side_band_records_are_not_read() {
        let block = |time: u64, kind: u32| -> Vec<u8> {
            let mut block: Vec<u8> = (0..6000).flat_map(|n| sample(time + n, &[])).collect();
            block.extend(kind.to_ne_bytes());
            block.extend([0, 0, 8, 0]);
            block
        };
        let kinds = [PERF_RECORD_FINISHED_ROUND, PERF_RECORD_THROTTLE, PERF_RECORD_COMM, PERF_RECORD_LOST];
        let bytes: Vec<u8> = (1..).zip(kinds).flat_map(|(n, kind)| block(n * 1_000_000, kind)).collect();
        let (index, _) = both(bytes);
        // Returns the blocks that are read for these ranges of time. Each block is represented by its earliest time,
        // divided by 1,000,000.
        let wanted = |times: &[(u64, u64)]| -> Vec<u64> {
            let wanted = index.wanted(&Selection { times: times.into(), ..Selection::default() });
            wanted.iter().map(|&number| index.blocks[number as usize].first / 1_000_000).collect()
        };
        assert_eq!(wanted(&[(9_000_000, 10_000_000)]), [3, 4]);
        assert!(wanted(&[(0, 0)]).is_empty());
        assert_eq!(wanted(&[]).len(), index.blocks.len());
    }

    #[test]
    fn bytes_that_look_like_records_are_not_counted() {
        let within: Vec<u8> = (0..2000).flat_map(|time| sample(9, &[time as u8; 8])).collect();
        let large = |time| sample(time, &within[..within.len() / 2]);
        let bytes: Vec<u8> = (1..200).flat_map(large).collect();
        let (one, two) = both(bytes);
        assert_eq!(one.sample_count(), 199);
        assert!(two.is_none_or(|two| two.sample_count() == 199));
    }
}
