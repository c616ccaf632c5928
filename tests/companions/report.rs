//! Compares the tables of `perf-prof report` with the tables of the real `perf report`.

use std::{collections::BTreeMap, path::Path, process::Command};

use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    recording::{ours, perf, record},
    run::{perf_prof, printed, stdout},
};

/// Returns the titles, sums and lines of a table, sorted, because the order of lines with equal shares does not matter.
/// The widths of columns do not matter either: perf's depend on whether the first sample of a line has a symbol.
fn table(lines: Vec<String>) -> Vec<String> {
    let is_said = |line: &String| {
        !line.is_empty()
            && !line.starts_with("# ....")
            && line != "#"
            && !line.starts_with("# (Tip")
            && !line.contains("--header")
    };
    // With `--no-group`, perf prints "events" even for one event.
    let words =
        |line: String| line.replace(" of events '", " of event '").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = lines.into_iter().filter(is_said).map(words).collect();
    lines.sort();
    lines
}

/// Compares what `perf report` and `perf-prof report` print for a recording.
#[track_caller]
pub fn compare(path: &Path, perf_args: &[&str], args: &[&str]) {
    let of_perf = perf(&[&["report", "--stdio", "-g", "none"], perf_args].concat(), path);
    let (of_perf, ours) = (table(of_perf), table(ours(&[&["report"], args].concat(), path)));
    assert!(of_perf.len() > 4, "{of_perf:?}");
    assert_eq!(ours, of_perf, "{args:?}");
}

const LS: [&str; 4] = ["--", "ls", "-lR", "/usr/share/doc"];

#[test]
fn shares_are_those_of_perf() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "cpu-clock,page-faults"][..], &LS].concat());
    for keys in ["comm,dso", "comm", "dso"] {
        compare(&path, &["--no-children", "--sort", keys], &["--sort", keys]);
    }
    // Samples of equal weight give equal tables too.
    let path = folder.path().join("counted.data");
    record(&path, &[&["-e", "cpu-clock", "-c", "1000000", "-g"][..], &LS].concat());
    compare(&path, &["--no-children", "--sort", "comm,dso"], &["--sort", "comm,dso"]);
    compare(&path, &["--children", "--sort", "comm"], &["--children", "--sort", "comm"]);
}

/// Users of perf write these options, which are the default here.
#[test]
fn options_for_text_without_callees_change_nothing() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "-e", "cpu-clock"][..], &LS].concat());
    compare(&path, &["--no-children", "--sort", "comm,dso"], &["--stdio", "--no-children", "--sort", "comm,dso"]);
    let last_wins = ["report", "--no-children", "--children", "--sort", "comm"];
    assert_eq!(ours(&last_wins, &path), ours(&["report", "--children", "--sort", "comm"], &path));
    assert_ne!(ours(&last_wins, &path), ours(&["report", "--sort", "comm"], &path));
    assert_eq!(ours(&["report", "-a", "-v", "--sort", "comm"], &path), ours(&["report", "--sort", "comm"], &path));
}

#[test]
fn shares_of_tracepoints_and_of_all_tasks_are_those_of_perf() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &["--threads", "-e", "sched:sched_switch", "-a", "--", "sleep", "0.3"]);
    compare(&path, &["--no-children", "--sort", "comm,dso"], &["--sort", "comm,dso"]);
}

