//! Unwind information that nobody's compiler wrote: walks end, within their limits, and say why.

use expect_test::{Expect, expect};
use perf_prof::unwind::{Arch, Registers, Unwinder};
use proptest::prelude::*;

use crate::{
    eh_frame::Described,
    elf::{BASE, OneFile, SECTIONS, TEXT, elf},
};

const X86_64: u16 = 62;
const LIMIT: usize = 20;
const CACHE: usize = 4 << 20;
/// The stack pointer, and how much of the stack is known.
const STACK: u64 = 0x7ffd_0000_0000;
const WORDS: u64 = 64;

/// `.eh_frame` with one common entry and one function that is all of the code.
fn eh_frame(common: &[u8], function: &[u8]) -> Vec<u8> {
    let described = Described { augmentation: b"zR", link: 16, common, start: 0, size: 0x1000, function };
    crate::eh_frame::eh_frame(&[described])
}

/// The frame's address is the stack pointer and 8, the return address is right below it.
const SOUND: &[u8] = &[0x0c, 7, 8, 0x90, 1];

/// Walks in such a file: each word of the stack is an address in its code.
fn walk(file: Vec<u8>) -> String {
    let modules = OneFile(file.into());
    let arch = Arch::x86_64();
    let mut registers = [STACK; 17];
    registers[8] = BASE + TEXT + 8;
    // No frame pointer.
    registers[6] = 1;
    let registers = Registers::from_perf(arch, 2, arch.sample_regs_user, registers);
    let stack: Vec<u8> = (0..WORDS).flat_map(|word| (BASE + TEXT + 16 * word + 16).to_le_bytes()).collect();
    let mut unwinder = Unwinder::of(Some(arch), CACHE);
    let mut walk = || {
        let mut frames = Vec::new();
        let ended = unwinder.unwind(&modules, &registers, &stack, LIMIT, &mut frames);
        assert!((1..=LIMIT).contains(&frames.len()), "{}", frames.len());
        assert!(unwinder.cached_bytes() <= CACHE);
        format!("{} frames: {ended}", frames.len())
    };
    let first = walk();
    // What is remembered says the same.
    assert_eq!(walk(), first);
    first
}

fn with_eh_frame(bytes: &[u8]) -> Vec<u8> {
    elf(X86_64, &[(b".eh_frame", bytes)])
}

#[track_caller]
fn check(common: &[u8], function: &[u8], expected: Expect) {
    expected.assert_eq(&walk(with_eh_frame(&eh_frame(common, function))));
}

#[test]
fn sound_rules_lead_on() {
    check(SOUND, &[], expect!["20 frames: there are more frames than the limit"]);
}

