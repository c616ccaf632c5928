//! Unwinds with a file that cannot be opened at first. These tests run on any machine.

use std::{
    cell::Cell,
    io, thread,
    time::{Duration, Instant},
};

use perf_prof_symbols::{
    symbol::CodeImage,
    unwind::{Arch, Ended, Mapping, Missing, Modules, Registers, Unwinder},
};

use super::{
    eh_frame::{FrameDescription, eh_frame},
    elf::{BASE, OneFile, TEXT, elf},
};

const X86_64: u16 = 62;
const IP: u8 = 16;
/// The first function of a program, whose return address is undefined. The frame's address is the stack pointer plus 8.
const START: FrameDescription<'_> = FrameDescription {
    augmentation: b"zR",
    link: IP,
    common: &[0x0c, 7, 8],
    start: 0,
    size: 0x100,
    function: &[0x07, IP],
};

/// A process whose file can only be opened while `readable` is set.
struct Unreadable {
    file: OneFile,
    readable: Cell<bool>,
    /// The number of attempts to open the file.
    opened: Cell<u32>,
}

impl Modules for Unreadable {
    fn mapping(&self, address: u64) -> Option<Mapping> {
        self.file.mapping(address)
    }

    fn open(&self, address: u64) -> io::Result<CodeImage> {
        self.opened.set(self.opened.get() + 1);
        if self.readable.get() { self.file.open(address) } else { Err(io::Error::other("gone")) }
    }
}

#[test]
fn a_file_that_could_not_be_opened_is_tried_again() {
    let file = || OneFile(elf(X86_64, &[(b".eh_frame", &eh_frame(&[START]))]).into());
    let modules = Unreadable { file: file(), readable: Cell::new(false), opened: Cell::new(0) };
    let arch = Arch::x86_64();
    let unwind = |unwinder: &mut Unwinder, modules: &dyn Modules| {
        // In perf's mask of registers, bit 8 is the instruction pointer, and bit 7 the stack pointer.
        let registers = Registers::from_perf(arch, 2, 0x180, [0x7fff_0000, BASE + TEXT + 8]);
        unwinder.unwind(modules, &registers, &[0; 64], 50, &mut Vec::new())
    };
    let unreadable = Ended::NoUnwindInfo { address: BASE + TEXT + 8, why: Missing::Unreadable };
    let mut unwinder = Unwinder::for_arch(Some(arch), 1 << 20);
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(unwind(&mut unwinder, &modules), unreadable);
    }
    // The file is opened again once a second, and not for each address.
    assert!(u64::from(modules.opened.get()) <= 1 + start.elapsed().as_secs(), "{}", modules.opened.get());
    let wait = || thread::sleep(Duration::from_millis(1100));
    wait();
    let before = modules.opened.get();
    assert_eq!(unwind(&mut unwinder, &modules), unreadable);
    assert_eq!(modules.opened.get(), before + 1);
    modules.readable.set(true);
    wait();
    assert_eq!(unwind(&mut unwinder, &modules), Ended::Root);
    // After a successful read the file is not opened again.
    wait();
    assert_eq!(unwind(&mut unwinder, &modules), Ended::Root);
    assert_eq!(modules.opened.get(), before + 2);
    let mut other = Unwinder::for_arch(Some(arch), 1 << 20);
    assert_eq!(unwind(&mut other, &file()), Ended::Root);
    assert_eq!(unwinder.cached_bytes(), other.cached_bytes());
}

/// In the second frame, the frame pointer is 0. This means the first frame of the program only if the code uses frame
/// pointers.
#[test]
fn code_that_cannot_be_read_has_a_first_frame_only_if_frame_pointers_led_to_it() {
    let file = OneFile(elf(X86_64, &[(b".eh_frame", &eh_frame(&[START]))]).into());
    let modules = Unreadable { file, readable: Cell::new(false), opened: Cell::new(0) };
    let (arch, stack, caller) = (Arch::x86_64(), 0x7fff_0000, BASE + TEXT + 16);
    let unwind = |frame_pointer: u64, instruction: u64, words: [u64; 4]| {
        let mut frames = Vec::new();
        // In perf's mask of registers, bits 6 to 8 are the frame pointer, the stack pointer and the instruction
        // pointer.
        let registers = Registers::from_perf(arch, 2, 0x1c0, [frame_pointer, stack, instruction]);
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let ended = Unwinder::for_arch(Some(arch), 1 << 20).unwind(&modules, &registers, &words, 50, &mut frames);
        (ended, frames)
    };
    let (leaf, unmapped) = (BASE + TEXT + 8, 0x1234);
    assert_eq!(unwind(stack + 8, leaf, [7, 0, caller, 7]), (Ended::Root, vec![leaf, caller]));
    let unknown = Ended::NoUnwindInfo { address: caller, why: Missing::Unreadable };
    assert_eq!(unwind(0, unmapped, [caller, 7, 7, 7]), (unknown, vec![unmapped, caller]));
}
