//! Records that cannot be read, because bytes of the recording are damaged or missing, are a loss: a replay marks the time
//! in which they may have been, and makes no span of samples on both sides of it.

use std::{collections::HashSet, fs, iter::successors, process::Command};

use perf_prof_format::{
    abi::{
        PERF_RECORD_SAMPLE,
        perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_FINISHED_ROUND},
    },
    record::{Batch, Records, ReplayMarker, RingRoom, Source, Wait, record_size, record_type},
};
use perf_prof_recordings::{Gaps, Recording, Selection};
use serde_json::Value as Json;

use super::{
    made::{NATIVE, patiently},
    parts::{Form, directory, file, opened, packed},
};
use crate::harness::{
    machine::{Need, needs},
    recording::Folder,
    run::tested_program,
};

/// The number of nanoseconds between two samples. Rounds have a margin of some of these periods.
const PERIOD: u64 = 1_000_000;
const COUNT: u64 = 20_000;

fn samples() -> Vec<Vec<u8>> {
    (1..=COUNT).map(|number| NATIVE.sample(50, number * PERIOD)).collect()
}

/// Returns the times of the samples in these times, and the markers of losses.
fn replayed(recording: Recording, times: &[(u64, u64)]) -> (Vec<u64>, Vec<(u64, RingRoom)>) {
    let selection = Selection { gaps: Gaps::Marked, times: times.into(), ..Selection::default() };
    let mut replay = recording.replay(selection).unwrap();
    let (mut samples, mut marks) = (Vec::new(), Vec::new());
    while let Wait::Batch(Batch::Sorted(sorted)) = patiently(&mut replay) {
        for (at, (ring, record)) in sorted.records.iter().zip(sorted.in_order()) {
            match ReplayMarker::read(record).filter(|_| ring == RingRoom::IN_REPLAY) {
                Some(ReplayMarker { time, room, .. }) => marks.push((time, room)),
                _ if record_type(record) == PERF_RECORD_SAMPLE => samples.push(at.time),
                _ => {}
            }
        }
    }
    assert!(replay.take_failure().is_none() && replay.late() == 0 && samples.is_sorted());
    (samples, marks)
}

/// Returns the offsets of the records of this type in a file or a pipe.
fn offsets(bytes: &[u8], mut at: usize, kind: u32) -> Vec<usize> {
    let mut found = Vec::new();
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= 8 && record_size(rest) >= 8) {
        if record_type(rest) == kind {
            found.push(at);
        }
        at += record_size(rest);
    }
    found
}

/// Returns a recording with damage in its middle.
fn damaged(form: Form) -> Vec<u8> {
    let mut bytes = file(NATIVE, &samples(), form);
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    match form {
        Form::Packed(_) | Form::PackedPipe(_) => {
            let begin = if matches!(form, Form::Packed(_)) { word(40) } else { NATIVE.pipe(&[]).len() };
            let packed = offsets(&bytes, begin, PERF_RECORD_COMPRESSED);
            let at = packed[packed.len() / 2];
            let size = record_size(&bytes[at..]);
            // zstd has no block of this type, so decompression fails.
            bytes[at + 8..at + size].fill(0xff);
        }
        _ => {
            let index = opened(&bytes).index().unwrap()[0].clone().unwrap();
            let block = index.blocks[index.blocks.len() / 2];
            let size = block.size / block.records;
            let at = (block.offset + u64::from(block.records / 2 * size)) as usize;
            bytes[at..at + 400].fill(0);
        }
    }
    bytes
}

#[test]
fn damaged_bytes_are_marked_as_a_loss() {
    for form in [Form::Indexed, Form::Packed(4), Form::PackedPipe(4)] {
        let bytes = damaged(form);
        let (found, marks) = replayed(opened(&bytes), &[]);
        let there: HashSet<u64> = found.iter().copied().collect();
        let missing: Vec<u64> = (1..=COUNT).map(|n| n * PERIOD).filter(|time| !there.contains(time)).collect();
        let (first, last) = (missing[0], missing[missing.len() - 1]);
        let &[(begin, RingRoom::Used), (end, RingRoom::Left)] = &marks[..] else { panic!("{form:?}: {marks:?}") };
        assert!(begin <= first && last <= end, "{form:?}: {first} to {last}, {marks:?}");
        assert!(end - begin < COUNT / 4 * PERIOD, "{form:?}: {first} to {last}, {marks:?}");
        // A part that begins within the loss begins with its marker, and a part without missing records has no marker.
        let within = (first + last) / 2;
        let (_, marks) = replayed(opened(&bytes), &[(within, u64::MAX)]);
        assert_eq!(marks, [(within, RingRoom::Used), (end, RingRoom::Left)], "{form:?}");
        for times in [(0, begin - 1), (end + 1, u64::MAX)] {
            assert_eq!(replayed(opened(&bytes), &[times]).1, [], "{form:?}");
        }
    }
}

