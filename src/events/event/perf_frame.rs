//! Resolves addresses to what perf passes to Python scripts: the symbol with its range, and the mapping.
//!
//! For some addresses, perf finds other symbols than perf-prof does for its own scripts. In a recorded call chain, perf
//! looks up the return address itself, not the call before it. After a call of a function that never returns, the return
//! address belongs to the next function, so perf shows the name of that function. If the kernel has several symbols at one
//! address, perf may choose another one.

use std::{any::Any, fmt::Write, sync::Arc};

use perf_prof_format::tracefs::{KernelSymbol, PerfKernelSymbol};
use perf_prof_symbols::symbol::{AddressKind, Contents, Extent, InlinedFrame, Slot};
use rustc_hash::FxHashMap;

use super::{
    Context, Frame, Sample,
    callchain::{ChainWord, Resolved, is_generated_kernel_code, words},
    interpreter_frames::{Place, is_loop},
    perf_line::is_generated_code,
    unwound::{self, Copied},
};

/// An address, and what perf knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfFrame {
    /// Data of any type that a sink keeps with the frame. While the frame is cached, all samples share one `PerfFrame` and
    /// this data.
    pub slot: Slot<Box<dyn Any + Send + Sync>>,
    /// The address. In a recorded frame, the address in the record. In a frame that was unwound from a copied stack, the
    /// return address minus 1, except in the innermost frame.
    pub ip: u64,
    /// The offset of the address in the mapped file. In the kernel and outside of files, the address itself.
    pub file_offset: u64,
    /// The symbol that contains the address.
    pub symbol: Option<PerfFrameSymbol>,
    /// The mapping that contains the address.
    pub map: Option<PerfMap>,
    /// The source file without its folder, and the line: `file.c:12`. Only frames of call chains have it, if they have a
    /// symbol and are in a file with DWARF. `??:0` if the DWARF of an inlined function does not contain it.
    pub srcline: Option<Arc<str>>,
}

/// The symbol of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfFrameSymbol {
    /// The name of the symbol, or of the inlined function.
    pub name: Arc<str>,
    /// The range and the binding of the symbol. In a file, the range consists of file offsets. An inlined function has the
    /// range of the function that contains it.
    pub extent: Extent,
    /// The distance of the address from the start of the symbol, in bytes.
    pub offset: u64,
}

/// The mapping that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfMap {
    /// The file: a path, `[kernel.kallsyms]`, `[module]`, `[vdso]`, the name of a BPF program, or `/tmp/perf-PID.map` for
    /// code that the process generated.
    pub dso: Arc<str>,
    /// The build id in hexadecimal digits; empty if there is none.
    pub build_id: Arc<str>,
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Where the mapping starts in the file, in bytes.
    pub file_offset: u64,
}

/// The frames that were made from a resolved address of a process.
#[derive(Clone, Debug, Default)]
pub struct PerfFrames {
    /// The frame without inlined functions.
    single: Slot<Arc<PerfFrame>>,
    /// The frames in a call chain: first the functions that are inlined there.
    chained: Slot<Vec<Arc<PerfFrame>>>,
}

/// Cached frames of the kernel, by address.
#[derive(Debug, Default)]
pub struct PerfKernelFrames(FxHashMap<u64, Arc<PerfFrame>>);

/// The maximum number of cached frames of the kernel.
const KERNEL_FRAMES: usize = 1 << 14;

/// The maximum number of recorded frames in a call chain, and also of unwound frames. It is `PERF_MAX_STACK_DEPTH` in
/// `include/uapi/linux/perf_event.h`, the initial value of `scripting_max_stack` in perf.
const MAX_STACK: usize = 127;

impl Place for Arc<PerfFrame> {
    fn is_loop(&self) -> bool {
        self.symbol.as_ref().is_some_and(|symbol| is_loop(&symbol.name))
    }

    /// perf has no such frames. So the symbol has no range.
    fn of(function: Arc<Frame>) -> Self {
        let (name, ip) = (Arc::clone(&function.symbol), function.addr);
        let symbol = Some(PerfFrameSymbol { name, extent: Extent { start: ip, end: ip, binding: 0 }, offset: 0 });
        let map =
            Some(PerfMap { dso: Arc::clone(&function.dso), build_id: "".into(), start: 0, end: 0, file_offset: 0 });
        let srcline = function.srcline.as_ref().map(|(file, line)| source_line(file, *line));
        Arc::new(PerfFrame { slot: Slot::default(), ip, file_offset: ip, symbol, map, srcline })
    }
}

