//! Unwinds a stack. The first byte of the input selects the architecture and the kind of file. The next two bytes are
//! the size of the unwind sections (or of the whole ELF file). The sections, the registers and a stack follow.
//! Unwinding must end without a panic and within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_symbols::unwind::{Arch, Registers, Unwinder};

use elf::{BASE, OneFile, TEXT, elf};

#[path = "../../stacks/elf.rs"]
mod elf;

fuzz_target!(|input: &[u8]| {
    let [mode, low, high, rest @ ..] = input else { return };
    let (section, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
    let arch = if mode & 1 == 0 { Arch::x86_64() } else { Arch::aarch64() };
    let machine = if mode & 1 == 0 { 62 } else { 183 };
    let half = section.split_at(section.len() / 2);
    let file = match mode >> 1 & 3 {
        0 => elf(machine, &[(b".eh_frame", section)]),
        1 => elf(machine, &[(b".debug_frame", section)]),
        2 => elf(machine, &[(b".eh_frame_hdr", half.0), (b".eh_frame", half.1)]),
        _ => section.to_vec(),
    };
    let words = rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let mut registers: Vec<u64> = words.clone().take(33).collect();
    registers.resize(33, 0);
    // The program counter must lie in the file, and the stack pointer must be a plausible address.
    let (pc, sp) = if mode & 1 == 0 { (8, 7) } else { (32, 31) };
    registers[pc] = BASE + TEXT + registers[pc] % 0x1000;
    registers[sp] &= 0xffff_ffff_fff8;
    let stack = &rest[rest.len().min(33 * 8)..];

    let mut unwinder = Unwinder::for_arch(Some(arch), 1 << 20);
    let modules = OneFile(file.into());
    for _ in 0..2 {
        let mut out = Vec::new();
        let registers = Registers::from_perf(arch, 2, arch.sample_regs_user, registers.iter().copied());
        let ended = unwinder.unwind(&modules, &registers, stack, 100, &mut out);
        assert!(!ended.to_string().is_empty() && (1..=100).contains(&out.len()));
        assert!(unwinder.cached_bytes() <= 1 << 20);
    }
});
