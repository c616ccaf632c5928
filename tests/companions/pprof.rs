//! What the real pprof reads in profiles, compared with `perf-prof report --json`.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde_json::Value;

use crate::harness::{
    machine::{Need, needs},
    recording::{ours, record},
    run::stdout,
};

/// Works in a function that is inlined into another function, and then in the other function itself.
const WORK: &str = "
static inline __attribute__((always_inline)) long inner(long n) {
    long s = n;
    for (long i = 0; i < n; i++) __asm__ volatile(\"\" : \"+r\"(s));
    return s;
}
__attribute__((noinline)) long outer(long n) { return inner(n) + 1; }
int main(void) {
    volatile long x = 0;
    for (int i = 0; i < 400; i++) x += outer(1000000);
    return 0;
}";

/// A profile as pprof sees it.
#[derive(Default)]
struct Read {
    text: String,
    /// The values of each sample with its labels.
    samples: Vec<(Vec<i64>, BTreeMap<String, String>)>,
}

fn pprof(args: &[&str], path: &Path) -> String {
    let output = Command::new("go").args(["tool", "pprof"]).args(args).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

fn read(path: &Path) -> Read {
    let text = pprof(&["-raw"], path);
    let mut read = Read { text: text.clone(), ..Read::default() };
    let samples = text.lines().skip_while(|line| !line.contains("/count")).skip(1);
    for line in samples.take_while(|line| *line != "Locations") {
        if !line.contains(":[") {
            let values = line.split_once(':').unwrap().0.split_whitespace();
            read.samples.push((values.map(|value| value.parse().unwrap()).collect(), BTreeMap::new()));
            continue;
        }
        let labels = line.trim().trim_end_matches(']').split("] ").filter_map(|label| label.split_once(":["));
        for (key, value) in labels {
            // pprof prints the unit after a number. The unit is the name of the label.
            let value = value.strip_suffix(key).map_or(value, str::trim_end);
            read.samples.last_mut().unwrap().1.insert(key.to_owned(), value.to_owned());
        }
    }
    read
}

fn report(args: &[&str], path: &Path) -> Vec<Value> {
    let json = ours(&[&["report", "--json"], args].concat(), path).join("\n");
    let json: Value = serde_json::from_str(&json).unwrap();
    json["events"].as_array().unwrap().clone()
}

/// Returns the sums of the values by some labels.
fn sums(read: &Read, by: &[&str]) -> BTreeMap<Vec<String>, Vec<i64>> {
    let mut sums: BTreeMap<Vec<String>, Vec<i64>> = BTreeMap::new();
    for (values, labels) in &read.samples {
        let key = by.iter().map(|key| labels[*key].clone()).collect();
        let sum = sums.entry(key).or_insert_with(|| vec![0; values.len()]);
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// Returns the sums by the same labels from the report's table of the event `name`.
fn sums_of_report(path: &Path, by: &[&str], name: &str) -> BTreeMap<Vec<String>, Vec<i64>> {
    let events = report(&["--sort", &by.join(",")], path);
    let event = events.iter().find(|event| event["name"] == name).unwrap();
    let line = |line: &Value| {
        // The report writes numbers of CPUs with three digits.
        let text = |key: &&str| match (*key, line[*key].as_str().unwrap()) {
            ("cpu", number) => number.parse::<u32>().unwrap().to_string(),
            (_, text) => text.to_owned(),
        };
        let key = by.iter().map(text).collect();
        (key, vec![line["samples"].as_i64().unwrap(), line["period"].as_i64().unwrap()])
    };
    event["lines"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn sums_units_labels_and_lines_are_those_of_the_report() {
    needs([Need::Perf, Need::Pprof, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("work.c"), folder.path().join("work"));
    fs::write(&source, WORK).unwrap();
    let compiled = Command::new("gcc").args(["-g", "-O1", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(compiled.success());
    let path = folder.path().join("perf.data");
    record(&path, &["-g", "-a", "-e", "cpu-clock", "-F", "997", "--", program.to_str().unwrap()]);
    let profile = folder.path().join("x.pb.gz");
    ours(&["export", "-o", profile.to_str().unwrap()], &path);
    let read = self::read(&profile);
    assert!(read.text.contains("samples/count cpu-clock/nanoseconds[dflt]"), "{}", read.text);
    for by in [&["comm"][..], &["comm", "pid"], &["cpu"]] {
        assert_eq!(sums(&read, by), sums_of_report(&path, by, "cpu-clock"), "{by:?}");
    }
    // The program's function has its line, its file and the build id. The inlined function is below it.
    let lines: Vec<&str> = read.text.lines().collect();
    let inner = lines.iter().position(|line| line.contains(&format!(" inner {}:4 ", source.display()))).unwrap();
    assert!(lines[inner + 1].contains(&format!(" outer {}:7 ", source.display())), "{}", lines[inner + 1]);
    let mapping = lines.iter().find(|line| line.contains(&format!(" {} ", program.display()))).unwrap();
    let notes = Command::new("file").arg(&program).output().map(|output| stdout(&output)).unwrap_or_default();
    if let Some((_, id)) = notes.split_once("BuildID[sha1]=") {
        assert!(mapping.contains(&id[..40]), "{mapping}");
    }
    // Code that starts a program has no lines, so a sample in it takes [FL] and [LN].
    assert!(mapping.contains("[FN]") && mapping.ends_with("[IN]"), "{mapping}");
    // pprof's own sums by function, without inlined functions, equal the sums in the table.
    let top = pprof(&["-noinlines", "-top", "-unit=ns", "-sample_index=cpu-clock", "-focus=^outer$"], &profile);
    let outer = top.lines().find(|line| line.ends_with(" outer")).unwrap();
    let flat: i64 = outer.split_whitespace().next().unwrap().trim_end_matches("ns").parse().unwrap();
    let table = sums_of_report(&path, &["symbol"], "cpu-clock");
    assert_eq!(flat, table[&vec!["[.] outer".to_owned()]][1]);
}

#[test]
fn a_report_writes_the_profile_that_export_writes() {
    needs([Need::Perf, Need::Pprof, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let work = "for i in 1 2 3 4 5 6 7 8; do sleep 0.005; done";
    record(&path, &["-g", "-e", "sched:sched_switch,cpu-clock", "--", "sh", "-c", work]);
    let (exported, reported) = (folder.path().join("x.pb.gz"), folder.path().join("y.pb"));
    ours(&["export", "-o", exported.to_str().unwrap()], &path);
    let table = ours(&["report", "--pprof", reported.to_str().unwrap()], &path);
    assert_eq!(table, ours(&["report"], &path));
    let (exported, reported) = (self::read(&exported), self::read(&reported));
    assert_eq!(exported.text, reported.text);
    // With several events, each has its own values.
    let types =
        "sched_sched_switch.samples/count sched_sched_switch/count cpu-clock.samples/count cpu-clock/nanoseconds[dflt]";
    assert!(exported.text.contains(types), "{}", exported.text);
    let all = sums(&exported, &["comm"]);
    for (event, name) in ["sched:sched_switch", "cpu-clock"].iter().enumerate() {
        let of_event = all.iter().map(|(key, values)| (key.clone(), values[2 * event..2 * event + 2].to_vec()));
        let of_event = of_event.filter(|(_, values)| values[0] != 0).collect::<BTreeMap<_, _>>();
        assert_eq!(of_event, sums_of_report(&path, &["comm"], name));
    }
}