/// Resolves the call chain of a sample as perf does, innermost first. Frames of programs get inlined functions and source
/// lines, if the context's symbol options ask for inlined functions. Includes frames of interpreters if the
/// run asks for them.
pub fn perf_chain(sample: &Sample<'_>, context: &Context) -> Vec<Arc<PerfFrame>> {
    let native = native_chain(sample, context);
    match context.functions_of_interpreter(sample) {
        Some(functions) => functions.place(native),
        None => native,
    }
}

fn native_chain(sample: &Sample<'_>, context: &Context) -> Vec<Arc<PerfFrame>> {
    let mut frames = Vec::with_capacity(sample.callchain().size_hint().0);
    let limit = context.frame_limit().unwrap_or(MAX_STACK);
    let recorded = words(sample).filter_map(|word| match word {
        ChainWord::Marker => None,
        ChainWord::Frame { addr, is_kernel } => Some((addr, is_kernel)),
    });
    for (addr, is_kernel) in recorded.take(limit) {
        match is_kernel || sample.is_of_guest() {
            true => frames.push(frame(sample, addr, is_kernel, context)),
            false => chained_frames(sample, addr, context, &mut frames),
        }
    }
    let layout = &sample.event.layout;
    if let (Some(registers), Some(stack)) = (layout.regs_user(sample.record), layout.stack_user(sample.record))
        && !stack.is_empty()
        && !sample.is_of_guest()
    {
        let addresses = unwound::addresses(sample, &Copied { registers, stack }, limit, context);
        for (at, addr) in addresses.into_iter().enumerate() {
            // For a caller, perf looks up and shows the last byte of the call instruction (`get_entries()` in
            // `tools/perf/util/unwind-libunwind-local.c`).
            chained_frames(sample, if at == 0 { addr } else { addr.wrapping_sub(1) }, context, &mut frames);
        }
    }
    frames
}

/// Resolves the address of a sample's instruction as perf does. Returns `None` if the samples have no instruction address.
pub fn perf_ip(sample: &Sample<'_>, context: &Context) -> Option<Arc<PerfFrame>> {
    let ip = sample.event.layout.ip(sample.record)?;
    Some(frame(sample, ip, sample.is_in_kernel().unwrap_or(ip >> 63 == 1), context))
}

/// Resolves another address in a sample as perf does: the address of a page fault, or the start or target of a branch. The
/// address itself decides whether it belongs to the kernel, because a branch may lead from a program into the kernel or back
/// (`thread__find_map_fb()` in `tools/perf/util/event.c`).
pub fn perf_address(sample: &Sample<'_>, addr: u64, context: &Context) -> Arc<PerfFrame> {
    frame(sample, addr, addr >> 63 == 1, context)
}

fn frame(sample: &Sample<'_>, addr: u64, is_kernel: bool, context: &Context) -> Arc<PerfFrame> {
    if sample.is_of_guest() {
        // The code of the virtual machine is unknown here.
        return Arc::new(PerfFrame {
            slot: Slot::default(),
            ip: addr,
            file_offset: addr,
            symbol: None,
            map: None,
            srcline: None,
        });
    }
    if is_kernel {
        return context.with_perf_kernel_frames(|cached| cached.get(addr, context));
    }
    let pid = sample.pid_tid().0;
    let resolved =
        context.with_symbols(|symbols| symbols.user(pid as u32, addr, sample.time(), AddressKind::Instruction));
    single_frame(&resolved, pid, addr)
}

/// Appends the frames of a call chain for an address of the sample's process. perf looks up a return address itself, for
/// inlined functions too.
fn chained_frames(sample: &Sample<'_>, addr: u64, context: &Context, frames: &mut Vec<Arc<PerfFrame>>) {
    let (pid, time, kind) = (sample.pid_tid().0, sample.time(), AddressKind::Instruction);
    context.with_symbols(|symbols| {
        let resolved = symbols.user(pid as u32, addr, time, kind);
        let cached = &resolved.slot.get_or_default().perf;
        if let Some(made) = cached.chained.get() {
            frames.extend_from_slice(made);
            return;
        }
        let single = single_frame(&resolved, pid, addr);
        let is_named_file = single.symbol.is_some()
            && single.map.as_ref().is_some_and(|map| map.dso.starts_with('/') && !is_generated_code(&resolved.dso));
        let functions =
            if is_named_file { symbols.inlined_functions(pid as u32, addr, time, kind) } else { Vec::new() };
        let made = with_source(single, functions);
        frames.extend_from_slice(&made);
        cached.chained.put(made);
    });
}

fn single_frame(resolved: &Resolved, pid: i32, addr: u64) -> Arc<PerfFrame> {
    let cached = &resolved.slot.get_or_default().perf;
    match cached.single.get() {
        Some(made) => Arc::clone(made),
        None => {
            let made = Arc::new(user_frame(resolved, pid, addr));
            cached.single.put(Arc::clone(&made));
            made
        }
    }
}

