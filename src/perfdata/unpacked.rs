//! What is known of records that can be read from front to back only, compressed ones and those of a pipe that was kept in a
//! file, after all of them were unpacked once: where their samples lie in time, and which runs of them can be read without
//! the others.

use std::{sync::Arc, thread};

use super::{
    bytes::ByteOrder,
    error::PerfDataError,
    feed::{FileFeed, Next, Records},
    header::Section,
    index::{BLOCK, Block, BlockIndex, payload},
    input::Input,
    layouts::Layouts,
    select::is_side_band,
    swap,
    unpack::{Unpacker, begins_frame, is_compressed},
};
use crate::{abi::PERF_RECORD_SAMPLE, record::record_type, sys::signals};

/// How much a run may unpack to: all of it is in memory at once. One frame of zstd for the whole file, as perf writes it, is
/// no run.
const RUN: u32 = 16 << 20;

/// What unpacking has shown.
#[derive(Clone)]
pub(super) struct Unpacked {
    /// Where samples lie in time. Its blocks are nowhere in the file.
    pub samples: Arc<BlockIndex>,
    /// Runs that begin with a frame of zstd, or with a plain record, and end where nothing is left over; `None` where
    /// records cannot be read so.
    pub runs: Option<Arc<BlockIndex>>,
}

/// An index while it is made.
struct Growing {
    found: BlockIndex,
    block: Block,
    /// How many bytes of side-band are kept at most.
    room: usize,
}

impl Growing {
    fn new(offset: u64, room: usize) -> Growing {
        let mut growing = Growing { found: BlockIndex::default(), block: Block::default(), room };
        growing.begin(offset, 0);
        growing
    }

    fn begin(&mut self, offset: u64, before: u64) {
        self.block = Block::empty(offset, self.found.side_band.met(), before);
    }

    fn add(&mut self, record: &[u8], time: u64) {
        let kind = record_type(record);
        self.block.count(kind, time);
        if is_side_band(kind) {
            self.found.side_band.add(record, time, self.room);
        }
    }

    /// Adds what was found behind it.
    fn append(&mut self, mut other: Growing) {
        self.found.side_band.append(&other.found.side_band, &mut other.found.blocks, self.room);
        other.found.blocks.into_iter().for_each(|block| self.found.add(block));
    }
}

/// Both indexes while they are made.
struct Seen<'a> {
    layouts: &'a Layouts,
    samples: Growing,
    runs: Option<Growing>,
    /// The time of the last record.
    before: u64,
    /// A record that is wanted has the time of one that is not here.
    begins_without_time: bool,
}

impl<'a> Seen<'a> {
    fn new(layouts: &'a Layouts, offset: u64, room: usize) -> Seen<'a> {
        let (samples, runs) = (Growing::new(0, 0), Some(Growing::new(offset, room)));
        Seen { layouts, samples, runs, before: 0, begins_without_time: false }
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

    /// Ends a run before what lies at `end` of the file; another one begins at `next`.
    fn finish_run(&mut self, end: u64, next: u64, packing: Packing) {
        let Some(Growing { found, block, .. }) = &mut self.runs else { return };
        if packing == Packing::Plain {
            block.unpacked = 0;
        }
        match u32::try_from(end - block.offset) {
            Err(_) => self.runs = None,
            Ok(0) => block.offset = next,
            Ok(size) => {
                found.add(Block { size, ..*block });
                let before = self.before;
                self.runs.iter_mut().for_each(|runs| runs.begin(next, before));
            }
        }
    }

    /// Adds what was seen behind it.
    fn append(&mut self, other: Seen) {
        self.samples.append(other.samples);
        self.runs = self.runs.take().zip(other.runs).map(|(mut runs, other)| {
            runs.append(other);
            runs
        });
    }

    fn found(self) -> Unpacked {
        Unpacked { samples: Arc::new(self.samples.found), runs: self.runs.map(|runs| Arc::new(runs.found)) }
    }
}

/// Whether something of a run is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Packed,
}

/// Sections of this size are looked at from several places at a time.
const LARGE: u64 = 2 << 20;

/// Where packed records are.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub input: &'a Arc<dyn Input>,
    pub name: &'a str,
    pub order: ByteOrder,
    pub layouts: &'a Layouts,
    /// How many bytes of side-band are kept at most.
    pub room: usize,
}

/// Looks at all records of a section, the compressed ones among them. What is damaged is left out as it is by who reads the
/// records, and says so.
pub(super) fn index(source: Source, section: Section) -> Result<Unpacked, PerfDataError> {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MOST_THREADS));
    if section.size >= LARGE && cpus > 1 {
        let pieces = source.divide(section, cpus as u64)?;
        if pieces.len() > 1
            && let Some(found) = source.pieces(&pieces)?
        {
            return Ok(found);
        }
    }
    Ok(source.look(section)?.seen.found())
}

