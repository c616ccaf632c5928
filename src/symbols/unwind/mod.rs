//! Unwinds user stacks from registers and a copy of the stack, with the DWARF unwind information of the mapped files.
//!
//! The rules come from `.eh_frame` (through `.eh_frame_hdr` if the file contains it) or `.debug_frame`, and from
//! separate debug files. If none of these sections covers an address, the frame pointer is tried. All registers that a
//! function preserves for its caller are restored, and DWARF expressions may read the stack. This is necessary for code
//! that realigns its stack, for the trampolines of the dynamic linker and for signal frames.
//!
//! This module parses with `gimli`, and uses no existing unwinder. The well-maintained unwinder `framehop` follows
//! three registers, refuses expressions that read memory, and silently continues by the frame pointer when its rules
//! fail. But a script should learn why a stack ends, so this module returns the reason. Tests compare its frames with
//! those of `framehop`, instruction by instruction.

mod arch;
mod cache;
mod elf;
mod index;
mod modules;
mod rule;
mod step;

use cache::Cache;
use rule::Rule;
use step::{Frame, NoCaller, PcKind, Stack};

pub use arch::{Arch, Registers};
pub use modules::{FileKey, Mapping, Modules};

/// Returns the registers to sample (`sample_regs_user`) on the processor of this machine. Returns 0 if user stacks of
/// the processor cannot be unwound.
pub fn sample_regs_user() -> u64 {
    Arch::native().map_or(0, |arch| arch.sample_regs_user)
}

/// The reason why unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The outermost frame was reached: its function has no caller.
    #[error("complete")]
    Root,
    /// The requested number of frames was reached, and there may be more.
    #[error("the maximum number of frames was reached")]
    Limit,
    /// The next frame is beyond the end of the copied stack.
    #[error("the stack is larger than its copy; use a larger SIZE in --call-graph dwarf,SIZE")]
    StackEnds,
    /// There is no unwind information for the code at `address`, and the code does not use frame pointers.
    #[error("cannot unwind at {address:#x}: {why}")]
    NoUnwindInfo {
        /// The address of the last frame.
        address: u64,
        /// What is missing.
        why: Missing,
    },
    /// The rules gave a caller's frame that is impossible.
    #[error("the frame at {address:#x} has no valid caller")]
    BadFrame {
        /// The address of the last frame.
        address: u64,
    },
    /// The registers do not belong to a 64-bit task in user space.
    #[error("the sample has no registers of a 64-bit task")]
    NoRegisters,
    /// The registers belong to a 32-bit task, whose stack cannot be unwound.
    #[error("user stacks of 32-bit tasks cannot be unwound")]
    Bits32,
    /// Stacks of this processor cannot be unwound.
    #[error("user stacks cannot be unwound with DWARF on this processor; use --call-graph fp")]
    NotSupported,
}

/// The reason why there are no rules for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Nothing is mapped at the address, so it cannot be code.
    #[error("nothing is mapped at this address")]
    NotMapped,
    /// The code was generated at run time.
    #[error("the code does not come from a file")]
    NoFile,
    /// The file cannot be opened.
    #[error("the file cannot be read")]
    Unreadable,
    /// The file is damaged, or is for another processor.
    #[error("the file is not an ELF file for this processor")]
    NoElf,
    /// The file has neither `.eh_frame` nor `.debug_frame`.
    #[error("the file has no unwind information")]
    NoSection,
    /// The file's unwind information does not fit in the cache.
    #[error("the file's unwind information is larger than the cache")]
    TooLarge,
    /// The file's unwind information does not cover the address.
    #[error("the file's unwind information does not cover this address")]
    NoEntry,
}

/// Unwinds stacks. Caches the unwind information of files, which all processes that map a file share.
#[derive(Debug)]
pub struct Unwinder {
    arch: Option<&'static Arch>,
    cache: Option<Cache>,
}

impl Unwinder {
    /// Creates an unwinder for the processor that perf-prof runs on. `cache_bytes` is the maximum memory for the unwind
    /// information of files, in bytes.
    pub fn new(cache_bytes: usize) -> Unwinder {
        Self::for_arch(Arch::native(), cache_bytes)
    }

