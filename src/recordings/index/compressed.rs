//! Indexes records that can only be read from front to back: compressed records, and the records of a pipe recording
//! that was saved in a file. All records are decompressed once. The result contains the times of the samples, and the
//! runs of records that can be read independently.

use std::{sync::Arc, thread};

use perf_prof_format::{abi::PERF_RECORD_SAMPLE, record::record_type};
use perf_prof_system::own_threads;

use super::blocks::{BLOCK, Block, BlockIndex, payload};
use crate::{
    error::PerfDataError,
    format::{
        bytes::ByteOrder,
        checksums::{self, Checksums},
        header::Section,
        layouts::Layouts,
        swap,
    },
    input::{
        decompress::{Decompressor, begins_frame, is_compressed, packed},
        feed::{FileFeed, Next, RecordReader},
        random_access::Input,
    },
    order::{gaps::is_loss, rounds::Ending},
    select::is_side_band,
};

/// The maximum size in bytes of a run after decompression. The limit is necessary because a run is in memory as a
/// whole. perf may write one zstd frame for the whole file, and such a frame is too large for one run.
const RUN: u32 = 16 << 20;

/// The result of decompressing all records.
#[derive(Clone)]
pub(crate) struct CompressedIndex {
    /// The times of samples, block by block. The blocks consist of decompressed records, so their offsets have no
    /// meaning.
    pub samples: Arc<BlockIndex>,
    /// The runs that can be read independently. Each run starts with a zstd frame or with a plain record. At the end of
    /// a run, no frame and no record is incomplete. `None` if the records cannot be divided into such runs.
    pub runs: Option<Arc<BlockIndex>>,
}

struct IndexBuilder {
    found: BlockIndex,
    block: Block,
    /// The maximum number of bytes of side-band records to keep in memory.
    room: usize,
}

impl IndexBuilder {
    fn new(offset: u64, room: usize) -> IndexBuilder {
        let mut growing = IndexBuilder { found: BlockIndex::default(), block: Block::default(), room };
        growing.begin(offset, 0);
        growing
    }

    fn begin(&mut self, offset: u64, before: u64) {
        self.block = Block::empty(offset, self.found.side_band.seen_count(), before);
    }

    fn add(&mut self, record: &[u8], time: u64) {
        let kind = record_type(record);
        self.block.count(kind, time);
        if is_side_band(kind) {
            self.found.side_band.add(record, time, self.room);
        }
    }

    /// Appends `other`, the index of the section after this one.
    fn append(&mut self, mut other: IndexBuilder) {
        self.found.side_band.append(&other.found.side_band, &mut other.found.blocks, self.room);
        other.found.blocks.into_iter().for_each(|block| self.found.add(block));
    }
}

/// The index of samples and the index of runs, while they are being made.
struct CompressedIndexer<'a> {
    layouts: &'a Layouts,
    samples: IndexBuilder,
    runs: Option<IndexBuilder>,
    /// The time of the last record.
    before: u64,
    /// True if a sample or a side-band record at the start of the section contains no time. Such a record gets the time
    /// of the last record before the section.
    begins_without_time: bool,
}

