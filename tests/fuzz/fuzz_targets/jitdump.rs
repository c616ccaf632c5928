//! Reads the input as a jitdump file that grows: first its first half, then all of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_symbols::symbol::jitdump::JitDump;

fuzz_target!(|input: &[u8]| {
    let mut dump = JitDump::new(1 << 16);
    dump.update_from(&input[..input.len() / 2]);
    dump.update_from(input);
    assert!(dump.code.bytes() <= 1 << 16);
    dump.code.lookup(0x1000);
});
