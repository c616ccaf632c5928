//! Resolves the addresses in call chains to frames. Frames are cached, because most call chains consist of the same few
//! thousand addresses.

use std::{any::Any, sync::Arc};

use perf_prof_format::abi::{
    PERF_CONTEXT_HV, PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER, PERF_SAMPLE_CALLCHAIN,
    PERF_SAMPLE_STACK_USER,
};
use perf_prof_symbols::symbol::{self, AddressKind, Slot};
use rustc_hash::FxHashMap;

use super::{
    Context, Format, Sample,
    perf_frame::PerfFrames,
    unwound::{self, Copied},
};

/// Resolves addresses of processes. Next to the result for an address, its cache keeps the frames made from the result.
pub type Symbolizer = symbol::Symbolizer<Derived>;

pub(super) type Resolved = symbol::Resolved<Derived>;

/// The frames that were made from the result for an address.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    frames: Slot<Vec<Arc<Frame>>>,
    /// The same frames in the form that perf passes to its scripts.
    pub(super) perf: PerfFrames,
}

/// One frame of a call chain. The innermost frame is the first of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)] // Puts the reference count and the slot on one cache line. Both are read when a frame occurs again.
pub struct Frame {
    /// Data of any type that a sink keeps with the frame. While the frame is cached, all call chains share one `Frame` and
    /// this data.
    pub slot: Slot<Box<dyn Any + Send + Sync>>,
    /// In the innermost frame of the kernel or of the program: the address of the executed instruction. In a Python frame:
    /// the address of the Python instruction. In all other frames: the return address.
    pub addr: u64,
    /// The name of the function, or `Unknown`.
    pub symbol: Arc<str>,
    /// The distance of `addr` from the start of the function, in bytes. In a user frame without a known function: the offset
    /// in the file, or the address if no file is mapped there. In other frames without a known function and in inlined
    /// functions: 0.
    pub offset: u64,
    /// Where the code of the frame is.
    pub origin: Origin,
    /// The file with the code: `[kernel.kallsyms]`, `[module]`, or a path.
    pub dso: Arc<str>,
    /// The offset of the address in the file, in bytes; in a kernel frame, the address itself. Copies of events do not
    /// contain this value.
    pub dso_offset: u64,
    /// The source file and the line, if the user asked for them and they are known.
    pub srcline: Option<(Arc<str>, u32)>,
}

/// Where a frame's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the kernel.
    Kernel,
    /// In this process.
    User {
        /// The process id.
        pid: i32,
    },
    /// In a function of this process that the compiler inlined. The next frame outward is the function that contains it, and
    /// has the same `addr`.
    Inlined {
        /// The process id.
        pid: i32,
    },
    /// In a Python function of this process.
    Python {
        /// The process id.
        pid: i32,
    },
}

/// Selects frames of call chains: those of the kernel, those of programs, or both. Other frames are left out as if they had
/// not been recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// All recorded frames.
    Both,
    /// Only frames of the kernel.
    Kernel,
    /// Only frames of programs.
    User,
}

impl Sides {
    #[inline]
    fn has(self, is_kernel: bool) -> bool {
        self == Sides::Both || (self == Sides::Kernel) == is_kernel
    }
}

/// The value of [`Frame::symbol`] if the function is not known.
pub const UNKNOWN: &str = "Unknown";

/// Returns whether `dso` stands for code that is generated in the kernel at run time: BPF programs, ftrace trampolines, and
/// copies of instructions that a probe replaced.
pub(super) fn is_generated_kernel_code(dso: &str) -> bool {
    dso == "[bpf]" || dso.starts_with("[__builtin__")
}

/// Cached frames of the kernel, by address.
#[derive(Debug, Default)]
pub struct KernelFrames {
    exact: FxHashMap<u64, Arc<Frame>>,
    returns: FxHashMap<u64, Arc<Frame>>,
}

/// The maximum number of frames in each of the two maps of [`KernelFrames`]. A frame takes about half a kilobyte, with the
/// data of its slot.
const KERNEL_FRAMES: usize = 1 << 14;

impl KernelFrames {
    #[inline]
    fn get(&mut self, addr: u64, kind: AddressKind, context: &Context) -> Arc<Frame> {
        match self.cache(kind).get(&addr) {
            Some(frame) => Arc::clone(frame),
            None => self.resolve(addr, kind, context),
        }
    }

