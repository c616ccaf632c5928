//! Measures the cost of delivery in the order of time: the counting handler with all rings merged, compared with the
//! same rings one after the other.

use super::{cpu::thread_ns, events, python, table::Table};

const EVENTS: u64 = 2_000_000;

pub fn order(table: &mut Table) {
    merged(table, &[2, 8, 64]);
}

/// Measures the delivery with the numbers of rings of large machines, for `docs/scaling.md`.
pub fn scale(table: &mut Table) {
    merged(table, &[64, 128, 256, 512]);
}

fn merged(table: &mut Table, counts: &[usize]) {
    let events = table.effort.count(EVENTS);
    for &rings in counts {
        let memory = events::Memory::new(events, rings);
        let run = events::run(rings);
        let mut program = python::program(run.clone(), python::body("h1"));
        let (mut plain, mut ordered, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..table.effort.runs() {
            let begun = thread_ns();
            memory.deliver(&mut program, &run);
            let between = thread_ns();
            memory.deliver_in_order(&mut program, &run);
            plain.push((between - begun) as f64 / events as f64);
            ordered.push((thread_ns() - between) as f64 / events as f64);
            added.push(ordered[ordered.len() - 1] - plain[plain.len() - 1]);
        }
        program.clear();
        let base = format!("memory h1, {rings} rings");
        let note = format!("order adds {:.1} ns", super::table::median(&added));
        table.compared(&format!("order, {rings} rings"), &ordered, (&base, &plain), "ns", &note);
    }
}