/// More threads than that wait for memory.
const MOST_THREADS: usize = 8;

/// What looking at a section gave.
struct Looked<'a> {
    seen: Seen<'a>,
    /// What follows needs nothing of it.
    is_whole: bool,
}

impl<'a> Source<'a> {
    fn records(&self, section: Section) -> Records {
        Records::new(self.name, self.order, Box::new(FileFeed::new(self.input.clone(), section)))
    }

    /// Where about so many parts of a section begin, with a frame each, to all appearances.
    fn divide(&self, section: Section, parts: u64) -> Result<Vec<Section>, PerfDataError> {
        const PLAIN: u64 = 16 << 20;
        let mut records = self.records(section);
        let (mut begin, mut pieces, mut is_packed) = (0, Vec::new(), false);
        while let Next::Record(size) = records.next()? {
            let at = records.consumed();
            let record = records.peek(size);
            swap::record(record, self.order, self.layouts);
            let (is_compressed, skip) = (is_compressed(record), payload(record));
            is_packed |= is_compressed;
            let enough = section.size / parts * (pieces.len() as u64 + 1);
            if is_compressed && at >= enough && begins_frame(record) {
                pieces.push(Section { offset: section.offset + begin, size: at - begin });
                begin = at;
            }
            if pieces.len() as u64 + 1 == parts || (!is_packed && at > PLAIN) {
                break;
            }
            records.take(size);
            records.skip(skip);
        }
        pieces.push(Section { offset: section.offset + begin, size: section.size - begin });
        Ok(pieces)
    }

    /// Looks at all of some pieces at the same time; `None` where one of them needs the one before it.
    fn pieces(&self, pieces: &[Section]) -> Result<Option<Unpacked>, PerfDataError> {
        // What follows has room beside the first one's, which mostly has the most: tasks' names and mappings of before.
        let share = Source { room: self.room / (pieces.len() - 1).max(1), ..*self };
        let looked = thread::scope(|scope| {
            let spawn = |&piece: &Section| {
                let body = move || {
                    signals::block_in_this_thread();
                    share.look(piece)
                };
                thread::Builder::new().name("perf-prof-index".to_owned()).spawn_scoped(scope, body).ok()
            };
            let others: Vec<_> = pieces[1..].iter().map(spawn).collect();
            let first = self.look(pieces[0]);
            let others = others.into_iter().map(|thread| thread?.join().ok());
            std::iter::once(Some(first)).chain(others).collect::<Option<Vec<_>>>()
        });
        let Some(looked) = looked else { return Ok(None) };
        let mut looked = looked.into_iter();
        let Some(first) = looked.next() else { return Ok(None) };
        let Looked { mut seen, mut is_whole } = first?;
        for next in looked {
            let next = next?;
            if !is_whole || next.seen.begins_without_time {
                return Ok(None);
            }
            seen.append(next.seen);
            is_whole = next.is_whole;
        }
        Ok(Some(seen.found()))
    }

