//! `cargo bench`: criterion for the parts, then one table of the whole, made in one run, ratios first.
//!
//! The table goes to stdout and, without arguments, to `docs/benchmarks.md`. `cargo bench -- --quick` makes a short one
//! to see that everything runs; its figures mean nothing.

#![allow(clippy::unwrap_used)]

mod access;
mod cpu;
mod events;
mod floor;
mod keep;
mod live;
mod memory;
mod parts;
mod perf;
mod python;
mod table;

use table::{Effort, Table};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, calls] = arguments.as_slice()
        && first == "--generate"
    {
        return live::generate(calls.parse().unwrap());
    }
    let effort = if arguments.iter().any(|argument| argument == "--quick") { Effort::Quick } else { Effort::Full };
    if effort == Effort::Full && !arguments.iter().any(|argument| argument == "--table") {
        parts::run();
    }
    let interpreter = python::start();
    let mut table = Table::new(effort);
    floor::and_memory(&mut table);
    memory::order(&mut table);
    keep::rows(&mut table);
    access::rows(&mut table);
    live::rows(&mut table);
    perf::rows(&mut table);
    interpreter.finish();
    table.print();
    if effort == Effort::Full {
        table.write();
    }
}
