//! Tests of sequential reading: rounds, windows, zstd.

use std::io;

use perf_prof_format::{
    abi::{
        PERF_RECORD_COMM, PERF_SAMPLE_TIME,
        perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_FINISHED_ROUND},
    },
    record::RECORD_HEADER,
};
use proptest::prelude::*;

use super::*;
use crate::{
    Gaps, ReadLimits,
    format::{
        attr::{Attr, AttrFlag},
        bytes::ByteOrder,
        checksums,
        header::AttrIds,
        layouts::Layouts,
    },
    input::feed::Feed,
    order::{
        gaps::Gap,
        merge::{Merger, ReleaseTime},
    },
    select::Selection,
};

/// A feed of bytes in memory. The number is the maximum number of bytes that a read returns.
struct InMemory(Vec<u8>, usize);

impl Feed for InMemory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.0.len()).min(self.1);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

fn context() -> ReplayContext {
    let mut attr = Attr { flags: 1 << AttrFlag::SampleIdAll as u32, ..Attr::default() };
    attr.format.sample_type = PERF_SAMPLE_TIME;
    let layouts = Layouts::new(&[AttrIds { attr, ids: Vec::new() }]);
    let (order, selection) = (ByteOrder::Native, Selection::default());
    ReplayContext {
        order,
        layouts: layouts.into(),
        selection: selection.into(),
        pool: Default::default(),
        aux: Default::default(),
        gaps: Default::default(),
    }
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut record = kind.to_ne_bytes().to_vec();
    record.extend([0, 0]);
    record.extend((8 + body.len() as u16).to_ne_bytes());
    record.extend(body);
    record
}

/// Returns a comm record: a side-band record with a time.
fn comm(time: u64) -> Vec<u8> {
    record(PERF_RECORD_COMM, &[&[1, 0, 0, 0, 1, 0, 0, 0, b'x', 0, 0, 0, 0, 0, 0, 0][..], &time.to_ne_bytes()].concat())
}

fn round() -> Vec<u8> {
    record(PERF_RECORD_FINISHED_ROUND, &[])
}

/// Returns the times in delivered order, the number of late records, and the warnings.
fn replay(bytes: Vec<u8>, at_once: usize, arrival: Arrival, limit: usize) -> (Vec<u64>, u64, Vec<String>) {
    let records = RecordReader::new("x", ByteOrder::Native, Box::new(InMemory(bytes, at_once)));
    let warnings = Warnings::default();
    let setup = StreamSetup {
        context: context(),
        numbers: Numbers::ALL,
        warnings: warnings.clone(),
        memory: usize::MAX,
        ending: Ending::Finished,
        rings: Rings::One,
    };
    let stream = SequentialStream::new(records, arrival, limit, setup);
    let release = if arrival == Arrival::Live { ReleaseTime::AtOnce } else { ReleaseTime::InRounds };
    let mut merger = Merger::new(vec![Box::new(stream)], release, ReadLimits::default().limit("x"));
    let mut times = Vec::new();
    while let Some(sorted) = merger.next_batch().unwrap() {
        assert_eq!(sorted.in_order().count(), sorted.records.len());
        times.extend(sorted.records.iter().map(|record| record.time));
    }
    (times, merger.late(), warnings.take_all().into_iter().map(|(_, warning)| warning).collect())
}

/// Compresses records as perf does: into one zstd stream, which is flushed into a record after every `each` bytes.
fn packed(records: &[Vec<u8>], each: usize) -> Vec<u8> {
    use zstd::stream::raw::{Encoder, Operation};
    let mut encoder = Encoder::new(1).unwrap();
    let mut bytes = Vec::new();
    for some in records.concat().chunks(each.max(1)) {
        let mut out = vec![0; 65536];
        let status = encoder.run_on_buffers(some, &mut out).unwrap();
        assert_eq!(status.bytes_read, some.len());
        let mut rest = zstd::stream::raw::OutBuffer::around_pos(&mut out, status.bytes_written);
        assert_eq!(encoder.flush(&mut rest).unwrap(), 0);
        let size = rest.pos();
        bytes.extend(record(PERF_RECORD_COMPRESSED, &out[..size]));
    }
    bytes
}

/// Rounds whose times overlap as in perf's recordings: a record may be older than the newest record of the previous
/// round, but not older than any record of the round before the previous round.
fn rounds() -> impl Strategy<Value = Vec<Vec<u64>>> {
    prop::collection::vec(prop::collection::vec(1u64..200, 0..30), 0..8)
        .prop_map(|rounds| {
            rounds.into_iter().enumerate().map(|(n, r)| r.into_iter().map(|t| t + 100 * n as u64).collect())
        })
        .prop_map(|rounds| rounds.collect())
}

