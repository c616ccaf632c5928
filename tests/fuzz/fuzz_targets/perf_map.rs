//! Reads the input as the text of a perf map, in two pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_symbols::symbol::{CodeMap, perf_map};

fuzz_target!(|input: &[u8]| {
    let mut code = CodeMap::new(1 << 16);
    let (first, second) = input.split_at(input.len() / 2);
    for mut piece in [first, second] {
        let size = piece.len() as u64;
        assert!(perf_map::read(&mut piece, &mut code).is_ok_and(|done| done <= size));
        assert!(code.bytes() <= 1 << 16);
    }
    code.lookup(0x1000);
});
