//! Reads the input as the name of a function in a file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_symbols::symbol::demangle;

fuzz_target!(|name: &str| {
    if let Some(shown) = demangle(name) {
        assert!(shown.len() <= 1 << 20, "{} bytes from {}", shown.len(), name.len());
    }
});