proptest! {
    #[test]
    fn rounds_are_put_in_order(rounds in rounds(), at_once in 1usize..100, live: bool) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for times in &rounds {
            times.iter().for_each(|&time| bytes.extend(comm(time)));
            bytes.extend(round());
            expected.extend(times);
        }
        // Only neighbouring rounds overlap, so the order is exact.
        expected.sort_unstable();
        let arrival = if live { Arrival::Live } else { Arrival::Stored };
        let (found, late, warnings) = replay(bytes, at_once, arrival, 1 << 20);
        prop_assert_eq!((found, late), (expected, 0));
        prop_assert!(warnings.is_empty());
    }

    #[test]
    fn packed_records_come_out_whole(times in prop::collection::vec(1u64..1000, 0..200), each in 1usize..300) {
        let records: Vec<_> = times.iter().map(|&time| comm(time)).collect();
        let (found, late, warnings) = replay(packed(&records, each), 64, Arrival::Stored, 1 << 20);
        let mut expected = times;
        expected.sort_unstable();
        prop_assert_eq!((found, late, warnings), (expected, 0, vec![]));
    }

    #[test]
    fn damaged_and_cut_off_ones_end_in_a_warning(
        times in prop::collection::vec(1u64..1000, 1..50), at in any::<prop::sample::Index>(), byte: u8, cut: bool,
    ) {
        let mut bytes = packed(&times.iter().map(|&time| comm(time)).collect::<Vec<_>>(), 100);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let (found, _, _) = replay(bytes, 1000, Arrival::Stored, 1 << 20);
        prop_assert!(found.windows(2).all(|two| two[0] <= two[1]));
    }
}

/// Damage of a file: a wrong bit, or bytes that are zero.
#[derive(Clone, Debug)]
enum Damage {
    Bit(prop::sample::Index, u32),
    Zeros(prop::sample::Index, usize),
}

fn damages() -> impl Strategy<Value = Damage> {
    let bit = (any::<prop::sample::Index>(), 0..8u32).prop_map(|(at, bit)| Damage::Bit(at, bit));
    prop_oneof![bit, (any::<prop::sample::Index>(), 1..600usize).prop_map(|(at, size)| Damage::Zeros(at, size))]
}

