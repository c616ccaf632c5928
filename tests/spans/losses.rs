//! Spans of recordings in which one ring lost events and other rings did not. The recordings are made byte by byte.

use perf_prof_format::abi::{perf_data::HEADER_TRACING_DATA, *};

use crate::{
    harness::{
        counting::objects,
        machine::{Need, needs},
        made::{Made, MadeAttr, u32s, u64s},
        recording::Folder,
        run::{perf_prof, said, stdout},
        script::Run,
    },
    replay::made::NATIVE,
};

/// Each event of a thread ends a span and begins the next one.
const SELECTOR: &str = "span:step=sys:e..sys:e//key=_tid/";

const SCRIPT: &str = "
import perf_prof

def span__step(e):
    print(e._tid, e.begin._time - 1000, e._time - 1000)

def __partial__(): pass
def __merge__(partials): pass

def __exit__():
    counts = perf_prof.stats()['events']['span:step']
    print(counts['opened'], counts['ended'], counts['open'], counts['dropped'])
    print(counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'])
";

/// Whether records other than samples contain the time and the CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SampleId {
    All,
    OnlySamples,
}

/// A record, in the order of the file.
#[derive(Clone, Copy)]
enum Entry {
    Sample { cpu: u32, tid: u32, time: u64 },
    Lost { cpu: u32, time: u64 },
}

use Entry::{Lost, Sample};

fn made(entries: &[Entry], sample_id: SampleId) -> Made {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    let flags = if sample_id == SampleId::All { SAMPLE_ID_ALL } else { 0 };
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    // The id of the tracepoint in `NATIVE.tracing_data()`.
    const EVENT: u64 = 0x176;
    let attr = MadeAttr { kind: PERF_TYPE_TRACEPOINT, config: EVENT, flags, ..MadeAttr::new(members) };
    let mut made = Made::new(attr);
    made.features.push((HEADER_TRACING_DATA, NATIVE.tracing_data()));
    let place = |tid: u32, time: u64, cpu: u32| [u32s(&[tid, tid]), u64s(&[1000 + time]), u32s(&[cpu, 0])].concat();
    entries.iter().fold(made, |made, entry| match *entry {
        Sample { cpu, tid, time } => made.sample(0, &[place(tid, time, cpu), u32s(&[28, EVENT as u32]), vec![0; 24]]),
        Lost { cpu, time } => {
            let id = if sample_id == SampleId::All { place(0, time, cpu) } else { Vec::new() };
            made.record(PERF_RECORD_LOST, 0, &[u64s(&[1, 5]), id])
        }
    })
}

/// Replays in one process and in several, which must print the same. Returns the output.
#[track_caller]
fn replay(folder: &Folder, made: &Made, options: &[&str]) -> String {
    let path = made.write(folder);
    let run = |jobs: &str| {
        let options = [options, &["--input", &path, "--jobs", jobs]].concat();
        let outcome = Run::script(SCRIPT).event(SELECTOR).options(options).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        outcome.stdout
    };
    let one = run("1");
    for jobs in ["2", "3", "5", "8"] {
        assert_eq!(run(jobs), one, "--jobs {jobs}");
    }
    one
}

/// The records of CPU 0, whose ring lost events between 20 and 60. Thread 7 ran there before, and moved to CPU 1.
const CPU_0: [Entry; 4] = [
    Sample { cpu: 0, tid: 7, time: 10 },
    Sample { cpu: 0, tid: 7, time: 20 },
    Lost { cpu: 0, time: 60 },
    Sample { cpu: 0, tid: 8, time: 60 },
];

const CPU_1: [Entry; 6] = [
    Sample { cpu: 1, tid: 9, time: 5 },
    Sample { cpu: 1, tid: 9, time: 15 },
    Sample { cpu: 1, tid: 7, time: 30 },
    Sample { cpu: 1, tid: 7, time: 50 },
    Sample { cpu: 1, tid: 7, time: 70 },
    Sample { cpu: 1, tid: 7, time: 80 },
];

/// Spans that ended before the loss, and spans that began after it.
const SPANS: &str = "9 5 15\n7 10 20\n7 70 80\n";

