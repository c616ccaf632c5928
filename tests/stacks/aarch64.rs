//! Unwinds hand-made stacks of AArch64, where a call stores its return address in a register. These tests run on any
//! machine.

use perf_prof_symbols::unwind::{Arch, Ended, Registers, Unwinder};

use super::{
    eh_frame::{FrameDescription, eh_frame},
    elf::{BASE, OneFile, TEXT, elf},
};

const AARCH64: u16 = 183;
const STACK: u64 = 0xffff_8000_0000;
/// Register numbers in DWARF and in perf, which are equal.
const X19: usize = 19;
const FP: usize = 29;
const LR: usize = 30;
const SP: usize = 31;
const PC: usize = 32;

/// The rule of a frame whose address (CFA) is the stack pointer.
const AT_SP: &[u8] = &[0x0c, SP as u8, 0];
/// The rules after `stp x29, x30, [sp, #-16]!`: the two words below the frame's address are the frame pointer and the
/// return address.
const SAVES: &[u8] = &[0x0e, 16, 0x80 | FP as u8, 2, 0x80 | LR as u8, 1];

const PLAIN: FrameDescription<'_> =
    FrameDescription { augmentation: b"zR", link: LR as u8, common: AT_SP, start: 0, size: 0x100, function: &[] };
/// Four functions: one saves no registers, one calls others, one is the first function of a program, and one is the
/// kernel's signal frame.
const LEAF: FrameDescription<'_> = PLAIN;
const CALLER: FrameDescription<'_> = FrameDescription { start: 0x100, function: SAVES, ..PLAIN };
const START: FrameDescription<'_> = FrameDescription { start: 0x200, function: &[0x07, LR as u8], ..PLAIN };
const SIGNAL: FrameDescription<'_> = FrameDescription { augmentation: b"zRS", start: 0x300, ..PLAIN };

/// Returns the address that is `offset` bytes after the start of a function.
fn code(function: FrameDescription<'_>, offset: u64) -> u64 {
    BASE + TEXT + function.start + offset
}

#[track_caller]
fn check(registers: &[(usize, u64)], stack: &[(u64, u64)], expected: &[u64], ended: Ended) {
    let modules = OneFile(elf(AARCH64, &[(b".eh_frame", &eh_frame(&[LEAF, CALLER, START, SIGNAL]))]).into());
    let arch = Arch::aarch64();
    let mut values = [0x1111; 33];
    values[SP] = STACK;
    registers.iter().for_each(|&(register, value)| values[register] = value);
    let mut words = [0x2222u64; 200];
    stack.iter().for_each(|&(at, value)| words[at as usize / 8] = value);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut frames = Vec::new();
    let mut unwinder = Unwinder::for_arch(Some(arch), 1 << 20);
    let registers = Registers::from_perf(arch, 2, arch.sample_regs_user, values);
    assert_eq!(unwinder.unwind(&modules, &registers, &bytes, 50, &mut frames), ended);
    assert_eq!(frames, expected);
}

#[test]
fn a_leaf_on_aarch64_has_its_return_address_in_a_register() {
    let (leaf, caller, start) = (code(LEAF, 8), code(CALLER, 0x40), code(START, 0x10));
    check(&[(PC, leaf), (LR, caller)], &[(8, start)], &[leaf, caller, start], Ended::Root);
}

#[test]
fn pointer_authentication_codes_are_removed() {
    let (leaf, caller, start) = (code(LEAF, 8), code(CALLER, 0x40), code(START, 0x10));
    let signed = |address: u64| address | 0x2a_u64 << 48;
    check(&[(PC, leaf), (LR, signed(caller))], &[(8, signed(start))], &[leaf, caller, start], Ended::Root);
}

#[test]
fn only_the_innermost_frame_can_be_a_leaf() {
    // The caller of a leaf made a call, which overwrote the link register. To unwind the caller as a leaf too would
    // loop for ever.
    let leaf = code(LEAF, 8);
    let second = code(LEAF, 0x20);
    check(&[(PC, leaf), (LR, second)], &[], &[leaf, second], Ended::BadFrame { address: second });
}

#[test]
fn signal_frames_are_unwound_by_the_kernels_layout() {
    // The handler saves no registers, and the kernel calls it. The entry of the kernel's frame also covers the
    // instruction before it. The interrupted function is a leaf.
    let (handler, kernel, leaf) = (code(LEAF, 8), code(SIGNAL, 4), code(LEAF, 0));
    let (caller, start) = (code(CALLER, 0x40), code(START, 0x10));
    // The registers follow siginfo, the members of ucontext before sigcontext, and the fault address.
    let saved = |register: usize| 128 + 176 + 8 + 8 * register as u64;
    let interrupted = STACK + 1200;
    let stack = [
        (saved(X19), 19),
        (saved(LR), caller),
        (saved(SP), interrupted),
        (saved(PC), leaf),
        // The caller of the interrupted function saved its return address here.
        (1208, start),
    ];
    // The interrupted instruction is the first of its function. It is no call, so its address is looked up unchanged.
    check(&[(PC, handler), (LR, kernel)], &stack, &[handler, kernel, leaf, caller, start], Ended::Root);
}