    #[inline]
    fn cache(&mut self, kind: AddressKind) -> &mut FxHashMap<u64, Arc<Frame>> {
        match kind {
            AddressKind::Instruction => &mut self.exact,
            AddressKind::Return => &mut self.returns,
        }
    }

    #[cold]
    fn resolve(&mut self, addr: u64, kind: AddressKind, context: &Context) -> Arc<Frame> {
        let frame = Arc::new(kernel_frame(addr, kind, context));
        // Do not cache frames without a name or frames of generated code. Such an address may get another name when a module
        // or a BPF program is loaded. Frames of modules are cached although a module may be replaced. perf-prof does not
        // read the list of symbols again then, so a new lookup would give the same name.
        if *frame.symbol == *UNKNOWN || is_generated_kernel_code(&frame.dso) {
            return frame;
        }
        let known = self.cache(kind);
        if known.len() >= KERNEL_FRAMES {
            known.clear();
        }
        known.insert(addr, Arc::clone(&frame));
        frame
    }
}

/// A resolved call chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The frames, innermost first.
    pub frames: Vec<Arc<Frame>>,
    /// The number of frames that were recorded. The recorded frames come first. The other frames were unwound from a copy
    /// of the stack.
    pub recorded: usize,
}

impl Chain {
    fn of_recorded(frames: Vec<Arc<Frame>>) -> Chain {
        Chain { recorded: frames.len(), frames }
    }
}

/// Returns how many frames a resolved call chain has, without functions that the compiler inlined. Functions of Python that were put
/// in place of native frames count too.
pub fn frames_without_inlined(chain: &[Arc<Frame>]) -> usize {
    chain.iter().filter(|frame| !matches!(frame.origin, Origin::Inlined { .. })).count()
}

/// Resolves the call chain of a sample to frames, innermost first. Includes frames of interpreters if the run asks for them.
pub fn frames(sample: &Sample<'_>, context: &Context) -> Vec<Arc<Frame>> {
    // A span has the call chain of one of its samples.
    if let Format::Span(span) = &sample.event.format {
        return span.sample_with_chain(sample.raw()).map_or_else(Vec::new, |sample| frames(&sample, context));
    }
    // Read the functions of the interpreter first, because the process may exit soon.
    let functions = context.functions_of_interpreter(sample);
    let native = chain(sample, context).frames;
    match functions {
        Some(functions) => functions.place(native),
        None => native,
    }
}

/// Returns whether samples of this event have a call chain: recorded by the kernel, or unwound from a copy of the stack.
#[inline]
pub fn has_callchain(sample: &Sample<'_>) -> bool {
    sample.event.layout.format.sample_type & (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_STACK_USER) != 0
}

/// Resolves the call chain of a sample, without frames of interpreters.
pub fn chain(sample: &Sample<'_>, context: &Context) -> Chain {
    // A span has the call chain of one of its samples.
    if let Format::Span(span) = &sample.event.format {
        return span.sample_with_chain(sample.raw()).map_or_else(Chain::default, |sample| chain(&sample, context));
    }
    if !has_callchain(sample) {
        return Chain::default();
    }
    let sides = context.sides();
    if sample.is_of_guest() {
        return guest_chain(sample, sides);
    }
    let mut frames = Vec::with_capacity(sample.callchain().size_hint().0);
    let mut kind = AddressKind::Instruction;
    let mut walked = false;
    let mut kernel = context.kernel_frames();
    // How many frames can still be added. The kernel cuts chains at `max_stack` frames, but the chains of a recording may
    // be longer than the script asks for.
    let limit = context.frame_limit().or(sample.event.max_stack.map(usize::from));
    let mut left = limit.unwrap_or(usize::MAX);
    for word in words(sample) {
        let ChainWord::Frame { addr, is_kernel } = word else {
            // The first frame after a marker is the innermost one of the kernel or of the program. Its address is that of an
            // executed instruction, not a return address.
            kind = AddressKind::Instruction;
            continue;
        };
        if left == 0 {
            break;
        }
        if !sides.has(is_kernel) {
            continue;
        }
        left -= 1;
        if is_kernel {
            frames.push(kernel.get(addr, kind, context));
        } else {
            walked = true;
            user_frames(sample, addr, kind, context, &mut frames);
        }
        kind = AddressKind::Return;
    }
    let recorded = frames.len();
    // If the kernel recorded user frames, do not unwind the copied stack, even if the samples contain one.
    let layout = &sample.event.layout;
    if !walked
        && sides.has(false)
        && let (Some(registers), Some(stack)) = (layout.regs_user(sample.record), layout.stack_user(sample.record))
    {
        let mut kind = AddressKind::Instruction;
        // Kernel frames count towards the limit too, as in the kernel (get_perf_callchain()).
        let limit = limit.unwrap_or(context.max_stack()).saturating_sub(frames.len());
        for addr in unwound::addresses(sample, &Copied { registers, stack }, limit, context) {
            user_frames(sample, addr, kind, context, &mut frames);
            kind = AddressKind::Return;
        }
    }
    Chain { frames, recorded }
}

