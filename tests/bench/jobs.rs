//! Measures how much faster two processes are than one, with `--jobs` and with `perf-prof parallel`. The handler
//! computes for a microsecond per event.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::{
    cpu, floor, python,
    recording::{self, Recording},
    table::{Table, median},
};

const EVENTS: u64 = 5_000_000;

pub fn rows(table: &mut Table) {
    const ROWS: [&str; 4] = ["one process", "--jobs 2", "perf-prof parallel -j 1", "perf-prof parallel -j 2"];
    if let Some(why) = recording::why_not_recordable() {
        ROWS.into_iter().for_each(|name| table.row(name, &[], "s", why));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("busy.py");
    let (body, ns) = busy();
    let tail = "\n\ndef __partial__(): return n\n\ndef __merge__(partials): pass\n";
    fs::write(&script, format!("n = 0\n\ndef raw_syscalls__sys_enter(event):\n{body}{tail}")).unwrap();
    let recorded = Recording::of(table.effort.count(EVENTS), &[]);
    let python = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["python", "-q", "--input"]).arg(&recorded.path).args(options).arg(&script);
        command
    };
    let note = format!("wall time, including start and end; {ns:.0} ns of CPU time in the handler");
    pair(table, [ROWS[0], ROWS[1]], &note, |row| match row {
        0 => python(&[]),
        _ => python(&["--jobs", "2"]),
    });
    let parallel = |jobs: usize| {
        let out = dir.path().join(format!("parts{jobs}"));
        let _ = fs::remove_dir_all(&out);
        let replay = python(&[]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["parallel", "-q", "-n", "2", "-m", "0", "-j", &jobs.to_string(), "-o"]).arg(&out).arg("--");
        command.arg(replay.get_program()).args(replay.get_args());
        command
    };
    pair(table, [ROWS[2], ROWS[3]], "the same, in two parts", |row| parallel(row + 1));
}

/// Returns the body of a handler that computes for about a microsecond on this machine, and its exact time in ns. The
/// fastest of several runs counts. A run that waited for a CPU would make the handler too short.
pub fn busy() -> (String, f64) {
    let body = |rounds: f64| format!("    global n\n    n += 1\n    for _ in range({rounds:.0}):\n        pass\n");
    let cost = |rounds: f64| {
        let bare = python::bare(&body(rounds));
        (0..5).map(|_| floor::calls(&bare, 100_000)).fold(f64::INFINITY, f64::min)
    };
    // Rounds differ in cost, because Python creates an object for each number above 256.
    let rounds = (0..3).fold(50.0, |rounds: f64, _| (rounds * 1000.0 / cost(rounds)).clamp(1.0, 1000.0));
    (body(rounds), cost(rounds))
}

/// Adds two rows, the second compared with the first. The two measurements alternate.
pub fn pair(table: &mut Table, names: [&str; 2], note: &str, command: impl Fn(usize) -> Command) {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs().min(3) {
        for (row, seconds) in [&mut one, &mut two].into_iter().enumerate() {
            let used = cpu::run(command(row).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
            seconds.push(used.wall_ns as f64 / 1e9);
        }
    }
    let gain: Vec<f64> = one.iter().zip(&two).map(|(one, two)| one / two).collect();
    table.row(names[0], &one, "s", note);
    table.compared(names[1], &two, (names[0], &one), "s", &format!("{:.2} times as fast", median(&gain)));
}
