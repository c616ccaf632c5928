//! `perf-prof top --diff` and `perf-prof hist --diff`: two recordings, or two parts of a recording, beside each other.
//! The recordings are made byte by byte.

use perf_prof_format::abi::{perf_data::HEADER_TRACING_DATA, *};
use serde_json::{Value as Json, json};

use crate::{
    harness::{
        counting::{CALL, objects, words as calls},
        machine::{Need, needs},
        made::{Made, MadeAttr, u32s, u64s},
        recording::{Folder, ours, record_here},
        run::{perf_prof, printed, said, stdout},
    },
    replay::made::NATIVE,
};

/// Each event of a thread ends a span and begins the next one.
const STEPS: &str = "span:step=sys:e..sys:e//key=_tid/";

/// Returns a recording with events of these threads, at these times in ms.
fn recording(folder: &Folder, events: &[(u32, u64)]) -> String {
    const EVENT: u64 = 0x176;
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let attr = MadeAttr { kind: PERF_TYPE_TRACEPOINT, config: EVENT, ..MadeAttr::new(members) };
    let mut made = Made::new(attr);
    made.features.push((HEADER_TRACING_DATA, NATIVE.tracing_data()));
    let sample = |made: Made, &(tid, ms): &(u32, u64)| {
        let place = [u32s(&[tid, tid]), u64s(&[1_000_000 * (ms + 1)]), u32s(&[0, 0])].concat();
        made.sample(0, &[place, u32s(&[28, EVENT as u32]), vec![0; 24]])
    };
    events.iter().fold(made, sample).write(folder)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn difference(args: &[&str], before: &str, after: &str) -> Json {
    let args = [args, &["-q", "--json", "--input", after, "--diff", before]].concat();
    let mut all = objects(&stdout(&perf_prof(&args).output().unwrap()));
    assert_eq!(all.len(), 1, "{all:?}");
    all.pop().unwrap()
}

#[test]
fn counts_of_two_recordings_are_compared_by_their_rates() {
    let folders = [Folder::new(), Folder::new()];
    let before = recording(&folders[0], &[(7, 0), (9, 500), (7, 1000)]);
    let after = recording(&folders[1], &[(7, 0), (8, 1000), (8, 1500), (8, 2000), (9, 2000)]);
    let args = ["top", "sys:e", "--by", "_tid", "-q", "--input", &after, "--diff", &before];
    let lines = printed(&perf_prof(&args).output().unwrap());
    let head = format!("before, {before}: 3 events in 1.000000 s; after: 5 events in 2.000000 s");
    assert_eq!(lines[0], head);
    let titles = "tid  count before  count after  per second before  per second after  change";
    assert_eq!(words(&lines[1]), words(titles));
    let rows: Vec<Vec<&str>> = lines[2..5].iter().map(|line| words(line)).collect();
    assert_eq!(rows[0], ["7", "2", "1", "2.000", "0.500", "-1.500"]);
    assert_eq!(rows[1], ["8", "0", "3", "0.000", "1.500", "+1.500"]);
    assert_eq!(rows[2], ["9", "1", "1", "1.000", "0.500", "-0.500"]);
    let json = difference(&["top", "sys:e", "--by", "_tid", "-n", "2"], &before, &after);
    assert_eq!(
        (&json["before"]["name"], &json["before"]["events"], &json["after"]["partial"]),
        (&json!(before), &json!(3), &json!(false))
    );
    let expected = json!([
        { "tid": 7, "before": { "count": 2, "per_second": 2.0 }, "after": { "count": 1, "per_second": 0.5 }, "change": -1.5 },
        { "tid": 8, "before": null, "after": { "count": 3, "per_second": 1.5 }, "change": 1.5 },
    ]);
    assert_eq!(json["rows"], expected);
}

#[test]
fn durations_of_two_recordings_are_compared() {
    let folders = [Folder::new(), Folder::new()];
    // The recordings have the same length, which the events of thread 9 make.
    let before = recording(&folders[0], &[(7, 0), (7, 1000), (7, 2000), (9, 4000)]);
    let after = recording(&folders[1], &[(7, 0), (7, 3000), (7, 4000)]);
    let row = &difference(&["top", STEPS, "--by", "_tid"], &before, &after)["rows"][0];
    let second = 1_000_000_000_u64;
    let expected = json!({
        "tid": 7,
        "before": { "count": 2, "total": 2 * second, "average": second, "max": second, "per_second": 500.0 },
        "after": { "count": 2, "total": 4 * second, "average": 2 * second, "max": 3 * second, "per_second": 1000.0 },
        "change": 500.0,
    });
    assert_eq!(*row, expected);
    let args = ["top", STEPS, "--by", "_tid", "-q", "--input", &after, "--diff", &before];
    let lines = printed(&perf_prof(&args).output().unwrap());
    assert_eq!(words(&lines[2]), ["7", "2", "2", "500.000", "1000.000", "+500.000", "1000.000", "2000.000"]);
    let of_hist = difference(&["hist", STEPS], &before, &after);
    let max = |when: &str| of_hist["rows"][0][when]["max"].as_f64();
    assert_eq!((max("before"), max("after")), (Some(1e6), Some(3e6)), "{of_hist}");
    let args = ["hist", STEPS, "-q", "--input", &after, "--diff", &before];
    let lines = printed(&perf_prof(&args).output().unwrap());
    assert!(lines[1].starts_with("count before  count after  p50 usecs before  p50 usecs after  "), "{lines:?}");
    assert_eq!(words(&lines[2]).last(), Some(&"3000000.000"), "{lines:?}");
}

#[test]
fn two_parts_of_a_recording_are_compared() {
    let folder = Folder::new();
    let path = recording(&folder, &[(7, 0), (7, 10), (7, 20), (8, 1000), (8, 1010), (9, 1020)]);
    let parts = ["--input", &path, "--time", "0.9,", "--diff-time", "0,0.9"];
    let args = [&["top", "sys:e", "--by", "_tid", "-q", "--json"], &parts[..]].concat();
    let total = objects(&stdout(&perf_prof(&args).output().unwrap())).pop().unwrap();
    assert_eq!(total["before"]["name"], format!("{path} at 0,0.9"));
    // The later part is a seventh as long.
    let counts = |row: &Json| [&row["tid"], &row["before"]["count"], &row["after"]["count"]].map(Json::as_u64);
    let rows: Vec<_> = total["rows"].as_array().unwrap().iter().map(counts).collect();
    assert_eq!(rows, [[Some(8), None, Some(2)], [Some(9), None, Some(1)], [Some(7), Some(3), None]]);
}

#[test]
fn only_recordings_are_compared() {
    let output = perf_prof(&["top", "sched:sched_switch", "--diff", "x.data"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--input"), "{}", said(&output));
    let folder = Folder::new();
    let path = recording(&folder, &[(7, 0)]);
    let output = perf_prof(&["top", "sys:e", "-q", "--input", &path, "--diff", "/nosuch.data"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/nosuch.data"), "{}", said(&output));
}

/// Records a program that makes calls, and other programs 0.2 s before and after it: calls fill only a part of the time.
fn recording_with_pauses(folder: &Folder, count: u32) -> String {
    let path = folder.path("calls.data");
    let command = calls(count, 0, 0);
    let script = ["sh", "-c", "/bin/true; sleep 0.2; \"$@\"; sleep 0.2; /bin/true", "sh"];
    let args = ["-e", CALL, "-e", "sched:sched_process_exec", "--"].into_iter().chain(script);
    record_here(&path, &args.chain(command.iter().map(String::as_str)).collect::<Vec<_>>());
    path.to_str().unwrap().to_owned()
}

/// Returns the time from the first to the last sample of a recording in seconds.
fn length(path: &str) -> f64 {
    let lines = ours(&["script", "--ns", "-F", "time"], path.as_ref());
    let time = |line: &String| line.trim().trim_end_matches(':').parse::<f64>().unwrap();
    time(lines.last().unwrap()) - time(&lines[0])
}

#[test]
fn rates_are_of_the_length_of_the_recordings_also_where_the_events_fill_a_part_of_it() {
    needs([Need::Tracefs]);
    let folders = [Folder::new(), Folder::new()];
    let [before, after] = [(0, 40), (1, 400)].map(|(at, count)| recording_with_pauses(&folders[at], count));
    let near = |value: &Json, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-4;
    let total =
        |path: &str| objects(&stdout(&perf_prof(&["top", CALL, "-q", "--json", "--input", path]).output().unwrap()));
    let totals = [&before, &after].map(|path| total(path).pop().unwrap());
    let seconds = [0, 1].map(|at| totals[at]["seconds"].as_f64().unwrap());
    // A recording ends a little after its last sample.
    for (path, seconds) in [&before, &after].into_iter().zip(seconds) {
        assert!((length(path)..length(path) + 0.1).contains(&seconds), "{seconds}");
    }
    assert!(near(&totals[1]["rows"][0]["per_second"], 400.0 / seconds[1]), "{totals:?}");
    let difference = difference(&["top", CALL], &before, &after);
    let row = &difference["rows"][0];
    assert!(near(&row["before"]["per_second"], 40.0 / seconds[0]), "{difference}");
    assert!(near(&row["change"], 400.0 / seconds[1] - 40.0 / seconds[0]), "{difference}");
    // A part has its own length, wherever its first and its last event are.
    let half = ["top", CALL, "-q", "--json", "--input", &after, "--time", "25%-75%"];
    let half = objects(&stdout(&perf_prof(&half).output().unwrap())).pop().unwrap();
    assert!(near(&half["seconds"], length(&after) / 2.0), "{half}");
}

#[test]
fn a_table_and_a_picture_of_the_same_parts_have_the_same_length() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording_with_pauses(&folder, 1);
    let of_parts = |args: &[&str]| {
        let output = perf_prof(args).args(["-q", "--input", &path, "--time", "0%-10%,60%-100%"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let total = objects(&of_parts(&["top", "sched:sched_process_exec", "--json"])).pop().unwrap();
    let picture = folder.path("parts.svg");
    of_parts(&["report", "--flame", picture.to_str().unwrap()]);
    let picture = std::fs::read_to_string(&picture).unwrap();
    let expected = format!(" in {:.3} s", total["seconds"].as_f64().unwrap());
    let subtitle = picture.lines().find(|line| line.contains(" in ")).unwrap_or_default();
    assert!(picture.contains(&expected), "{expected}: {subtitle}");
}
