//! Tests of columns that several threads decode, on a recording that the test makes.

use std::{sync::Arc, time::Duration};

use arrow_array::{
    Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type, UInt64Type},
};
use perf_prof_events::{column::Plan, event::Stats};
use perf_prof_format::abi::{perf_data::PERF_MAGIC2, *};
use perf_prof_recordings::{Recording, Selection};

use super::*;
use crate::{
    plan::Input,
    recording::select::{Selected, select},
};

const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU;
/// `sample_id_all` of an attr.
const SAMPLE_ID_ALL: u64 = 1 << 18;
const COLUMNS: [&str; 5] = ["_time", "_cpu", "_tid", "addr", "_comm"];
const TASKS: u64 = 5;
const WAIT: Duration = Duration::from_secs(60);

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn pair(one: u64, other: u64) -> u64 {
    u64::from_ne_bytes([(one as u32).to_ne_bytes(), (other as u32).to_ne_bytes()].concat().try_into().unwrap())
}

fn record(kind: u32, body: &[u64]) -> Vec<u8> {
    let size = 8 + 8 * body.len() as u16;
    [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), &words(body)].concat()
}

/// Returns the sample id at the end of other records.
fn trailer(tid: u64, time: u64, cpu: u64) -> [u64; 4] {
    [pair(7, tid), time, pair(cpu, 0), 0]
}

/// Returns a recording of this many samples of two CPUs, which take turns to write about a kilobyte. Now and then, a
/// task changes its name or samples are lost.
fn recording(samples: u64) -> Recording {
    let attr =
        [&1u32.to_ne_bytes()[..], &64u32.to_ne_bytes(), &words(&[0, 1, MEMBERS, 0, SAMPLE_ID_ALL, 0, 0])].concat();
    let data_at = 104 + 80;
    let mut records = Vec::new();
    for turn in 0..samples.div_ceil(32) {
        let cpu = turn % 2;
        for at in 0..32 {
            // The times of both CPUs overlap.
            let (time, tid) = (1000 + (turn / 2) * 64 + at * 2 + cpu, 10 + (turn + at) % TASKS);
            if (turn * 32 + at) % 24_989 == 0 {
                let name = u64::from_ne_bytes(format!("n{:<6}\0", turn).into_bytes().try_into().unwrap());
                let body = [&[pair(7, tid), name, 0][..], &trailer(tid, time, cpu)].concat();
                records.extend(record(PERF_RECORD_COMM, &body));
            }
            if (turn * 32 + at) % 26_003 == 25_000 {
                records.extend(record(PERF_RECORD_LOST, &[&[0, 3][..], &trailer(tid, time, cpu)].concat()));
            }
            records.extend(record(PERF_RECORD_SAMPLE, &[0, pair(7, tid), time, turn << 8 | at, pair(cpu, 0)]));
        }
    }
    let mut file = PERF_MAGIC2.to_ne_bytes().to_vec();
    file.extend(words(&[104, 80, 104, 80, data_at, records.len() as u64, 0, 0, 0, 0, 0, 0]));
    file.extend(attr);
    file.extend(words(&[0, 0]));
    assert_eq!(file.len() as u64, data_at);
    file.extend(records);
    Recording::of_file(Arc::new(file), "made").unwrap()
}

struct Opened {
    parts: ColumnParts,
    selected: Selected,
}

fn open(samples: u64, selection: &Selection) -> Opened {
    let mut recording = recording(samples);
    let selected = select(&[], 0, &recording).unwrap();
    let parts = ColumnParts::new(&mut recording, &selected, selection, &Input::default()).unwrap().unwrap();
    Opened { parts, selected }
}

fn start(opened: Opened, rows: usize) -> (ColumnRun, Arc<Stats>) {
    let Opened { parts, selected } = opened;
    let stats = Arc::new(Stats::new(selected.types.len(), 257));
    let plan = Plan::new(Some(&COLUMNS.map(str::to_owned)), &selected.types, &[]).unwrap();
    (ColumnRun::start(parts, plan, rows, stats.clone(), 0).unwrap(), stats)
}

/// A row: the time, the CPU, the thread, the address and the name of the task.
type Row = (i64, u32, i32, u64, String);

fn rows(batch: &RecordBatch) -> Vec<Row> {
    let names = batch.column(4).as_dictionary::<Int32Type>();
    let texts: &StringArray = names.values().as_string();
    let row = |at: usize| {
        let name = texts.value(names.keys().value(at) as usize).to_owned();
        let tid = batch.column(2).as_primitive::<Int32Type>().value(at);
        let cpu = batch.column(1).as_primitive::<arrow_array::types::UInt32Type>().value(at);
        let address = batch.column(3).as_primitive::<UInt64Type>().value(at);
        (batch.column(0).as_primitive::<Int64Type>().value(at), cpu, tid, address, name)
    };
    (0..batch.num_rows()).map(row).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    rows: Vec<Row>,
    /// The number of rows of each batch.
    sizes: Vec<usize>,
    /// For each loss, its end.
    lost: Vec<u64>,
}

fn read(run: &ColumnRun) -> Read {
    let mut read = Read::default();
    loop {
        match run.next(WAIT) {
            Next::Batch(batch) => {
                assert!(batch.rows.column(0).len() == batch.rows.num_rows());
                read.rows.extend(rows(&batch.rows));
                read.sizes.push(batch.rows.num_rows());
                read.lost.extend(batch.lost.iter().map(|(_, end)| *end));
            }
            Next::End => return read,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn parts_have_the_rows_of_the_whole() {
    const SAMPLES: u64 = 160_000;
    for selection in [Selection::default(), Selection { times: vec![(50_000, 99_999)], ..Selection::default() }] {
        let (whole, of_whole) = start(open(SAMPLES, &selection), 10_000);
        let expected = read(&whole);
        let all = if selection.times.is_empty() { SAMPLES } else { 50_000 };
        assert_eq!(expected.rows.len() as u64, all);
        assert!(expected.rows.is_sorted_by_key(|row| row.0));
        assert!(expected.sizes.iter().rev().skip(1).all(|&size| size == 10_000));
        assert!(expected.lost.len() >= 2 && expected.rows.iter().any(|row| row.4.starts_with('n')));

        let mut opened = open(SAMPLES, &selection);
        opened.parts.of_part = 300 << 10;
        assert!(opened.parts.divide().unwrap().len() > 3);
        let (divided, of_parts) = start(opened, 10_000);
        let found = read(&divided);
        assert_eq!((&found.rows, &found.lost), (&expected.rows, &expected.lost));
        assert_eq!(of_parts.counts(), of_whole.counts());
        assert_eq!(divided.close(), found.rows.len() as u64);
        whole.close();
    }
}

#[test]
fn a_run_ends_where_the_program_wants_no_more() {
    let opened = || {
        let mut opened = open(100_000, &Selection::default());
        opened.parts.of_part = 300 << 10;
        opened
    };
    let (run, _) = start(opened(), 100);
    let mut taken = 0;
    for _ in 0..7 {
        match run.next(WAIT) {
            Next::Batch(batch) => taken += batch.rows.num_rows() as u64,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((taken, run.close()), (700, 700));
    assert!(matches!(run.next(WAIT), Next::End));
    // The parts that are already begun are decoded to their end.
    let (run, stats) = start(opened(), 1 << 16);
    assert!(matches!(run.next(WAIT), Next::Batch(_)));
    run.stop();
    let rest = read(&run);
    assert!(rest.rows.len() < 90_000, "{} rows", rest.rows.len());
    assert_eq!(stats.total_delivered(), run.close());
}
