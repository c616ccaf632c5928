//! Reads the input as texts of the kernel: its symbols, mappings of a process, printk formats, BTF. Recordings contain
//! some of these texts too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::tracefs::{Btf, Enumerators, printk_formats};
use perf_prof_symbols::symbol::{Kallsyms, maps};

fuzz_target!(|input: &[u8]| {
    for mapping in maps::parse(input) {
        let _ = (maps::Backing::from_path(&mapping.path), mapping.end.checked_sub(mapping.start));
    }
    printk_formats::parse(input);
    if let Ok(symbols) = Kallsyms::parse(&String::from_utf8_lossy(input)) {
        let _ = (symbols.perf_range(), symbols.bound("_text"), symbols.len());
        for address in [0, 0x1000, 1 << 63, u64::MAX - 4096, u64::MAX] {
            let _ = (symbols.lookup(address), symbols.lookup_as_perf(address));
        }
    }
    if let Some(btf) = Btf::parse(input, Enumerators::Read, |_| true) {
        let _ = (btf.constant("A"), btf.size_of("struct a"), btf.member("a", "a"));
    }
});