/// The record about a loss comes only when the loss has ended. One process used to know of the loss only then, and `--jobs` made
/// fewer spans.
#[test]
fn a_loss_of_compressed_records_begins_where_one_of_plain_records_does() {
    let middle = COUNT / 2;
    let mut records = samples();
    records.insert(middle as usize, NATIVE.lost(middle * PERIOD + PERIOD / 2));
    let last = NATIVE.lost(COUNT * PERIOD + 1);
    let expected = replayed(opened(&NATIVE.file(&[records.concat(), last.clone()].concat())), &[]);
    assert_eq!(expected.1.first(), Some(&(middle * PERIOD + 1, RingRoom::Used)));
    let packed = [packed(NATIVE, &records, 4), last].concat();
    for bytes in [NATIVE.file(&packed), NATIVE.pipe(&packed)] {
        let found = replayed(opened(&bytes), &[]);
        assert!(found == expected, "{:?}", found.1);
    }
}

/// Without a stored index, everything after the damage is left out. The other files of a directory go on.
#[test]
fn a_file_of_a_directory_that_ends_early_or_is_missing_is_marked_as_a_loss() {
    let ring = |first: usize| samples().into_iter().skip(first).step_by(2).collect::<Vec<_>>();
    let (even, odd) = (ring(0), ring(1));
    let half = (COUNT / 4) as usize;
    let size = odd[0].len();
    let cut = odd.concat()[..half * size + size / 2].to_vec();
    let mut zeroed = odd.concat();
    zeroed[half * size..half * size + 400].fill(0);
    for ended in [cut, zeroed] {
        let folder = directory(NATIVE, &[even.concat(), ended]);
        let (found, marks) = replayed(Recording::open(&folder.path("")).unwrap(), &[]);
        assert_eq!(found.len(), even.len() + half);
        assert_eq!(marks, [(COUNT / 2 * PERIOD + 1, RingRoom::Used)]);
    }
    let folder = directory(NATIVE, &[even.concat(), odd.concat(), even.concat()]);
    fs::remove_file(folder.path("data.1")).unwrap();
    let (found, marks) = replayed(Recording::open(&folder.path("")).unwrap(), &[]);
    assert_eq!((found.len(), marks), (2 * even.len(), vec![(1, RingRoom::Used)]));
}

