//! Reads the input as an ELF file: its symbols, its compressed symbols (`.gnu_debugdata`), its DWARF and its static probes.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perf_prof_symbols::symbol::{
    dwarf::Dwarf,
    elf::{Elf, Symbols, mini_debug_info, static_probes},
};

/// The maximum memory for symbols, and for DWARF.
const LIMIT: usize = 64 << 20;

fuzz_target!(|input: &[u8]| {
    let Ok(elf) = Elf::of_bytes(Arc::from(input)) else { return };
    let _ = static_probes(&elf);
    let mini = mini_debug_info(&elf, LIMIT).and_then(Result::ok);
    let parts: Vec<&Elf> = [Some(&elf), mini.as_ref()].into_iter().flatten().collect();
    let Ok(symbols) = Symbols::read(&parts, LIMIT) else { return };
    let dwarf = Dwarf::read(&elf, None, LIMIT);
    for found in symbols.iter().take(100) {
        symbols.lookup(found.start.wrapping_add(1));
        if let Ok(dwarf) = &dwarf {
            let _ = dwarf.frames(found.start);
        }
    }
});
