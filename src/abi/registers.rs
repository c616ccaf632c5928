//! The registers that a sample can hold (PERF_SAMPLE_REGS_USER, PERF_SAMPLE_REGS_INTR), by the bit of the attr's mask.
//!
//! The numbers are those of `arch/*/include/uapi/asm/perf_regs.h`, the names those that perf prints, in small letters.

/// Which kind of program registers are of (`enum perf_sample_regs_abi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegsAbi {
    /// There are none: no user space was behind the sample.
    None,
    /// A 32-bit program's.
    Bits32,
    /// A 64-bit program's.
    Bits64,
    /// Something that only later kernels know.
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

/// This machine's registers.
const NAMES: &[&str] = if cfg!(target_arch = "x86_64") {
    &X86
} else if cfg!(target_arch = "aarch64") {
    &ARM64
} else {
    &[]
};

/// The general registers that this machine's kernel can sample. Of a 64-bit x86 those without the segments `ds` to `gs`,
/// which `perf_reg_validate()` in `arch/x86/kernel/perf_regs.c` refuses.
pub const ALL_REGISTERS: u64 =
    if cfg!(target_arch = "x86_64") { 0x00ff_0fff } else { (1u64 << NAMES.len()).wrapping_sub(1) };

/// The name of the register with this bit of the mask; `None` for one that has none here.
pub fn register_name(bit: u32) -> Option<&'static str> {
    NAMES.get(bit as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_at_their_numbers() {
        assert_eq!((X86[7], X86[8], X86[15], X86[16], X86[23]), ("sp", "ip", "gs", "r8", "r15"));
        assert_eq!((ARM64[0], ARM64[29], ARM64[30], ARM64[31], ARM64[32]), ("x0", "x29", "lr", "sp", "pc"));
        assert!((0..64).filter(|bit| ALL_REGISTERS >> bit & 1 != 0).all(|bit| register_name(bit).is_some()));
    }
}