fn user_frame(resolved: &Resolved, pid: i32, addr: u64) -> PerfFrame {
    let symbol = resolved.symbol.as_ref().ok().map(|name| PerfFrameSymbol {
        name: Arc::clone(&name.name),
        extent: name.extent,
        offset: name.offset,
    });
    let map = resolved.mapped.map(|mapped| PerfMap {
        dso: match is_generated_code(&resolved.dso) && mapped.contents == Contents::Code {
            true => format!("/tmp/perf-{pid}.map").into(),
            false => Arc::clone(&resolved.dso),
        },
        build_id: hex(resolved.build_id.as_deref().unwrap_or_default()),
        start: mapped.start,
        end: mapped.end,
        file_offset: mapped.file_offset,
    });
    let file_offset = resolved.dso_offset;
    PerfFrame { slot: Slot::default(), ip: addr, file_offset, symbol, map, srcline: None }
}

/// Returns the frames of an address: first the functions that are inlined there, then `outer`, which keeps its name in the
/// symbol table. `functions` are those of DWARF, innermost first, and the last one is that of `outer`.
fn with_source(outer: Arc<PerfFrame>, functions: Vec<InlinedFrame>) -> Vec<Arc<PerfFrame>> {
    // perf has no inlined functions for an address without a line.
    let Some((of_outer, inlined)) = functions.split_last().filter(|_| !functions[0].file.is_empty()) else {
        return vec![outer];
    };
    let frame = |function: &InlinedFrame, symbol: Option<PerfFrameSymbol>| {
        Arc::new(PerfFrame {
            symbol,
            srcline: Some(source_line(&function.file, function.line)),
            ..PerfFrame::clone(&outer)
        })
    };
    let named = |function: &InlinedFrame| {
        let symbol = outer.symbol.clone();
        frame(function, symbol.map(|symbol| PerfFrameSymbol { name: Arc::clone(&function.name), ..symbol }))
    };
    inlined.iter().map(named).chain([frame(of_outer, outer.symbol.clone())]).collect()
}

fn source_line(file: &str, line: u32) -> Arc<str> {
    match file.rsplit('/').next().filter(|file| !file.is_empty()) {
        Some(file) => format!("{file}:{line}").into(),
        None => "??:0".into(),
    }
}

