//! Checks that tables and pictures themselves say if some of their events were lost. The recordings are made byte by
//! byte.

use perf_prof_format::abi::{perf_data::HEADER_TRACING_DATA, *};
use serde_json::{Value as Json, json};

use crate::{
    harness::{
        counting::objects,
        machine::{Need, needs},
        made::{Made, MadeAttr, u32s, u64s},
        recording::Folder,
        run::{perf_prof, printed, said, stdout},
        script::{CALL, Run, workload},
        scripts::script,
    },
    replay::made::NATIVE,
};

/// The number of events that the kernel reports as lost.
const LOST: u64 = 5;

/// Returns a recording of six events of two threads, with a loss in the middle.
fn recording(folder: &Folder, attr: MadeAttr, lost: u64) -> String {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    let attr = MadeAttr { flags: SAMPLE_ID_ALL, ..attr };
    let is_tracepoint = attr.kind == PERF_TYPE_TRACEPOINT;
    let mut made = Made::new(attr);
    made.features.push((HEADER_TRACING_DATA, NATIVE.tracing_data()));
    let place = |tid: u32, time: u64| [u32s(&[tid, tid]), u64s(&[time]), u32s(&[0, 0])].concat();
    let ip = |address: u64| if is_tracepoint { Vec::new() } else { u64s(&[address]) };
    let raw = if is_tracepoint { [u32s(&[28, attr.config as u32]), vec![0; 24]].concat() } else { Vec::new() };
    for number in 0..6 {
        let time = 1000 * (number + 1);
        if number == 3 && lost != 0 {
            made = made.record(PERF_RECORD_LOST, 0, &[u64s(&[1, lost]), place(0, time - 1)]);
        }
        made = made.sample(0, &[ip(0x1000), place(7 + number as u32 % 2, time), raw.clone()]);
    }
    made.write(folder)
}

/// Returns a recording of the tracepoint in the formats of [`NATIVE`].
fn of_tracepoint(folder: &Folder, lost: u64) -> String {
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let attr = MadeAttr { kind: PERF_TYPE_TRACEPOINT, config: 0x176, ..MadeAttr::new(members) };
    recording(folder, attr, lost)
}

/// Returns a recording of a profile.
fn of_clock(folder: &Folder, lost: u64) -> String {
    recording(folder, MadeAttr::new(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU), lost)
}

fn total_of(args: &[&str]) -> Json {
    objects(&stdout(&perf_prof(args).arg("--json").output().unwrap())).pop().unwrap()
}

#[test]
fn tables_of_events_of_which_some_were_lost_are_lower_bounds() {
    let folder = Folder::new();
    for command in [&["top", "sys:e", "--by", "_tid"][..], &["hist", "sys:e", "--value", "_tid"]] {
        let path = of_tracepoint(&folder, LOST);
        let table = printed(&perf_prof(&[command, &["-q", "--input", &path]].concat()).output().unwrap());
        assert!(table[0].starts_with("total: at least 6 events in "), "{table:?}");
        assert!(table.contains(&"(at least: 5 events were lost)".to_owned()), "{table:?}");
        let total = total_of(&[command, &["-q", "--input", &path]].concat());
        assert_eq!((&total["partial"], &total["lost"], &total["events"]), (&true.into(), &LOST.into(), &6.into()));
        let complete = of_tracepoint(&folder, 0);
        let table = printed(&perf_prof(&[command, &["-q", "--input", &complete]].concat()).output().unwrap());
        assert!(table[0].starts_with("total: 6 events in ") && !table.concat().contains("at least"), "{table:?}");
        let total = total_of(&[command, &["-q", "--input", &complete]].concat());
        assert_eq!((&total["partial"], total.get("lost")), (&false.into(), None), "{total}");
    }
}

/// Lost records have no event and no exact time, so losses of a part may be those of others.
#[test]
fn losses_of_a_selected_time_are_an_upper_bound() {
    let folder = Folder::new();
    let path = of_tracepoint(&folder, LOST);
    for (time, bound) in [(&["--time", "0,1"][..], "up to 5"), (&[], "5")] {
        for jobs in [&[][..], &["--jobs", "2"]] {
            let outcome =
                Run::script(SUMS).event("sys:e").options(["--input", &path]).options(time).options(jobs).run();
            assert!(outcome.stdout.ends_with(&format!("'{bound} events were lost'\n")), "{}", outcome.stdout);
            assert!(
                outcome
                    .stderr
                    .contains(&format!("perf-prof: lost {bound} of 11 events ({}", &bound[..bound.len() - 1])),
                "{}",
                outcome.stderr
            );
        }
        let top = perf_prof(&["top", "sys:e", "--by", "_tid", "--input", &path]).args(time).output().unwrap();
        assert!(stdout(&top).contains(&format!("(at least: {bound} events were lost)")), "{}", stdout(&top));
    }
}