#[test]
fn callers_flame_graph_and_json() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "-e", "cpu-clock"][..], &LS].concat());
    let json = ours(&["report", "--json", "--children"], &path).join("\n");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let event = &json["events"][0];
    let lines = event["lines"].as_array().unwrap();
    let sum = |key: &str| lines.iter().filter_map(|line| line[key].as_u64()).sum::<u64>();
    assert_eq!(
        (sum("period"), sum("samples")),
        (event["period"].as_u64().unwrap(), event["samples"].as_u64().unwrap())
    );
    let entry = lines.iter().find(|line| line["symbol"] == "[k] do_syscall_64").unwrap();
    assert!(entry["children"].as_u64() > entry["period"].as_u64(), "{entry}");
    // In the tree, `do_syscall_64` is below the functions that it calls, so it is indented.
    let tree = ours(&["report", "-g", "--sort", "symbol"], &path);
    assert!(tree.iter().any(|line| line.trim_end().ends_with(" do_syscall_64") && line.starts_with("        ")));
    let svg = folder.path().join("x.svg");
    printed(&perf_prof(&["report", "--flame"]).arg(&svg).arg("-i").arg(&path).output().unwrap());
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("do_syscall_64"), "{}", svg.len());
    // The ending of the file's name selects text and not a picture. With `-q`, nothing is printed, not even the path.
    let text = folder.path().join("x.folded");
    let output = perf_prof(&["report", "-q", "--flame"]).arg(&text).arg("-i").arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = std::fs::read_to_string(text).unwrap();
    assert!(text.lines().all(|line| line.starts_with("ls;") || line.starts_with("perf")), "{text}");
    assert!(text.contains(";do_syscall_64"), "{text}");
}

/// Returns the text of the element of a picture with this id.
fn text_of<'a>(svg: &'a str, id: &str) -> &'a str {
    let (_, after) = svg.split_once(&format!("id=\"{id}\"")).unwrap();
    after.split_once('>').unwrap().1.split_once('<').unwrap().0
}

#[test]
fn a_flame_graph_says_how_many_call_chains_memory_cut_off() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let [path, svg] = ["perf.data", "x.svg"].map(|name| folder.path().join(name));
    record(&path, &[&["-g", "-e", "page-faults"][..], &LS].concat());
    let drawn = |buffer: &str| {
        let output =
            perf_prof(&["report", "-q", "--buffer", buffer, "--flame"]).arg(&svg).arg("-i").arg(&path).output();
        assert!(output.as_ref().unwrap().status.success(), "{output:?}");
        std::fs::read_to_string(&svg).unwrap()
    };
    let (small, large) = (drawn("4K"), drawn("64M"));
    assert!(small.contains("partial: ") && small.contains(" samples are cut off"), "{}", text_of(&small, "subtitle"));
    assert!(!large.contains(" are cut off"));
}

