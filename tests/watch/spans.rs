//! `perf-prof top` and `perf-prof hist` of spans: counts and durations.

use serde_json::{Value as Json, json as object};

use super::{json, replay, run};
use crate::harness::{
    awake::Awake,
    counting::objects,
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{printed, stdout},
    script::workload,
};

/// The span from `getpgid` to `getsid`, which only tests call. Their argument is the key.
const PAIR: &str = "span:pair=syscalls:sys_enter_getpgid..syscalls:sys_enter_getsid//key=pid/";

/// Returns a workload with a span of key 1 of at least 100 ms, three short spans of key 2, and a span of key 3 that
/// does not end.
fn spans() -> Vec<String> {
    let getsid = libc::SYS_getsid;
    let short = format!("call 2 syscall {getsid} 2 0 0 ");
    workload(&format!("comm pairs call 1 sleep-ms 100 syscall {getsid} 1 0 0 {} call 3", short.repeat(3)))
}

/// Checks the sums of both keys of [`spans`].
fn check_rows(object: &Json) {
    let rows = object["rows"].as_array().unwrap();
    let figure = |row: usize, name: &str| rows[row][name].as_u64().unwrap();
    // The key with the longest total comes first, and not the key with more spans.
    assert!(rows.len() == 2 && figure(0, "total") >= figure(1, "total"), "{object}");
    let (long, short) = if figure(0, "pid") == 1 { (0, 1) } else { (1, 0) };
    assert_eq!((figure(long, "pid"), figure(short, "pid"), &object["events"]), (1, 2, &4.into()), "{object}");
    assert_eq!((figure(long, "count"), figure(short, "count")), (1, 3), "{object}");
    assert!(figure(long, "total") >= 100_000_000, "{object}");
    assert_eq!((figure(long, "total"), figure(long, "total")), (figure(long, "average"), figure(long, "max")));
    assert_eq!(figure(short, "average"), figure(short, "total") / 3, "{object}");
    assert!(figure(short, "max") >= figure(short, "average") && figure(short, "max") < figure(short, "total"));
    let share = |row: usize| rows[row]["share"].as_f64().unwrap();
    let all = figure(0, "total") + figure(1, "total");
    assert!((share(0) - figure(0, "total") as f64 / all as f64).abs() < 1e-9, "{object}");
    assert!((share(0) + share(1) - 1.0).abs() < 1e-9, "{object}");
}

#[test]
fn top_adds_up_durations_with_the_longest_total_first() {
    needs([Need::Tracefs]);
    check_rows(&json(&["top", PAIR, "--by", "pid"], &spans())[0]);
}

#[test]
fn top_counts_spans_by_task() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["top", PAIR], &spans()));
    assert!(lines[0].starts_with("total: 4 spans in "), "{lines:?}");
    let titles = ["comm", "count", "total", "ms", "average", "ms", "max", "ms", "share", "per", "second"];
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), titles);
    let row: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!((row[0], row[1], row[5], lines.len()), ("pairs", "4", "100.0%", 4), "{lines:?}");
    assert!(row[6].parse::<f64>().unwrap() > 0.0, "{row:?}");
    let figures: Vec<f64> = row[2..5].iter().map(|cell| cell.parse().unwrap()).collect();
    let [total, average, max] = figures[..] else { panic!("{lines:?}") };
    // The figures are rounded down to microseconds.
    assert!((average - total / 4.0).abs() <= 0.001 && max >= 100.0 && max <= total, "{lines:?}");
}

#[test]
fn rows_that_are_not_shown_are_counted() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["top", PAIR, "--by", "pid", "-n", "1"], &spans()));
    // If other programs keep the CPUs busy, the short spans may be long.
    let shown = lines[2].split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let rest = if shown == "1 1" { 3 } else { 1 };
    assert!(["1 1", "2 3"].contains(&&*shown), "{lines:?}");
    assert_eq!(lines[3], format!("(1 more key, {rest} together)"));
}

#[test]
fn a_recording_has_the_same_spans() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("spans.data");
    let (command, calls) = (spans(), ["syscalls:sys_enter_getpgid", "syscalls:sys_enter_getsid"]);
    let args = ["-e", calls[0], "-e", calls[1], "--"].into_iter().chain(command.iter().map(String::as_str));
    record_here(&path, &args.collect::<Vec<_>>());
    check_rows(&objects(&replay("top", &path, &["--json", "--by", "pid", PAIR]).join(""))[0]);
    let hist = &objects(&replay("hist", &path, &["--json", "--by", "pid", PAIR]).join(""))[0];
    check_hist(hist);
    // `top` and `hist` show figures of the same spans.
    let top = &objects(&replay("top", &path, &["--json", PAIR]).join(""))[0];
    let hist = &objects(&replay("hist", &path, &["--json", "--unit", "ns", PAIR]).join(""))[0];
    let shown = &objects(&replay("hist", &path, &["--json", "--unit", "ms", PAIR]).join(""))[0];
    for (of_top, of_hist) in [("total", "sum"), ("max", "max"), ("count", "count")] {
        let (of_top, ns) = (&top["rows"][0][of_top], &hist["rows"][0][of_hist]);
        assert_eq!(of_top, ns, "{top} {hist}");
        let divided = if of_hist == "count" { 1.0 } else { 1e6 };
        assert_eq!(shown["rows"][0][of_hist].as_f64().unwrap(), ns.as_f64().unwrap() / divided, "{shown} {hist}");
    }
}

