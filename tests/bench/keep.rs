//! Measures handlers that keep events: the time per event, and the memory per kept event.

use std::process::Command;

use super::{
    cpu::{resident, thread_ns},
    events, floor, python,
    table::Table,
};

const ALL: u64 = 500_000;
const MANY: u64 = 10_000_000;

pub fn rows(table: &mut Table) {
    all(table);
    few(table);
}

fn all(table: &mut Table) {
    let events = table.effort.count(ALL);
    let memory = events::Memory::new(events, 1);
    let bare = python::bare(python::body("h1"));
    let (mut floor, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        floor.push(floor::calls(&bare, events));
        let run = events::run(1);
        let mut program = python::program(run.clone(), "    kept.append(event)\n");
        let begun = thread_ns();
        memory.deliver(&mut program, &run);
        kept.push((thread_ns() - begun) as f64 / events as f64);
        program.clear();
        python::collect();
    }
    let size = events::record(0, 0).len();
    let note = format!(
        "{:.0} bytes of memory for a record of {size} bytes, including 8 bytes in the list",
        bytes_each(events)
    );
    table.compared("keep all", &kept, ("floor h1", &floor), "ns", &note);
}

/// Returns the memory per kept event, in bytes. A new process measures it, because the allocators of this process still
/// have free memory from earlier runs.
fn bytes_each(events: u64) -> f64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--keep", &events.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Keeps this many events and prints the memory per event, in bytes.
pub fn keep(events: u64) {
    let memory = events::Memory::new(events, 1);
    let run = events::run(1);
    let mut program = python::program(run.clone(), "    kept.append(event)\n");
    let before = resident();
    memory.deliver(&mut program, &run);
    println!("{}", resident().saturating_sub(before) as f64 / events as f64);
}

fn few(table: &mut Table) {
    let passes = 10;
    let events = table.effort.count(MANY) / passes;
    let memory = events::Memory::new(events, 1);
    let run = events::run(1);
    let mut program =
        python::program(run.clone(), "    global n\n    n += 1\n    if n % 1000 == 0:\n        kept.append(event)\n");
    memory.deliver(&mut program, &run);
    let (before, begun) = (resident(), thread_ns());
    for _ in 1..passes {
        memory.deliver(&mut program, &run);
    }
    let delivered = events * (passes - 1);
    let grown = resident().saturating_sub(before);
    let time = (thread_ns() - begun) as f64 / delivered as f64;
    let note = format!("{delivered} events; memory grew by {} KiB for {} kept events", grown / 1024, delivered / 1000);
    table.row("keep 1 in 1,000", &[time], "ns", &note);
    program.clear();
}
