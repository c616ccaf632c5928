//! Where the records of an uncompressed run of bytes lie in time, block by block: what is known after looking at every
//! record's header and time once.
//!
//! With it records are put in order exactly, however they are mixed up in the file, while no more is in memory than blocks
//! that overlap in time; and a range of times is found without reading what lies outside of it.

use std::{sync::Arc, thread};

use super::{
    bytes::ByteOrder,
    error::PerfDataError,
    header::Section,
    input::Input,
    layouts::Layouts,
    select::{Selection, is_side_band},
    side_band::SideBand,
};
use crate::{
    abi::{PERF_RECORD_SAMPLE, perf_data::*},
    record::{RECORD_HEADER, Records, record_size, record_type},
    sys::signals,
};

/// How many bytes a block has at most.
pub const BLOCK: usize = 128 << 10;

/// Some records, one behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes it has, all of whole records.
    pub size: u32,
    /// How many its records have unpacked; 0 where none is packed.
    pub unpacked: u32,
    /// How many records.
    pub records: u32,
    /// How many of them are samples.
    pub samples: u32,
    /// How many of them tell of tasks, mappings and losses. Others are never wanted: ends of rounds, throttling.
    pub side_band: u32,
    /// How many of those there are before it.
    pub side_band_from: u32,
    /// The least time of its records.
    pub first: u64,
    /// The times of the first and of the last of its samples, by time.
    pub sampled: (u64, u64),
    /// The time that a record has which has none itself and is the block's first: that of the record before it.
    pub before: u64,
}

impl Block {
    /// One that has nothing yet.
    pub(super) fn empty(offset: u64, side_band_from: u32, before: u64) -> Block {
        let sampled = (u64::MAX, 0);
        Block { offset, side_band_from, before, sampled, first: u64::MAX, ..Block::default() }
    }

    /// Counts a record of this kind and time.
    pub(super) fn count(&mut self, kind: u32, time: u64) {
        self.records += 1;
        if kind == PERF_RECORD_SAMPLE {
            self.samples += 1;
            self.sampled = (self.sampled.0.min(time), self.sampled.1.max(time));
        } else if is_side_band(kind) {
            self.side_band += 1;
        } else {
            return;
        }
        self.first = self.first.min(time);
    }
}

/// The blocks of a run of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIndex {
    /// In the file's order.
    pub blocks: Vec<Block>,
    /// The times of the first and of the last sample, by time; `None` without samples.
    pub samples: Option<(u64, u64)>,
    /// What tells of tasks, mappings and losses, as far as there was room for it.
    pub side_band: SideBand,
}

/// What has to be done for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is read.
    Read,
    /// What is wanted of it was kept.
    Kept,
    Nothing,
}

impl BlockIndex {
    /// Adds a block behind the others, whose samples have these times.
    pub(super) fn add(&mut self, block: Block) {
        if block.samples != 0 {
            self.add_samples(block.sampled);
        }
        self.blocks.push(block);
    }

    fn add_samples(&mut self, (first, last): (u64, u64)) {
        let so_far = self.samples.unwrap_or((first, last));
        self.samples = Some((so_far.0.min(first), so_far.1.max(last)));
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.size)).sum()
    }

    /// How many samples there are.
    pub fn sample_count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.samples)).sum()
    }

    /// What has to be done for what is selected of a block: it is read for wanted samples, and for side-band of before that
    /// was not kept.
    pub(super) fn need(&self, block: &Block, selection: &Selection) -> Need {
        if block.samples != 0 && selection.some_time(block.sampled.0, block.sampled.1) {
            return Need::Read;
        }
        match block.side_band != 0 && block.first <= selection.last_time() {
            true if self.side_band.has(block) => Need::Kept,
            true => Need::Read,
            false => Need::Nothing,
        }
    }

    /// The numbers of the blocks of which something is selected, by the time at which they begin. Stable, so that what is
    /// simultaneous keeps the file's order.
    pub(super) fn wanted(&self, selection: &Selection) -> Vec<u32> {
        let wanted = |&number: &u32| self.need(&self.blocks[number as usize], selection) != Need::Nothing;
        let mut numbers: Vec<u32> = (0..self.blocks.len() as u32).filter(wanted).collect();
        numbers.sort_by_key(|&number| self.blocks[number as usize].first);
        numbers
    }

    /// How many bytes are read for what is selected.
    pub fn read_for(&self, selection: &Selection) -> u64 {
        let read = self.blocks.iter().filter(|block| self.need(block, selection) == Need::Read);
        read.map(|block| u64::from(block.size)).sum()
    }

    /// How many bytes of records the largest block has that is read for what is selected.
    pub(super) fn most_for(&self, selection: &Selection) -> usize {
        let read = self.blocks.iter().filter(|block| self.need(block, selection) == Need::Read);
        read.map(|block| block.size.max(block.unpacked) as usize).max().unwrap_or(0)
    }
}

