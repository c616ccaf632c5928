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
    /// A value that perf-prof does not know, from a later kernel.
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

impl From<RegsAbi> for u64 {
    fn from(abi: RegsAbi) -> Self {
        match abi {
            RegsAbi::None => 0,
            RegsAbi::Bits32 => 1,
            RegsAbi::Bits64 => 2,
            RegsAbi::Other(other) => other,
        }
    }
}

/// The architecture that a sample's registers belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterSet {
    /// 32-bit and 64-bit x86.
    X86,
    /// 32-bit and 64-bit Arm.
    Arm,
    /// RISC-V.
    RiscV,
    /// An architecture whose register names perf-prof does not know.
    Other,
}

const X86: [&str; 24] = [
    "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "ds", "es", "fs", "gs", "r8", "r9",
    "r10", "r11", "r12", "r13", "r14", "r15",
];

const ARM: [&str; 16] =
    ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "fp", "ip", "sp", "lr", "pc"];

const ARM64: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "lr", "sp", "pc",
];

/// The bit of the register for the vector length, PERF_REG_ARM64_VG. The bits between the program counter and this bit
/// are unused.
const ARM64_VG: u32 = 46;

const RISCV: [&str; 32] = [
    "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// The mask of all general registers that the kernel can sample on this machine. On 64-bit x86, the mask leaves out the
/// segment registers `ds` to `gs`, because `perf_reg_validate()` in `arch/x86/kernel/perf_regs.c` refuses them.
pub const ALL_REGISTERS: u64 = if cfg!(target_arch = "x86_64") {
    0x00ff_0fff
} else if cfg!(target_arch = "aarch64") {
    (1 << ARM64.len()) - 1
} else {
    0
};

impl RegisterSet {
    /// Returns the registers of the machine that perf-prof runs on.
    pub fn native() -> RegisterSet {
        Self::of_machine(std::env::consts::ARCH)
    }

    /// Returns the registers of a machine. `name` is the machine's architecture, as `uname -m` prints it.
    pub fn of_machine(name: &str) -> RegisterSet {
        let is_32_bit_x86 = || matches!(name.as_bytes(), [b'i', b'3'..=b'6', b'8', b'6']);
        match name {
            _ if name.starts_with("x86") || is_32_bit_x86() => RegisterSet::X86,
            _ if name.starts_with("arm") || name.starts_with("aarch64") => RegisterSet::Arm,
            _ if name.starts_with("riscv") => RegisterSet::RiscV,
            _ => RegisterSet::Other,
        }
    }

    /// Returns the name of the register with this bit number in the mask, or `None` if there is no such register.
    ///
    /// A 32-bit task on 64-bit Arm has its 16 registers in the first 16 bits, under their 32-bit numbers. The other
    /// bits belong to the 64-bit registers (`perf_reg_value()` in `arch/arm64/kernel/perf_regs.c`). On x86, the numbers
    /// of 32-bit and 64-bit tasks are the same.
    pub fn name(self, abi: RegsAbi, bit: u32) -> Option<&'static str> {
        let at = bit as usize;
        match (self, abi) {
            (RegisterSet::X86, _) => X86.get(at),
            (RegisterSet::Arm, RegsAbi::Bits32) if at < ARM.len() => ARM.get(at),
            (RegisterSet::Arm, _) if bit == ARM64_VG => Some(&"vg"),
            (RegisterSet::Arm, _) => ARM64.get(at),
            (RegisterSet::RiscV, _) => RISCV.get(at),
            (RegisterSet::Other, _) => None,
        }
        .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_names_match_their_bit_numbers() {
        let named = |machine: &str, abi, bits: &[u32]| {
            let set = RegisterSet::of_machine(machine);
            bits.iter().map(|&bit| set.name(abi, bit).unwrap_or("-")).collect::<Vec<_>>().join(" ")
        };
        for x86 in ["x86_64", "i686"] {
            assert_eq!(named(x86, RegsAbi::Bits64, &[7, 8, 15, 16, 23, 24]), "sp ip gs r8 r15 -");
        }
        assert_eq!(named("aarch64", RegsAbi::Bits64, &[0, 29, 30, 31, 32, 33, 46]), "x0 x29 lr sp pc - vg");
        for arm in ["aarch64", "armv7l"] {
            assert_eq!(named(arm, RegsAbi::Bits32, &[0, 10, 11, 12, 13, 14, 15]), "r0 r10 fp ip sp lr pc");
        }
        assert_eq!(named("riscv64", RegsAbi::Bits64, &[0, 1, 2, 10, 31, 32]), "pc ra sp a0 t6 -");
        assert_eq!(named("s390x", RegsAbi::Bits64, &[0]), "-");
    }

    #[test]
    fn all_registers_of_this_machine_have_names() {
        let bits = (0..64).filter(|bit| ALL_REGISTERS >> bit & 1 != 0);
        assert!(bits.into_iter().all(|bit| RegisterSet::native().name(RegsAbi::Bits64, bit).is_some()));
    }
}
