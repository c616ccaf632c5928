//! The properties of each processor that unwinding needs: its registers, and their numbers in perf and in DWARF.

use object::elf::{EM_AARCH64, EM_X86_64, Machine};

/// The properties of a processor that unwinding needs. Registers have their DWARF numbers unless stated otherwise.
#[derive(Debug)]
pub struct Arch {
    /// The name of the processor, as `uname -m` prints it.
    pub name: &'static str,
    /// The registers to sample (`sample_regs_user`): one bit per register, numbered as in `asm/perf_regs.h`.
    pub sample_regs_user: u64,
    /// The value of `e_machine` in ELF files for the processor.
    pub(super) machine: Machine,
    /// The register numbers of the stack pointer (`sp`), the frame pointer (`fp`) and the instruction pointer (`pc`).
    pub(super) sp: u16,
    pub(super) fp: u16,
    pub(super) pc: u16,
    /// Where a call stores its return address.
    pub(super) link: Link,
    /// The registers that a function preserves for its caller, and the register of the return address. Unwinding
    /// restores all of these registers.
    pub(super) kept: &'static [u16],
    /// The DWARF number of each register, indexed by its number in perf. `None` if the register is not tracked.
    from_perf: &'static [Option<u16>],
    /// A mask of the bits that belong to a code address. The other bits may contain a signature of the pointer.
    pub(super) code_mask: u64,
}

/// Where a call stores its return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// On the stack.
    Stack,
    /// In a register.
    Register(u16),
}

/// The maximum number of registers in [`Arch::kept`].
pub(super) const KEPT: usize = 12;

/// The number of registers that are tracked. x86-64 has 17; AArch64 has 31, the stack pointer and the program counter.
pub(super) const REGISTERS: usize = 33;

/// DWARF's register numbers come from figure 3.36 of the supplement to the System V ABI. perf's register numbers come
/// from arch/x86/include/uapi/asm/perf_regs.h.
static X86_64: Arch = Arch {
    name: "x86_64",
    // The registers AX to IP and R8 to R15, without the flags and the segment registers.
    sample_regs_user: 0xff_01ff,
    machine: EM_X86_64,
    sp: 7,
    fp: 6,
    pc: 16,
    link: Link::Stack,
    kept: &[3, 6, 12, 13, 14, 15, 16],
    from_perf: &{
        let mut table = [None; 24];
        // perf's registers 0 to 8 are AX BX CX DX SI DI BP SP IP.
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

/// DWARF's register numbers come from the document about DWARF for AArch64. perf's register numbers are equal
/// (arch/arm64/include/uapi/asm/perf_regs.h).
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
    // The signature of a pointer is in the bits above the 48 bits of a user address.
    code_mask: (1 << 48) - 1,
};

impl Arch {
    /// Returns x86-64.
    pub fn x86_64() -> &'static Arch {
        &X86_64
    }

    /// Returns AArch64.
    pub fn aarch64() -> &'static Arch {
        &AARCH64
    }

    /// Returns the register number that stands for the return address in the unwind rules.
    pub(super) fn link_column(&self) -> u16 {
        match self.link {
            Link::Stack => self.pc,
            Link::Register(register) => register,
        }
    }

    /// Returns the processor of this machine. `None` if user stacks of the processor cannot be unwound.
    pub fn native() -> Option<&'static Arch> {
        Self::of_machine(std::env::consts::ARCH)
    }

    /// Returns the processor of a machine. `None` if user stacks of the processor cannot be unwound. `name` is the
    /// machine's architecture, as `uname -m` prints it.
    pub fn of_machine(name: &str) -> Option<&'static Arch> {
        match name {
            "x86_64" => Some(&X86_64),
            "aarch64" | "arm64" => Some(&AARCH64),
            _ => None,
        }
    }
}

/// The values of `PERF_SAMPLE_REGS_ABI_32` and `PERF_SAMPLE_REGS_ABI_64`: the registers belong to a 32-bit task or to a
/// 64-bit task.
const ABI_32: u64 = 1;
const ABI_64: u64 = 2;

/// The registers of a task in user space, or of one of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    values: [u64; REGISTERS],
    /// A mask of the registers with a known value: one bit per register.
    known: u64,
    /// The ABI of the sampled task's registers, one of PERF_SAMPLE_REGS_ABI_*.
    abi: u64,
}

impl Registers {
    /// Creates the registers of a sample. `abi` is the ABI of its registers, `mask` selects the sampled registers by
    /// their numbers in perf, and `values` has one value for each bit that is set in `mask`.
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

    /// Returns whether these are the registers of a 64-bit task. A kernel thread has no user registers.
    pub(super) fn are_64_bit(&self, arch: &Arch) -> bool {
        self.abi == ABI_64 && self.get(arch.sp).is_some() && self.get(arch.pc).is_some()
    }

    /// Returns whether these are the registers of a 32-bit task.
    pub(super) fn are_32_bit(&self) -> bool {
        self.abi == ABI_32
    }

    /// Returns the value of a register, if it is known.
    pub(super) fn get(&self, register: u16) -> Option<u64> {
        let known = register < REGISTERS as u16 && self.known >> register & 1 == 1;
        known.then(|| self.values[usize::from(register)])
    }

    /// Sets the value of a register. `None` marks the value as unknown.
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
        // The value of each register is its number in perf.
        let of = |arch: &Arch| {
            let mask = arch.sample_regs_user;
            let registers = Registers::from_perf(arch, ABI_64, mask, (0..64u64).filter(|bit| mask >> bit & 1 == 1));
            assert!(registers.are_64_bit(arch));
            assert!(arch.kept.len() <= KEPT && arch.kept.iter().all(|&kept| registers.get(kept).is_some()));
            (0..REGISTERS as u16).filter_map(|register| registers.get(register)).collect::<Vec<_>>()
        };
        // The expected order is rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip. The values are the numbers of
        // PERF_REG_X86_AX, _DX, _CX, _BX and so on.
        assert_eq!(of(&X86_64), [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8]);
        assert_eq!(of(&AARCH64), (0..33).collect::<Vec<_>>());
    }

    #[test]
    fn registers_of_a_32_bit_task_and_missing_ones_are_not_understood() {
        let arch = &X86_64;
        let all = |abi| Registers::from_perf(arch, abi, arch.sample_regs_user, 0..64);
        assert!(all(2).are_64_bit(arch));
        assert!(!all(1).are_64_bit(arch) && !all(0).are_64_bit(arch));
        assert!(!Registers::from_perf(arch, 2, 0x7f, 0..64).are_64_bit(arch));
        // The sample has fewer values than bits in the mask.
        assert!(!Registers::from_perf(arch, 2, arch.sample_regs_user, 0..3).are_64_bit(arch));
    }
}
