//! `cargo bench`: measures single functions with criterion, then makes one table of all other measurements in one run.
//!
//! The table is printed to stdout and written to `docs/benchmarks.md`. `cargo bench -- --table` leaves out the single
//! functions. With `--quick`, the measurements are so short that the figures mean nothing, and the table is not written.
//! `cargo test` runs `--quick` to check that every row is there.
//!
//! Further options after `--table` measure only some rows:
//! * `--scale`: the merge of the rings of large machines
//! * `--recordings`: recordings
//! * `--access`: reading events
//! * `--aggregators`, `--spans`: aggregators, spans
//! * `--perf-script`: scripts of `perf script`
//! * `--library`: the Python package
//! * `--columns`: columns
//! * `--in-kernel`: what traced programs pay

#![allow(clippy::unwrap_used)]

mod access;
mod aggregators;
mod columns;
mod cpu;
mod events;
mod floor;
mod in_kernel;
mod jobs;
mod keep;
mod library;
mod live;
mod memory;
mod parts;
mod perf_script;
mod python;
mod recording;
mod replay;
mod spans;
mod stacks;
mod symbols;
mod table;

use table::{Effort, Table};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, calls] = arguments.as_slice()
        && first == "--generate"
    {
        return live::generate(calls.parse().unwrap());
    }
    if let [first, calls] = arguments.as_slice()
        && first == "--generate-deep"
    {
        return in_kernel::generate_deep(calls.parse().unwrap());
    }
    if let [first, calls] = arguments.as_slice()
        && first == "--generate-opens"
    {
        return in_kernel::generate_opens(calls.parse().unwrap());
    }
    if let [first, calls] = arguments.as_slice()
        && first == "--generate-switches"
    {
        return in_kernel::generate_switches(calls.parse().unwrap());
    }
    if let [first, calls, used] = arguments.as_slice()
        && first == "--burst"
    {
        return recording::burst(calls.parse().unwrap(), used.as_ref());
    }
    if let [first, events] = arguments.as_slice()
        && first == "--keep"
    {
        let interpreter = python::start();
        keep::keep(events.parse().unwrap());
        interpreter.finish();
        return;
    }
    if let [first, processes] = arguments.as_slice()
        && first == "--symbols"
    {
        let interpreter = python::start();
        symbols::processes(processes.parse().unwrap());
        interpreter.finish();
        return;
    }
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    // `cargo bench` passes `--bench`. `cargo test` does not. If it passes the name of a test, nothing is measured,
    // because this benchmark has no tests.
    let measured = has("--bench");
    if !measured && arguments.iter().any(|argument| !argument.starts_with('-')) {
        return;
    }
    let effort = if measured && !has("--quick") { Effort::Full } else { Effort::Quick };
    if effort == Effort::Full && !has("--table") {
        parts::run();
    }
    let interpreter = python::start();
    let mut table = Table::new(effort);
    if has("--scale") {
        memory::scale(&mut table);
        return table.print();
    }
    if has("--access") {
        access::rows(&mut table);
        return table.print();
    }
    if has("--aggregators") {
        aggregators::rows(&mut table);
        return table.print();
    }
    if has("--spans") {
        spans::rows(&mut table);
        return table.print();
    }
    if has("--perf-script") {
        perf_script::rows(&mut table);
        return table.print();
    }
    if has("--live") {
        floor::and_memory(&mut table);
        live::rows(&mut table);
        return table.print();
    }
    if has("--in-kernel") {
        in_kernel::rows(&mut table);
        in_kernel::switches(&mut table);
        in_kernel::starts(&mut table);
        return table.print();
    }
    if has("--columns") {
        columns::rows(&mut table);
        return table.print();
    }
    if has("--library") {
        library::rows(&mut table);
        return table.print();
    }
    if has("--recordings") {
        recordings(&mut table);
        return table.print();
    }
    floor::and_memory(&mut table);
    memory::order(&mut table);
    keep::rows(&mut table);
    access::rows(&mut table);
    aggregators::rows(&mut table);
    spans::rows(&mut table);
    stacks::rows(&mut table);
    symbols::rows(&mut table);
    live::rows(&mut table);
    in_kernel::rows(&mut table);
    in_kernel::switches(&mut table);
    in_kernel::starts(&mut table);
    perf_script::rows(&mut table);
    recordings(&mut table);
    library::rows(&mut table);
    columns::rows(&mut table);
    interpreter.finish();
    table.print();
    table.check_rows();
    if effort == Effort::Full {
        table.write();
    }
}

fn recordings(table: &mut Table) {
    recording::rows(table);
    replay::rows(table);
    jobs::rows(table);
}