#[test]
fn each_interval_has_its_own_losses() {
    needs([Need::Tracefs]);
    // Rings of one page lose most of the calls, and nothing while the program sleeps.
    let work = workload("calls 200000 sleep-ms 1500");
    let options = ["-q", "--json", "-i", "100ms", "--in-kernel", "never", "-m", "1", "--buffer", "4K"];
    for command in [&["top", CALL, "--by", "_tid"][..], &["hist", CALL, "--value", "_tid"]] {
        let output = perf_prof(&[command, &options, &["--"]].concat()).args(&work).output().unwrap();
        let objects = objects(&stdout(&output));
        let (total, intervals) = objects.split_last().unwrap();
        let lost: Vec<u64> = intervals.iter().map(|of| of["lost"].as_u64().unwrap_or(0)).collect();
        assert_eq!(total["events"].as_u64().unwrap() + total["lost"].as_u64().unwrap(), 200_000, "{total}");
        assert_eq!((lost.iter().sum::<u64>(), &total["partial"]), (total["lost"].as_u64().unwrap(), &true.into()));
        for (interval, lost) in intervals.iter().zip(&lost) {
            assert_eq!(interval["partial"], *lost != 0, "{interval}");
        }
        let last = intervals.last().unwrap();
        assert_eq!((&last["partial"], &last["events"]), (&false.into(), &0.into()), "{last}");
    }
}

const SUMS: &str = "
import perf_prof
from perf_prof import Count, FlameGraph, Heatmap, Hist, Top, missing

handlers = [Count('_tid'), Hist('_tid'), Top(2, '_tid', keep='_tid')]
sys__e = handlers
graph, heat = FlameGraph('stacks', subtitle='own'), Heatmap('times')

def __partial__(): return None
def __merge__(partials): list(partials)

def __exit__():
    for handler in handlers:
        handler.print()
        print('5 events were lost' in handler._repr_html_())
    graph.add(['a', 'b'])
    heat.add(1, 1)
    print('>own<' in graph._repr_svg_() and '>partial: 5 events were lost<' in graph._repr_svg_())
    print('partial: 5 events were lost' in heat._repr_svg_())
    print(repr(missing()))
";

#[test]
fn aggregators_and_pictures_of_a_run_that_lost_events_say_so() {
    let folder = Folder::new();
    let run = |lost: u64, jobs: &str| {
        let path = of_tracepoint(&folder, lost);
        let outcome = Run::script(SUMS).event("sys:e").options(["--input", &path, "--jobs", jobs]).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        outcome.stdout
    };
    for jobs in ["1", "2"] {
        let shown = run(LOST, jobs);
        assert_eq!(shown.matches("(at least: 5 events were lost)\n").count(), 2, "{shown}");
        assert_eq!(shown.matches("(there may have been larger ones: 5 events were lost)\n").count(), 1, "{shown}");
        assert!(shown.ends_with("True\nTrue\nTrue\n'5 events were lost'\n") && !shown.contains("False"), "{shown}");
        let complete = run(0, jobs);
        assert!(complete.ends_with("False\nFalse\nFalse\n''\n") && !complete.contains("lost"), "{complete}");
    }
}

const BY_HAND: &str = "
from perf_prof import Count, Hist, Sum, Top

tables = [Count('_tid'), Sum('_tid'), Hist('_tid'), Top(2, '_tid', keep='_tid')]

def sys__e(event):
    for table in tables:
        table(event)

def __partial__(): return tables

def __merge__(partials):
    for partial in partials:
        for table, more in zip(tables, partial):
            table.update(more)

def __exit__():
    for table in tables:
        table.print()
        print('5 events were lost' in table._repr_html_())
";

#[test]
fn aggregators_that_a_function_fills_say_which_events_are_missing() {
    let folder = Folder::new();
    for (jobs, lost) in [("1", LOST), ("2", LOST), ("1", 0), ("2", 0)] {
        let path = of_tracepoint(&folder, lost);
        let outcome = Run::script(BY_HAND).event("sys:e").options(["--input", &path, "--jobs", jobs]).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let shown = outcome.stdout;
        let notes = ["(at least: 5 events were lost)\n", "larger ones: 5 events were lost)\n", "True\n"];
        let expected = if lost == 0 { [0, 0, 0] } else { [3, 1, 4] };
        assert_eq!(notes.map(|note| shown.matches(note).count()), expected, "{jobs} {lost}: {shown}");
    }
}