/// Checks the histograms of both keys.
fn check_hist(object: &Json) {
    let rows = object["rows"].as_array().unwrap();
    let sum = |row: usize| rows[row]["sum"].as_f64().unwrap();
    assert!(rows.len() == 2 && sum(0) >= sum(1), "{object}");
    let (long, short) = if rows[0]["pid"] == 1 { (&rows[0], &rows[1]) } else { (&rows[1], &rows[0]) };
    assert_eq!((&long["count"], &short["pid"], &short["count"]), (&1.into(), &2.into(), &3.into()), "{object}");
    assert_eq!((&long["unit"], &long["min"], &long["sum"]), (&"usecs".into(), &long["max"], &long["max"]), "{object}");
    let max = long["max"].as_f64().unwrap();
    assert!(max >= 100_000.0, "{object}");
    let from = 1u64 << max.log2() as u32;
    assert_eq!(long["histogram"], object!([{ "from": from, "count": 1 }]), "{object}");
}

/// The wait begins in the kernel, in a function that the program called.
#[test]
fn the_call_chain_of_a_source_has_the_frames_of_the_program() {
    needs([Need::Tracefs]);
    // On some machines, perf gets no events of a CPU's idle task.
    let _awake = Awake::new();
    let work = workload("comm sleeper sleep-ms 5 sleep-ms 5");
    let chains = |args: &[&str]| -> Vec<String> {
        let object =
            &json(&[&["top", "offcpu/comm=sleeper,state=sleeping/stack/", "--by", "stack"], args].concat(), &work)[0];
        object["rows"].as_array().unwrap().iter().map(|row| row["stack"].as_str().unwrap().to_owned()).collect()
    };
    for args in [&[][..], &["--call-graph", "dwarf,16384"]] {
        let chains = chains(args);
        let is_both =
            |chain: &String| chain.split(';').any(|frame| !frame.ends_with("_[k]") && frame.contains("nanosleep"));
        assert!(chains.iter().any(is_both) && chains.iter().all(|chain| chain.contains("_[k]")), "{args:?} {chains:?}");
    }
}

/// Returns the times in a line, each with its name. The name of the duration is empty. All times have the same format.
fn times(line: &str) -> Vec<(String, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let times = words.windows(2).filter(|pair| pair[1].trim_end_matches(')') == "ms").map(|pair| pair[0]);
    let time = |word: &str| {
        let (name, time) = word.split_once('=').unwrap_or(("", word.trim_start_matches('(')));
        assert_eq!(time.split_once('.').map(|(_, digits)| digits.len()), Some(3), "{line}");
        (name.to_owned(), time.parse().unwrap())
    };
    times.map(time).collect()
}

#[test]
fn all_times_in_lines_of_spans_are_in_milliseconds_with_three_digits() {
    needs([Need::Tracefs]);
    // On some machines, perf gets no events of a CPU's idle task.
    let _awake = Awake::new();
    let work = workload(&format!("comm pairs call 1 sleep-ms 20 syscall {} 1 0 0", libc::SYS_getsid));
    for (events, names) in [
        (PAIR, &[""][..]),
        ("syscall/min=20ms/", &[""]),
        ("offcpu/comm=pairs, state=sleeping, min=20ms/", &["", "blocked", "waited"]),
    ] {
        let lines = printed(&run(&["trace", "-e", events], &work));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let times = times(line);
        assert_eq!(times.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names, "{line}");
        assert!(times[0].1 >= 20.0, "{line}");
        let parts: f64 = times[1..].iter().map(|(_, time)| time).sum();
        // Each time is rounded down.
        assert!(times.len() == 1 || (times[0].1 - parts).abs() <= 0.002, "{line}");
    }
}

#[test]
fn hist_shows_the_durations_of_spans() {
    needs([Need::Tracefs]);
    check_hist(&json(&["hist", PAIR, "--by", "pid"], &spans())[0]);
    let text = stdout(&run(&["hist", PAIR, "--by", "pid"], &spans()));
    assert!(text.contains("pid=1: 1 value, ") && text.contains("pid=2: 3 values, "), "{text}");
}

/// Most locks have no name, so the kind and the task are the default keys.
#[test]
fn locks_are_counted_by_their_kind_and_the_task() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["top", "lock"], &workload("sleep-ms 1")));
    assert_eq!(lines[1].split_whitespace().take(3).collect::<Vec<_>>(), ["kind", "comm", "count"], "{lines:?}");
}

#[test]
fn system_calls_are_counted_by_their_names() {
    needs([Need::Tracefs]);
    let selector = "syscall/name=getsid|getpgid/";
    let object = &json(&["top", selector], &spans())[0];
    let mut rows: Vec<(&str, u64)> = object["rows"].as_array().unwrap().iter().map(name_and_count).collect();
    rows.sort_unstable();
    assert_eq!(rows, [("getpgid", 5), ("getsid", 4)], "{object}");
    let by_error = &json(&["top", selector, "--by", "comm,errno,ret"], &spans())[0];
    assert_eq!(by_error["rows"].as_array().unwrap().iter().map(count).sum::<u64>(), 9, "{by_error}");
}

fn count(row: &Json) -> u64 {
    row["count"].as_u64().unwrap()
}

fn name_and_count(row: &Json) -> (&str, u64) {
    (row["name"].as_str().unwrap(), count(row))
}