/// Frames without a symbol are one box, so the picture of a stripped program does not show how long its chains are.
#[test]
fn what_is_in_chains_that_may_be_cut_off_is_said() {
    needs([Need::Python, Need::Tracefs, Need::Perf, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <unistd.h>\n\
        static __attribute__((noinline)) int deep(int n) { int to = n ? deep(n - 1) : getppid() & 0; return to + 1; }\n\
        int main(void) { for (int i = 0; i < 20; i++) deep(300); return 0; }\n";
    let deep = compile(folder.path(), "deep", source, &[FRAMES, &["-s"]].concat());
    let files = ["perf.data", "x.svg", "y.svg", "z.svg", "x.pb", "s.pb.gz", "x.json"];
    let [path, report, graph, pickled, pprof, stacks, firefox] =
        files.map(|name| folder.path().join(name).display().to_string());
    let record = ["record", "-q", "-g", "-e", "syscalls:sys_enter_getppid", "-o", &path, "--"];
    printed(&perf_prof(&record).arg(&deep).output().unwrap());
    let script = folder.path().join("s.py");
    let text = format!(
        "import pickle\nfrom perf_prof import FlameGraph, Stacks\ngraph, table = FlameGraph(), Stacks()\n\
         syscalls__sys_enter_getppid = table, graph.add\n\
         def __exit__():\n    graph.save({graph:?})\n    other = FlameGraph()\n    \
         other.update(pickle.loads(pickle.dumps(graph)))\n    other.save({pickled:?})\n    table.save({stacks:?})\n"
    );
    std::fs::write(&script, text).unwrap();
    printed(&perf_prof(&["report", "-q", "--flame", &report, "-i", &path]).output().unwrap());
    for to in [&pprof, &firefox] {
        printed(&perf_prof(&["export", "-q", "-o", to, "-i", &path]).output().unwrap());
    }
    printed(&perf_prof(&["python", "-q", "--input", &path]).arg(&script).output().unwrap());
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("100.0 % is in stacks of 127 frames or more");
    for file in [&report, &graph, &pickled, &pprof, &firefox] {
        assert!(said(&std::fs::read(file).unwrap()), "{file}");
    }
    let unpacked = Command::new("gzip").args(["-dc", &stacks]).output().unwrap().stdout;
    assert!(said(&unpacked));
}

/// The name `profile` says nothing about the unit: it samples cycles or a clock.
#[test]
fn a_flame_graph_of_a_profile_says_its_unit_where_and_when() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let [path, svg, script, profile] =
        ["perf.data", "x.svg", "y.svg", "x.pb"].map(|name| folder.path().join(name).display().to_string());
    let sums = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    printed(&perf_prof(&["record", "-g", "-e", "profile", "-o", &path, "--", "sh", "-c", sums]).output().unwrap());
    let args = ["report", "--json", "--flame", &svg, "--pprof", &profile, "-i", &path];
    let json: serde_json::Value = serde_json::from_str(&stdout(&perf_prof(&args).output().unwrap())).unwrap();
    let event = &json["events"][0];
    let period = event["period"].as_u64().unwrap();
    let is_clock = event["unit"] == "ns";
    let sum =
        if is_clock { format!("{:.3} ms of CPU time in ", period as f64 / 1e6) } else { " cycles in ".to_owned() };
    let svg = std::fs::read_to_string(svg).unwrap();
    let subtitle = text_of(&svg, "subtitle");
    assert!(subtitle.contains(&sum), "{subtitle}");
    assert!(svg.contains(if is_clock { " us, 100%)</title>" } else { " cycles, 100%)</title>" }), "{}", svg.len());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let title = text_of(&svg, "title");
    let date = title.strip_prefix(&format!("profile on {}, 20", host.trim())).unwrap_or_else(|| panic!("{title}"));
    assert!(date.len() == 24 && date.bytes().all(|byte| b"0123456789-: +".contains(&byte)), "{title}");
    let bytes = std::fs::read(&profile).unwrap();
    assert_eq!(bytes.windows(11).any(|text| text == b"nanoseconds"), is_clock);
    // A script says the same of the recording.
    let output =
        crate::harness::scripts::script("profile.py").args(["-q", "--input", &path, "--flame", &script]).output();
    assert!(output.as_ref().unwrap().status.success(), "{output:?}");
    let script = std::fs::read_to_string(script).unwrap();
    let (_, within) = subtitle.split_once(" in ").unwrap();
    let within = within.split_once([';', ',']).map_or(within, |(within, _)| within);
    let shown = text_of(&script, "subtitle");
    let (before, after) = shown.split_once(" a second of CPU time; ").unwrap_or_else(|| panic!("{shown}"));
    assert!(before.contains(&format!(" samples in {within}, ")), "{shown}");
    assert!(after.starts_with(&format!("{}, 20{date}", host.trim())), "{shown}");
    assert_eq!(text_of(&script, "title"), "CPU Profile");
    // The command says which part of the events the picture shows.
    assert!(svg.contains(">perf-prof report ") && script.contains(">perf-prof python -q "));
}

/// A sum of nanoseconds and page faults would mean nothing, and the faults would be invisible in it.
#[test]
fn events_are_apart_in_a_flame_graph() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "-e", "cpu-clock,page-faults"][..], &LS].concat());
    let text = folder.path().join("x.folded");
    printed(&perf_prof(&["report", "--flame"]).arg(&text).arg("-i").arg(&path).output().unwrap());
    let text = std::fs::read_to_string(text).unwrap();
    let table = ours(&["report"], &path);
    for name in ["cpu-clock", "page-faults"] {
        let of_event = text.lines().filter(|line| line.starts_with(&format!("{name};")));
        let sum: u64 = of_event.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        let at = table.iter().position(|line| line.ends_with(&format!(" of event '{name}'"))).unwrap();
        assert_eq!(table[at + 1], format!("# Event count (approx.): {sum}"));
    }
    let svg = folder.path().join("x.svg");
    printed(&perf_prof(&["report", "--flame"]).arg(&svg).arg("-i").arg(&path).output().unwrap());
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(
        text_of(&svg, "subtitle").starts_with("2 kinds of events (each has the same width) in "),
        "{}",
        text_of(&svg, "subtitle")
    );
    for (root, unit) in [
        ("all (2 kinds of events, 100%)", ""),
        ("cpu-clock: ", " us (100.00%)"),
        ("page-faults: ", " page-faults (100.00%)"),
    ] {
        let is_root = |title: &&str| title.starts_with(root) && title.ends_with(unit);
        let titles = svg.split("<title>").filter_map(|rest| Some(rest.split_once("</title>")?.0));
        assert_eq!(titles.filter(is_root).count(), 1, "{root}");
    }
}