#[test]
fn a_span_does_not_end_on_another_cpu_during_a_loss() {
    let folder = Folder::new();
    // In the file, the record of the loss is before, after or among the records of the other CPU.
    let orders = [
        [&CPU_0[..], &CPU_1].concat(),
        [&CPU_1[..], &CPU_0].concat(),
        [&CPU_0[..2], &CPU_1, &CPU_0[2..]].concat(),
        [&CPU_1[..3], &CPU_0, &CPU_1[3..]].concat(),
    ];
    for (number, entries) in orders.iter().enumerate() {
        for sample_id in [SampleId::All, SampleId::OnlySamples] {
            let shown = replay(&folder, &made(entries, sample_id), &[]);
            assert!(shown.starts_with(SPANS) && shown.ends_with("\nTrue\n"), "{number} {sample_id:?}: {shown}");
            assert_eq!(shown.lines().count(), SPANS.lines().count() + 2, "{number} {sample_id:?}: {shown}");
        }
    }
}

#[test]
fn spans_outside_of_a_loss_are_kept() {
    let folder = Folder::new();
    // Without the record of the loss, all spans are delivered.
    let without_loss: Vec<Entry> =
        CPU_0.into_iter().chain(CPU_1).filter(|entry| matches!(entry, Sample { .. })).collect();
    let shown = replay(&folder, &made(&without_loss, SampleId::All), &[]);
    assert_eq!(shown, "9 5 15\n7 10 20\n7 20 30\n7 30 50\n7 50 70\n7 70 80\n9 6 3 0\nTrue\n");
    // The CPU with the loss is not selected.
    let shown = replay(&folder, &made(&[&CPU_0[..], &CPU_1].concat(), SampleId::All), &["-C", "1"]);
    assert_eq!(shown, "9 5 15\n7 30 50\n7 50 70\n7 70 80\n6 4 2 0\nTrue\n");
}

/// The record of the loss is at the end of the file. Most of the recording is between this record and the last record
/// before the loss. So some parts begin and end within the loss.
#[test]
fn a_loss_may_last_for_several_parts() {
    let folder = Folder::new();
    let others = (0..20_000).map(|number| Sample { cpu: 1, tid: 9, time: 101 + 2 * number });
    let before = [Sample { cpu: 0, tid: 7, time: 10 }, Sample { cpu: 0, tid: 7, time: 20 }];
    let after = [
        Lost { cpu: 0, time: 20_000 },
        Sample { cpu: 0, tid: 7, time: 20_000 },
        Sample { cpu: 0, tid: 7, time: 20_002 },
    ];
    let entries: Vec<Entry> = before.into_iter().chain(others).chain(after).collect();
    for sample_id in [SampleId::All, SampleId::OnlySamples] {
        let shown = replay(&folder, &made(&entries, sample_id), &[]);
        assert!(shown.starts_with("7 10 20\n7 20000 20002\n9 20001 20003\n"), "{sample_id:?}: {shown:.99}");
        assert!(shown.ends_with("\nTrue\n"), "{sample_id:?}");
        let of_others = shown.lines().filter(|line| line.starts_with("9 ")).count();
        assert_eq!(of_others, (40_099 - 20_001) / 2, "{sample_id:?}");
    }
    // The selected times begin within the loss.
    let shown = replay(&folder, &made(&entries, SampleId::All), &["--time", "0.000009,"]);
    assert!(shown.starts_with("7 20000 20002\n9 20001 20003\n") && shown.ends_with("\nTrue\n"), "{shown:.99}");
}