    /// Creates an unwinder for the stacks of the processor `arch`. With `None`, it unwinds nothing.
    pub fn for_arch(arch: Option<&'static Arch>, cache_bytes: usize) -> Unwinder {
        Unwinder { arch, cache: arch.map(|arch| Cache::new(arch, cache_bytes)) }
    }

    /// Returns the processor whose stacks are unwound. `None` if no stacks can be unwound.
    pub fn arch(&self) -> Option<&'static Arch> {
        self.arch
    }

    /// Returns the memory that the unwind information of files currently takes, in bytes.
    pub fn cached_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, Cache::bytes)
    }

    /// Unwinds the frames, innermost first. Appends at most `limit` addresses to `out`: the instruction pointer, then
    /// the return addresses. `stack` is the copy of the stack, from the stack pointer upwards.
    pub fn unwind(
        &mut self,
        modules: &dyn Modules,
        registers: &Registers,
        stack: &[u8],
        limit: usize,
        out: &mut Vec<u64>,
    ) -> Ended {
        let (Some(arch), Some(cache)) = (self.arch, &mut self.cache) else { return Ended::NotSupported };
        if registers.are_32_bit() {
            return Ended::Bits32;
        }
        if !registers.are_64_bit(arch) {
            return Ended::NoRegisters;
        }
        let stack = Stack { start: registers.get(arch.sp).unwrap_or(0), bytes: stack };
        let (mut registers, mut pc_kind) = (*registers, PcKind::Exact);
        let mut mapping: Option<Mapping> = None;
        // The result if nothing is mapped at the address of the next frame. This address cannot be code, so unwinding
        // ends.
        let mut dead_end = None;
        // Whether a frame pointer was followed in code whose file cannot be read.
        let mut has_frame_pointers = false;
        let limit = out.len().saturating_add(limit);
        while let Some(address) = registers.get(arch.pc) {
            let code = pc_kind.instruction_address(address);
            mapping = mapping.filter(|mapping| mapping.contains(code)).or_else(|| modules.mapping(code));
            if let (None, Some(ended)) = (mapping, dead_end) {
                return ended;
            }
            if out.len() >= limit {
                return Ended::Limit;
            }
            out.push(address);
            let frame = Frame { arch, registers: &registers, stack, pc_kind };
            let rule = mapping.ok_or(Missing::NotMapped).and_then(|mapping| cache.rule(modules, &mapping, code));
            let (caller, next) = match rule {
                Ok(Rule::Root) => (Err(NoCaller::Root), PcKind::Return),
                Ok(Rule::Offsets(offsets)) => (frame.by_offsets(&offsets), PcKind::of_caller(offsets.frame)),
                Ok(Rule::Evaluate) => mapping
                    .and_then(|mapping| {
                        cache.with_row(&mapping, code, |row, entry| {
                            (frame.by_evaluation(row, &entry), PcKind::of_caller(entry.frame))
                        })
                    })
                    .unwrap_or((Err(NoCaller::Bad), PcKind::Return)),
                Ok(Rule::KernelFrame) => (frame.by_kernel_frame(), PcKind::Exact),
                // The program called an address without code. This call has only stored the return address so far.
                Err(Missing::NotMapped) => (frame.by_return(), PcKind::Return),
                Err(_) => (frame.by_frame_pointer(), PcKind::Return),
            };
            let ended = match rule {
                Ok(_) => Ended::BadFrame { address },
                Err(why) => Ended::NoUnwindInfo { address, why },
            };
            let is_unread = rule == Err(Missing::Unreadable);
            has_frame_pointers |= is_unread && caller.is_ok();
            registers = match caller {
                Ok(caller) => caller,
                // Code whose file cannot be read may not use frame pointers. In such code, a frame pointer of 0 does
                // not mark the first frame.
                Err(NoCaller::Root) if is_unread && !has_frame_pointers => return ended,
                Err(NoCaller::Root) => return Ended::Root,
                Err(NoCaller::StackEnds) => return Ended::StackEnds,
                Err(NoCaller::Bad) => return ended,
            };
            (pc_kind, dead_end) = (next, Some(ended));
        }
        Ended::NoRegisters
    }
}
