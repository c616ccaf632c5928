//! Measures the replay of recordings: reading and ordering alone, the whole executable, `perf script -s` for
//! comparison, and memory.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use perf_prof_format::record::{Batch, Source, Wait};
use perf_prof_recordings::Selection;

use super::{
    cpu::{self, Usage, process_ns},
    floor, python,
    recording::{self, Recording},
    table::{Table, median},
};

/// The number of events in the recording that is read and replayed.
const EVENTS: u64 = 5_000_000;

/// The number of events in the recording for the comparison with perf.
const PERF_EVENTS: u64 = 1_000_000;

/// The number of events in the large recordings.
const MANY_EVENTS: u64 = 10_000_000;

/// A handler that counts.
pub const HANDLER: &str = "n = 0\n\ndef raw_syscalls__sys_enter(event):\n    global n\n    n += 1\n";

const PERF_HANDLER: &str = "n = 0\n\ndef raw_syscalls__sys_enter(event_name, context, common_cpu, common_secs, common_nsecs, common_pid, common_comm, common_callchain, id, args):\n    global n\n    n += 1\n";

pub fn rows(table: &mut Table) {
    const ROWS: [&str; 7] = [
        "read + order",
        "replay h1",
        "read + order, no block index",
        "replay h1, no block index",
        "perf script -s",
        "replay of a large file",
        "replay of a large directory",
    ];
    if let Some(why) = recording::why_not_recordable() {
        ROWS.into_iter().for_each(|name| table.row(name, &[], "ns", why));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("count.py");
    fs::write(&script, HANDLER).unwrap();
    let nothing = Recording::of(0, &[]);
    let recorded = Recording::of(table.effort.count(EVENTS), &[]);
    let [read_row, whole_row, read_as_of_perf, whole_as_of_perf, ..] = ROWS;
    read(table, read_row, &recorded.path, "a recording of two CPUs in the page cache");
    whole(table, whole_row, &script, &nothing.path, &recorded.path);
    recorded.remove_block_index();
    read(table, read_as_of_perf, &recorded.path, "the same recording without its block index, as perf writes it");
    whole(table, whole_as_of_perf, &script, &nothing.path, &recorded.path);
    drop(recorded);
    perf(table, &script, &nothing.path);
    for (name, options) in [("file", &[][..]), ("directory", &["--threads"])] {
        let recorded = Recording::of(table.effort.count(MANY_EVENTS), options);
        memory(table, &format!("replay of a large {name}"), &script, &recorded.path);
    }
}

/// Reads all records in order of time. Returns the number of records.
fn read_all(path: &Path) -> u64 {
    let mut replay = perf_prof_recordings::Recording::open(path).unwrap().replay(Selection::default()).unwrap();
    let (mut records, mut bytes) = (0, 0);
    loop {
        match replay.wait(None) {
            Wait::Batch(Batch::Sorted(sorted)) => {
                for (_, record) in sorted.in_order() {
                    records += 1;
                    bytes += record.len();
                }
            }
            Wait::Ended(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(std::hint::black_box(bytes) > 0 && replay.late() == 0);
    records
}

fn read(table: &mut Table, name: &str, path: &Path, what: &str) {
    read_all(path);
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        let (begun, start) = (process_ns(), Instant::now());
        let records = read_all(path) as f64;
        cpu.push((process_ns() - begun) as f64 / records);
        wall.push(start.elapsed().as_nanos() as f64 / records);
    }
    let note = format!("CPU time for {what}; {:.1} ns of wall time", median(&wall));
    table.row(name, &cpu, "ns", &note);
}

/// Runs the executable on a recording.
pub fn replay(script: &Path, path: &Path) -> Usage {
    cpu::run(&mut replaying(script, path))
}

pub fn replaying(script: &Path, path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.args(["python", "-q", "--input"]).arg(path).arg(script).stdout(Stdio::null());
    command
}

fn whole(table: &mut Table, name: &str, script: &Path, nothing: &Path, path: &Path) {
    let events = table.effort.count(EVENTS);
    let bare = python::bare(python::body("h1"));
    let (mut floor, mut used, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        floor.push(floor::calls(&bare, events));
        let (start, whole) = (replay(script, nothing), replay(script, path));
        used.push(whole.cpu_ns.saturating_sub(start.cpu_ns) as f64 / events as f64);
        wall.push(whole.wall_ns.saturating_sub(start.wall_ns) as f64 / events as f64);
    }
    let ratios: Vec<f64> = wall.iter().zip(&floor).map(|(wall, floor)| wall / floor).collect();
    let (ns, ratio) = (median(&wall), median(&ratios));
    let note = format!(
        "user + system CPU time of the whole process, without start-up; {ns:.1} ns of wall time, {ratio:.2} times the floor"
    );
    table.compared(name, &used, ("floor h1", &floor), "ns", &note);
}

fn perf(table: &mut Table, script: &Path, nothing: &Path) {
    if !python::has("perf") {
        return table.row("perf script -s", &[], "ns", "skipped: perf is not installed");
    }
    let events = table.effort.count(PERF_EVENTS);
    let recorded = Recording::of(events, &[]);
    let perf_script = script.with_file_name("perf.py");
    fs::write(&perf_script, PERF_HANDLER).unwrap();
    let perf = |path: &Path| {
        let mut command = Command::new("perf");
        command.arg("script").arg("-i").arg(path).arg("-s").arg(&perf_script);
        cpu::run(command.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs().min(3) {
        let less = |whole: Usage, start: Usage| whole.cpu_ns.saturating_sub(start.cpu_ns) as f64 / events as f64;
        own.push(less(replay(script, &recorded.path), replay(script, nothing)));
        theirs.push(less(perf(&recorded.path), perf(nothing)));
    }
    let note = "CPU time without start-up; a counting handler with named arguments; both read the same file";
    table.compared("perf script -s", &theirs, ("replay h1 of this file", &own), "ns", note);
}

fn memory(table: &mut Table, name: &str, script: &Path, path: &Path) {
    let peak = cpu::peak(&mut replaying(script, path));
    let size = match fs::read_dir(path) {
        Ok(files) => files.map(|file| file.unwrap().metadata().unwrap().len()).sum(),
        Err(_) => fs::metadata(path).unwrap().len(),
    };
    let note = format!(
        "peak memory of the process, including the interpreter; the recording has {} events, {} MiB",
        table.effort.count(MANY_EVENTS),
        size >> 20
    );
    table.row(name, &[peak as f64 / f64::from(1 << 20)], "MiB", &note);
}