/// A word of a recorded call chain.
pub(super) enum ChainWord {
    /// A marker: the kernel writes one before the frames of each side.
    Marker,
    /// The address of a frame.
    Frame { addr: u64, is_kernel: bool },
}

/// Returns the words of a sample's call chain, innermost first. A recording may lack markers. Then the address itself tells the
/// side: kernel addresses have their top bit set on every 64-bit architecture that perf runs on.
pub(super) fn words(sample: &Sample<'_>) -> impl Iterator<Item = ChainWord> {
    let mut marked = None;
    sample.callchain().map(move |word| {
        marked = match word {
            PERF_CONTEXT_KERNEL | PERF_CONTEXT_HV => Some(true),
            PERF_CONTEXT_USER => Some(false),
            PERF_CONTEXT_MAX.. => None,
            addr => return ChainWord::Frame { addr, is_kernel: marked.unwrap_or(addr >> 63 == 1) },
        };
        ChainWord::Marker
    })
}

/// Returns the frame of a sample's instruction. If the user asked for inlined functions and the instruction is in an
/// inlined function, the frame is that of the innermost inlined function.
pub fn ip_frame(sample: &Sample<'_>, context: &Context) -> Option<Arc<Frame>> {
    ip_frames(sample, context).into_iter().next()
}

/// Returns the frame of a sample's instruction. Its function is the one in the symbol table, even if the instruction is in
/// an inlined function.
pub fn ip_function(sample: &Sample<'_>, context: &Context) -> Option<Arc<Frame>> {
    ip_frames(sample, context).pop()
}

/// Returns the frame of the function in which a sample was taken. While the interpreter's main loop runs a Python function, this
/// is the Python function. `chain` is the call chain of the sample, with frames of interpreters. A chain without kernel frames
/// begins in user space even if the sample was taken in the kernel. Then the function is that of the kernel, unless the user
/// asked for functions of Python alone.
pub fn sampled_function(sample: &Sample<'_>, chain: &[Arc<Frame>], context: &Context) -> Option<Arc<Frame>> {
    let is_python = |frame: &&Arc<Frame>| matches!(frame.origin, Origin::Python { .. });
    let in_kernel = sample.event.layout.ip(sample.record).is_some_and(|addr| is_of_kernel(sample, addr));
    let python = chain.first().filter(is_python).filter(|_| !in_kernel || context.has_only_interpreters());
    python.cloned().or_else(|| ip_function(sample, context))
}

/// Returns whether a sample was taken in the kernel. `addr` is the address of its instruction.
fn is_of_kernel(sample: &Sample<'_>, addr: u64) -> bool {
    sample.is_in_kernel().unwrap_or(addr >> 63 == 1)
}

fn ip_frames(sample: &Sample<'_>, context: &Context) -> Vec<Arc<Frame>> {
    let Some(addr) = sample.event.layout.ip(sample.record) else { return Vec::new() };
    if sample.is_of_guest() {
        return vec![Arc::new(guest_frame(sample, addr))];
    }
    if is_of_kernel(sample, addr) {
        return vec![context.kernel_frames().get(addr, AddressKind::Instruction, context)];
    }
    let mut frames = Vec::new();
    user_frames(sample, addr, AddressKind::Instruction, context, &mut frames);
    frames
}