/// What a run of records turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// Plain records.
    Plain(Arc<BlockIndex>),
    /// Some are compressed.
    Compressed,
}

/// What stands behind a record and is no record: how many bytes, by the record's first 16 in native order. AUX area data
/// and a pipe's tracing data come like that.
pub(super) fn payload(record: &[u8]) -> u64 {
    let word = |at: usize| record.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
    match record_type(record) {
        PERF_RECORD_AUXTRACE => word(8),
        PERF_RECORD_HEADER_TRACING_DATA => {
            record.get(8..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from(u32::from_ne_bytes(*b)))
        }
        _ => 0,
    }
}

/// What ended a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// The bytes that were read hold no more whole records.
    Bytes,
    /// So many bytes follow that are no records.
    Payload(u64),
    /// What follows is no record.
    Damaged,
    /// What follows is compressed.
    Compressed,
}

/// What the records in some bytes are.
struct Looked {
    block: Block,
    end: BlockEnd,
    /// The time of its last record.
    before: u64,
}

/// Looks at the records in some bytes, which begin where `block` says, and keeps its side-band.
fn look(bytes: &mut [u8], walk: &Walk, block: Block, kept: &mut SideBand) -> Looked {
    let Walk { order, layouts, room, .. } = *walk;
    let side_band_from = kept.met();
    // All of what a record changes is kept in registers.
    let (mut at, mut records, mut samples, mut side_band) = (0, 0, 0, 0);
    let (mut first, mut before) = (u64::MAX, block.before);
    let (mut first_sample, mut last_sample) = (u64::MAX, 0);
    let end = loop {
        let rest = &mut bytes[at..];
        let size = super::swap::record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break if size < RECORD_HEADER && rest.len() >= RECORD_HEADER {
                BlockEnd::Damaged
            } else {
                BlockEnd::Bytes
            };
        }
        let record = &mut rest[..size];
        super::swap::record(record, order, layouts);
        let kind = record_type(record);
        if kind == PERF_RECORD_COMPRESSED || kind == PERF_RECORD_COMPRESSED2 {
            break BlockEnd::Compressed;
        }
        let time = layouts.time(record).unwrap_or(before);
        before = time;
        first = first.min(time);
        records += 1;
        at += size;
        if kind == PERF_RECORD_SAMPLE {
            samples += 1;
            first_sample = first_sample.min(time);
            last_sample = last_sample.max(time);
        } else if is_side_band(kind) {
            side_band += 1;
            kept.add(record, time, room);
        } else if let payload @ 1.. = payload(record) {
            break BlockEnd::Payload(payload);
        }
    };
    let (size, sampled) = (at as u32, (first_sample, last_sample));
    let block = Block { size, records, samples, side_band, side_band_from, first, sampled, ..block };
    Looked { block, end, before }
}

/// Sections of this size are looked at from two places at a time.
const LARGE: u64 = 64 << 20;

/// Looks at all records of a section. A record that is cut off at its end, or damaged, ends it with a warning.
pub(super) fn index(walk: Walk, section: Section, warnings: &mut Vec<String>) -> Result<Indexed, PerfDataError> {
    if section.size >= LARGE
        && thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
        && let Some(indexed) = walk.halves(section, warnings)?
    {
        return Ok(indexed);
    }
    let found = walk.all(section, warnings)?;
    Ok(found.map_or(Indexed::Compressed, |(found, _)| Indexed::Plain(Arc::new(found))))
}

/// What is looked at.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub input: &'a dyn Input,
    pub name: &'a str,
    pub order: ByteOrder,
    pub layouts: &'a Layouts,
    /// How many bytes of side-band are kept at most.
    pub room: usize,
}