impl<'a> CompressedIndexer<'a> {
    fn new(layouts: &'a Layouts, offset: u64, room: usize) -> CompressedIndexer<'a> {
        let (samples, runs) = (IndexBuilder::new(0, 0), Some(IndexBuilder::new(offset, room)));
        CompressedIndexer { layouts, samples, runs, before: 0, begins_without_time: false }
    }

    fn add(&mut self, record: &[u8]) {
        let own = self.layouts.time(record);
        let time = own.unwrap_or(self.before);
        if time == 0 && own.is_none() {
            let kind = record_type(record);
            self.begins_without_time |= kind == PERF_RECORD_SAMPLE || is_side_band(kind);
        }
        self.before = time;
        self.samples.block.size += record.len() as u32;
        self.samples.add(record, time);
        if self.samples.block.size as usize >= BLOCK {
            self.finish_samples();
        }
        if let Some(runs) = &mut self.runs {
            runs.block.unpacked += record.len() as u32;
            runs.add(record, time);
            if runs.block.unpacked > RUN {
                self.runs = None;
            }
        }
    }

    fn finish_samples(&mut self) {
        if self.samples.block.samples != 0 {
            self.samples.found.add(self.samples.block);
        }
        self.samples.begin(0, self.before);
    }

    /// Ends a run at offset `end` of the file. The next run starts at offset `next`.
    fn finish_run(&mut self, end: u64, next: u64, packing: Packing) {
        let Some(IndexBuilder { found, block, .. }) = &mut self.runs else { return };
        if packing == Packing::Plain {
            block.unpacked = 0;
        }
        match u32::try_from(end - block.offset) {
            // The size includes the payloads between the records, because a run is in memory as a whole.
            Ok(RUN..) | Err(_) => self.runs = None,
            Ok(_) if block.records == 0 => block.offset = next,
            Ok(size) => {
                found.add(Block { size, ..*block });
                let before = self.before;
                self.runs.iter_mut().for_each(|runs| runs.begin(next, before));
            }
        }
    }

    /// Appends `other`, the indexes of the section after this one.
    fn append(&mut self, other: CompressedIndexer) {
        self.samples.append(other.samples);
        self.runs = self.runs.take().zip(other.runs).map(|(mut runs, other)| {
            runs.append(other);
            runs
        });
    }

    fn into_index(self) -> CompressedIndex {
        CompressedIndex { samples: Arc::new(self.samples.found), runs: self.runs.map(|runs| Arc::new(runs.found)) }
    }
}

/// Whether a run contains only plain records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Packed,
}

/// The minimum size in bytes of a section that is indexed by several threads.
const LARGE: u64 = 2 << 20;

/// The records to index.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub input: &'a Arc<dyn Input>,
    pub name: &'a str,
    pub order: ByteOrder,
    pub layouts: &'a Layouts,
    /// The maximum number of bytes of side-band records to keep in memory.
    pub room: usize,
    /// The memory of the decompressors, in bytes.
    pub memory: usize,
    pub ending: Ending,
}

/// Indexes all records of a section, including compressed records. Leaves out damaged records without a warning,
/// because the replay leaves out the same records and adds the warning.
pub(crate) fn index(source: Source, section: Section) -> Result<CompressedIndex, PerfDataError> {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MOST_THREADS));
    if section.size >= LARGE && cpus > 1 {
        let pieces = source.divide(section, cpus as u64)?;
        if pieces.len() > 1
            && let Some(found) = source.pieces(&pieces)?
        {
            return Ok(found);
        }
    }
    Ok(source.scan(section)?.seen.into_index())
}

/// The maximum number of threads. More threads would only wait for memory.
const MOST_THREADS: usize = 8;

/// The result of reading a section.
struct ScannedSection<'a> {
    seen: CompressedIndexer<'a>,
    /// True if the next section can be read independently of this section.
    is_whole: bool,
}

impl<'a> Source<'a> {
    fn records(&self, section: Section) -> RecordReader {
        RecordReader::new(self.name, self.order, Box::new(FileFeed::new(self.input.clone(), section)))
    }

    /// Returns whether a section has a record about lost events that is not compressed. Recorders write such records at
    /// the end, with the numbers of all lost events.
    pub fn states_losses(&self, section: Section) -> Result<bool, PerfDataError> {
        let mut records = self.records(section);
        while let Next::Record(size) = records.next()? {
            let record = records.peek(size);
            swap::record(record, self.order, self.layouts);
            let (skip, is_loss) = (payload(record), is_loss(record));
            if is_loss {
                return Ok(true);
            }
            records.advance(size);
            records.skip_payload(skip);
        }
        Ok(false)
    }