fn kernel_frame(addr: u64, kind: AddressKind, context: &Context) -> Frame {
    let back = u64::from(kind == AddressKind::Return);
    let found = context.kernel.symbol(addr.wrapping_sub(back));
    let dso = context.kernel.dso(addr.wrapping_sub(back), found.as_ref());
    let (symbol, offset) = match found {
        Some(symbol) => (symbol.name, symbol.offset + back),
        None => (UNKNOWN.into(), 0),
    };
    let symbol: Arc<str> = symbol.as_ref().into();
    Frame { addr, symbol, offset, origin: Origin::Kernel, dso, dso_offset: addr, srcline: None, slot: Slot::default() }
}

/// Returns the call chain of a sample from a virtual machine.
fn guest_chain(sample: &Sample<'_>, sides: Sides) -> Chain {
    let addresses = sample.callchain().filter(|&addr| addr < PERF_CONTEXT_MAX);
    let frames = addresses.map(|addr| guest_frame(sample, addr));
    Chain::of_recorded(frames.filter(|frame| sides.has(frame.origin == Origin::Kernel)).map(Arc::new).collect())
}

/// Returns the frame for an address in a virtual machine. The frame has no symbol, because the guest's code is unknown here.
fn guest_frame(sample: &Sample<'_>, addr: u64) -> Frame {
    let origin = if is_of_kernel(sample, addr) { Origin::Kernel } else { Origin::User { pid: sample.pid_tid().0 } };
    let (symbol, dso) = (UNKNOWN.into(), "[guest]".into());
    Frame { addr, symbol, offset: 0, origin, dso, dso_offset: addr, srcline: None, slot: Slot::default() }
}

/// Appends the frames for an address of the sample's process. Inlined functions come first, innermost first, and then the
/// function that contains them.
fn user_frames(sample: &Sample<'_>, addr: u64, kind: AddressKind, context: &Context, frames: &mut Vec<Arc<Frame>>) {
    let pid = sample.pid_tid().0;
    let resolved = context.with_symbols(|symbols| symbols.user(pid as u32, addr, sample.time(), kind));
    // The frames in the slot can be used again: a cached result belongs to one address of one process.
    let cached = &resolved.slot.get_or_default().frames;
    match cached.get() {
        Some(made) => frames.extend_from_slice(made),
        None => {
            let made: Vec<Arc<Frame>> = user(&resolved, pid, addr, kind).map(Arc::new).collect();
            frames.extend_from_slice(&made);
            cached.put(made);
        }
    }
}

