//! A sample's user frames, unwound from the registers and the copy of the stack that it has. Reads no file itself.

use std::{cell::RefCell, io};

use super::{Context, Sample};
use crate::{
    abi::RegsAbi,
    record,
    symbol::{CodeImage, Symbolizer},
    unwind::{Arch, FileKey, Image, Mapping, Modules, Registers, Unwinder},
};

/// The instruction pointer and the return addresses, innermost first, at most so many.
pub fn addresses(
    sample: &Sample<'_>,
    (copied, stack): (&record::Registers<'_>, &[u8]),
    limit: usize,
    context: &Context,
) -> Vec<u64> {
    let mut addresses = Vec::new();
    let Some(arch) = Arch::native() else { return addresses };
    let abi = match copied.abi {
        RegsAbi::None => 0,
        RegsAbi::Bits32 => 1,
        RegsAbi::Bits64 => 2,
        RegsAbi::Other(abi) => abi,
    };
    let values = copied.words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    let registers = Registers::from_perf(arch, abi, copied.mask, values);
    context.with_symbols(|symbols| {
        let process = Process { pid: sample.pid_tid().0 as u32, time: sample.time(), symbols: RefCell::new(symbols) };
        // A script gets the frames that are there, which are right; why there are no more is said at the end.
        let walk = |unwinder: &mut Unwinder| unwinder.unwind(&process, &registers, stack, limit, &mut addresses);
        context.endings().add(context.with_unwinder(walk));
    });
    addresses
}

/// The process of a sample, as it was then.
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

    fn open(&self, address: u64) -> io::Result<Image> {
        self.symbols.borrow_mut().code_image(self.pid, address, self.time).map(image).map_err(io::Error::other)
    }

    fn open_debug(&self, address: u64) -> Option<Image> {
        self.symbols.borrow_mut().debug_image(self.pid, address, self.time).map(image)
    }
}

fn image(code: CodeImage) -> Image {
    match code {
        CodeImage::File(file) => Image::File(file),
        CodeImage::Bytes(bytes) => Image::Bytes(bytes),
    }
}
