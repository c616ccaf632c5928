//! Reads the input as an ELF file: its symbols, its compressed symbols (`.gnu_debugdata`) and its DWARF.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perf_prof_core::symbol::{
    dwarf::Dwarf,
    elf::{Elf, Symbols, mini_debug_info},
};

fuzz_target!(|input: &[u8]| {
    let Ok(elf) = Elf::of_bytes(Arc::from(input)) else { return };
    let mini = mini_debug_info(&elf).and_then(Result::ok);
    let parts: Vec<&Elf> = [Some(&elf), mini.as_ref()].into_iter().flatten().collect();
    let Ok(symbols) = Symbols::read(&parts) else { return };
    let dwarf = Dwarf::read(&elf, None);
    for found in symbols.iter().take(100) {
        symbols.lookup(found.start.wrapping_add(1));
        if let Ok(dwarf) = &dwarf {
            dwarf.frames(found.start);
        }
    }
});