    /// Looks at the records of a section one after the other.
    fn look(&self, section: Section) -> Result<Looked<'a>, PerfDataError> {
        let Source { order, layouts, room, .. } = *self;
        let (mut records, offset) = (self.records(section), section.offset);
        let zstd = |error| PerfDataError::io("zstd", error);
        let (mut unpacker, mut failed) = (Unpacker::new().map_err(zstd)?, false);
        let mut seen = Seen::new(layouts, offset, room);
        let mut packing = Packing::Plain;
        let (end, at) = loop {
            let at = offset + records.consumed();
            let size = match records.next()? {
                Next::Record(size) => size,
                end => break (end, at),
            };
            let begin = offset + records.consumed();
            if begin != at && packing == Packing::Plain {
                // What was no record was left out.
                seen.finish_run(at, begin, packing);
            }
            let record = records.peek(size);
            swap::record(record, order, layouts);
            let mut skip = 0;
            if is_compressed(record) {
                packing = Packing::Packed;
                if failed && begins_frame(record) {
                    unpacker.restart().map_err(zstd)?;
                    failed = false;
                }
                if !failed {
                    unpacker.take(record);
                }
                while unpacker.has_packed() && !failed {
                    if unpacker.step(order).is_err() {
                        seen.runs = None;
                        failed = true;
                        break;
                    }
                    while let Some(record) = unpacker.next(order) {
                        swap::record(record, order, layouts);
                        seen.add(record);
                    }
                }
            } else {
                skip = payload(record);
                seen.add(record);
                if unpacker.left() != 0 {
                    // It stands within another one.
                    seen.runs = None;
                }
            }
            records.take(size);
            records.skip(skip);
            let unpacked = seen.runs.as_ref().map_or(0, |runs| runs.block.unpacked);
            if unpacked as usize >= BLOCK && unpacker.is_between_frames() && skip == 0 {
                let at = offset + records.consumed();
                seen.finish_run(at, at, packing);
                packing = Packing::Plain;
            }
        };
        seen.finish_run(at, at, packing);
        seen.finish_samples();
        if end != Next::End || unpacker.left() != 0 {
            seen.runs = None;
        }
        Ok(Looked { seen, is_whole: end == Next::End && !failed && unpacker.is_between_frames() })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::index::Need, *};
    use crate::{
        abi::{PERF_RECORD_COMM, PERF_SAMPLE_TIME, perf_data::PERF_RECORD_COMPRESSED},
        perfdata::{Attr, AttrFlag, AttrIds, Selection, side_band::ROOM},
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

    /// What is found from one place on, and from three at a time.
    fn both(bytes: &[u8]) -> (Unpacked, Option<Unpacked>) {
        both_in(bytes, ROOM)
    }

    fn both_in(bytes: &[u8], room: usize) -> (Unpacked, Option<Unpacked>) {
        let attr = Attr { flags: 1 << AttrFlag::SampleIdAll as u32, ..Attr::default() };
        let mut ids = AttrIds { attr, ids: Vec::new() };
        ids.attr.format.sample_type = PERF_SAMPLE_TIME;
        let (input, layouts): (Arc<dyn Input>, _) = (Arc::new(bytes.to_vec()), Layouts::new(&[ids]));
        let source = Source { input: &input, name: "x", order: ByteOrder::Native, layouts: &layouts, room };
        let section = Section { offset: 0, size: bytes.len() as u64 };
        let pieces = source.divide(section, 3).unwrap();
        assert!(pieces.windows(2).all(|two| two[0].offset + two[0].size == two[1].offset));
        assert_eq!(pieces.iter().map(|piece| piece.size).sum::<u64>(), section.size);
        let serial = source.look(section).unwrap().seen.found();
        (serial, source.pieces(&pieces).unwrap().filter(|_| pieces.len() == 3))
    }

    /// Frames of 20,000 records with a name each, which begin with one that has a time, or with one that has none.
    fn frames(begin: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
        let frame = |number: u64| {
            let from = 1 + number * 20_000;
            let records = (from + 1..from + 20_000).flat_map(sample);
            frame(&begin(from).into_iter().chain(records).collect::<Vec<u8>>())
        };
        (0..9).flat_map(frame).collect()
    }

    #[test]
    fn several_threads_find_what_one_does() {
        let (one, three) = both(&frames(comm));
        let three = three.unwrap();
        let runs = |found: &Unpacked| (*found.runs.clone().unwrap()).clone();
        let first_of_pieces = [3, 6];
        let mut expected = runs(&one);
        // Nobody needs it of a block that begins with a time.
        first_of_pieces.iter().for_each(|&first| expected.blocks[first].before = 0);
        assert!(expected.blocks.len() == 9 && runs(&three) == expected);
        assert_eq!((one.samples.samples, one.samples.sample_count()), (Some((2, 180_000)), 9 * 19_999));
        assert_eq!((three.samples.samples, three.samples.sample_count()), (Some((2, 180_000)), 9 * 19_999));
    }

    #[test]
    fn what_is_kept_is_right_in_little_room() {
        const NAME: usize = 32;
        let bytes = frames(comm);
        assert_eq!(comm(1).len(), NAME);
        let last = Selection { times: vec![(180_000, u64::MAX)], ..Selection::default() };
        let kept = |found: &Unpacked| {
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
        // Those of the first three frames; with some of the next three, of which half as much has room; and with all of them.
        for (room, names) in [(0, [0, 0]), (2, [2, 2]), (3, [3, 3]), (5, [5, 5]), (6, [6, 6]), (9, [9, 9])] {
            let (one, three) = both_in(&bytes, room * NAME);
            assert_eq!([kept(&one), kept(&three.unwrap())], names, "{room}");
        }
    }

    #[test]
    fn what_needs_something_before_is_looked_at_by_one() {
        // A time.
        let (one, three) = both(&frames(|_| comm(0)));
        assert!(three.is_none() && one.runs.is_some());
        // The rest of a frame.
        let mut damaged = frames(comm);
        let end = damaged.len() / 6;
        let cut = (0..).scan(0, |at, _| {
            let begin = *at;
            *at += crate::record::record_size(&damaged[begin..]);
            Some(begin)
        });
        let cut: Vec<usize> = cut.take_while(|&at| at < end).collect();
        damaged.drain(cut[cut.len() - 2]..cut[cut.len() - 1]);
        let (one, three) = both(&damaged);
        assert!(one.runs.is_none() && three.is_none_or(|three| three.runs.is_none()));
    }
}
