//! Tests of code objects and lines. The tests create the memory of the process.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    build::{Build, Classes, NotSupported},
    code,
    lines::line,
};
use crate::runtime::{Function, Memory, Unnamed, WalkWord};

/// Memory: the contents of objects by their addresses.
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

/// Returns a build of 3.13.0, made from the words of `_Py_DebugOffsets` that are used.
pub(in crate::runtime) fn build() -> Build {
    build_of(0x030d_00f0).unwrap()
}

/// Returns the build that [`build`] returns, but with another version number.
fn build_of(version: u64) -> Result<Build, NotSupported> {
    let mut words = [0u64; 73];
    let set = [(1, version), (5, 632), (8, 7264), (9, 7344), (21, 8), (23, 72), (25, 160), (29, 8), (31, 56), (33, 70)];
    let sizes = [(19, 704), (28, 88), (34, 208)];
    let of_code = [(35, 112), (36, 120), (37, 128), (38, 136), (39, 68), (43, 200), (70, 40)];
    set.into_iter().chain(sizes).chain(of_code).for_each(|(at, word)| words[at] = word);
    Build::of_debug_offsets((0x4000, CLASSES), &words)
}

const CLASSES: Classes = Classes { code: 0x5000, text: 0x5100, bytes: 0x5200 };
/// The address in the process minus the address in the file.
const BIAS: u64 = 0x7000_0000;

fn function(build: &Build, memory: &dyn Memory, code: u64, identity: [u64; 3]) -> Result<Function, Unnamed> {
    code::function(build, BIAS, memory, code, identity)
}

const VERSION: u64 = 77;
const IDENTITY: [u64; 3] = [NAME, LINES, VERSION];
const CODE: u64 = 0x1_0000;
const NAME: u64 = 0x2_0000;
const LINES: u64 = 0x3_0000;
const FILE: u64 = 0x4_0000;

fn objects() -> Objects {
    let mut objects = Objects::default();
    let words = [FILE, 0, NAME, LINES].map(u64::to_ne_bytes).concat();
    let head = |references: u64, class: u64| [references, class + BIAS].map(u64::to_ne_bytes).concat();
    objects.add(
        CODE,
        &[(0, &head(1, CLASSES.code)), (68, &7u32.to_ne_bytes()), (92, &VERSION.to_ne_bytes()), (112, &words)],
    );
    let name = head(u64::from(u32::MAX), CLASSES.text);
    // The word at offset 32 is the state of the string: characters of two bytes, and the text follows the header.
    objects.add(NAME, &[(0, &name), (16, &2u64.to_ne_bytes()), (32, &[2 << 2 | 1 << 5]), (56, &[0xe4, 0, b'f', 0])]);
    let file = head(3, CLASSES.text);
    objects.add(FILE, &[(0, &file), (16, &4u64.to_ne_bytes()), (32, &[1 << 2 | 1 << 5 | 1 << 6]), (40, b"a.py")]);
    objects.add(LINES, &[(0, &head(1, CLASSES.bytes)), (16, &2u64.to_ne_bytes()), (32, &[0x80 | 11 << 3 | 1, 0])]);
    objects
}

#[test]
fn a_function_has_the_names_and_lines_of_its_code_object() {
    let found = function(&build(), &objects(), CODE, IDENTITY).unwrap();
    let Function { name, file, instructions, first_line, .. } = &found;
    assert_eq!((&**name, &**file, *instructions, *first_line), ("äf", "a.py", CODE + 200, 7));
}

#[test]
fn memory_that_was_used_again_gives_no_name() {
    assert_eq!(function(&build(), &objects(), CODE, [FILE, LINES, VERSION]), Err(Unnamed::Freed));
    assert_eq!(function(&build(), &objects(), CODE, [8, LINES, VERSION]), Err(Unnamed::Unreadable));
    assert_eq!(function(&build(), &objects(), CODE, [NAME, LINES, 78]), Err(Unnamed::Freed));
    // The first word is overwritten with a pointer of the allocator or with 0, or the pointer to the class is
    // overwritten with another class.
    for object in [CODE, NAME, FILE, LINES] {
        for (at, word) in [(0, 0x7f00_0000_1000), (0, 0), (8, BIAS + 0x6000)] {
            let mut objects = objects();
            let bytes = objects.0.get_mut(&object).unwrap();
            bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
            assert_eq!(function(&build(), &objects, CODE, IDENTITY), Err(Unnamed::Freed), "{object:#x} {at}");
        }
    }
}

#[test]
fn numbers_of_lines_that_are_too_large_are_no_lines() {
    let steps = [&[0xe8, 0x7e][..], &[0x7f; 8], &[0x3f]].concat().repeat(17);
    let function = Function { name: "f".into(), file: "f".into(), instructions: 0, first_line: 1, lines: steps.into() };
    assert_eq!(line(&function, 1 << 20), None);
}

#[test]
fn control_characters_of_names_are_not_shown() {
    let mut objects = objects();
    objects.0.get_mut(&FILE).unwrap()[40..44].copy_from_slice(b"a\x1b\nb");
    assert_eq!(&*function(&build(), &objects, CODE, IDENTITY).unwrap().file, "a??b");
}

/// CPython 3.12.1 makes this table for `def f(x):\n  a = x\n  return (a +\n    1)` in line 10.
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

/// The structures of a version change until its first release candidate.
#[test]
fn only_candidates_and_releases_of_a_version_are_supported() {
    for (level, is_supported) in [(0xa1, false), (0xb4, false), (0xc1, true), (0xf0, true)] {
        let found = build_of(0x030d_0000 | level).map(|build| build.minor);
        assert_eq!(found, if is_supported { Ok(13) } else { Err(NotSupported::Version(3, 13)) }, "{level:#x}");
    }
    assert_eq!(build_of(0x040d_00f0), Err(NotSupported::Version(4, 13)));
}

#[test]
fn a_walk_has_the_address_of_the_process() {
    let walk = build().walk(0x7000_0000, 9).unwrap();
    assert_eq!(walk.get(WalkWord::Interpreters), 0x7000_0000 + 0x4000 + 632);
    assert_eq!((walk.get(WalkWord::Number), walk.get(WalkWord::Identity)), (9, 128));
}

proptest! {
    /// The memory of a process may contain anything.
    #[test]
    fn any_memory_gives_a_function_or_a_reason(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        code in 0u64..700,
        identity in prop::array::uniform3(0u64..700),
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
    fn any_offsets_give_a_build_or_a_reason(
        words in prop::collection::vec(any::<u64>(), 0..100),
        minor in 12u64..17,
        bias in any::<u64>(),
    ) {
        let mut words = words;
        if let Some(version) = words.get_mut(1) {
            *version = minor << 16 | 0x0300_00f0;
        }
        if let Some(free_threaded) = words.get_mut(2) {
            *free_threaded = 0;
        }
        if let Ok(build) = Build::of_debug_offsets((0, CLASSES), &words) {
            let _ = build.walk(bias, 1);
        }
    }
}