#[test]
fn rules_that_lead_nowhere_are_the_end() {
    // No rule at all; the frame's address by a register that there is not.
    check(&[], &[], expect!["1 frames: complete"]);
    check(&[0x0c, 200, 1, 8, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
    // A frame that is its own caller, and one below the stack pointer.
    check(&[0x0c, 7, 0, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
    check(&[0x12, 7, 1, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
    // A frame far above the stack.
    check(
        &[0x0c, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x90, 1],
        &[],
        expect!["1 frames: the stack is larger than its copy; copy more of it with --call-graph dwarf,SIZE"],
    );
    // The return address is still in its register, where no call leaves it; it is below the stack, where nothing is left.
    check(SOUND, &[0x07, 16], expect!["1 frames: complete"]);
    check(SOUND, &[0x05, 16, 0xff, 0xff, 0x7f], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
}

#[test]
fn expressions_without_end_are_given_up() {
    // DW_CFA_def_cfa_expression: DW_OP_skip to itself.
    check(SOUND, &[0x0f, 3, 0x2f, 0xfd, 0xff], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
    // DW_OP_dup and back to it, so that its stack grows.
    check(
        SOUND,
        &[0x0f, 6, 0x77, 0, 0x12, 0x2f, 0xfc, 0xff],
        expect!["1 frames: the frame at 0x70001008 leads to no other"],
    );
}

#[test]
fn expressions_that_cannot_be_evaluated_are_the_end() {
    // Empty; nothing to take; an operation that there is not; one that asks for what only debuggers have.
    for expression in [&[][..], &[0x22], &[0xff], &[0x9c], &[0x77, 0, 0x94, 200]] {
        let function = [&[0x0f, expression.len() as u8][..], expression].concat();
        let shown = walk(with_eh_frame(&eh_frame(SOUND, &function)));
        assert_eq!(shown, "1 frames: the frame at 0x70001008 leads to no other", "{expression:x?}");
    }
    // Memory that was not copied: below and above.
    check(SOUND, &[0x0f, 3, 0x77, 0x78, 0x06], expect!["1 frames: the frame at 0x70001008 leads to no other"]);
    check(
        SOUND,
        &[0x0f, 5, 0x77, 0x80, 0x80, 4, 0x06],
        expect!["1 frames: the stack is larger than its copy; copy more of it with --call-graph dwarf,SIZE"],
    );
}

#[test]
fn instructions_that_cannot_be_run_are_no_rules() {
    // States that are remembered without end, and one that was not.
    check(
        SOUND,
        &[0x0a; 1000],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it"],
    );
    check(
        SOUND,
        &[0x0b],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it"],
    );
    // Unknown; a frame larger than any stack; more registers than there are.
    check(
        SOUND,
        &[0x3c],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it"],
    );
    check(
        SOUND,
        &[0x0e, 0xff, 0xff, 0xff, 0xff],
        expect!["1 frames: the stack is larger than its copy; copy more of it with --call-graph dwarf,SIZE"],
    );
    let many: Vec<u8> = (0..2000u16).flat_map(|n| [0x05, n as u8 & 0x7f | 0x80, (n >> 7) as u8, 1]).collect();
    check(
        SOUND,
        &many,
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it"],
    );
    // An entry of two million steps is none, and one that is larger than the cache is not even read.
    check(
        SOUND,
        &vec![0; 2 << 20],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it"],
    );
    check(
        SOUND,
        &vec![0; CACHE],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information is larger than the cache"],
    );
}

#[test]
fn a_common_part_that_is_none_is_no_entry() {
    let sound = eh_frame(SOUND, &[]);
    let pointer = sound.len() - 4 - 16;
    for to in [0, 1, 4, 0x7fff_ffff, u32::MAX] {
        let mut bytes = sound.clone();
        bytes[pointer..pointer + 4].copy_from_slice(&to.to_le_bytes());
        let shown = walk(with_eh_frame(&bytes));
        assert!(shown.ends_with("the file's unwind information does not cover it"), "{to:x}: {shown}");
    }
}

#[test]
fn a_table_that_lies_is_no_entry() {
    let frames = eh_frame(SOUND, &[]);
    let table = |count: u32, rows: &[[i32; 2]]| {
        let mut hdr = vec![1, 0x1b, 0x03, 0x3b];
        hdr.extend((12 + 8 * rows.len() as i32 - 4).to_le_bytes());
        hdr.extend(count.to_le_bytes());
        rows.iter().flatten().for_each(|word| hdr.extend(word.to_le_bytes()));
        let mut file = elf(X86_64, &[(b".eh_frame_hdr", &hdr), (b".eh_frame", &frames)]);
        // The function's first address is relative to its place, which the table has moved.
        let moved = SECTIONS as usize + hdr.len() + frames.len() - 4 - 12;
        let begin = i32::from_le_bytes(file[moved..moved + 4].try_into().unwrap()) - hdr.len() as i32;
        file[moved..moved + 4].copy_from_slice(&begin.to_le_bytes());
        walk(file)
    };
    let text = TEXT as i32 - SECTIONS as i32;
    let entry = |rows: i32| 12 + 8 * rows + frames.len() as i32 - 4 - 20;
    let sound = walk(with_eh_frame(&frames));
    assert_eq!(table(1, &[[text, entry(1)]]), sound);
    // More rows than there are, or none: it says nothing, and the section itself is read.
    assert_eq!(table(u32::MAX, &[[text, entry(1)]]), sound);
    assert_eq!(table(0, &[[text, entry(1)]]), sound);
    assert_eq!(table(7, &[]), sound);
    let none = "1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover it";
    for lie in [0, i32::MIN, i32::MAX, -1, entry(1) + 1, entry(1) + 20] {
        assert_eq!(table(1, &[[text, lie]]), none, "{lie}");
    }
    // Not ascending.
    assert_eq!(table(3, &[[i32::MAX, 0], [i32::MAX, 0], [text, entry(3)]]), none);
}

#[test]
fn what_is_cut_ends_the_walk_at_any_length() {
    let frames = eh_frame(SOUND, &[0x0f, 3, 0x77, 8, 0x06]);
    (0..frames.len()).for_each(|size| drop(walk(with_eh_frame(&frames[..size]))));
    let file = with_eh_frame(&frames);
    (0..file.len()).for_each(|size| drop(walk(file[..size].to_vec())));
}

proptest! {
    #[test]
    fn any_instructions_end(function in prop::collection::vec(any::<u8>(), 0..200)) {
        walk(with_eh_frame(&eh_frame(SOUND, &function)));
    }

    #[test]
    fn any_changed_bytes_end(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut file = with_eh_frame(&eh_frame(SOUND, &[0x0f, 3, 0x77, 8, 0x06]));
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        walk(file);
    }
}