    /// Divides a section into about `parts` pieces. Each piece except the first starts with a compressed record that
    /// appears to start a zstd frame, or with the checksum of this record.
    fn divide(&self, section: Section, parts: u64) -> Result<Vec<Section>, PerfDataError> {
        const PLAIN: u64 = 16 << 20;
        let mut records = self.records(section);
        let (mut begin, mut pieces, mut is_packed) = (0, Vec::new(), false);
        let mut checksum = None;
        while let Next::Record(size) = records.next()? {
            let at = records.consumed();
            let record = records.peek(size);
            swap::record(record, self.order, self.layouts);
            let (is_compressed, skip) = (is_compressed(record), payload(record));
            let from = checksum.take().unwrap_or(at);
            checksum = checksums::stated(record, ByteOrder::Native).map(|_| at);
            is_packed |= is_compressed;
            let enough = section.size / parts * (pieces.len() as u64 + 1);
            if is_compressed && at >= enough && begins_frame(record) {
                pieces.push(Section { offset: section.offset + begin, size: from - begin });
                begin = from;
            }
            if pieces.len() as u64 + 1 == parts || (!is_packed && at > PLAIN) {
                break;
            }
            records.advance(size);
            records.skip_payload(skip);
        }
        pieces.push(Section { offset: section.offset + begin, size: section.size - begin });
        Ok(pieces)
    }

    /// Indexes the pieces of a section in parallel. Returns `None` if a piece depends on the piece before it.
    fn pieces(&self, pieces: &[Section]) -> Result<Option<CompressedIndex>, PerfDataError> {
        // The first piece may use all of `room`. All other pieces together may use the same amount of memory. The first
        // piece usually has the most side-band records, because it contains the comms and mappings of tasks that
        // existed before the recording started.
        let memory = self.memory / pieces.len();
        let share = Source { room: self.room / (pieces.len() - 1).max(1), memory, ..*self };
        let looked = thread::scope(|scope| {
            let spawn =
                |&piece: &Section| own_threads::spawn_scoped(scope, "perf-prof-index", move || share.scan(piece)).ok();
            let others: Vec<_> = pieces[1..].iter().map(spawn).collect();
            let first = Source { memory, ..*self }.scan(pieces[0]);
            let others = others.into_iter().map(|thread| thread?.join().ok());
            std::iter::once(Some(first)).chain(others).collect::<Option<Vec<_>>>()
        });
        let Some(looked) = looked else { return Ok(None) };
        let mut looked = looked.into_iter();
        let Some(first) = looked.next() else { return Ok(None) };
        let ScannedSection { mut seen, mut is_whole } = first?;
        for next in looked {
            let next = next?;
            if !is_whole || next.seen.begins_without_time {
                return Ok(None);
            }
            seen.append(next.seen);
            is_whole = next.is_whole;
        }
        Ok(Some(seen.into_index()))
    }

    /// Adds the records in a compressed record. Returns false if some of them cannot be read.
    fn unpack(&self, record: &[u8], unpacker: &mut Decompressor, seen: &mut CompressedIndexer<'_>) -> bool {
        unpacker.set_input(record);
        while unpacker.has_packed() {
            if unpacker.step(self.order).is_err() {
                return false;
            }
            while let Some(record) = unpacker.next(self.order) {
                swap::record(record, self.order, self.layouts);
                seen.add(record);
            }
        }
        true
    }