/// Returns the first weight (before the last blank) and the second one of each stack.
fn two_weights(text: &str) -> Vec<(&str, u64, u64)> {
    let row = |line: &'_ str| -> Option<(usize, u64, u64)> {
        let (rest, after) = line.rsplit_once(' ')?;
        let (stack, before) = rest.rsplit_once(' ')?;
        Some((stack.len(), before.parse().ok()?, after.parse().ok()?))
    };
    let of_line = |line| row(line).map(|(end, before, after)| (&line[..end], before, after));
    text.lines().map(|line: &str| of_line(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn the_difference_of_two_recordings_has_the_weights_of_both() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let events = ["-g", "-e", "cpu-clock"];
    record(&file("before.data"), &[&events[..], &LS].concat());
    let sums = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    record(&file("after.data"), &[&events[..], &["--", "sh", "-c", sums]].concat());
    let flame = |of: &str, to: &str, more: &[&str]| {
        let output = perf_prof(&["report", "-q", "--flame", to, "-i", of]).args(more).current_dir(&folder).output();
        printed(&output.unwrap());
        std::fs::read_to_string(file(to)).unwrap()
    };
    let both = flame("after.data", "x.folded", &["--diff", "before.data"]);
    for (of, weight) in [("before.data", 1), ("after.data", 2)] {
        let alone = flame(of, "alone.folded", &[]);
        let part = two_weights(&both).into_iter().filter_map(|(stack, before, after)| {
            let count = [before, after][weight - 1];
            (count != 0).then(|| format!("{stack} {count}"))
        });
        assert_eq!(part.collect::<Vec<_>>(), alone.lines().collect::<Vec<_>>(), "{of}");
    }
    assert!(two_weights(&both).iter().any(|(stack, before, after)| stack.starts_with("ls;") && before > after));
    let svg = flame("after.data", "x.svg", &["--diff", "before.data"]);
    assert!(svg.contains("a larger share than in before.data") && svg.contains("; new)</title>"), "{}", svg.len());
    // The events of the two recordings differ, so their weights may have different units.
    record(&file("other.data"), &[&["-e", "page-faults"][..], &LS].concat());
    let compare = |of: &str| {
        let args = ["report", "-q", "--flame", "z.svg", "-i", "after.data", "--diff", of];
        let output = perf_prof(&args).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = compare("other.data");
    assert!(said.contains("warning: the recordings have no event in common"), "{said}");
    assert!(said.contains("page-faults") && said.contains("cpu-clock"), "{said}");
    assert!(!compare("before.data").contains("warning"));
    let output = perf_prof(&["report", "-i", "after.data", "--flame", "y.svg", "--diff", "not-there.data"]);
    let output = { output }.current_dir(&folder).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("not-there.data"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

/// The table of a difference is compared with the tables of both recordings, or of both parts.
#[test]
fn the_difference_of_two_tables_has_the_sums_of_both() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    record(&file("before.data"), &[&["-e", "cpu-clock"][..], &LS].concat());
    let sums = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    record(&file("after.data"), &["-e", "cpu-clock", "--", "sh", "-c", sums]);
    let report = |args: &[&str]| -> serde_json::Value {
        let all = [&["report", "-q", "--json", "--sort", "comm,symbol"][..], args].concat();
        serde_json::from_str(&stdout(&perf_prof(&all).current_dir(&folder).output().unwrap())).unwrap()
    };
    // For each line, its key, and the period and number of its samples.
    let weights = |report: &serde_json::Value, side: Option<&str>| -> BTreeMap<String, (u64, u64)> {
        let line = |line: &serde_json::Value| {
            let of = side.map_or(line, |side| &line[side]);
            let weight = (of["period"].as_u64().unwrap(), of["samples"].as_u64().unwrap());
            (format!("{} {}", line["comm"], line["symbol"]), weight)
        };
        let lines = report["events"][0]["lines"].as_array().unwrap();
        lines.iter().map(line).filter(|(_, weight)| weight.1 != 0).collect()
    };
    for (before, after, difference) in [
        (&["-i", "before.data"][..], &["-i", "after.data"][..], &["-i", "after.data", "--diff", "before.data"][..]),
        (
            &["-i", "after.data", "--time", "0%-50%"],
            &["-i", "after.data", "--time", "50%-100%"],
            &["-i", "after.data", "--time", "50%-100%", "--diff-time", "0%-50%"],
        ),
    ] {
        let both = report(difference);
        assert_eq!(weights(&both, Some("before")), weights(&report(before), None), "{difference:?}");
        assert_eq!(weights(&both, Some("after")), weights(&report(after), None), "{difference:?}");
        let lines = both["events"][0]["lines"].as_array().unwrap();
        let changes: Vec<f64> = lines.iter().map(|line| line["change"].as_f64().unwrap()).collect();
        assert!(changes.iter().sum::<f64>().abs() < 0.01, "{changes:?}");
        assert!(changes.is_sorted_by(|a, b| a.abs() >= b.abs()), "{changes:?}");
    }
    let table = perf_prof(&["report", "-q", "--sort", "comm", "-i", "after.data", "--diff", "before.data"]);
    let table = stdout(&{ table }.current_dir(&folder).output().unwrap());
    for (comm, shares) in [("sh", "   0.00%   100.00%  +100.00"), ("ls", " 100.00%     0.00%  -100.00")] {
        assert!(table.lines().any(|line| line.starts_with(shares) && line.trim_end().ends_with(comm)), "{table}");
    }
    let refused = perf_prof(&["report", "-g", "--diff", "before.data"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn errors_name_what_is_wrong() {
    let output = perf_prof(&["report", "--sort", "comm,file"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("there is no key `file`"), "{text}");
    let output = perf_prof(&["report", "--flame", "x.txt"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("must end in .svg or .folded"), "{text}");
    // The recording does not exist, so this error comes before it is read.
    let output = perf_prof(&["report", "-i", "not-there.data", "--flame", "/no/such/x.svg"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("there is no folder '/no/such'"), "{text}");
    let output = perf_prof(&["report", "-i", "not-there.data"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("not-there.data"), "{text}");
}

#[test]
fn only_the_samples_of_the_given_events_are_added_up() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "cpu-clock,page-faults"][..], &LS].concat());
    let titles = |args: &[&str]| -> Vec<String> {
        let lines = ours(&[&["report"], args].concat(), &path);
        lines.into_iter().filter(|line| line.starts_with("# Samples: ")).collect()
    };
    let both = titles(&[]);
    assert_eq!(both.len(), 2, "{both:?}");
    for event in ["cpu-clock", "page-faults"] {
        let one = titles(&["-e", event]);
        assert!(one.len() == 1 && one[0].contains(event) && both.contains(&one[0]), "{one:?} {both:?}");
    }
    let mut none = perf_prof(&["report", "-e", "sched:sched_switch", "-i"]);
    let output = none.arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("sched:sched_switch is not in "), "{said}");
}