fn hex(bytes: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

impl PerfKernelFrames {
    fn get(&mut self, addr: u64, context: &Context) -> Arc<PerfFrame> {
        if let Some(frame) = self.0.get(&addr) {
            return Arc::clone(frame);
        }
        let (frame, keep) = kernel_frame(addr, context);
        let frame = Arc::new(frame);
        if keep {
            if self.0.len() >= KERNEL_FRAMES {
                self.0.clear();
            }
            self.0.insert(addr, Arc::clone(&frame));
        }
        frame
    }
}

/// Resolves an address of the kernel. Also returns whether the frame may be cached. Frames without a symbol and frames of
/// generated code may not, for the reasons given in `KernelFrames`.
fn kernel_frame(addr: u64, context: &Context) -> (PerfFrame, bool) {
    let kernel = &context.kernel;
    let found = kernel.perf_symbol(addr);
    let found = found.map(|PerfKernelSymbol { name, start, end, binding, module }| {
        let extent = Extent { start, end, binding };
        let symbol = KernelSymbol { name, offset: addr.wrapping_sub(start), size: end.wrapping_sub(start), module };
        (extent, symbol)
    });
    let dso = kernel.dso(addr, found.as_ref().map(|(_, symbol)| symbol));
    let is_generated = is_generated_kernel_code(&dso);
    let keep = found.is_some() && !is_generated;
    let symbol = found.map(|(extent, symbol)| {
        // For perf, generated code is a file that holds this symbol alone, from its first byte on.
        let extent = if is_generated { Extent { start: 0, end: symbol.size, ..extent } } else { extent };
        PerfFrameSymbol { name: Arc::from(&*symbol.name), extent, offset: symbol.offset }
    });
    let map = (*dso != *"[unknown]").then(|| {
        let build_id = hex(kernel.build_id(&dso).as_deref().unwrap_or_default());
        let (start, end) = kernel.perf_map(addr).unwrap_or((0, u64::MAX));
        // For generated code, perf shows the name of the symbol as the file (`machine__process_ksymbol_register()` in
        // `tools/perf/util/machine.c`).
        let dso = symbol.as_ref().filter(|_| is_generated).map_or(dso, |symbol| Arc::clone(&symbol.name));
        PerfMap { dso, build_id, start, end, file_offset: 0 }
    });
    (PerfFrame { slot: Slot::default(), ip: addr, file_offset: addr, symbol, map, srcline: None }, keep)
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_CONTEXT_KERNEL, PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN},
        record::SampleLayout,
        tracefs::{EventFormat, Kernel},
    };

    use super::*;
    use crate::event::{EventType, Format, frames};

    const BASE: u64 = 0xffff_ffff_8100_0000;

    /// Two functions of 16 bytes, the second right after the first. The second function has two names.
    struct TwoFunctions;

    impl Kernel for TwoFunctions {
        fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
            let (name, start) = if addr < BASE + 0x10 { ("first", BASE) } else { ("second", BASE + 0x10) };
            let known = (BASE..BASE + 0x20).contains(&addr);
            known.then(|| KernelSymbol { name: name.into(), offset: addr - start, size: 0x10, module: None })
        }

        fn perf_symbol(&self, addr: u64) -> Option<PerfKernelSymbol<'_>> {
            let KernelSymbol { name, offset, .. } = self.symbol(addr)?;
            let (name, start) = (if name == "second" { "alias".into() } else { name }, addr - offset);
            Some(PerfKernelSymbol { name, start, end: start + 0x10, binding: 0, module: None })
        }

        fn perf_map(&self, _: u64) -> Option<(u64, u64)> {
            Some((BASE, BASE + 0x1000))
        }

        fn build_id(&self, dso: &str) -> Option<Arc<[u8]>> {
            (dso == "[kernel.kallsyms]").then(|| [0x0a, 0xb1].into())
        }

        fn string(&self, _: u64) -> Option<&[u8]> {
            None
        }
    }

    /// The second frame of the chain is the return address of a call at the end of the first function.
    #[test]
    fn return_addresses_are_looked_up_themselves() {
        let format = EventFormat::parse("s", "name: e\nID: 1\nformat:\n\nprint fmt: \"\"\n").unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_CALLCHAIN, 0);
        let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
        let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0, 0, 48, 0]);
        for word in [4, PERF_CONTEXT_KERNEL, BASE + 4, BASE + 0x10, BASE + 0x20] {
            record.extend(word.to_ne_bytes());
        }
        let (sample, context) = (Sample { event: &event, record: &record }, Context::new(Box::new(TwoFunctions), 0));
        let own: Vec<Arc<str>> = frames(&sample, &context).iter().map(|frame| Arc::clone(&frame.symbol)).collect();
        assert_eq!(own.iter().map(|name| &**name).collect::<Vec<_>>(), ["first", "first", "second"]);
        let chain = perf_chain(&sample, &context);
        let shown = |frame: &PerfFrame| {
            let symbol = frame.symbol.as_ref()?;
            Some((symbol.name.to_string(), symbol.extent.start, symbol.extent.end, symbol.offset))
        };
        let symbols: Vec<_> = chain.iter().map(|frame| shown(frame)).collect();
        let first = Some(("first".to_owned(), BASE, BASE + 0x10, 4));
        assert_eq!(symbols, [first, Some(("alias".to_owned(), BASE + 0x10, BASE + 0x20, 0)), None]);
        let map = chain[2].map.as_ref().unwrap();
        assert_eq!((&*map.dso, &*map.build_id, map.start), ("[kernel.kallsyms]", "0ab1", BASE));
        assert!(Arc::ptr_eq(&chain[0], &perf_address(&sample, BASE + 4, &context)));
        assert!(chain.iter().all(|frame| frame.srcline.is_none()));
    }

    /// A kernel with one BPF program of 16 bytes.
    struct BpfProgram;

    impl Kernel for BpfProgram {
        fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
            Some(KernelSymbol {
                name: "bpf_prog_1_x".into(),
                offset: addr - BASE,
                size: 0x10,
                module: Some("bpf".into()),
            })
        }

        fn perf_map(&self, _: u64) -> Option<(u64, u64)> {
            Some((BASE, BASE + 0x10))
        }

        fn build_id(&self, _: &str) -> Option<Arc<[u8]>> {
            None
        }

        fn string(&self, _: u64) -> Option<&[u8]> {
            None
        }
    }

    #[test]
    fn the_symbol_of_a_bpf_program_starts_at_the_first_byte_of_its_file() {
        let frame = kernel_frame(BASE + 4, &Context::new(Box::new(BpfProgram), 0)).0;
        let (symbol, map) = (frame.symbol.unwrap(), frame.map.unwrap());
        assert_eq!((symbol.extent.start, symbol.extent.end, symbol.offset), (0, 0x10, 4));
        assert_eq!((&*map.dso, map.start, map.end), ("bpf_prog_1_x", BASE, BASE + 0x10));
    }

    #[test]
    fn source_lines_have_no_folder() {
        assert_eq!((&*source_line("/a/b.c", 12), &*source_line("", 3)), ("b.c:12", "??:0"));
    }
}
