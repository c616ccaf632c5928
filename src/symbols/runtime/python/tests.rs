//! Tests of code objects and lines, on memory that a test makes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{build::Build, code::function, lines::line};
use crate::runtime::{Function, Memory, Unnamed, WalkWord};

/// Objects by their addresses.
#[derive(Default)]
struct Objects(BTreeMap<u64, Vec<u8>>);

impl Memory for Objects {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let Some((start, bytes)) = self.0.range(..=address).next_back() else { return false };
        let from = (address - start) as usize;
        let Some(part) = from.checked_add(to.len()).and_then(|end| bytes.get(from..end)) else { return false };
        to.copy_from_slice(part);
        true
    }
}

impl Objects {
    fn add(&mut self, address: u64, parts: &[(usize, &[u8])]) {
        let mut bytes = vec![0; parts.iter().map(|(at, part)| at + part.len()).max().unwrap_or(0)];
        parts.iter().for_each(|(at, part)| bytes[*at..*at + part.len()].copy_from_slice(part));
        self.0.insert(address, bytes);
    }
}

/// The words of `_Py_DebugOffsets` of 3.13.0 that are used.
fn build() -> Build {
    let mut words = [0u64; 73];
    let set =
        [(1, 0x030d_00f0), (5, 632), (8, 7264), (9, 7344), (21, 8), (23, 72), (25, 160), (29, 8), (31, 56), (33, 70)];
    let of_code = [(35, 112), (36, 120), (37, 128), (38, 136), (39, 68), (43, 200), (70, 40)];
    set.into_iter().chain(of_code).for_each(|(at, word)| words[at] = word);
    Build::of_debug_offsets(0x4000, &words).unwrap()
}

const CODE: u64 = 0x1_0000;
const NAME: u64 = 0x2_0000;
const LINES: u64 = 0x3_0000;
const FILE: u64 = 0x4_0000;

fn objects() -> Objects {
    let mut objects = Objects::default();
    let words = [FILE, 0, NAME, LINES].map(u64::to_ne_bytes).concat();
    objects.add(CODE, &[(68, &7u32.to_ne_bytes()), (112, &words)]);
    // A width of two bytes, compact.
    objects.add(NAME, &[(16, &2u64.to_ne_bytes()), (32, &[2 << 2 | 1 << 5]), (56, &[0xe4, 0, b'f', 0])]);
    objects.add(FILE, &[(16, &4u64.to_ne_bytes()), (32, &[1 << 2 | 1 << 5 | 1 << 6]), (40, b"a.py")]);
    objects.add(LINES, &[(16, &2u64.to_ne_bytes()), (32, &[0x80 | 11 << 3 | 1, 0])]);
    objects
}

#[test]
fn a_function_has_the_names_and_lines_of_its_code_object() {
    let found = function(&build(), &objects(), CODE, [NAME, LINES]).unwrap();
    let Function { name, file, instructions, first_line, .. } = &found;
    assert_eq!((&**name, &**file, *instructions, *first_line), ("äf", "a.py", CODE + 200, 7));
}

#[test]
fn memory_that_was_used_again_gives_no_name() {
    assert_eq!(function(&build(), &objects(), CODE, [FILE, LINES]), Err(Unnamed::Freed));
    assert_eq!(function(&build(), &objects(), CODE, [8, LINES]), Err(Unnamed::Unreadable));
}

/// The table that 3.12.1 makes of `def f(x):\n  a = x\n  return (a +\n    1)` in line 10.
#[test]
fn lines_are_those_of_the_location_table() {
    let lines = [
        0x80, 0x00, 0xd8, 0x06, 0x07, 0x80, 0x21, 0xd8, 0x0a, 0x0b, 0xd8, 0x04, 0x05, 0xf1, 0x03, 0x01, 0x0b, 0x06,
        0xf0, 0x00, 0x01, 0x03, 0x07,
    ];
    let function =
        Function { name: "f".into(), file: "f.py".into(), instructions: 0x100, first_line: 10, lines: lines.into() };
    let found: Vec<Option<u32>> = (0..9).map(|unit| line(&function, 0x100 + 2 * unit)).collect();
    let expected = [10, 11, 11, 12, 13, 12, 12, 12].map(Some);
    assert_eq!(found, [&expected[..], &[None]].concat());
    assert_eq!(line(&function, 0xff), None);
}

#[test]
fn a_walk_has_the_address_of_the_process() {
    let walk = build().walk(0x7000_0000, 9).unwrap();
    assert_eq!(walk.get(WalkWord::Interpreters), 0x7000_0000 + 0x4000 + 632);
    assert_eq!((walk.get(WalkWord::Number), walk.get(WalkWord::Identity)), (9, 128));
}

proptest! {
    /// A process can have anything in its memory.
    #[test]
    fn any_memory_gives_a_function_or_a_reason(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        code in 0u64..700,
        identity in prop::array::uniform2(0u64..700),
        instruction in any::<u64>(),
    ) {
        let objects = Objects([(0, bytes)].into());
        if let Ok(found) = function(&build(), &objects, code, identity) {
            let _ = line(&found, instruction);
        }
    }

    #[test]
    fn any_table_of_lines_ends(lines in prop::collection::vec(any::<u8>(), 0..300), instruction in any::<u64>()) {
        let function =
            Function { name: "f".into(), file: "f".into(), instructions: 0, first_line: 1, lines: lines.into() };
        let _ = line(&function, instruction);
    }

    #[test]
    fn any_offsets_give_a_build_or_a_reason(words in prop::collection::vec(any::<u64>(), 0..80), bias in any::<u64>()) {
        let mut words = words;
        if let Some(version) = words.get_mut(1) {
            *version = 0x030d_00f0;
        }
        if let Some(free_threaded) = words.get_mut(2) {
            *free_threaded = 0;
        }
        if let Ok(build) = Build::of_debug_offsets(0, &words) {
            let _ = build.walk(bias, 1);
        }
    }
}