#[test]
fn tables_of_scripts_say_how_many_events_were_lost() {
    let folder = Folder::new();
    let run = |lost: u64| {
        let path = of_clock(&folder, lost);
        printed(&script("profile.py").args(["-q", "--input", &path]).output().unwrap())
    };
    assert!(run(LOST).contains(&"(at least: 5 events were lost)".to_owned()), "{:?}", run(LOST));
    assert!(!run(0).concat().contains("at least"), "{:?}", run(0));
}

#[test]
fn a_report_with_lost_events_is_partial_in_json_and_in_pictures() {
    let folder = Folder::new();
    let path = of_clock(&folder, LOST);
    let report = |args: &[&str]| stdout(&perf_prof(&[&["report", "-q", "-i", &path], args].concat()).output().unwrap());
    assert!(report(&[]).contains("# Total Lost Samples: 5\n"));
    let of_json = |args: &[&str]| -> Json { serde_json::from_str(&report(&[&["--json"], args].concat())).unwrap() };
    assert_eq!((&of_json(&[])["partial"], &of_json(&[])["lost"]), (&true.into(), &LOST.into()));
    let complete = Folder::new();
    let before = of_clock(&complete, 0);
    assert_eq!(of_json(&["--diff", &before])["partial"], true);
    let picture = folder.path("flame.svg");
    for (args, side) in [(&[][..], ""), (&["--diff", &before], "after: ")] {
        report(&[&["--flame", picture.to_str().unwrap()], args].concat());
        let svg = std::fs::read_to_string(&picture).unwrap();
        assert_eq!(svg.matches(&format!(">partial: {side}5 events lost<")).count(), 1, "{args:?}");
    }
    let whole: Json =
        serde_json::from_str(&stdout(&perf_prof(&["report", "-q", "--json", "-i", &before]).output().unwrap()))
            .unwrap();
    assert_eq!(whole["partial"], false);
}

/// An earlier picture is all that is left if a selection is empty by mistake.
#[test]
fn a_report_without_samples_leaves_an_earlier_picture_as_it_is() {
    let folder = Folder::new();
    let path = of_clock(&folder, 0);
    for (name, args) in [
        ("keep.svg", &[][..]),
        ("keep.svg", &["--diff", &path]),
        ("keep.folded", &[]),
        ("keep.folded", &["--diff", &path]),
    ] {
        let picture = folder.write(name, b"earlier");
        let output = perf_prof(&["report", "-i", &path, "-c", "nope", "--flame"]).arg(&picture).args(args).output();
        let output = output.unwrap();
        assert!(output.status.code() == Some(1) && said(&output).contains("no stacks were added"), "{output:?}");
        assert_eq!(std::fs::read_to_string(&picture).unwrap(), "earlier");
    }
}

#[test]
fn exported_lines_of_a_recording_with_lost_events_say_so_at_the_end() {
    for lost in [LOST, 0] {
        let folder = Folder::new();
        let path = of_tracepoint(&folder, lost);
        let export = |form: &str| perf_prof(&["export", "-o", "-", "--format", form, "-i", &path]).output().unwrap();
        let lines = objects(&stdout(&export("ndjson")));
        let (events, marks): (Vec<&Json>, Vec<&Json>) = lines.iter().partition(|line| line.get("kind").is_none());
        let expected =
            json!({ "kind": "total", "partial": true, "lost": LOST, "damaged": false, "reasons": "5 events lost" });
        assert_eq!((events.len(), marks), (6, if lost == 0 { vec![] } else { vec![&expected] }));
        let profile: Json = serde_json::from_str(&stdout(&export("firefox"))).unwrap();
        let product = profile["meta"]["product"].as_str().unwrap();
        assert_eq!(product.ends_with(" (partial: 5 events lost)"), lost != 0, "{product}");
        let (trace, mark) = (export("pftrace").stdout, b"partial: 5 events lost");
        assert_eq!(trace.windows(mark.len()).filter(|text| text == mark).count(), if lost == 0 { 0 } else { 3 });
        let table = export("csv");
        let line = "the standard output is incomplete, and its format has no place for a note: 5 events lost";
        assert_eq!((stdout(&table).lines().count(), said(&table).contains(line)), (7, lost != 0), "{}", said(&table));
    }
}

