//! User stacks from registers and a copy of the stack, by the DWARF unwind information of the files that are mapped. Knows
//! nothing of events and of Python, and finds no files itself.
//!
//! The rules come from `.eh_frame` (through `.eh_frame_hdr` where there is one) or `.debug_frame`, also of a separate debug
//! file; where none of them knows an address, the frame pointer is tried. All registers that a function keeps for its caller are
//! followed, and expressions may read the stack: code that realigns its stack, the dynamic linker's trampolines and the
//! frames of signals need both.

mod arch;
mod cache;
mod elf;
mod index;
mod modules;
mod rule;
mod step;

use cache::Cache;
use rule::Rule;
use step::{Frame, Halt, Place, Stack};

pub use arch::{Arch, Registers};
pub use modules::{FileKey, Image, Mapping, Modules};

/// The registers to be sampled (`sample_regs_user`) on the processor that this program runs on; 0 where user stacks cannot be
/// unwound.
pub fn sample_regs_user() -> u64 {
    Arch::native().map_or(0, |arch| arch.sample_regs_user)
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Nobody called this frame's function.
    #[error("complete")]
    Root,
    /// There may be more frames than were asked for.
    #[error("there are more frames than the limit")]
    Limit,
    /// The next frame lies behind the end of the stack's copy.
    #[error("the stack is larger than its copy; copy more of it with --call-graph dwarf,SIZE")]
    StackEnds,
    /// Nothing is known of the code at an address, and it does not keep frame pointers.
    #[error("cannot unwind at {address:#x}: {why}")]
    NoUnwindInfo {
        /// Of the last frame.
        address: u64,
        /// What there is not.
        why: Missing,
    },
    /// What the rules lead to is no frame.
    #[error("the frame at {address:#x} leads to no other")]
    BadFrame {
        /// Of the last frame.
        address: u64,
    },
    /// The registers are not those of a 64-bit task in user space.
    #[error("no registers of a 64-bit task")]
    NoRegisters,
    /// Stacks of this processor cannot be unwound.
    #[error("user stacks cannot be unwound by DWARF on this processor; use --call-graph fp")]
    NotSupported,
}

/// What there is not, so that code cannot be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The address is not mapped, so it is no code.
    #[error("nothing is mapped there")]
    NotMapped,
    /// The code was made at run time.
    #[error("the code is of no file")]
    NoFile,
    /// The file cannot be opened.
    #[error("the file cannot be read")]
    Unreadable,
    /// The file is damaged, or of another processor.
    #[error("the file is no ELF file of this processor")]
    NoElf,
    /// It has neither `.eh_frame` nor `.debug_frame`.
    #[error("the file has no unwind information")]
    NoSection,
    /// It has more than fits in the cache.
    #[error("the file's unwind information is larger than the cache")]
    TooLarge,
    /// It says nothing of this address.
    #[error("the file's unwind information does not cover it")]
    NoEntry,
}

/// Unwinds stacks. Keeps the unwind information of files, shared among the processes that map them.
#[derive(Debug)]
pub struct Unwinder {
    arch: Option<&'static Arch>,
    cache: Option<Cache>,
}

impl Unwinder {
    /// Unwinds stacks of the processor that this program runs on; files' unwind information may take that many bytes.
    pub fn new(cache_bytes: usize) -> Unwinder {
        Self::of(Arch::native(), cache_bytes)
    }

    /// Unwinds stacks of a certain processor.
    pub fn of(arch: Option<&'static Arch>, cache_bytes: usize) -> Unwinder {
        Unwinder { arch, cache: arch.map(|arch| Cache::new(arch, cache_bytes)) }
    }

    /// How many bytes the files' unwind information takes now.
    pub fn cached_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, Cache::bytes)
    }

    /// Walks the frames: puts the instruction pointer and then the return addresses into `out`, innermost first, at most
    /// `limit` of them. `stack` is the copy of the stack from the stack pointer upwards.
    pub fn unwind(
        &mut self,
        modules: &dyn Modules,
        registers: &Registers,
        stack: &[u8],
        limit: usize,
        out: &mut Vec<u64>,
    ) -> Ended {
        let (Some(arch), Some(cache)) = (self.arch, &mut self.cache) else { return Ended::NotSupported };
        if !registers.understood(arch) {
            return Ended::NoRegisters;
        }
        let stack = Stack { start: registers.get(arch.sp).unwrap_or(0), bytes: stack };
        let (mut registers, mut place) = (*registers, Place::Exact);
        let mut mapping: Option<Mapping> = None;
        // Why the walk ends here if the next frame's address turns out to be no code.
        let mut dead_end = None;
        let limit = out.len().saturating_add(limit);
        while let Some(address) = registers.get(arch.pc) {
            let code = place.code(address);
            mapping = mapping.filter(|mapping| mapping.contains(code)).or_else(|| modules.mapping(code));
            if let (None, Some(ended)) = (mapping, dead_end) {
                return ended;
            }
            if out.len() >= limit {
                return Ended::Limit;
            }
            out.push(address);
            let frame = Frame { arch, registers: &registers, stack, place };
            let rule = mapping.ok_or(Missing::NotMapped).and_then(|mapping| cache.rule(modules, &mapping, code));
            let (caller, next) = match rule {
                Ok(Rule::Root) => (Err(Halt::Root), Place::Return),
                Ok(Rule::Offsets(offsets)) => (frame.by_offsets(&offsets), Place::after(offsets.frame)),
                Ok(Rule::Evaluate) => mapping
                    .and_then(|mapping| {
                        cache.with_row(&mapping, code, |row, entry| {
                            (frame.by_evaluation(row, &entry), Place::after(entry.frame))
                        })
                    })
                    .unwrap_or((Err(Halt::Bad), Place::Return)),
                Ok(Rule::KernelFrame) => (frame.by_kernel_frame(), Place::Exact),
                // A call to where there is no code has left nothing but its return address.
                Err(Missing::NotMapped) => (frame.by_return(), Place::Return),
                Err(_) => (frame.by_frame_pointer(), Place::Return),
            };
            let ended = match rule {
                Ok(_) => Ended::BadFrame { address },
                Err(why) => Ended::NoUnwindInfo { address, why },
            };
            registers = match caller {
                Ok(caller) => caller,
                Err(Halt::Root) => return Ended::Root,
                Err(Halt::StackEnds) => return Ended::StackEnds,
                Err(Halt::Bad) => return ended,
            };
            (place, dead_end) = (next, Some(ended));
        }
        Ended::NoRegisters
    }
}