/// Thread 7 lacks the spans from 20 to 30, from 30 to 50 and from 50 to 70. Thread 9's span that begins at 15 may last
/// until the end of the recording at 80, because no event of the thread comes.
#[test]
fn the_time_of_missing_spans_has_a_bound_for_each_key() {
    let folder = Folder::new();
    let path = made(&[&CPU_0[..], &CPU_1].concat(), SampleId::All).write(&folder);
    let output = |args: &[&str]| {
        let output = perf_prof(&["top", "-q", "--by", "_tid", "--input", &path, SELECTOR]).args(args).output().unwrap();
        stdout(&output)
    };
    let total = objects(&output(&["--json"])).pop().unwrap();
    let rows = total["rows"].as_array().unwrap().iter();
    let rows: Vec<_> =
        rows.map(|row| (row["tid"].as_u64(), row["total"].as_u64(), row["missing_time"].as_u64())).collect();
    let expected = [(7, 20, 50), (9, 10, 65)].map(|(tid, total, missing)| (Some(tid), Some(total), Some(missing)));
    assert_eq!((rows, total["missing_time"].as_u64()), (expected.to_vec(), Some(115)), "{total}");
    let long = SELECTOR.to_owned() + "min=1s/";
    let trace = perf_prof(&["trace", "-e", &long, "--input", &path]).output().unwrap();
    let open = "the option `open` adds spans that began and have not ended";
    let text = format!("none of 3 spans fulfils `min=1s`; {open}; 4 spans are missing\n");
    assert!(said(&trace).contains(&text), "{}", said(&trace));
    let text = output(&[]);
    let missing = |line: &str| line.split_whitespace().last().map(str::to_owned);
    let lines: Vec<Option<String>> = text.lines().skip(1).take(3).map(missing).collect();
    assert_eq!(lines, [Some("ms".to_owned()), Some("0.000".to_owned()), Some("0.000".to_owned())], "{text}");
    assert!(
        text.contains(
            "(missing ms: the dropped spans, whose begins are known, lasted at most this long, up to the end of the run)"
        ) && text.contains(", and those that began and ended while events were lost: how many, and for how long, is not known"),
        "{text}"
    );
}

/// Thread 9 has no event after the loss, so nobody knows whether its span ended in the loss.
#[test]
fn a_span_that_may_still_be_open_is_missing_up_to_the_end_of_the_recording() {
    let folder = Folder::new();
    let entries = [
        Sample { cpu: 0, tid: 9, time: 10 },
        Lost { cpu: 0, time: 60 },
        Sample { cpu: 1, tid: 7, time: 70 },
        Sample { cpu: 1, tid: 7, time: 200 },
    ];
    let path = made(&entries, SampleId::All).write(&folder);
    let output = perf_prof(&["top", "-q", "--by", "_tid", "--json", "--input", &path, SELECTOR]).output().unwrap();
    let total = objects(&stdout(&output)).pop().unwrap();
    let row = total["rows"].as_array().unwrap().iter().find(|row| row["tid"] == 9);
    assert_eq!(row.and_then(|row| row["missing_time"].as_u64()), Some(190), "{total}");
}

#[test]
fn the_bound_of_missing_times_is_the_same_in_all_parts() {
    let folder = Folder::new();
    let path = made(&[&CPU_0[..], &CPU_1].concat(), SampleId::All).write(&folder);
    let script = "
import perf_prof
def __sample__(e): pass
def __partial__(): pass
def __merge__(partials): pass
def __exit__():
    counts = perf_prof.stats()['events']['span:step']
    print(counts['missing_time'], perf_prof.missing())
";
    for jobs in ["1", "2", "5"] {
        let run = Run::script(script).event(SELECTOR).options(["--input", &path, "--jobs", jobs]).run();
        let missing = "5 events were lost; spans are missing: 1 of 9 (at most 0.000 ms in all), 3 of 7 (at most \
                       0.000 ms in all), and those that began and ended while events were lost: how many, and for \
                       how long, is not known";
        assert_eq!(run.stdout, format!("115 {missing}\n"), "{jobs}: {}", run.stderr);
    }
}

/// The script is slow, so its last events are delivered long after they happened. The ring was full only until the
/// events were disabled.
#[test]
fn a_loss_ends_when_the_events_are_turned_off() {
    needs([Need::Tracefs]);
    let script = "
import time, perf_prof
start = time.monotonic_ns()
waits = iter([2.2])
def syscall(e): time.sleep(next(waits, 0))
def __exit__():
    row = perf_prof.stats()['events']['syscall']
    took = time.monotonic_ns() - start
    longest = max(row['missing_time'] // max(len(row['incomplete_tasks']), 1), 0)
    print(row['partial'], row['missing_time'] > 0, longest < took // 2, took > 2_000_000_000)
    print(row, took)
";
    // If calls are paired in the kernel, each begin has its end.
    let options = ["-m", "1", "--buffer", "64K", "--duration", "500ms", "--in-kernel", "never"];
    let run = Run::script(script).event("syscall/name=getpgid/").options(options).workload("calls 100000000").run();
    assert!(run.stdout.starts_with("True True True True\n"), "{}{}", run.stdout, run.stderr);
}
