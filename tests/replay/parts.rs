//! Replays of a time range, which is found through the block index. They deliver the same records for the range as a
//! replay of the whole recording, and read nothing else.

use std::sync::Arc;

use perf_prof_format::{
    abi::{perf_data::*, *},
    record::{Batch, OtherRecords, Source, Wait, record_type},
};
use perf_prof_recordings::{BLOCK, Block, BlockIndex, Progress, Recording, Replay, Selection, StoredIndex, shards};
use proptest::prelude::*;

use super::made::{FOREIGN, Maker, NATIVE, patiently};
use crate::harness::recording::Folder;

/// How records are stored in a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Plain,
    PlainPipe,
    /// Plain records and a stored block index.
    Indexed,
    /// Compressed records. A zstd frame ends after this many compressed records.
    Packed(usize),
    PackedPipe(usize),
}

/// The number of records in one compressed record.
const TOGETHER: usize = 200;

pub(super) fn file(maker: Maker, records: &[Vec<u8>], form: Form) -> Vec<u8> {
    match form {
        Form::Plain => maker.file(&records.concat()),
        Form::PlainPipe => maker.pipe(&records.concat()),
        Form::Indexed => indexed(maker, &maker.file(&records.concat())),
        Form::Packed(frame) => maker.file(&packed(maker, records, frame)),
        Form::PackedPipe(frame) => maker.pipe(&packed(maker, records, frame)),
    }
}

/// Adds the block index to a file.
fn indexed(maker: Maker, file: &[u8]) -> Vec<u8> {
    let index = opened(file).index().unwrap()[0].clone().unwrap();
    with_blocks(maker, file, &index)
}

fn with_blocks(maker: Maker, file: &[u8], index: &BlockIndex) -> Vec<u8> {
    let stored: StoredIndex = [(StoredIndex::DATA, index.clone())].into_iter().collect();
    let mut end = Vec::new();
    stored.write(&mut end);
    if maker.u64(1) != 1u64.to_ne_bytes() {
        // The index consists of numbers, their size, their checksum, and the mark at the end. The numbers and the size
        // are converted to the other byte order, so the checksum changes too.
        let sum = end.len() - 16;
        end[..sum].chunks_exact_mut(8).for_each(<[u8]>::reverse);
        let new = u64::from(crc32fast::hash(&end[..sum - 8])).swap_bytes();
        end[sum..sum + 8].copy_from_slice(&new.to_ne_bytes());
    }
    [file, &end].concat()
}

pub(super) fn packed(maker: Maker, records: &[Vec<u8>], frame: usize) -> Vec<u8> {
    use zstd::stream::raw::{Encoder, Operation, OutBuffer};
    let mut encoder = Encoder::new(1).unwrap();
    let mut bytes = Vec::new();
    for (number, some) in (1..).zip(records.chunks(TOGETHER)) {
        let (some, mut out) = (some.concat(), vec![0; 65500]);
        let status = encoder.run_on_buffers(&some, &mut out).unwrap();
        assert_eq!(status.bytes_read, some.len());
        let mut rest = OutBuffer::around_pos(&mut out, status.bytes_written);
        let ends = number % frame == 0;
        let left = if ends { encoder.finish(&mut rest, true) } else { encoder.flush(&mut rest) };
        assert_eq!(left.unwrap(), 0);
        if ends {
            encoder.reinit().unwrap();
        }
        let size = rest.pos();
        bytes.extend(maker.record(PERF_RECORD_COMPRESSED, 0, &[out[..size].to_vec()]));
        if number % 3 == 0 {
            // An uncompressed record between compressed records.
            bytes.extend(maker.record(PERF_RECORD_FINISHED_ROUND, 0, &[]));
        }
    }
    bytes
}

