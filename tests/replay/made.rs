//! Recordings that are made byte by byte, in either byte order, and damaged in all ways.

use std::sync::Arc;

use perf_prof_core::{
    abi::{perf_data::*, *},
    perfdata::{PerfDataError, Recording, Replay, Selection},
    record::{Batch, Ended, Source, Wait, record_type},
};
use proptest::prelude::*;

use crate::harness::{
    recording::{Folder, python},
    run::stdout,
};

/// Writes numbers in one byte order.
#[derive(Clone, Copy)]
pub struct Maker {
    big: bool,
    cpu: u32,
    pid: u32,
}

impl Maker {
    const fn new(big: bool) -> Maker {
        Maker { big, cpu: 1, pid: 7 }
    }

    /// Of samples, and of ids of other records, on this CPU and of this process.
    pub fn of(self, cpu: u32, pid: u32) -> Maker {
        Maker { cpu, pid, ..self }
    }

    fn u16(self, value: u16) -> Vec<u8> {
        if self.big { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    fn u32(self, value: u32) -> Vec<u8> {
        if self.big { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    pub fn u64(self, value: u64) -> Vec<u8> {
        if self.big { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    pub fn record(self, kind: u32, misc: u16, body: &[Vec<u8>]) -> Vec<u8> {
        let body = body.concat();
        [self.u32(kind), self.u16(misc), self.u16(8 + body.len() as u16), body].concat()
    }

    /// tid, time, id and CPU, as records end that are no samples.
    fn trailer(self, time: u64, id: u64) -> Vec<u8> {
        [self.u32(self.pid), self.u32(8), self.u64(time), self.u64(id), self.u32(self.cpu), self.u32(0)].concat()
    }

    pub fn comm(self, time: u64) -> Vec<u8> {
        self.record(PERF_RECORD_COMM, 0, &[self.u32(7), self.u32(8), b"name\0\0\0\0".to_vec(), self.trailer(time, 50)])
    }

    pub fn mmap2(self, time: u64) -> Vec<u8> {
        let numbers = [self.u32(7), self.u32(8), self.u64(0x40_0000), self.u64(0x1000), self.u64(0)].concat();
        let inode = [self.u32(8), self.u32(1), self.u64(42), self.u64(3), self.u32(5), self.u32(2)].concat();
        self.record(PERF_RECORD_MMAP2, 0, &[numbers, inode, b"/bin/x\0\0".to_vec(), self.trailer(time, 51)])
    }

    pub fn lost(self, time: u64) -> Vec<u8> {
        self.record(PERF_RECORD_LOST, 0, &[self.u64(50), self.u64(3), self.trailer(time, 50)])
    }

    /// A sample with a call chain and raw data: a u16, an int, an array of u32 elsewhere, text.
    pub fn sample(self, id: u64, time: u64) -> Vec<u8> {
        self.larger_sample(id, time, 0)
    }

    /// The same with so many bytes more, a multiple of 8, at the end of its raw data.
    pub fn larger_sample(self, id: u64, time: u64, more: usize) -> Vec<u8> {
        let fixed = self.trailer(time, id);
        let chain = [self.u64(2), self.u64(PERF_CONTEXT_USER), self.u64(0x40_0010)].concat();
        let words = self.u32(20 | 8 << 16);
        let raw = [self.u16(0x176), vec![1, 2], self.u32(8), b"abcd".to_vec(), self.u32(-5i32 as u32), words].concat();
        let raw = [raw, self.u32(11), self.u32(12), vec![0; more]].concat();
        self.record(PERF_RECORD_SAMPLE, 2, &[fixed, chain, self.u32(raw.len() as u32), raw])
    }

    pub fn records(self) -> Vec<u8> {
        let round = self.record(PERF_RECORD_FINISHED_ROUND, 0, &[]);
        let first =
            [self.comm(10), self.mmap2(11), self.sample(50, 30), self.sample(51, 20), self.lost(31), round.clone()];
        [first.concat(), self.sample(50, 40), self.sample(99, 41), self.sample(51, 25), round].concat()
    }

    pub fn attr(self) -> Vec<u8> {
        let sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU;
        let sample_type = sample_type | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW;
        let numbers = [self.u32(PERF_TYPE_TRACEPOINT), self.u32(64), self.u64(0x176), self.u64(1)].concat();
        // sample_id_all.
        let flags = if self.big { [0, 0, 0x20, 0, 0, 0, 0, 0] } else { [0, 0, 4, 0, 0, 0, 0, 0] };
        [numbers, self.u64(sample_type), self.u64(0), flags.into(), self.u64(0), self.u64(0)].concat()
    }

    fn text(self, text: &str) -> Vec<u8> {
        [self.u32(64), text.as_bytes().to_vec(), vec![0; 64 - text.len()]].concat()
    }

    fn tracing_data(self) -> Vec<u8> {
        let format = "name: e\nID: 374\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char text[4];\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:int number;\toffset:12;\tsize:4;\tsigned:1;\n\
            \tfield:__data_loc u32[] list;\toffset:16;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d\", REC->number\n";
        let begin = [b"\x17\x08\x44tracing0.5\0".to_vec(), vec![u8::from(self.big), 8], self.u32(4096)].concat();
        let headers = [b"header_page\0".to_vec(), self.u64(0), b"header_event\0".to_vec(), self.u64(0)].concat();
        let system = [self.u32(0), self.u32(1), b"sys\0".to_vec(), self.u32(1), self.u64(format.len() as u64)].concat();
        [begin, headers, system, format.as_bytes().to_vec(), self.u32(0), self.u32(0)].concat()
    }

    /// The attrs' part: two events with an id each, of the same tracepoint.
    pub fn file(self, records: &[u8]) -> Vec<u8> {
        const HEADER: u64 = 104;
        let attrs = HEADER + 16;
        let data = attrs + 2 * 80;
        let features = [(1, self.tracing_data()), (3, self.text("host")), (7, [self.u32(2), self.u32(2)].concat())];
        let sizes = [self.u64(HEADER), self.u64(80), self.u64(attrs), self.u64(160), self.u64(data)].concat();
        let bits = features.iter().fold(0u64, |bits, (bit, _)| bits | 1 << bit);
        let sizes = [sizes, self.u64(records.len() as u64), vec![0; 16], self.u64(bits), vec![0; 24]].concat();
        let mut file = [self.u64(PERF_MAGIC2), sizes, self.u64(50), self.u64(51)].concat();
        for number in 0..2 {
            file.extend([self.attr(), self.u64(HEADER + 8 * number), self.u64(8)].concat());
        }
        file.extend(records);
        let mut at = file.len() as u64 + 16 * features.len() as u64;
        for (_, section) in &features {
            file.extend([self.u64(at), self.u64(section.len() as u64)].concat());
            at += section.len() as u64;
        }
        features.iter().for_each(|(_, section)| file.extend(section));
        file
    }

    pub fn pipe(self, records: &[u8]) -> Vec<u8> {
        let attr = |id| self.record(PERF_RECORD_HEADER_ATTR, 0, &[self.attr(), self.u64(id)]);
        let tracing = self.tracing_data();
        let header = self.record(PERF_RECORD_HEADER_TRACING_DATA, 0, &[self.u32(tracing.len() as u32)]);
        let begin = [self.u64(PERF_MAGIC2), self.u64(16), attr(50), attr(51)].concat();
        [begin, header, tracing, records.to_vec()].concat()
    }
}

/// All records in order, the warnings, and what ended it.
fn replay(bytes: Vec<u8>) -> Result<(Vec<Vec<u8>>, Vec<String>), PerfDataError> {
    let here = replay_by(bytes.clone(), By::Asker);
    let ahead = replay_by(bytes, By::Thread);
    assert_eq!(format!("{here:?}"), format!("{ahead:?}"));
    here
}

/// What comes after as many waits as it takes.
pub fn patiently(replay: &mut Replay) -> Wait {
    loop {
        match replay.wait(None) {
            Wait::Woken => {}
            wait => return wait,
        }
    }
}

/// Who reads, and puts in order.
#[derive(PartialEq, Eq)]
enum By {
    Asker,
    Thread,
}

fn replay_by(bytes: Vec<u8>, by: By) -> Result<(Vec<Vec<u8>>, Vec<String>), PerfDataError> {
    let mut replay = Recording::of_file(Arc::new(bytes), "x")?.replay(Selection::default())?;
    if by == By::Thread {
        replay.read_ahead();
    }
    let mut records = Vec::new();
    loop {
        match patiently(&mut replay) {
            Wait::Batch(Batch::Sorted(sorted)) => records.extend(sorted.in_order().map(|(_, record)| record.to_vec())),
            Wait::Ended(_) => break,
            other => panic!("{other:?}"),
        }
    }
    match replay.take_failure() {
        Some(failure) => Err(failure),
        None => Ok((records, replay.take_warnings())),
    }
}

pub const NATIVE: Maker = Maker::new(cfg!(target_endian = "big"));
pub const FOREIGN: Maker = Maker::new(!cfg!(target_endian = "big"));

#[test]
fn both_byte_orders_give_the_same_records() {
    let native = replay(NATIVE.file(&NATIVE.records())).unwrap();
    let kinds: Vec<u32> = native.0.iter().map(|record| record_type(record)).collect();
    assert_eq!(kinds, [PERF_RECORD_COMM, PERF_RECORD_MMAP2, 9, 9, 9, PERF_RECORD_LOST, 9, 9]);
    assert!(native.0.contains(&NATIVE.sample(51, 25)) && native.1.is_empty());
    assert_eq!(replay(FOREIGN.file(&FOREIGN.records())).unwrap(), native);
    assert_eq!(replay(NATIVE.pipe(&NATIVE.records())).unwrap(), native);
    assert_eq!(replay(FOREIGN.pipe(&FOREIGN.records())).unwrap(), native);
}

#[test]
fn events_describe_themselves_in_both_byte_orders() {
    for maker in [NATIVE, FOREIGN] {
        for file in [maker.file(&maker.records()), maker.pipe(&maker.records())] {
            let recording = Recording::of_file(Arc::new(file), "x").unwrap();
            let format = recording.events[1].format.as_ref().unwrap();
            assert_eq!((&*format.system, &*format.name, recording.events[1].ids.as_slice()), ("sys", "e", &[51][..]));
        }
    }
}

/// perf writes them behind the mappings of the kernel and its modules.
#[test]
fn names_that_a_pipe_tells_behind_the_kernels_mappings() {
    for maker in [NATIVE, FOREIGN] {
        let mapping = |name: &[u8]| {
            let numbers = [maker.u32(u32::MAX), maker.u32(0), maker.u64(0x1000), maker.u64(0x200), maker.u64(0x1010)];
            maker.record(PERF_RECORD_MMAP, 1, &[numbers.concat(), name.to_vec(), vec![0; 32]])
        };
        let update = maker.record(
            PERF_RECORD_EVENT_UPDATE,
            0,
            &[maker.u64(2), maker.u64(51), b"its name\0\0\0\0\0\0\0\0".to_vec()],
        );
        let mappings = [mapping(b"[kernel.kallsyms]_text\0\0"), mapping(b"/x.ko\0\0\0")].concat();
        let pipe = maker.pipe(&[mappings.clone(), update.clone(), mapping(b"/y.ko\0\0\0"), maker.records()].concat());
        let recording = Recording::of_file(Arc::new(pipe.clone()), "x").unwrap();
        let names: Vec<Option<&str>> = recording.events.iter().map(|event| event.name.as_deref()).collect();
        assert_eq!(names, [None, Some("its name")]);
        let kernel = recording.kernel.unwrap();
        assert_eq!((kernel.start, kernel.end, kernel.address, &*kernel.symbol), (0x1000, 0x1200, 0x1010, "_text"));
        // None of the records is lost by that.
        assert_eq!(replay(pipe).unwrap().0.len(), replay(NATIVE.pipe(&NATIVE.records())).unwrap().0.len() + 3);
    }
}

#[test]
fn truncated_at_every_byte_it_is_read_as_far_as_it_goes_or_refused() {
    for maker in [NATIVE, FOREIGN] {
        let (file, pipe) = (maker.file(&maker.records()), maker.pipe(&maker.records()));
        let data = 104 + 16 + 160;
        let mut before = 0;
        for cut in 0..file.len() {
            match replay(file[..cut].to_vec()) {
                Ok((records, warnings)) => {
                    assert!(!warnings.is_empty() && records.len() >= before, "{cut}");
                    before = records.len();
                }
                Err(error) => assert!(cut < data, "{cut}: {error}"),
            }
            let _ = replay(pipe[..cut.min(pipe.len())].to_vec());
        }
        assert_eq!(before, 8);
    }
}

#[test]
fn a_recording_that_was_not_finished_is_read_to_its_end() {
    let mut file = NATIVE.file(&NATIVE.records());
    let end = 104 + 16 + 160 + NATIVE.records().len();
    // The data's size.
    file[48..56].fill(0);
    file.truncate(end - 3);
    let (records, warnings) = replay(file).unwrap();
    assert_eq!(records.len(), 8);
    assert!(warnings[0].contains("was not finished") && warnings.len() == 2, "{warnings:?}");
}

#[test]
fn features_out_of_bounds_do_not_affect_other_features() {
    let file = NATIVE.file(&NATIVE.records());
    let table = 104 + 16 + 160 + NATIVE.records().len();
    for (feature, name) in [(0, "TRACING_DATA"), (1, "HOSTNAME"), (2, "NRCPUS")] {
        let mut file = file.clone();
        let at = table + 16 * feature;
        file[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        let (records, warnings) = replay(file).unwrap();
        assert_eq!((records.len(), warnings.len()), (8, 1));
        assert!(warnings[0].contains(name), "{warnings:?}");
    }
}

#[test]
fn a_million_attrs_are_read() {
    let mut file = NATIVE.file(&[]);
    file.truncate(104 + 16);
    let count = 1_000_000u64;
    file[24..40].copy_from_slice(&[NATIVE.u64(120), NATIVE.u64(80 * count)].concat());
    file[40..56].copy_from_slice(&[NATIVE.u64(120 + 80 * count), NATIVE.u64(0)].concat());
    let entry = [NATIVE.attr(), NATIVE.u64(104), NATIVE.u64(8)].concat();
    (0..count).for_each(|_| file.extend(&entry));
    file.extend(NATIVE.sample(50, 5));
    let (records, _) = replay(file).unwrap();
    assert_eq!(records.len(), 1);
}

#[test]
fn a_replay_stops_in_its_midst() {
    let records: Vec<u8> = (0..100_000).flat_map(|time| NATIVE.sample(50, 1 + time)).collect();
    for by in [By::Asker, By::Thread] {
        let bytes = NATIVE.file(&records);
        let mut replay = Recording::of_file(Arc::new(bytes), "x").unwrap().replay(Selection::default()).unwrap();
        if by == By::Thread {
            replay.read_ahead();
        }
        assert!(matches!(patiently(&mut replay), Wait::Batch(_)));
        assert!((1..replay.progress().total).contains(&replay.progress().done));
        replay.stop();
        assert!(matches!(replay.wait(None), Wait::Ended(Ended::Stopped)));
        assert_eq!(replay.backlog(), 0);
    }
}

/// A wanted sample kept the whole block in memory that it was read with.
#[test]
fn one_wanted_sample_of_many_keeps_no_more_than_itself() {
    const WANTED: u64 = 60;
    const EVERY: u64 = 1500;
    let id = |number: u64| if number.is_multiple_of(EVERY) { 51 } else { 50 };
    for maker in [NATIVE, FOREIGN] {
        let records: Vec<u8> = (0..WANTED * EVERY).flat_map(|number| maker.sample(id(number), 1 + number)).collect();
        let file = maker.file(&records);
        let selection = || Selection { attrs: Some(vec![false, true]), ..Selection::default() };
        for by in [By::Asker, By::Thread] {
            let recording = Recording::of_file(Arc::new(file.clone()), "x").unwrap();
            let mut replay = recording.replay(selection()).unwrap();
            if by == By::Thread {
                replay.read_ahead();
            }
            let (mut found, mut bytes) = (Vec::new(), 0);
            loop {
                match patiently(&mut replay) {
                    Wait::Batch(Batch::Sorted(sorted)) => {
                        found.extend(sorted.in_order().map(|(_, record)| record.to_vec()));
                        bytes += sorted.chunks.iter().map(|chunk| chunk.bytes().len()).sum::<usize>();
                        assert!(replay.backlog() < 1 << 20);
                    }
                    Wait::Ended(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            let expected: Vec<Vec<u8>> = (0..WANTED).map(|number| NATIVE.sample(51, 1 + number * EVERY)).collect();
            assert!(found == expected, "{}", found.len());
            assert_eq!(bytes, expected.concat().len());
        }
    }
}

/// Signals are attended to between waits.
#[test]
fn a_replay_that_matches_nothing_is_woken_in_between() {
    let records: Vec<u8> = (0..100_000).flat_map(|time| NATIVE.sample(50, 1 + time)).collect();
    assert!(records.len() > 8 << 20);
    for bytes in [NATIVE.file(&records), NATIVE.pipe(&records)] {
        let selection = Selection { attrs: Some(vec![false, true]), ..Selection::default() };
        let mut replay = Recording::of_file(Arc::new(bytes), "x").unwrap().replay(selection).unwrap();
        replay.set_wake(-1);
        assert!(matches!(replay.wait(None), Wait::Woken));
        assert!((1..records.len() as u64).contains(&replay.progress().done));
        assert!(matches!(patiently(&mut replay), Wait::Ended(Ended::EndOfInput)));
    }
}

/// Each file of a directory is another thread's: nothing but the records' times says how they belong together.
#[test]
fn a_clock_that_steps_back_in_a_file_of_a_directory_costs_no_order() {
    const EACH: u64 = 20_000;
    const STEP: u64 = 4_000_000;
    let folder = Folder::new();
    let path = folder.path("recording");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("data"), NATIVE.file(&NATIVE.comm(10))).unwrap();
    let back = |file: u64, number: u64| if file == 1 && number >= EACH / 2 { STEP } else { 0 };
    let times = |file: u64| (0..EACH).map(move |number| 1_000_000_000 + 2_000 * number + file - back(file, number));
    for file in 0..3 {
        let records: Vec<u8> = times(file).flat_map(|time| NATIVE.sample(50 + file % 2, time)).collect();
        std::fs::write(path.join(format!("data.{file}")), records).unwrap();
    }
    assert!(!times(1).is_sorted());
    let script = "times = []\ndef __sample__(event): times.append(event._time)\n\ndef __exit__():\n    print(*times, sep='\\n')\n";
    let script = folder.write("list.py", script.as_bytes());
    let listed = stdout(&python(&["-q", "--input", path.to_str().unwrap(), script.to_str().unwrap()]));
    let listed: Vec<u64> = listed.lines().map(|line| line.parse().unwrap()).collect();
    let mut expected: Vec<u64> = (0..3).flat_map(times).collect();
    expected.sort_unstable();
    assert!(listed == expected, "{} of {}, sorted: {}", listed.len(), expected.len(), listed.is_sorted());
}

proptest! {
    #[test]
    fn any_damage_ends_in_records_or_an_error(
        pipe: bool, big: bool, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let maker = Maker::new(big);
        let mut bytes = if pipe { maker.pipe(&maker.records()) } else { maker.file(&maker.records()) };
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = replay(bytes);
    }
}
