//! Measures the cost of reading a call chain in a handler. All frames are kernel frames whose names were already looked
//! up.

use std::sync::Arc;

use perf_prof_events::event::Context;
use perf_prof_format::{
    abi::PERF_CONTEXT_KERNEL,
    tracefs::{Kernel, KernelSymbol},
};
use perf_prof_session::spine::About;
use perf_prof_symbols::symbol::{Kallsyms, Symbol};

use super::{cpu::thread_ns, events, python, table::Table};

pub const EVENTS: u64 = 100_000;
pub const FRAMES: usize = 20;
/// The number of functions in all chains together.
const PLACES: usize = 400;
/// The number of different chains.
const CHAINS: usize = 100;

/// The symbols of this machine's kernel.
struct Symbols(Kallsyms);

impl Kernel for Symbols {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let Symbol { name, offset, size, module } = self.0.lookup(addr)?;
        Some(KernelSymbol { name: name.into(), offset, size, module: module.map(Into::into) })
    }

    fn string(&self, _addr: u64) -> Option<&[u8]> {
        None
    }
}

/// Returns the addresses of kernel functions, spread over the kernel's code.
fn functions() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let functions = text.lines().filter(|line| line.contains(" T ") && !line.contains('\t'));
    let functions: Vec<u64> =
        functions.filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok()).collect();
    functions.iter().copied().step_by((functions.len() / PLACES).max(1)).take(PLACES).collect()
}

/// Returns events with call chains, and their run. Returns the reason if this machine does not show its symbols.
pub fn chains(events: u64) -> Result<(events::Memory, Arc<About>), String> {
    let (places, symbols) = match (functions(), Kallsyms::read("/proc/kallsyms")) {
        (places, Ok(symbols)) if places.len() == PLACES => (places, symbols),
        (_, Err(reason)) => return Err(format!("not measured: {reason}")),
        _ => return Err("not measured: too few functions in /proc/kallsyms".to_owned()),
    };
    let chain = |number: usize| {
        let frames = (0..FRAMES).map(|frame| places[(number * 7 + frame * frame * 3) % PLACES] + 5);
        [PERF_CONTEXT_KERNEL].into_iter().chain(frames).collect::<Vec<u64>>()
    };
    let chains: Vec<Vec<u64>> = (0..CHAINS).map(chain).collect();
    let record = |time: u64| events::sample(1234, time, 0, Some(&chains[time as usize % CHAINS]));
    let memory = events::Memory::of(1, (0..events).map(|time| (0, record(time))));
    Ok((memory, events::run_with_chains(Context::new(Box::new(Symbols(symbols)), 0))))
}

pub fn rows(table: &mut Table) {
    let name = format!("call chain of {FRAMES} kernel frames");
    let events = table.effort.count(EVENTS);
    let (memory, run) = match chains(events) {
        Ok(made) => made,
        Err(reason) => return table.row(&name, &[], "ns", &reason),
    };
    let mut nothing = python::program(run.clone(), "    pass\n");
    let mut all = python::program(run.clone(), "    event._callchain\n");
    let check = format!(
        "    assert len(event._callchain) == {FRAMES}\n    assert all(f['symbol'] != 'Unknown' for f in event._callchain)\n"
    );
    let mut checked = python::program(run.clone(), &check);
    // This first delivery looks up all names.
    memory.deliver(&mut checked, &run);
    let mut each = Vec::new();
    for _ in 0..table.effort.runs() {
        let begun = thread_ns();
        memory.deliver(&mut nothing, &run);
        let between = thread_ns();
        memory.deliver(&mut all, &run);
        each.push((thread_ns() - between) as f64 / events as f64 - (between - begun) as f64 / events as f64);
    }
    [nothing, all, checked].into_iter().for_each(perf_prof_python::script::Program::clear);
    table.row(&name, &each, "ns", "`event._callchain`: a list of 20 dicts; all names are already in the cache");
}