/// Returns the offset of the last sample in a recording of the tracepoint.
fn last_sample(bytes: &[u8]) -> usize {
    const RAW_DATA: usize = 32;
    bytes.windows(8).rposition(|window| window == u32s(&[28, 0x176])).unwrap() - RAW_DATA
}

/// Damages the size of the last sample.
fn damage(path: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let size = last_sample(&bytes) + 6;
    bytes[size..size + 2].fill(0);
    std::fs::write(path, &bytes).unwrap();
}

#[test]
fn results_of_a_damaged_recording_are_lower_bounds() {
    const REASON: &str = "a part of the recording cannot be read";
    let folder = Folder::new();
    let path = of_tracepoint(&folder, 0);
    damage(&path);
    for command in [&["top", "sys:e", "--by", "_tid"][..], &["hist", "sys:e", "--value", "_tid"]] {
        let table = printed(&perf_prof(&[command, &["-q", "--input", &path]].concat()).output().unwrap());
        assert!(table[0].starts_with("total: at least 5 events in "), "{table:?}");
        assert!(table.contains(&format!("(at least: {REASON})")), "{table:?}");
        let total = total_of(&[command, &["-q", "--input", &path]].concat());
        let members = (&total["partial"], &total["damaged"], &total["events"]);
        assert_eq!(members, (&true.into(), &true.into(), &5.into()));
    }
    let script = format!("{SUMS}    print(perf_prof.stats()['partial'])\n");
    for jobs in ["1", "2"] {
        let outcome = Run::script(&script).event("sys:e").options(["--input", &path, "--jobs", jobs]).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let shown = outcome.stdout;
        assert_eq!(shown.matches(&format!("(at least: {REASON})\n")).count(), 2, "{shown}");
        assert!(shown.ends_with(&format!("'{REASON}'\nTrue\n")), "{shown}");
    }
    let report = |args: &[&str]| stdout(&perf_prof(&[&["report", "-q", "-i", &path], args].concat()).output().unwrap());
    assert!(report(&[]).contains(&format!("# Partial: {REASON}\n")));
    let of_json = |args: &[&str]| -> Json { serde_json::from_str(&report(&[&["--json"], args].concat())).unwrap() };
    assert_eq!(of_json(&[])["partial"], true);
    // The difference says which recording is damaged.
    let complete = Folder::new();
    let whole = of_tracepoint(&complete, 0);
    assert!(report(&["--diff", &whole]).contains(&format!("# Partial after: {REASON}\n#\n")));
    assert_eq!(of_json(&["--diff", &whole])["damaged"], json!({ "before": false, "after": true }));
    let picture = folder.path("flame.svg");
    report(&["--flame", picture.to_str().unwrap()]);
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(svg.matches(&format!(">partial: {REASON}<")).count(), 1);
}

/// Returns the last JSON line of `top`, and stderr.
fn total_and_said(path: &str) -> (Json, String) {
    let output = perf_prof(&["top", "sys:e", "--by", "_tid", "--json", "-q", "--input", path]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (objects(&stdout(&output)).pop().unwrap(), said)
}

/// perf fails at a record whose type no recorder writes.
#[test]
fn a_record_whose_type_no_recorder_writes_is_damage_and_one_of_a_newer_kernel_is_not() {
    let folder = Folder::new();
    let told = "is damaged: 1 record is left out, because the type in the header is wrong";
    for (kind, is_damage) in [(0, true), (23, false), (91, false), (255, false), (256, true), (9 << 24, true)] {
        let path = of_tracepoint(&folder, 0);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = last_sample(&bytes);
        bytes[at..at + 4].copy_from_slice(&u32s(&[kind]));
        std::fs::write(&path, &bytes).unwrap();
        let (total, said) = total_and_said(&path);
        assert_eq!((&total["events"], &total["partial"]), (&5.into(), &is_damage.into()), "{kind}: {said}");
        assert!(said.contains(told) == is_damage && said.is_empty() != is_damage, "{kind}: {said}");
    }
}

#[test]
fn samples_with_less_data_than_their_format_says_are_damage() {
    let folder = Folder::new();
    let path = of_tracepoint(&folder, 0);
    let mut bytes = std::fs::read(&path).unwrap();
    let raw = last_sample(&bytes) + 32;
    bytes[raw..raw + 4].copy_from_slice(&u32s(&[8]));
    std::fs::write(&path, &bytes).unwrap();
    let (total, said) = total_and_said(&path);
    assert_eq!((&total["events"], &total["partial"]), (&6.into(), &true.into()), "{said}");
    assert!(said.contains("is damaged: 1 sample is shorter than the format of the event says"), "{said}");
}
