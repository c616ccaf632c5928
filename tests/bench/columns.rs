//! Measures columns: replaying a recording into batches of columns, per event, without the start of the interpreter.

use std::{fs, path::Path, process::Command};

use super::{
    cpu,
    recording::{self, Recording},
    replay,
    table::{Table, median},
};

const EVENTS: u64 = 10_000_000;

/// A script that makes batches of the columns that its arguments name. The path and the minimum number of events come
/// first.
const BATCHES: &str = "\
import sys, perf_prof
def __init__():
    path, least, *columns = sys.argv[1:]
    rows = 0
    with perf_prof.replay(path) as events:
        for batch in events.batches(columns):
            rows += len(batch)
    assert rows >= int(least), rows
def __sample__(event): pass
";

/// The name of a row, and its columns.
const WAYS: [(&str, &[&str]); 3] = [
    ("columns, four integers", &["_time", "_cpu", "_tid", "id"]),
    ("columns, three integers and _comm", &["_time", "_cpu", "id", "_comm"]),
    ("columns, a list of integers", &["_time", "args"]),
];
const ONE_CPU: &str = "columns, four integers, one CPU";
const TWO_CPUS: &str = "columns, four integers, two CPUs";
const MEMORY: &str = "columns, memory";

pub fn rows(table: &mut Table) {
    if let Some(why) = recording::why_not_recordable() {
        WAYS.iter()
            .map(|(name, _)| *name)
            .chain([ONE_CPU, TWO_CPUS, MEMORY])
            .for_each(|name| table.row(name, &[], "ns", why));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("batches.py");
    fs::write(&script, BATCHES).unwrap();
    let nothing = Recording::of(0, &[]);
    let events = table.effort.count(EVENTS);
    let recorded = Recording::of(events, &[]);
    let batches = |path: &Path, least: u64, columns: &[&str]| -> Command {
        let mut command = replay::replaying(&script, &nothing.path);
        command.arg(path).arg(least.to_string()).args(columns);
        command
    };
    for (name, columns) in WAYS {
        let (mut used, mut wall) = (Vec::new(), Vec::new());
        for _ in 0..table.effort.runs() {
            let start = cpu::run(&mut batches(&nothing.path, 0, columns));
            let whole = cpu::run(&mut batches(&recorded.path, events, columns));
            used.push(whole.cpu_ns.saturating_sub(start.cpu_ns) as f64 / events as f64);
            wall.push(whole.wall_ns.saturating_sub(start.wall_ns) as f64 / events as f64);
        }
        let ns = median(&wall);
        let note = format!(
            "`{}`: user + system CPU time of the whole process, without start-up; {ns:.1} ns of wall time",
            columns.join("`, `")
        );
        table.row(name, &used, "ns", &note);
    }
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        let wall = |path: &Path, least| {
            let on_one = cpu::run(cpu::pinned(&mut batches(path, least, WAYS[0].1), 0)).wall_ns;
            (on_one, cpu::run(&mut batches(path, least, WAYS[0].1)).wall_ns)
        };
        let (start, whole) = (wall(&nothing.path, 0), wall(&recorded.path, events));
        one.push(whole.0.saturating_sub(start.0) as f64 / events as f64);
        two.push(whole.1.saturating_sub(start.1) as f64 / events as f64);
    }
    table.row(ONE_CPU, &one, "ns", "wall time, without start-up");
    let note = format!("the same; {:.2} times as fast", median(&one) / median(&two));
    table.compared(TWO_CPUS, &two, (ONE_CPU, &one), "ns", &note);
    let (start, whole) = (
        cpu::peak(&mut batches(&nothing.path, 0, WAYS[1].1)),
        cpu::peak(&mut batches(&recorded.path, events, WAYS[1].1)),
    );
    let note = format!("peak of the process; {:.1} MiB of it without events", start as f64 / f64::from(1 << 20));
    table.row(MEMORY, &[whole as f64 / f64::from(1 << 20)], "MiB", &note);
}
