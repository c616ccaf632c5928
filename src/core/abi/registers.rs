//! The registers that a sample can hold (PERF_SAMPLE_REGS_USER, PERF_SAMPLE_REGS_INTR), each with its bit in the attr's
//! mask.
//!
//! The bit numbers come from `arch/*/include/uapi/asm/perf_regs.h`. The names are the names that perf prints, in lower
//! case.

/// The kind of program that the registers belong to (`enum perf_sample_regs_abi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegsAbi {
    /// The sample has no registers, because its thread has no user space (it is a kernel thread).
    None,
    /// The registers of a 32-bit program.
    Bits32,
    /// The registers of a 64-bit program.
    Bits64,
    /// A value that is unknown here, from a later kernel.
    Other(u64),
}

impl From<u64> for RegsAbi {
    fn from(abi: u64) -> Self {
        match abi {
            0 => RegsAbi::None,
            1 => RegsAbi::Bits32,
            2 => RegsAbi::Bits64,
            other => RegsAbi::Other(other),
        }
    }
}

const X86: [&str; 24] = [
    "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "ds", "es", "fs", "gs", "r8", "r9",
    "r10", "r11", "r12", "r13", "r14", "r15",
];

const ARM64: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "lr", "sp", "pc",
];

/// The names of this machine's registers, by bit number.
const NAMES: &[&str] = if cfg!(target_arch = "x86_64") {
    &X86
} else if cfg!(target_arch = "aarch64") {
    &ARM64
} else {
    &[]
};

/// The mask of all general registers that the kernel can sample on this machine. On 64-bit x86 it leaves out the
/// segment registers `ds` to `gs`, because `perf_reg_validate()` in `arch/x86/kernel/perf_regs.c` refuses them.
pub const ALL_REGISTERS: u64 =
    if cfg!(target_arch = "x86_64") { 0x00ff_0fff } else { (1u64 << NAMES.len()).wrapping_sub(1) };

/// Returns the name of the register with this bit number in the mask, or `None` if this machine has no such register.
pub fn register_name(bit: u32) -> Option<&'static str> {
    NAMES.get(bit as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_names_match_their_bit_numbers() {
        assert_eq!((X86[7], X86[8], X86[15], X86[16], X86[23]), ("sp", "ip", "gs", "r8", "r15"));
        assert_eq!((ARM64[0], ARM64[29], ARM64[30], ARM64[31], ARM64[32]), ("x0", "x29", "lr", "sp", "pc"));
        assert!((0..64).filter(|bit| ALL_REGISTERS >> bit & 1 != 0).all(|bit| register_name(bit).is_some()));
    }
}