/// Returns the records of a replay, with their times.
fn records(mut replay: Replay) -> Vec<(u64, Vec<u8>)> {
    let mut records = Vec::new();
    loop {
        match patiently(&mut replay) {
            Wait::Batch(Batch::Sorted(sorted)) => {
                let bytes = sorted.in_order().map(|(_, record)| record.to_vec());
                records.extend(sorted.records.iter().map(|record| record.time).zip(bytes));
            }
            Wait::Ended(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(replay.take_failure().is_none());
    assert_eq!(replay.take_warnings(), Vec::<String>::new());
    let Progress { done, total } = replay.progress();
    // The size of a pipe's data is not known.
    assert!(replay.late() == 0 && (done == total || total == 0), "{done} of {total}");
    records
}

pub(super) fn opened(file: &[u8]) -> Recording {
    Recording::of_file(Arc::new(file.to_vec()), "x").unwrap()
}

/// Returns a replay of these times. The recording is indexed first.
fn part(file: &[u8], times: &[(u64, u64)]) -> Replay {
    let mut recording = opened(file);
    recording.unpacked_index().unwrap();
    recording.replay(Selection { times: times.into(), ..Selection::default() }).unwrap()
}

/// Creates a directory with one file per ring.
pub(super) fn directory(maker: Maker, rings: &[Vec<u8>]) -> Folder {
    let folder = Folder::new();
    folder.write("data", &maker.file(&maker.comm(1)));
    rings.iter().enumerate().for_each(|(ring, bytes)| drop(folder.write(&format!("data.{ring}"), bytes)));
    folder
}

/// Returns the records of the whole recording that belong to a part.
fn of_part(whole: &[(u64, Vec<u8>)], times: &[(u64, u64)]) -> Vec<(u64, Vec<u8>)> {
    let within = |time: u64| times.iter().any(|&(first, last)| first <= time && time <= last);
    let last = times.iter().map(|time| time.1).max().unwrap();
    let belongs = |(time, record): &&(u64, Vec<u8>)| match record_type(record) {
        PERF_RECORD_SAMPLE | PERF_RECORD_LOST | PERF_RECORD_SWITCH_CPU_WIDE | PERF_RECORD_AUXTRACE_ERROR => {
            within(*time)
        }
        _ => *time <= last,
    };
    whole.iter().filter(belongs).cloned().collect()
}

/// The kind of a record.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Sample,
    Comm,
    Mmap2,
    Lost,
    /// A comm without a time. It counts at the time of the record before it.
    Timeless,
    Switch,
    /// An error in AUX data, which has no time either.
    AuxError,
}

fn made(maker: Maker, kind: Kind, time: u64) -> Vec<u8> {
    match kind {
        Kind::Sample => maker.sample(50 + time % 2, time),
        Kind::Comm => maker.comm(time),
        Kind::Mmap2 => maker.mmap2(time),
        Kind::Lost => maker.lost(time),
        Kind::Timeless => maker.comm(0),
        Kind::Switch => maker.switch(time),
        Kind::AuxError => maker.aux_error(),
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let side_band = prop_oneof![Just(Kind::Comm), Just(Kind::Mmap2), Just(Kind::Lost), Just(Kind::Timeless)];
    let other = prop_oneof![3 => Just(Kind::Switch), 1 => Just(Kind::AuxError)];
    prop_oneof![60 => Just(Kind::Sample), 1 => side_band, 1 => other]
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        Just(Form::Plain),
        Just(Form::PlainPipe),
        Just(Form::Indexed),
        (1usize..30).prop_map(Form::Packed),
        (1usize..30).prop_map(Form::PackedPipe),
        Just(Form::Packed(usize::MAX)),
    ]
}

/// Returns records that alternate between two rings after each 100 records. Some records have the same time. The records
/// belong to two CPUs and two processes.
fn mixed(maker: Maker, some: &[(Kind, u64)], ahead: u64) -> Vec<(usize, Vec<u8>)> {
    let numbered = some.iter().cycle().take(8000).enumerate();
    let record = |(number, &(kind, disorder)): (usize, &(Kind, u64))| {
        let ring = number / 100 % 2;
        let maker = maker.of(number as u32 % 3 % 2, 7 + number as u32 / 7 % 2);
        (ring, made(maker, kind, 1 + number as u64 + disorder + ring as u64 * ahead))
    };
    numbered.map(record).collect()
}

fn times() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let range = (0u64..10_000, 0u64..5_000).prop_map(|(first, length)| (first, first + length));
    prop::collection::vec(range, 1..3)
}

/// A selection of all times, and perhaps of one CPU, one process, and records other than samples.
fn selection() -> impl Strategy<Value = Selection> {
    let others = [OtherRecords::NONE, OtherRecords::of(&[PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_AUXTRACE_ERROR])];
    let others = prop::sample::select(others.to_vec());
    (prop::option::of(0u32..2), prop::option::of(7u32..9), others).prop_map(|(cpu, pid, others)| Selection {
        cpus: cpu.map(|cpu| [cpu].into_iter().collect()),
        pids: pid.map(|pid| vec![pid]),
        others,
        ..Selection::default()
    })
}

proptest! {
    #[test]
    fn a_part_has_the_same_records_as_the_whole_in_its_time(
        big: bool,
        form in form(),
        some in prop::collection::vec((kind(), 0u64..40), 1..2000),
        times in times(),
        ahead in 1u64..200,
        selection in selection(),
    ) {
        let maker = if big { FOREIGN } else { NATIVE };
        let made: Vec<Vec<u8>> = mixed(maker, &some, ahead).into_iter().map(|(_, record)| record).collect();
        let file = file(maker, &made, form);
        let whole = records(opened(&file).replay(selection.clone()).unwrap());
        let expected = of_part(&whole, &times);
        let mut recording = opened(&file);
        recording.unpacked_index().unwrap();
        let found = records(recording.replay(Selection { times, ..selection }).unwrap());
        prop_assert_eq!(found.len(), expected.len());
        prop_assert!(found == expected);
    }

    /// Each ring has its own file. In a part, records of two files with equal times must have the same order as in the
    /// whole.
    #[test]
    fn a_part_of_a_directory_has_the_same_records_as_the_whole_in_its_time(
        big: bool,
        frame in prop::option::of(1usize..30),
        some in prop::collection::vec((kind(), 0u64..40), 1..2000),
        times in times(),
        ahead in 0u64..200,
        selection in selection(),
    ) {
        let maker = if big { FOREIGN } else { NATIVE };
        let mut rings = [Vec::new(), Vec::new(), Vec::new()];
        mixed(maker, &some, ahead).into_iter().for_each(|(ring, record)| rings[2 * ring].push(record));
        let bytes = |ring: &Vec<Vec<u8>>| frame.map_or_else(|| ring.concat(), |frame| packed(maker, ring, frame));
        let folder = directory(maker, &rings.each_ref().map(bytes));
        let opened = || Recording::open(&folder.path("")).unwrap();
        let whole = records(opened().replay(selection.clone()).unwrap());
        let expected = of_part(&whole, &times);
        let mut recording = opened();
        recording.unpacked_index().unwrap();
        let found = records(recording.replay(Selection { times, ..selection }).unwrap());
        prop_assert_eq!(found.len(), expected.len());
        prop_assert!(found == expected);
    }
}

/// Nearly every block contains a comm. A process must not read all blocks because of them.
#[test]
fn blocks_with_side_band_are_read_by_the_shard_that_needs_them() {
    for maker in [NATIVE, FOREIGN] {
        let some: Vec<Vec<u8>> =
            (1..40_000).map(|time| if time % 500 == 0 { maker.comm(time) } else { maker.sample(50, time) }).collect();
        let all: u64 = some.iter().map(|record| record.len() as u64).sum();
        let file = maker.file(&some.concat());
        let index = opened(&file).index().unwrap()[0].clone().unwrap();
        let with = index.blocks.iter().filter(|block| block.side_band > 0).count();
        assert!(with > 20 && with + 1 >= index.blocks.len());
        // With borders at the ends of blocks, each block is read once.
        let borders: Vec<u64> = [5, 11, 12].map(|number: usize| index.blocks[number].sampled.0).into();
        let read = |times| part(&file, &[times]).progress().total;
        assert_eq!(shards::between(&borders).into_iter().map(read).sum::<u64>(), all);
        // With a border inside a block, the block is read for both parts.
        let borders = shards::by_time(&[index], (1, 39_999), 3);
        assert_eq!(borders.len(), 2);
        let twice = shards::between(&borders).into_iter().map(read).sum::<u64>() - all;
        assert!((1..=2 * BLOCK as u64).contains(&twice), "{twice}");
    }
}

/// The recorder stores the index, so that a replay need not scan the records.
#[test]
fn a_stored_index_is_used_unless_it_is_wrong() {
    for maker in [NATIVE, FOREIGN] {
        let record = |time| if time % 3000 == 5 { maker.comm(time) } else { maker.sample(50, time) };
        let some: Vec<u8> = (1..20_000).flat_map(record).collect();
        let plain = maker.file(&some);
        let index = opened(&plain).index().unwrap()[0].clone().unwrap();
        let whole = records(opened(&plain).replay(Selection::default()).unwrap());
        let lying = |change: &dyn Fn(&mut Block)| {
            let mut index = BlockIndex::clone(&index);
            change(&mut index.blocks[3]);
            opened(&with_blocks(maker, &plain, &index))
        };
        let mut recording = lying(&|_| {});
        assert_eq!(recording.index().unwrap()[0].as_deref(), Some(&*index));
        assert!(records(recording.replay(Selection::default()).unwrap()) == whole);
        // For the selected times, only the first block is read.
        let replay = lying(&|_| {}).replay(Selection { times: vec![(1, 10)], ..Selection::default() }).unwrap();
        assert_eq!(replay.progress().total, u64::from(index.blocks[0].size));
        // An index with contradictory sizes is not used.
        let mut recording = lying(&|block| block.size -= 8);
        assert_eq!(recording.index().unwrap()[0].as_deref(), Some(&*index));
        // An index with a wrong number of side-band records is not used.
        let mut recording = lying(&|block| block.side_band += 1);
        assert_eq!(recording.index().unwrap()[0].as_deref(), Some(&*index));
        // A block with fewer records than the index says, or with an earlier time, is reported.
        let lies: [&dyn Fn(&mut Block); 2] = [&|block| block.records += 1, &|block| {
            block.first += 1;
            block.sampled.0 += 1;
        }];
        for lie in lies {
            let mut replay = lying(lie).replay(Selection::default()).unwrap();
            while let Wait::Batch(_) = patiently(&mut replay) {}
            let warnings = replay.take_warnings();
            let said = format!(" records from byte {} to ", index.blocks[3].offset);
            assert!(replay.take_failure().is_none() && warnings.len() == 1, "{warnings:?}");
            assert!(warnings[0].starts_with("x is damaged: ") && warnings[0].contains(&said), "{warnings:?}");
        }
    }
}

/// A damaged part is left out. The other records of the recording must still be read.
#[test]
fn damage_in_a_recording_with_a_stored_index_is_reported() {
    let some: Vec<u8> = (1..20_000).flat_map(|time| NATIVE.sample(50, time)).collect();
    let mut file = indexed(NATIVE, &NATIVE.file(&some));
    let block = opened(&file).index().unwrap()[0].as_ref().unwrap().blocks[3];
    // The damage is in the middle of the block. All records have the same size.
    let (half, size) = (u64::from(block.records / 2), u64::from(block.size / block.records));
    let at = (block.offset + half * size) as usize;
    file[at..at + 400].fill(0);
    let mut replay = opened(&file).replay(Selection::default()).unwrap();
    let mut times = Vec::new();
    while let Wait::Batch(Batch::Sorted(sorted)) = patiently(&mut replay) {
        times.extend(sorted.records.iter().map(|record| record.time));
    }
    let gone = block.sampled.0 + half..=block.sampled.1;
    assert!(times.into_iter().eq((1..20_000).filter(|time| !gone.contains(time))));
    let said = format!("x is damaged: {half} of the {} records from byte {} to ", block.records, block.offset);
    let warnings = replay.take_own_warnings();
    assert!(warnings.len() == 1 && warnings[0].starts_with(&said), "{warnings:?}");
    assert!(warnings[0].ends_with(" can be read"), "{warnings:?}");
}

/// A process must not decompress the whole recording if there are several frames.
#[test]
fn each_frame_is_decompressed_for_one_part_and_a_single_frame_for_all() {
    const FRAME: u64 = 10 * TOGETHER as u64;
    for maker in [NATIVE, FOREIGN] {
        let some: Vec<Vec<u8>> = (0..10 * FRAME)
            .map(|number| if number % 500 == 0 { maker.comm(1 + number) } else { maker.sample(50, 1 + number) })
            .collect();
        let borders = [1, 4, 5].map(|frame| 1 + frame * FRAME);
        let read = |form| {
            let file = file(maker, &some, form);
            let total = |times| part(&file, &[times]).progress().total;
            let totals: Vec<u64> = shards::between(&borders).into_iter().map(total).collect();
            (totals, packed(maker, &some, if let Form::Packed(frame) = form { frame } else { 1 }).len() as u64)
        };
        let (totals, all) = read(Form::Packed(10));
        assert_eq!(totals.iter().sum::<u64>(), all);
        assert!(totals.iter().all(|&total| total > 0 && total < all / 2 + all / 10), "{totals:?}");
        let (totals, all) = read(Form::Packed(usize::MAX));
        assert_eq!(totals, [all; 4]);
    }
}

/// One run of each file would be in memory otherwise, and there are as many files as CPUs.
#[test]
fn files_with_runs_that_do_not_fit_into_memory_are_read_from_front_to_back() {
    const RUN: usize = TOGETHER * LARGE;
    const LARGE: usize = 60_000;
    const AHEAD: usize = 64 << 20;
    let check = |files: usize| {
        let time = |file: usize, number: usize| 10 + (number * files + file) as u64;
        let ring = |file| -> Vec<u8> {
            let samples = (0..2 * TOGETHER).map(|number| NATIVE.larger_sample(50, time(file, number), LARGE));
            packed(NATIVE, &samples.collect::<Vec<_>>(), 1)
        };
        let rings: Vec<Vec<u8>> = (0..files).map(ring).collect();
        let folder = directory(NATIVE, &rings);
        let mut recording = Recording::open(&folder.path("")).unwrap();
        recording.unpacked_index().unwrap();
        // The second run of each file is selected.
        let times = vec![(time(0, TOGETHER), u64::MAX)];
        let mut replay = recording.replay(Selection { times, ..Selection::default() }).unwrap();
        let (all, total) = (rings.iter().map(Vec::len).sum::<usize>(), replay.progress().total as usize);
        let (mut found, mut most) = (0, 0);
        while let Wait::Batch(Batch::Sorted(sorted)) = patiently(&mut replay) {
            assert!(sorted.records.is_sorted_by_key(|record| record.time));
            found += sorted.in_order().filter(|(_, record)| record_type(record) == PERF_RECORD_SAMPLE).count();
            most = most.max(replay.backlog());
        }
        assert_eq!((found, replay.late()), (files * TOGETHER, 0));
        assert!(most <= AHEAD + AHEAD / 4, "{files}: {most}");
        total < all * 3 / 4
    };
    assert!(check(AHEAD / RUN));
    assert!(!check(2 * AHEAD / RUN));
}

/// If all times are selected, every block is read. So side-band records need not be kept in memory.
#[test]
fn a_selection_of_all_times_reads_every_block() {
    let some: Vec<Vec<u8>> =
        (1..20_000).map(|time| if time < 9_000 { NATIVE.comm(time) } else { NATIVE.sample(50, time) }).collect();
    let all: u64 = some.iter().map(|record| record.len() as u64).sum();
    let file = NATIVE.file(&some.concat());
    for times in [vec![], vec![(0, u64::MAX)], vec![(5, 6), (0, u64::MAX)]] {
        assert_eq!(part(&file, &times).progress().total, all);
        assert_eq!(records(part(&file, &times)).len(), some.len());
    }
    assert!(part(&file, &[(1, u64::MAX)]).progress().total < all);
}