/// The files of rings have no header that says how long they are, so `data` says it.
#[test]
fn a_directory_with_a_shortened_file_has_partial_results() {
    needs([Need::Tracefs]);
    for form in [&[][..], &["-z"]] {
        let folder = Folder::new();
        let path = folder.path("dir");
        let recorder = &mut Command::new(tested_program());
        recorder.args(["record", "-q", "--threads", "-e", "syscall", "-o"]).arg(&path).args(form);
        recorder.args(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=4000", "status=none"]);
        assert!(recorder.status().unwrap().success());
        let files = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
        let of_rings = files.filter(|file| file.extension().is_some());
        let ring = of_rings.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
        let bytes = fs::read(&ring).unwrap();
        let warning = format!("{} is cut off: its records should be {} bytes long", ring.display(), bytes.len());
        let last_line = |words: &[&str]| {
            let output = Command::new(tested_program()).args(words).arg(&path).output().unwrap();
            let last = String::from_utf8(output.stdout).unwrap().lines().last().unwrap().to_owned();
            (serde_json::from_str::<Json>(&last).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        let top = ["top", "syscall", "--by", "name", "--json", "-q", "--input"];
        let (whole, said) = last_line(&top);
        assert!(!said.contains("is cut off"), "{said}");
        let next = |at: &usize| Some(at + record_size(&bytes[*at..]));
        let border = successors(Some(0), next).take_while(|&at| at <= bytes.len() / 2).last().unwrap();
        for length in [0, border] {
            fs::write(&ring, &bytes[..length]).unwrap();
            let (part, said) = last_line(&top);
            assert!(said.contains(&warning), "{form:?} {length}: {said}");
            assert!(part["events"].as_u64() < whole["events"].as_u64(), "{form:?} {length}: {part}");
            let (trailer, _) = last_line(&["export", "-q", "-e", "syscall", "-o", "-", "--format", "ndjson", "-i"]);
            for marked in [part, trailer] {
                let marks = (&marked["partial"], &marked["damaged"]);
                assert_eq!(marks, (&true.into(), &true.into()), "{form:?} {length}: {marked}");
            }
        }
    }
}

/// Returns samples of two rings in rounds. In each round, the samples of the first ring come before those of the second. The
/// last round has samples of the first ring alone, from `last` on.
fn rounds(last: u64) -> Vec<Vec<u8>> {
    let round = NATIVE.record(PERF_RECORD_FINISHED_ROUND, 0, &[]);
    let sample = |number: u64| NATIVE.sample(50, number * PERIOD);
    let of_round = |first: u64| {
        let ring = |number: u64| (first + number..first + 100).step_by(2).map(sample);
        ring(0).chain(ring(1)).chain([round.clone()]).collect::<Vec<_>>()
    };
    (1..last).step_by(100).flat_map(of_round).chain((last..last + 100).step_by(2).map(sample)).collect()
}

/// A file that was cut off, or that was not finished, may lack the records of a ring although it has later ones of another
/// ring.
#[test]
fn the_loss_at_the_end_of_a_file_begins_with_what_rounds_guarantee() {
    for last in [1001, 2001] {
        // All records up to the newest one of the last round but one, and no more, are known to be there.
        let known = (last - 101) * PERIOD;
        let whole = file(NATIVE, &rounds(last), Form::Plain);
        assert_eq!(replayed(opened(&whole), &[]).1, []);
        let begin = u64::from_ne_bytes(whole[40..48].try_into().unwrap());
        let size = u64::from_ne_bytes(whole[48..56].try_into().unwrap());
        let cut = whole[..(begin + size) as usize - 8].to_vec();
        let mut killed = whole[..(begin + size) as usize].to_vec();
        // The recorder writes the size of the records and the list of features last.
        killed[48..104].fill(0);
        for (what, bytes) in [("cut", cut), ("killed", killed)] {
            let (found, marks) = replayed(opened(&bytes), &[]);
            let &[(begin, RingRoom::Used)] = &marks[..] else { panic!("{what} {last}: {marks:?}") };
            assert!(begin <= known + 1, "{what} {last}: {begin} after {known}");
            assert!(known - begin < 500 * PERIOD && found.len() as u64 > last - 200, "{what} {last}: {begin}");
        }
    }
}

/// A begin before the damage must not get the end of a later call.
#[test]
fn no_span_is_made_of_samples_on_both_sides_of_damage() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    let recorder = &mut Command::new(tested_program());
    recorder.args(["record", "-q", "-e", "syscall", "-o"]).arg(&path);
    recorder.args(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=4000", "status=none"]);
    assert!(recorder.status().unwrap().success());
    let bytes = fs::read(&path).unwrap();
    let index = opened(&bytes).index().unwrap()[0].clone().unwrap();
    let spans = |path: &std::path::Path| -> HashSet<(u64, u64)> {
        let words = ["trace", "-q", "-e", "syscall", "--json", "--input"];
        let output = Command::new(tested_program()).args(words).arg(path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        lines.filter_map(|line| Some((line["_time"].as_u64()?, line["duration"].as_u64()?))).collect()
    };
    let whole = spans(&path);
    assert!(whole.len() > 8000, "{}", whole.len());
    // The sample of a call's begin has the six arguments, so it is larger than the sample of its end. Without the end of
    // this call, the first end after the block would end the span.
    let size_of_first = |at: usize| {
        let records = Records::new(&bytes[at..]);
        records.into_iter().find(|record| record_type(record) == PERF_RECORD_SAMPLE).map_or(0, <[u8]>::len)
    };
    let sizes: Vec<usize> = index.blocks.iter().map(|block| size_of_first(block.offset as usize)).collect();
    let smaller = |number: &usize| sizes[number + 1] < *sizes.iter().max().unwrap();
    let number = (1..sizes.len() - 1).find(smaller).unwrap_or(1);
    let block = index.blocks[number];
    let begin = block.offset as usize;
    let inside = offsets(&bytes[..begin + block.size as usize], begin, PERF_RECORD_SAMPLE);
    let largest = inside.iter().map(|&at| record_size(&bytes[at..])).max().unwrap();
    let begins = inside[inside.len() / 2..].iter().filter(|&&at| record_size(&bytes[at..]) == largest);
    // One of two calls is a read, the other one a write.
    for &at in begins.take(2) {
        let mut bytes = bytes.clone();
        bytes[at + largest..at + largest + 200].fill(0);
        let found = spans(&folder.write("damaged.data", &bytes));
        assert!(found.len() > whole.len() / 2, "{} of {}", found.len(), whole.len());
        let made_up: Vec<_> = found.difference(&whole).collect();
        assert!(made_up.is_empty(), "{made_up:?}");
    }
}
