//! What differs between processors: which registers there are, in perf's numbering and in DWARF's. Knows no file.

use object::elf::{EM_AARCH64, EM_X86_64, Machine};

/// What unwinding has to know of a processor. Register numbers are DWARF's unless said otherwise.
#[derive(Debug)]
pub struct Arch {
    /// Its name, as `uname -m` has it.
    pub name: &'static str,
    /// The registers to be sampled (`sample_regs_user`), as bits in the numbering of `asm/perf_regs.h`.
    pub sample_regs_user: u64,
    /// `e_machine` of its ELF files.
    pub(super) machine: Machine,
    /// The stack pointer, the frame pointer, the instruction pointer.
    pub(super) sp: u16,
    pub(super) fp: u16,
    pub(super) pc: u16,
    /// Where a call leaves its return address.
    pub(super) link: Link,
    /// Which registers a function keeps for its caller: those that a rule has to restore. The return address is one.
    pub(super) kept: &'static [u16],
    /// DWARF's number of each of perf's.
    from_perf: &'static [Option<u16>],
    /// The bits of a code address that are address: the rest may be a signature.
    pub(super) code_mask: u64,
}

/// Where a call leaves its return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// On the stack.
    Stack,
    /// In a register.
    Register(u16),
}

/// No processor has more kept registers than this.
pub(super) const KEPT: usize = 12;

/// How many registers are followed: x86-64 has 17, AArch64 has 31, the stack pointer and the program counter.
pub(super) const REGISTERS: usize = 33;

/// Numbers by the System V ABI's supplement, figure 3.36; perf's by arch/x86/include/uapi/asm/perf_regs.h.
static X86_64: Arch = Arch {
    name: "x86_64",
    // AX to IP and R8 to R15: neither flags nor segments.
    sample_regs_user: 0xff_01ff,
    machine: EM_X86_64,
    sp: 7,
    fp: 6,
    pc: 16,
    link: Link::Stack,
    kept: &[3, 6, 12, 13, 14, 15, 16],
    from_perf: &{
        let mut table = [None; 24];
        // AX BX CX DX SI DI BP SP IP.
        let first = [0, 3, 2, 1, 4, 5, 6, 7, 16];
        let mut perf = 0;
        while perf < table.len() {
            table[perf] = match perf {
                0..9 => Some(first[perf]),
                16..24 => Some(perf as u16 - 8),
                _ => None,
            };
            perf += 1;
        }
        table
    },
    code_mask: u64::MAX,
};

/// Numbers by the AArch64 ABI's DWARF document; perf's by arch/arm64/include/uapi/asm/perf_regs.h: the same.
static AARCH64: Arch = Arch {
    name: "aarch64",
    sample_regs_user: (1 << 33) - 1,
    machine: EM_AARCH64,
    sp: 31,
    fp: 29,
    pc: 32,
    link: Link::Register(30),
    kept: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30],
    from_perf: &{
        let mut table = [None; 33];
        let mut perf = 0;
        while perf < table.len() {
            table[perf] = Some(perf as u16);
            perf += 1;
        }
        table
    },
    // Signatures of pointers are above the 48 bits of a user address.
    code_mask: (1 << 48) - 1,
};

impl Arch {
    /// x86-64.
    pub fn x86_64() -> &'static Arch {
        &X86_64
    }

    /// AArch64.
    pub fn aarch64() -> &'static Arch {
        &AARCH64
    }

    /// The register that stands for the return address in the rules.
    pub(super) fn link_column(&self) -> u16 {
        match self.link {
            Link::Stack => self.pc,
            Link::Register(register) => register,
        }
    }

    /// The processor that this program runs on, where its stacks can be unwound.
    pub fn native() -> Option<&'static Arch> {
        match std::env::consts::ARCH {
            "x86_64" => Some(&X86_64),
            "aarch64" => Some(&AARCH64),
            _ => None,
        }
    }
}

/// `PERF_SAMPLE_REGS_ABI_64`: the registers are those of a 64-bit task.
const ABI_64: u64 = 2;

/// The registers of a task in user space, or of one of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    values: [u64; REGISTERS],
    /// Which of the values are known, as bits.
    known: u64,
    /// Whether they came from a task whose registers are understood.
    abi: u64,
}

impl Registers {
    /// The registers of a sample: its ABI, the mask that was asked for and a value per bit of it.
    pub fn from_perf(arch: &Arch, abi: u64, mask: u64, values: impl IntoIterator<Item = u64>) -> Registers {
        let mut registers = Registers { values: [0; REGISTERS], known: 0, abi };
        let numbers = (0..64).filter(|bit| mask >> bit & 1 == 1);
        for (perf, value) in numbers.zip(values) {
            if let Some(&Some(register)) = arch.from_perf.get(perf) {
                registers.set(register, Some(value));
            }
        }
        registers
    }

    /// Whether they are of a 64-bit task. A task in the kernel on its own behalf has none at all.
    pub(super) fn understood(&self, arch: &Arch) -> bool {
        self.abi == ABI_64 && self.get(arch.sp).is_some() && self.get(arch.pc).is_some()
    }

    /// A register's value, where it is known.
    pub(super) fn get(&self, register: u16) -> Option<u64> {
        let known = register < REGISTERS as u16 && self.known >> register & 1 == 1;
        known.then(|| self.values[usize::from(register)])
    }

    /// Sets a register, or forgets it.
    pub(super) fn set(&mut self, register: u16, value: Option<u64>) {
        let Some(place) = self.values.get_mut(usize::from(register)) else { return };
        let bit = 1u64 << register;
        match value {
            Some(value) => {
                *place = value;
                self.known |= bit;
            }
            None => self.known &= !bit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_registers_are_dwarfs() {
        // Each value is perf's number of its register.
        let of = |arch: &Arch| {
            let mask = arch.sample_regs_user;
            let registers = Registers::from_perf(arch, ABI_64, mask, (0..64u64).filter(|bit| mask >> bit & 1 == 1));
            assert!(registers.understood(arch));
            assert!(arch.kept.len() <= KEPT && arch.kept.iter().all(|&kept| registers.get(kept).is_some()));
            (0..REGISTERS as u16).filter_map(|register| registers.get(register)).collect::<Vec<_>>()
        };
        // rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip, as PERF_REG_X86_AX, _DX, _CX, _BX ... are numbered.
        assert_eq!(of(&X86_64), [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8]);
        assert_eq!(of(&AARCH64), (0..33).collect::<Vec<_>>());
    }

    #[test]
    fn registers_of_a_32_bit_task_and_missing_ones_are_not_understood() {
        let arch = &X86_64;
        let all = |abi| Registers::from_perf(arch, abi, arch.sample_regs_user, 0..64);
        assert!(all(2).understood(arch));
        assert!(!all(1).understood(arch) && !all(0).understood(arch));
        assert!(!Registers::from_perf(arch, 2, 0x7f, 0..64).understood(arch));
        // Fewer values than bits.
        assert!(!Registers::from_perf(arch, 2, arch.sample_regs_user, 0..3).understood(arch));
    }
}