proptest! {
    /// Most wrong bits used to be decompressed to other records, without a warning. The first checksum and the record after
    /// it show that there are checksums. If they are damaged, this is noticed later: records may be wrong, but not without a
    /// warning, unless the frame is damaged at a second place too.
    #[test]
    fn nothing_but_what_was_compressed_comes_out_of_damaged_frames(
        sizes in prop::collection::vec(1u64..200, 2..6),
        each in 40usize..300,
        damages in prop::collection::vec(damages(), 0..3),
    ) {
        let mut last = 0;
        let mut frames: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
        for size in sizes {
            frames.push(last + 1..=last + size);
            last += size;
        }
        let records: Vec<Vec<u8>> = frames.iter().map(|times| times.clone().flat_map(comm).collect()).collect();
        let mut bytes = checksums::packed(&records, each);
        let whole = bytes.clone();
        for damage in &damages {
            match damage {
                Damage::Bit(at, bit) => bytes[at.index(whole.len())] ^= 1u8 << bit,
                Damage::Zeros(at, size) => {
                    let from = at.index(whole.len());
                    bytes[from..whole.len().min(from + size)].fill(0);
                }
            }
        }
        let begins = bytes.starts_with(&whole[..checksums::SIZE + RECORD_HEADER]);
        prop_assume!(damages.len() < 2 || begins);
        let (found, _, warnings) = replay(bytes.clone(), 1000, Arrival::Stored, 1 << 20);
        for times in frames.into_iter().filter(|_| begins) {
            let found: Vec<u64> = found.iter().copied().filter(|time| times.contains(time)).collect();
            let expected: Vec<u64> = times.take(found.len()).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert!(!begins || found.iter().all(|time| *time <= last));
        prop_assert!(!warnings.is_empty() || found.into_iter().eq(1..=last));
        prop_assert!(bytes != whole || warnings.is_empty());
    }
}

/// In recordings of busy virtual machines, records that missed their round used to be delivered late and out of order.
#[test]
fn records_that_missed_their_round_are_sorted() {
    const MS: u64 = 1_000_000;
    let of_round = |n: u64| [1000 + 5 * n, 1001 + 5 * n - if n % 7 == 6 { 19 } else { 0 }].map(|ms| ms * MS);
    let times: Vec<u64> = (0..200).flat_map(of_round).collect();
    let bytes: Vec<u8> = (0..200).flat_map(|n| [of_round(n).map(comm).concat(), round()].concat()).collect();
    let mut expected = times;
    expected.sort_unstable();
    assert_eq!(replay(bytes.clone(), 1000, Arrival::Stored, 1 << 20), (expected, 0, vec![]));
    let (_, late, _) = replay(bytes, 1000, Arrival::Live, 1 << 20);
    assert!(late > 0, "no record was late, so the test tests nothing");
}

#[test]
fn without_rounds_a_window_is_read_ahead() {
    // Every tenth record comes 40 records late.
    let times: Vec<u64> = (1000..40_000).map(|n| if n % 10 == 0 { n - 40 } else { n }).collect();
    let bytes: Vec<u8> = times.iter().flat_map(|&time| comm(time)).collect();
    let (found, late, _) = replay(bytes, usize::MAX, Arrival::Stored, 2 * BLOCK);
    let mut expected = times;
    expected.sort_unstable();
    assert_eq!((found, late), (expected, 0));
}

#[test]
fn a_little_that_unpacks_to_much_does_not_take_much_memory() {
    let zeros = vec![vec![0; 64 << 20]];
    let bytes = packed(&zeros, usize::MAX);
    assert!(bytes.len() < 65536);
    let (found, _, warnings) = replay(bytes, usize::MAX, Arrival::Stored, BLOCK);
    assert_eq!((found.len(), warnings.len()), (0, 1), "{warnings:?}");
}

/// Records after damage used to be left out even if they did not depend on the damaged bytes.
#[test]
fn compressed_records_are_read_again_from_the_next_frame_on() {
    let frame = |times: std::ops::Range<u64>| packed(&times.map(comm).collect::<Vec<_>>(), 500);
    let (first, mut second, third) = (frame(1..50), frame(50..100), frame(100..150));
    // Damages the frame after its magic number.
    second[12..60].fill(0xff);
    let found = |frames: &[&[u8]]| replay(frames.concat(), 1000, Arrival::Stored, 1 << 20);
    let (times, late, warnings) = found(&[&first, &second, &third, &second, &first]);
    let expected: Vec<u64> = (1..50).flat_map(|time| [time, time]).chain(100..150).collect();
    assert_eq!((times, late), (expected, 0));
    let at = |frames: &[&Vec<u8>]| frames.iter().map(|frame| frame.len()).sum::<usize>();
    let again = [at(&[&first, &second]), at(&[&first, &second, &third, &second])];
    assert_eq!(warnings.len(), 4);
    for (warning, again) in warnings.iter().skip(1).step_by(2).zip(again) {
        assert_eq!(*warning, format!("x: compressed records are read again from byte {again} on"));
    }
}

/// A later frame may begin with another ring, whose times say nothing about the ring of the damaged frame.
#[test]
fn with_several_rings_a_gap_in_the_first_round_lasts_until_the_end() {
    let frame = |times: std::ops::Range<u64>| packed(&times.map(comm).collect::<Vec<_>>(), 500);
    let mut bytes = frame(1..100);
    bytes[12..60].fill(0xff);
    bytes.extend(frame(5..200));
    let gaps = |rings| {
        let selection = Selection { gaps: Gaps::Marked, ..Selection::default() };
        let context = ReplayContext { selection: selection.into(), ..context() };
        let (found, ending) = (context.gaps.clone(), Ending::Finished);
        let (numbers, warnings, memory) = (Numbers::ALL, Warnings::default(), usize::MAX);
        let setup = StreamSetup { context, numbers, warnings, memory, ending, rings };
        let records = RecordReader::new("x", ByteOrder::Native, Box::new(InMemory(bytes.clone(), 1000)));
        let stream = SequentialStream::new(records, Arrival::Stored, 1 << 20, setup);
        let mut merger = Merger::new(vec![Box::new(stream)], ReleaseTime::InRounds, ReadLimits::default().limit("x"));
        while merger.next_batch().unwrap().is_some() {}
        found.take()
    };
    assert_eq!(gaps(Rings::One), [Gap::of_unread(0, 5)]);
    assert_eq!(gaps(Rings::Several), [Gap::of_unread(0, 199)]);
}

/// Each damaged place used to get a warning, so there could be thousands of warnings.
#[test]
fn damage_in_every_record_is_reported_a_few_times_and_counted() {
    // These are the first bytes of a frame. A reserved bit is set, which makes the frame invalid.
    let garbage = record(PERF_RECORD_COMPRESSED, &[0x28, 0xb5, 0x2f, 0xfd, 8, 0, 0, 0]);
    let bytes = [garbage.repeat(1000), packed(&[comm(7)], 100)].concat();
    let (times, _, warnings) = replay(bytes, 1000, Arrival::Stored, 1 << 20);
    assert_eq!((times, warnings.len() as u64), (vec![7], 2 * REPORTED_PLACES + 1));
    assert!(warnings[0].starts_with("x: compressed records are left out from byte "), "{}", warnings[0]);
    assert_eq!(warnings.last().unwrap(), "x: compressed records are also left out at other places (count: 992)");
}