impl Walk<'_> {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, PerfDataError> {
        self.input.read_at(buffer, offset).map_err(|error| PerfDataError::io(self.name, error))
    }

    /// Looks at the records of a section one after the other; gives the time of the last one, too. `None` where some are
    /// compressed.
    fn all(&self, section: Section, warnings: &mut Vec<String>) -> Result<Option<(BlockIndex, u64)>, PerfDataError> {
        let mut found = BlockIndex::default();
        let mut buffer = vec![0; BLOCK];
        let end = section.offset.saturating_add(section.size);
        let (mut offset, mut before) = (section.offset, 0);
        while offset < end {
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BLOCK);
            let filled = self.read(&mut buffer[..room], offset)?;
            let block = Block { offset, before, ..Block::default() };
            let looked = look(&mut buffer[..filled], self, block, &mut found.side_band);
            let Looked { block, end: ended, .. } = looked;
            before = looked.before;
            if ended == BlockEnd::Compressed {
                return Ok(None);
            }
            if block.size != 0 {
                found.add(block);
            }
            offset = offset.saturating_add(u64::from(block.size));
            let left = end.saturating_sub(offset);
            let why = match ended {
                BlockEnd::Payload(size) if size <= left => {
                    offset += size;
                    continue;
                }
                BlockEnd::Bytes if block.size != 0 => continue,
                BlockEnd::Damaged => format!("its last {left} bytes are left out: what follows is no record"),
                // Most of them are not in the file.
                BlockEnd::Bytes | BlockEnd::Payload(_) | BlockEnd::Compressed => {
                    format!("its records end {left} bytes early: it is cut off")
                }
            };
            warnings.push(format!("{}: {why}", self.name));
            break;
        }
        Ok(Some((found, before)))
    }

    /// Keeps the side-band of an index that has none, as far as there is room: of its blocks, those are read that have some.
    /// `None` where one of them is another than the index says.
    pub(super) fn keep_side_band(&self, mut index: BlockIndex) -> Result<Option<BlockIndex>, PerfDataError> {
        if self.room == 0 {
            return Ok(Some(index));
        }
        let mut buffer = vec![0; BLOCK];
        for &block in index.blocks.iter().filter(|block| block.side_band != 0) {
            let filled = self.read(&mut buffer[..block.size as usize], block.offset)?;
            let looked = look(&mut buffer[..filled], self, block, &mut index.side_band);
            if looked.block != block {
                return Ok(None);
            }
        }
        Ok(Some(index))
    }

    /// The same from the section's begin and, in another thread, from about its middle on. Where a record begins there is
    /// guessed; the first half's last record ends there, or the guess was wrong and this gives nothing.
    fn halves(&self, section: Section, warnings: &mut Vec<String>) -> Result<Option<Indexed>, PerfDataError> {
        let Some(middle) = self.guess(section)? else { return Ok(None) };
        let halves = [
            Section { offset: section.offset, size: middle - section.offset },
            Section { offset: middle, size: section.offset.saturating_add(section.size) - middle },
        ];
        let all = |half: Section| {
            let mut warnings = Vec::new();
            self.all(half, &mut warnings).map(|found| (found, warnings))
        };
        let both = thread::scope(|scope| {
            let body = || {
                signals::block_in_this_thread();
                all(halves[1])
            };
            let second = thread::Builder::new().name("perf-prof-index".to_owned()).spawn_scoped(scope, body).ok()?;
            let first = all(halves[0]);
            Some((first, second.join().ok()?))
        });
        let Some((first, second)) = both else { return Ok(None) };
        let ((first, at_middle), (second, at_end)) = (first?, second?);
        let (Some((mut found, before)), Some((mut second, _))) = (first, second) else {
            return Ok(Some(Indexed::Compressed));
        };
        if !at_middle.is_empty() {
            return Ok(None);
        }
        if let Some(block) = second.blocks.first_mut() {
            block.before = before;
        }
        found.side_band.append(&second.side_band, &mut second.blocks, self.room);
        found.blocks.append(&mut second.blocks);
        second.samples.into_iter().for_each(|samples| found.add_samples(samples));
        warnings.extend(at_end);
        Ok(Some(Indexed::Plain(Arc::new(found))))
    }

    /// Where about in the middle of a section a record seems to begin: a sample with a time, behind which nothing but
    /// records follow for a while.
    fn guess(&self, section: Section) -> Result<Option<u64>, PerfDataError> {
        const WINDOW: usize = 1 << 20;
        const LARGEST_RECORD: usize = 64 << 10;
        if self.order != ByteOrder::Native {
            return Ok(None);
        }
        let mut bytes = vec![0; WINDOW];
        // Sizes are multiples of 8.
        let offset = section.offset.saturating_add((section.size / 2).next_multiple_of(8));
        let filled = self.read(&mut bytes, offset)?;
        bytes.truncate(filled);
        let begins = |&at: &usize| {
            let mut records = Records::new(&bytes[at..]);
            let is_sample =
                |record: &[u8]| record_type(record) == PERF_RECORD_SAMPLE && self.layouts.time(record).is_some();
            records.next().is_some_and(is_sample) && records.all(is_plausible) && {
                // One that is cut off by the window.
                let size = record_size(records.rest());
                size == 0 || size > records.rest().len()
            }
        };
        let at = (0..filled.min(LARGEST_RECORD)).step_by(8).find(begins);
        Ok(at.map(|at| offset + at as u64))
    }
}

