//! Unwinds with damaged unwind information that no compiler writes. Each walk must end within its limits, and report
//! why it ended.

use expect_test::{Expect, expect};
use perf_prof_symbols::unwind::{Arch, Registers, Unwinder};
use proptest::prelude::*;

use super::{
    eh_frame::FrameDescription,
    elf::{BASE, OneFile, SECTIONS, TEXT, elf},
};

const X86_64: u16 = 62;
const LIMIT: usize = 20;
const CACHE: usize = 4 << 20;
/// The stack pointer, and the number of words in the copy of the stack.
const STACK: u64 = 0x7ffd_0000_0000;
const WORDS: u64 = 64;

/// Returns a `.eh_frame` with one common entry and one function that covers all code.
fn eh_frame(common: &[u8], function: &[u8]) -> Vec<u8> {
    let described = FrameDescription { augmentation: b"zR", link: 16, common, start: 0, size: 0x1000, function };
    super::eh_frame::eh_frame(&[described])
}

/// Valid rules: the frame's address is the stack pointer plus 8, and the return address is directly below it.
const SOUND: &[u8] = &[0x0c, 7, 8, 0x90, 1];

/// Unwinds a stack with this file. Returns how the walk ended. Each word of the stack is an address in the file's code.
fn walk(file: Vec<u8>) -> String {
    let modules = OneFile(file.into());
    let arch = Arch::x86_64();
    let mut registers = [STACK; 17];
    registers[8] = BASE + TEXT + 8;
    // The frame pointer is not valid.
    registers[6] = 1;
    let registers = Registers::from_perf(arch, 2, arch.sample_regs_user, registers);
    let stack: Vec<u8> = (0..WORDS).flat_map(|word| (BASE + TEXT + 16 * word + 16).to_le_bytes()).collect();
    let mut unwinder = Unwinder::for_arch(Some(arch), CACHE);
    let mut walk = || {
        let mut frames = Vec::new();
        let ended = unwinder.unwind(&modules, &registers, &stack, LIMIT, &mut frames);
        assert!((1..=LIMIT).contains(&frames.len()), "{}", frames.len());
        assert!(unwinder.cached_bytes() <= CACHE);
        format!("{} frames: {ended}", frames.len())
    };
    let first = walk();
    // The second walk uses the cache and must give the same result.
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
fn valid_rules_are_followed() {
    check(SOUND, &[], expect!["20 frames: the maximum number of frames was reached"]);
}

#[test]
fn rules_without_a_valid_caller_end_the_walk() {
    // First, there is no rule at all. Then the frame's address is relative to a register that does not exist.
    check(&[], &[], expect!["1 frames: complete"]);
    check(&[0x0c, 200, 1, 8, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
    // First, a frame is its own caller. Then a frame is below the stack pointer.
    check(&[0x0c, 7, 0, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
    check(&[0x12, 7, 1, 0x90, 1], &[], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
    // The frame is far above the stack.
    check(
        &[0x0c, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x90, 1],
        &[],
        expect!["1 frames: the stack is larger than its copy; use a larger SIZE in --call-graph dwarf,SIZE"],
    );
    // First, the return address is undefined, which marks the last frame. Then it is saved far below the stack.
    check(SOUND, &[0x07, 16], expect!["1 frames: complete"]);
    check(SOUND, &[0x05, 16, 0xff, 0xff, 0x7f], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
}

#[test]
fn endless_expressions_end_the_walk() {
    // DW_CFA_def_cfa_expression: DW_OP_skip to itself.
    check(SOUND, &[0x0f, 3, 0x2f, 0xfd, 0xff], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
    // A loop with DW_OP_dup, so that the stack of the expression grows.
    check(
        SOUND,
        &[0x0f, 6, 0x77, 0, 0x12, 0x2f, 0xfc, 0xff],
        expect!["1 frames: the frame at 0x70001008 has no valid caller"],
    );
}

#[test]
fn expressions_that_cannot_be_evaluated_end_the_walk() {
    // In this order: an empty expression; an operation without operands on the stack; an unknown operation; an
    // operation that needs data of debuggers; a read of 200 bytes at once.
    for expression in [&[][..], &[0x22], &[0xff], &[0x9c], &[0x77, 0, 0x94, 200]] {
        let function = [&[0x0f, expression.len() as u8][..], expression].concat();
        let shown = walk(with_eh_frame(&eh_frame(SOUND, &function)));
        assert_eq!(shown, "1 frames: the frame at 0x70001008 has no valid caller", "{expression:x?}");
    }
    // The expression reads memory that was not copied: first below the copy, then above it.
    check(SOUND, &[0x0f, 3, 0x77, 0x78, 0x06], expect!["1 frames: the frame at 0x70001008 has no valid caller"]);
    check(
        SOUND,
        &[0x0f, 5, 0x77, 0x80, 0x80, 4, 0x06],
        expect!["1 frames: the stack is larger than its copy; use a larger SIZE in --call-graph dwarf,SIZE"],
    );
}

#[test]
fn invalid_instructions_end_the_walk() {
    // First, far too many states are saved. Then a state is restored that was not saved.
    check(
        SOUND,
        &[0x0a; 1000],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address"],
    );
    check(
        SOUND,
        &[0x0b],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address"],
    );
    // In this order: an unknown instruction; a frame that is larger than any stack; rules for registers that do not
    // exist.
    check(
        SOUND,
        &[0x3c],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address"],
    );
    check(
        SOUND,
        &[0x0e, 0xff, 0xff, 0xff, 0xff],
        expect!["1 frames: the stack is larger than its copy; use a larger SIZE in --call-graph dwarf,SIZE"],
    );
    let many: Vec<u8> = (0..2000u16).flat_map(|n| [0x05, n as u8 & 0x7f | 0x80, (n >> 7) as u8, 1]).collect();
    check(
        SOUND,
        &many,
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address"],
    );
    // An entry with two million instructions is invalid. A section that is larger than the cache is not read at all.
    check(
        SOUND,
        &vec![0; 2 << 20],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address"],
    );
    check(
        SOUND,
        &vec![0; CACHE],
        expect!["1 frames: cannot unwind at 0x70001008: the file's unwind information is larger than the cache"],
    );
}

#[test]
fn an_entry_without_a_valid_common_part_is_ignored() {
    let sound = eh_frame(SOUND, &[]);
    let pointer = sound.len() - 4 - 16;
    for to in [0, 1, 4, 0x7fff_ffff, u32::MAX] {
        let mut bytes = sound.clone();
        bytes[pointer..pointer + 4].copy_from_slice(&to.to_le_bytes());
        let shown = walk(with_eh_frame(&bytes));
        assert!(shown.ends_with("the file's unwind information does not cover this address"), "{to:x}: {shown}");
    }
}

#[test]
fn wrong_search_tables_find_no_entry() {
    let frames = eh_frame(SOUND, &[]);
    let table = |count: u32, rows: &[[i32; 2]]| {
        let mut hdr = vec![1, 0x1b, 0x03, 0x3b];
        hdr.extend((12 + 8 * rows.len() as i32 - 4).to_le_bytes());
        hdr.extend(count.to_le_bytes());
        rows.iter().flatten().for_each(|word| hdr.extend(word.to_le_bytes()));
        let mut file = elf(X86_64, &[(b".eh_frame_hdr", &hdr), (b".eh_frame", &frames)]);
        // The function's first address is relative to its own offset in the file, which the table has changed.
        let moved = SECTIONS as usize + hdr.len() + frames.len() - 4 - 12;
        let begin = i32::from_le_bytes(file[moved..moved + 4].try_into().unwrap()) - hdr.len() as i32;
        file[moved..moved + 4].copy_from_slice(&begin.to_le_bytes());
        walk(file)
    };
    let text = TEXT as i32 - SECTIONS as i32;
    let entry = |rows: i32| 12 + 8 * rows + frames.len() as i32 - 4 - 20;
    let sound = walk(with_eh_frame(&frames));
    assert_eq!(table(1, &[[text, entry(1)]]), sound);
    // A table that states too many rows, or none, is ignored. The section itself is searched instead.
    assert_eq!(table(u32::MAX, &[[text, entry(1)]]), sound);
    assert_eq!(table(0, &[[text, entry(1)]]), sound);
    assert_eq!(table(7, &[]), sound);
    let none = "1 frames: cannot unwind at 0x70001008: the file's unwind information does not cover this address";
    for lie in [0, i32::MIN, i32::MAX, -1, entry(1) + 1, entry(1) + 20] {
        assert_eq!(table(1, &[[text, lie]]), none, "{lie}");
    }
    // The rows are not in ascending order.
    assert_eq!(table(3, &[[i32::MAX, 0], [i32::MAX, 0], [text, entry(3)]]), none);
}

#[test]
fn truncated_files_end_the_walk() {
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
