//! Unwinds the user frames of a sample, from the registers and the copied stack in the sample. Reads no files itself.

use std::{cell::RefCell, io};

use perf_prof_format::record;
use perf_prof_symbols::{
    symbol::CodeImage,
    unwind::{Ended, FileKey, Mapping, Missing, Modules, Registers},
};

use super::{Context, Sample, Symbolizer};

/// The registers of the sampled task, and the copied part of its stack.
pub struct Copied<'a> {
    /// The registers at the time of the sample.
    pub registers: record::Registers<'a>,
    /// The bytes of the stack, from the stack pointer on.
    pub stack: &'a [u8],
}

/// Returns the addresses of the user frames, innermost first: the instruction pointer, then return addresses. Returns at
/// most `limit` addresses.
pub fn addresses(sample: &Sample<'_>, copied: &Copied<'_>, limit: usize, context: &Context) -> Vec<u64> {
    let mut addresses = Vec::new();
    let Copied { registers, stack } = copied;
    context.with_symbols(|symbols| {
        let process = Process { pid: sample.pid_tid().0 as u32, time: sample.time(), symbols: RefCell::new(symbols) };
        // If unwinding ends early, the script gets the frames that were found. A message at the end of the run says why the
        // others are missing.
        let ended = context.with_unwinder(|unwinder| {
            let Some(arch) = unwinder.arch() else { return Ended::NotSupported };
            let values = registers.words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            let registers = Registers::from_perf(arch, registers.abi.into(), registers.mask, values);
            unwinder.unwind(&process, &registers, stack, limit, &mut addresses)
        });
        match ended {
            Ended::NoUnwindInfo { address, why: Missing::Unreadable } => {
                let file = process.symbols.borrow_mut().code_path(process.pid, address, process.time);
                context.endings().add_without_file(file.unwrap_or_default());
            }
            ended => context.endings().add(ended),
        }
    });
    addresses
}

/// The process of a sample, as it was at the time of the sample.
struct Process<'a> {
    pid: u32,
    time: u64,
    symbols: RefCell<&'a mut Symbolizer>,
}

impl Modules for Process<'_> {
    fn mapping(&self, address: u64) -> Option<Mapping> {
        let code = self.symbols.borrow_mut().code(self.pid, address, self.time).ok()?;
        let file = code.file.map(|id| FileKey([id, 0, 0, 0]));
        Some(Mapping { start: code.start, end: code.end, offset: code.file_offset, file })
    }

    fn open(&self, address: u64) -> io::Result<CodeImage> {
        self.symbols.borrow_mut().code_image(self.pid, address, self.time).map_err(io::Error::other)
    }

    fn open_debug(&self, address: u64) -> Option<CodeImage> {
        self.symbols.borrow_mut().debug_image(self.pid, address, self.time)
    }
}