    /// Indexes the records of a section from front to back.
    fn scan(&self, section: Section) -> Result<ScannedSection<'a>, PerfDataError> {
        let Source { order, layouts, room, ending, .. } = *self;
        let (mut records, offset) = (self.records(section), section.offset);
        let zstd = |error| PerfDataError::io("zstd", error);
        let (mut unpacker, mut failed) = (Decompressor::new(self.memory).map_err(zstd)?, false);
        let mut seen = CompressedIndexer::new(layouts, offset, room);
        let (mut packing, mut checksums) = (Packing::Plain, Checksums::default());
        let (end, at) = loop {
            let at = offset + records.consumed();
            let size = match records.next()? {
                Next::Record(size) => size,
                end => break (end, at),
            };
            let begin = offset + records.consumed();
            if begin != at && packing == Packing::Plain {
                // A payload before this record was skipped, so the run ends here.
                seen.finish_run(at, begin, packing);
            }
            let record = records.peek(size);
            swap::record(record, order, layouts);
            let mut skip = 0;
            if is_compressed(record) {
                packing = Packing::Packed;
                let holds = checksums.compressed(packed(record).unwrap_or(&[]));
                if failed && holds && begins_frame(record) {
                    unpacker.restart().map_err(zstd)?;
                    failed = false;
                }
                failed = failed || !holds || !self.unpack(record, &mut unpacker, &mut seen);
            } else if checksums::stated(record, ByteOrder::Native).is_some() {
                // A run with a checksum counts as packed, because its checksums are left out when it is read.
                packing = Packing::Packed;
                failed |= !checksums.plain(record);
            } else {
                // Where a compressed record should be, a record may be this one, with wrong bits in its type.
                if checksums.plain(record) {
                    skip = payload(record);
                    seen.add(record);
                } else {
                    failed = true;
                }
                if unpacker.left() != 0 {
                    // A decompressed record is incomplete here, and a plain record comes before its rest. So the
                    // records cannot be divided into runs.
                    seen.runs = None;
                }
            }
            if failed {
                seen.runs = None;
            }
            records.advance(size);
            records.skip_payload(skip);
            let unpacked = seen.runs.as_ref().map_or(0, |runs| runs.block.unpacked);
            if unpacked as usize >= BLOCK && unpacker.is_between_frames() && skip == 0 {
                let at = offset + records.consumed();
                seen.finish_run(at, at, packing);
                packing = Packing::Plain;
            }
        };
        seen.finish_run(at, at, packing);
        seen.finish_samples();
        // After a killed recorder, only the rounds of all records show since when records may be missing.
        if end != Next::End || unpacker.left() != 0 || ending == Ending::Killed {
            seen.runs = None;
        }
        Ok(ScannedSection { seen, is_whole: end == Next::End && !failed && unpacker.is_between_frames() })
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_RECORD_COMM, PERF_SAMPLE_TIME, perf_data::PERF_RECORD_COMPRESSED};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Attr, AttrFlag, AttrIds, Selection,
        index::{blocks::Need, side_band::ROOM},
    };

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        [&kind.to_ne_bytes()[..], &[0, 0], &(8 + body.len() as u16).to_ne_bytes(), body].concat()
    }

    fn sample(time: u64) -> Vec<u8> {
        record(PERF_RECORD_SAMPLE, &time.to_ne_bytes())
    }

    fn comm(time: u64) -> Vec<u8> {
        record(
            PERF_RECORD_COMM,
            &[&[1, 0, 0, 0, 1, 0, 0, 0, b'x', 0, 0, 0, 0, 0, 0, 0][..], &time.to_ne_bytes()].concat(),
        )
    }

    fn frame(records: &[u8]) -> Vec<u8> {
        let packed = zstd::bulk::compress(records, 1).unwrap();
        packed.chunks(1000).flat_map(|some| record(PERF_RECORD_COMPRESSED, some)).collect()
    }

    /// Returns the index that one thread makes, and the index that three threads make.
    fn both(bytes: &[u8]) -> (CompressedIndex, Option<CompressedIndex>) {
        both_in(bytes, ROOM)
    }

    fn both_in(bytes: &[u8], room: usize) -> (CompressedIndex, Option<CompressedIndex>) {
        let attr = Attr { flags: 1 << AttrFlag::SampleIdAll as u32, ..Attr::default() };
        let mut ids = AttrIds { attr, ids: Vec::new() };
        ids.attr.format.sample_type = PERF_SAMPLE_TIME;
        let (input, layouts): (Arc<dyn Input>, _) = (Arc::new(bytes.to_vec()), Layouts::new(&[ids]));
        let source = Source {
            input: &input,
            name: "x",
            order: ByteOrder::Native,
            layouts: &layouts,
            room,
            memory: usize::MAX,
            ending: Ending::Finished,
        };
        let section = Section { offset: 0, size: bytes.len() as u64 };
        let pieces = source.divide(section, 3).unwrap();
        assert!(pieces.windows(2).all(|two| two[0].offset + two[0].size == two[1].offset));
        assert_eq!(pieces.iter().map(|piece| piece.size).sum::<u64>(), section.size);
        let serial = source.scan(section).unwrap().seen.into_index();
        (serial, source.pieces(&pieces).unwrap().filter(|_| pieces.len() == 3))
    }

    /// Returns frames of 20,000 records each. The first record of each frame comes from `begin`, and may have a time or
    /// no time. All other records are samples.
    fn frames(begin: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
        unpacked_frames(begin).iter().flat_map(|records| frame(records)).collect()
    }

    fn unpacked_frames(begin: impl Fn(u64) -> Vec<u8>) -> Vec<Vec<u8>> {
        let frame = |number: u64| {
            let from = 1 + number * 20_000;
            begin(from).into_iter().chain((from + 1..from + 20_000).flat_map(sample)).collect()
        };
        (0..9).map(frame).collect()
    }

    #[test]
    fn several_threads_find_what_one_does() {
        several_threads_find_what_one_does_in(&frames(comm));
        several_threads_find_what_one_does_in(&checksums::packed(&unpacked_frames(comm), 1000));
    }

    fn several_threads_find_what_one_does_in(bytes: &[u8]) {
        let (one, three) = both(bytes);
        let three = three.unwrap();
        let runs = |found: &CompressedIndex| (*found.runs.clone().unwrap()).clone();
        let first_of_pieces = [3, 6];
        let mut expected = runs(&one);
        // The thread that indexes a piece does not know the time of the last record before the piece. It does not need
        // this time if the first record of the piece has a time.
        first_of_pieces.iter().for_each(|&first| expected.blocks[first].before = 0);
        assert!(expected.blocks.len() == 9 && runs(&three) == expected);
        assert_eq!((one.samples.samples, one.samples.sample_count()), (Some((2, 180_000)), 9 * 19_999));
        assert_eq!((three.samples.samples, three.samples.sample_count()), (Some((2, 180_000)), 9 * 19_999));
    }

    proptest! {
        #[test]
        fn damaged_frames_are_not_read_as_runs(at: prop::sample::Index, bit in 0..8u32) {
            let frame = |number: u64| (1 + number * 1000..1000 + number * 1000).flat_map(sample).collect();
            let mut bytes = checksums::packed(&(0..4).map(frame).collect::<Vec<_>>(), 300);
            let (whole, _) = both(&bytes);
            prop_assert!(whole.runs.is_some());
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            let (damaged, _) = both(&bytes);
            prop_assert!(damaged.runs.is_none_or(|runs| *runs == **whole.runs.as_ref().unwrap()));
        }
    }

    #[test]
    fn kept_records_are_right_with_little_memory() {
        const NAME: usize = 32;
        let bytes = frames(comm);
        assert_eq!(comm(1).len(), NAME);
        let last = Selection { times: vec![(180_000, u64::MAX)], ..Selection::default() };
        let kept = |found: &CompressedIndex| {
            let runs = found.runs.as_ref().unwrap();
            let of = |(number, block): (u64, &Block)| {
                let times = runs.side_band.times(block);
                assert!(times.is_none() || times == Some(vec![1 + number * 20_000]));
                let need = runs.need(block, &last);
                assert_eq!(need, if number < 8 && times.is_some() { Need::Kept } else { Need::Read });
                usize::from(times.is_some())
            };
            (0..).zip(&runs.blocks).map(of).sum::<usize>()
        };
        // With more space, more comm records are kept: first those of the first three frames, then those of the next
        // three, finally all. The second and the third piece have half of `room` each.
        for (room, names) in [(0, [0, 0]), (2, [2, 2]), (3, [3, 3]), (5, [5, 5]), (6, [6, 6]), (9, [9, 9])] {
            let (one, three) = both_in(&bytes, room * NAME);
            assert_eq!([kept(&one), kept(&three.unwrap())], names, "{room}");
        }
    }

    #[test]
    fn sections_that_depend_on_what_precedes_them_are_indexed_by_one_thread() {
        // The first record of each frame has no time, so it needs the time of the record before it.
        let (one, three) = both(&frames(|_| comm(0)));
        assert!(three.is_none() && one.runs.is_some());
        // The first record of the damaged frame needs the start of the frame.
        let mut damaged = frames(comm);
        let end = damaged.len() / 6;
        let cut = (0..).scan(0, |at, _| {
            let begin = *at;
            *at += perf_prof_format::record::record_size(&damaged[begin..]);
            Some(begin)
        });
        let cut: Vec<usize> = cut.take_while(|&at| at < end).collect();
        damaged.drain(cut[cut.len() - 2]..cut[cut.len() - 1]);
        let (one, three) = both(&damaged);
        assert!(one.runs.is_none() && three.is_none_or(|three| three.runs.is_none()));
    }
}