/// Whether something could be a record.
fn is_plausible(record: &[u8]) -> bool {
    const KERNEL: u32 = 32;
    const USER: std::ops::Range<u32> = 64..96;
    let kind = record_type(record);
    record.len().is_multiple_of(8) && ((1..KERNEL).contains(&kind) || USER.contains(&kind))
}

/// The records in bytes that were looked at before.
pub(super) fn enter(bytes: &mut [u8], order: ByteOrder, layouts: &Layouts) {
    if order == ByteOrder::Native {
        return;
    }
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= RECORD_HEADER) {
        let size = super::swap::record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break;
        }
        super::swap::record(&mut rest[..size], order, layouts);
        debug_assert_eq!(record_size(rest), size);
        at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        abi::{PERF_RECORD_COMM, PERF_RECORD_LOST, PERF_RECORD_THROTTLE, PERF_SAMPLE_RAW, PERF_SAMPLE_TIME},
        perfdata::{Attr, AttrIds, side_band::ROOM},
        record::SampleFormat,
    };

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

    /// The index made from one place on, and from two.
    fn both(bytes: Vec<u8>) -> (BlockIndex, Option<BlockIndex>) {
        both_in(bytes, ROOM)
    }

    fn both_in(bytes: Vec<u8>, room: usize) -> (BlockIndex, Option<BlockIndex>) {
        let section = Section { offset: 0, size: bytes.len() as u64 };
        let walk = Walk { input: &bytes, name: "x", order: ByteOrder::Native, layouts: &layouts(), room };
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (serial, _) = walk.all(section, &mut one).unwrap().unwrap();
        let halves = walk.halves(section, &mut two).unwrap().map(|indexed| match indexed {
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
        // Cut off, too.
        for cut in [0, 5] {
            let (one, two) = both(bytes[..bytes.len() - cut].to_vec());
            let two = two.unwrap();
            assert_eq!((one.samples, one.bytes(), one.sample_count()), (two.samples, two.bytes(), two.sample_count()));
            assert!(two.blocks.windows(2).all(|two| two[0].offset + u64::from(two[0].size) == two[1].offset));
            assert_eq!(two.side_band, one.side_band);
        }
    }

    #[test]
    fn what_is_kept_is_right_in_little_room() {
        const NAME: usize = 8;
        let name = [&PERF_RECORD_COMM.to_ne_bytes()[..], &[0, 0, NAME as u8, 0]].concat();
        // Names, which have the time of the sample before, everywhere or in the second half alone.
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
    fn blocks_with_ends_of_rounds_were_read_by_every_shard() {
        let block = |time: u64, kind: u32| -> Vec<u8> {
            let mut block: Vec<u8> = (0..6000).flat_map(|n| sample(time + n, &[])).collect();
            block.extend(kind.to_ne_bytes());
            block.extend([0, 0, 8, 0]);
            block
        };
        let kinds = [PERF_RECORD_FINISHED_ROUND, PERF_RECORD_THROTTLE, PERF_RECORD_COMM, PERF_RECORD_LOST];
        let bytes: Vec<u8> = (1..).zip(kinds).flat_map(|(n, kind)| block(n * 1_000_000, kind)).collect();
        let (index, _) = both(bytes);
        // The blocks that are read for a range of times, each by the time that it begins at.
        let wanted = |times: &[(u64, u64)]| -> Vec<u64> {
            let wanted = index.wanted(&Selection { times: times.into(), ..Selection::default() });
            wanted.iter().map(|&number| index.blocks[number as usize].first / 1_000_000).collect()
        };
        assert_eq!(wanted(&[(9_000_000, 10_000_000)]), [3, 4]);
        assert!(wanted(&[(0, 0)]).is_empty());
        assert_eq!(wanted(&[]).len(), index.blocks.len());
    }

    #[test]
    fn what_only_looks_like_records_in_the_middle_is_none() {
        let within: Vec<u8> = (0..2000).flat_map(|time| sample(9, &[time as u8; 8])).collect();
        let large = |time| sample(time, &within[..within.len() / 2]);
        let bytes: Vec<u8> = (1..200).flat_map(large).collect();
        let (one, two) = both(bytes);
        assert_eq!(one.sample_count(), 199);
        assert!(two.is_none_or(|two| two.sample_count() == 199));
    }
}
