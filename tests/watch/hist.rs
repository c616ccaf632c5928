//! `perf-prof hist`: the distribution of values.

use serde_json::{Value as Json, json as object};

use super::{json, recording, replay, run};
use crate::harness::{
    counting::{CALL, objects, words},
    machine::{Need, needs},
    recording::Folder,
    run::{printed, said},
};

/// Returns the rows of the values 0 to 99.
fn rows() -> Json {
    let rows = [(0, 2), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 36)];
    rows.iter().map(|(from, count)| object!({ "from": from, "count": count })).collect()
}

#[test]
fn values_are_counted_by_powers_of_two() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["hist", CALL, "--value", "pid"], &words(100, 0, 0)));
    assert!(lines[0].starts_with("total: 100 events in "), "{lines:?}");
    assert!(lines[1].starts_with("100 values, p50 ") && lines[1].ends_with(", max 99"), "{lines:?}");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["pid", ":", "count", "distribution"]);
    assert_eq!(lines[9], format!("        64 -> 127        : 36       |{}|", "*".repeat(40)));
    assert_eq!(lines.len(), 11);
}

#[test]
fn each_key_has_a_histogram() {
    needs([Need::Tracefs]);
    let objects = json(&["hist", CALL, "--value", "pid", "--by", "tid"], &words(100, 1, 1));
    let keys = objects[0]["rows"].as_array().unwrap();
    assert_eq!((keys.len(), &objects[0]["events"]), (3, &300.into()));
    for key in keys {
        assert!(key["tid"].is_u64() && key["histogram"] == rows(), "{key}");
        assert_eq!(
            (&key["count"], &key["sum"], &key["min"], &key["max"]),
            (&100.into(), &4950.into(), &0.into(), &99.into())
        );
        // A percentile differs from the value by at most 1/16.
        let near = |name: &str, value: f64| (key[name].as_f64().unwrap() - value).abs() <= value / 16.0;
        assert!(near("p50", 49.0) && near("p90", 89.0) && near("p99", 98.0), "{key}");
    }
}

#[test]
fn a_recording_has_the_same_values() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let found = objects(&replay("hist", &path, &["--value", "pid", "--json"]).join(""));
    assert_eq!((&found[0]["rows"][0]["histogram"], &found[0]["rows"][0]["unit"]), (&rows(), &Json::Null));
    let lines = replay("hist", &path, &["--value", "pid", "--by", "comm"]);
    // The table contains the percentiles of each key. A histogram for each key follows.
    let cells = |at: usize| lines[at].split_whitespace().collect::<Vec<&str>>();
    assert_eq!(cells(1), ["comm", "count", "mean", "p50", "p90", "p99", "max"]);
    assert_eq!((&cells(2)[..3], cells(2)[6]), (&["wide", "100", "49.5"][..], "99"));
    assert!(lines[3].starts_with("comm=wide: 100 values, p50 "), "{lines:?}");
    // In us, 99 ns are 0.
    let micros = objects(&replay("hist", &path, &["--value", "pid", "--unit", "us", "--json"]).join(""));
    assert_eq!(micros[0]["rows"][0]["histogram"], object!([{ "from": 0, "count": 100 }]));
}

#[test]
fn an_event_without_a_duration_needs_a_value() {
    needs([Need::Tracefs]);
    let output = run(&["hist", "sched:sched_wakeup"], &words(1, 0, 0));
    let message = "perf-prof: sched:sched_wakeup has no field `duration`: select a value with --value; its fields that are \
                   numbers: pid, prio, target_cpu\n";
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(1), message));
    let text = run(&["hist", "sched:sched_wakeup", "--value", "comm"], &words(1, 0, 0));
    assert!(said(&text).contains("`comm` of sched:sched_wakeup cannot be added up: it is text"), "{}", said(&text));
}

/// A span has a duration and the fields of its two events. The two events themselves are not counted.
#[test]
fn spans_are_shown_as_any_event() {
    needs([Need::Tracefs]);
    let span = format!("span:call={CALL}..syscalls:sys_exit_getpgid");
    let found = json(&["hist", &span], &words(50, 2, 0));
    assert_eq!((&found[0]["events"], &found[0]["rows"][0]["unit"]), (&150.into(), &"usecs".into()));
    let counted = json(&["top", &span], &words(50, 2, 0));
    let rows = counted[0]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["comm"], &rows[0]["count"]), (1, &"wide".into(), &150.into()));
    let traced = json(&["trace", "-e", &span], &words(50, 0, 0));
    assert_eq!(traced.len(), 50);
    for (pid, span) in traced.iter().enumerate() {
        assert_eq!((&span["_event"], &span["begin"]["pid"]), (&"span:call".into(), &pid.into()));
        assert!(span["duration"].is_u64() && span["end"]["ret"].is_number(), "{span}");
    }
}