fn user(resolved: &Resolved, pid: i32, addr: u64, kind: AddressKind) -> impl Iterator<Item = Frame> {
    let Resolved { symbol, dso, dso_offset, inlined, srcline, .. } = resolved;
    // The lookup was for an address inside the call instruction, but the frame shows the return address, which follows the
    // call.
    let dso_offset = dso_offset.wrapping_add(u64::from(kind == AddressKind::Return));
    let frame = move |symbol, offset, origin, srcline| Frame {
        addr,
        symbol,
        offset,
        origin,
        dso: Arc::clone(dso),
        dso_offset,
        srcline,
        slot: Slot::default(),
    };
    let inlined = inlined.iter().map(move |function| {
        let srcline = (!function.file.is_empty()).then(|| (function.file.clone(), function.line));
        frame(function.name.clone(), 0, Origin::Inlined { pid }, srcline)
    });
    let (symbol, offset) = match symbol {
        Ok(symbol) => (symbol.name.clone(), symbol.offset),
        Err(_) => (UNKNOWN.into(), dso_offset),
    };
    inlined.chain([frame(symbol, offset, Origin::User { pid }, srcline.clone())])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::{
        abi::{
            PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER, PERF_RECORD_SAMPLE,
            PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_IP,
        },
        record::{SampleLayout, SampleValues},
        tracefs::{EventFormat, Kernel, KernelSymbol},
    };

    use super::*;
    use crate::event::{EventType, Format};

    /// Two functions, the second right after the first.
    struct TwoFunctions;

    impl Kernel for TwoFunctions {
        fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
            let (name, start) = if addr < BASE + 0x10 { ("first", BASE) } else { ("second", BASE + 0x10) };
            let module = (name == "second").then_some("mod");
            let (name, module) = (name.into(), module.map(Into::into));
            (addr >= BASE).then_some(KernelSymbol { name, offset: addr - start, size: 0x10, module })
        }
        fn string(&self, _: u64) -> Option<&[u8]> {
            None
        }
    }

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn shown(chain: &[u64]) -> Vec<String> {
        let format = EventFormat::parse("s", "name: e\nID: 1\nformat:\n\nprint fmt: \"\"\n").unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_CALLCHAIN, 0);
        let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
        let words = std::iter::once(chain.len() as u64).chain(chain.iter().copied());
        let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0, 0, 16 + 8 * chain.len() as u8, 0]);
        words.for_each(|word| record.extend(word.to_ne_bytes()));
        let frames = frames(&Sample { event: &event, record: &record }, &Context::new(Box::new(TwoFunctions), 0));
        let shown =
            |frame: &Arc<Frame>| format!("{}+{:#x} {} {:?}", frame.symbol, frame.offset, frame.dso, frame.origin);
        frames.iter().map(shown).collect()
    }

    #[test]
    fn a_return_address_at_a_functions_end_is_that_functions() {
        let chain = [PERF_CONTEXT_KERNEL, BASE + 0x10, BASE + 0x10, BASE + 4, PERF_CONTEXT_USER, 0x1000];
        let expected = [
            "second+0x0 [mod] Kernel",
            "first+0x10 [kernel.kallsyms] Kernel",
            "first+0x4 [kernel.kallsyms] Kernel",
            "Unknown+0x1000 [unknown] User { pid: -1 }",
        ];
        assert_eq!(shown(&chain), expected);
    }

    #[test]
    fn a_guests_addresses_have_no_names_of_the_host() {
        let format = EventFormat::parse("s", "name: e\nID: 1\nformat:\n\nprint fmt: \"\"\n").unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN, 0);
        let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
        let shown = |misc: u16| {
            let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
            record.extend(misc.to_ne_bytes());
            record.extend([40, 0]);
            [BASE + 4, 2, PERF_CONTEXT_KERNEL, BASE + 4]
                .iter()
                .for_each(|word: &u64| record.extend(word.to_ne_bytes()));
            let (sample, context) =
                (Sample { event: &event, record: &record }, Context::new(Box::new(TwoFunctions), 0));
            let frames = frames(&sample, &context).into_iter().chain(ip_frame(&sample, &context));
            frames.map(|frame| format!("{} {} {:x}", frame.symbol, frame.dso, frame.addr - BASE)).collect::<Vec<_>>()
        };
        assert_eq!(shown(PERF_RECORD_MISC_KERNEL), ["first [kernel.kallsyms] 4"; 2]);
        assert_eq!(shown(PERF_RECORD_MISC_GUEST_KERNEL), ["Unknown [guest] 4"; 2]);
    }

    /// A chain without kernel frames begins with the Python function, wherever the sample was taken.
    #[test]
    fn a_sample_in_the_kernel_is_of_the_kernels_function() {
        let format = EventFormat::parse("s", "name: e\nID: 1\nformat:\n\nprint fmt: \"\"\n").unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_IP, 0);
        let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
        let context = Context::new(Box::new(TwoFunctions), 0);
        let origin = Origin::Python { pid: 7 };
        let (symbol, dso) = ("turn".into(), "app.py".into());
        let slot = Slot::default();
        let python = Frame { addr: 0, symbol, offset: 0, origin, dso, dso_offset: 0, srcline: None, slot };
        let chain = [Arc::new(python)];
        for (misc, ip, expected) in
            [(PERF_RECORD_MISC_KERNEL, BASE + 4, "first"), (PERF_RECORD_MISC_USER, 4096, "turn")]
        {
            let values = SampleValues { misc, ip, ..SampleValues::default() };
            let record = event.layout.encode(&values).unwrap();
            let found = sampled_function(&Sample { event: &event, record: &record }, &chain, &context).unwrap();
            assert_eq!(&*found.symbol, expected);
        }
    }

    #[test]
    fn without_markers_the_address_tells() {
        assert_eq!(
            shown(&[BASE, 0x1000]),
            ["first+0x0 [kernel.kallsyms] Kernel", "Unknown+0x1000 [unknown] User { pid: -1 }"]
        );
    }
}
