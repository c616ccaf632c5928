//! Call chain addresses to frames. What was found once is kept: call chains are of the same few thousand addresses.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Context, Sample, unwound};
use crate::{
    abi::{PERF_CONTEXT_HV, PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER},
    symbol::{Place, Resolved, Slot},
};

/// One frame of a call chain, innermost first in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)] // So that what is read of a frame that is met again, count and slot, is one cache line.
pub struct Frame {
    /// For what a sink makes of it: a frame that is met again is the same one.
    pub slot: Slot,
    /// Instruction address; for all but the innermost frame, the return address.
    pub addr: u64,
    /// The function's name, or `Unknown`.
    pub symbol: Arc<str>,
    /// Distance from the function's start; without a function, the place in the file; from 0 where there is neither.
    pub offset: u64,
    /// Where the code is.
    pub origin: Origin,
    /// `[kernel.kallsyms]`, `[module]` or a file's path.
    pub dso: Arc<str>,
    /// The place in the file; of a frame of the kernel its address. An event that was copied does not keep it.
    pub dso_offset: u64,
    /// Source file and line, where they were asked for and are known.
    pub srcline: Option<(Arc<str>, u32)>,
}

/// Where a frame's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the kernel.
    Kernel,
    /// In a function of this process.
    User {
        /// The process.
        pid: i32,
    },
    /// In a function of this process that was inlined into that of the next frame, whose address it has.
    Inlined {
        /// The process.
        pid: i32,
    },
}

/// The sides of call chains whose frames are told; others are left out, as if they had not been recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// Whatever was recorded.
    Both,
    /// Frames of the kernel alone.
    Kernel,
    /// Frames of programs alone.
    User,
}

impl Sides {
    #[inline]
    fn has(self, is_kernel: bool) -> bool {
        self == Sides::Both || (self == Sides::Kernel) == is_kernel
    }
}

/// The name of a frame without a symbol.
pub const UNKNOWN: &str = "Unknown";

/// Whether code that is shown to be there was made while the kernel ran: BPF programs, trampolines of ftrace, what probes
/// were put over.
pub(super) fn is_made(dso: &str) -> bool {
    dso == "[bpf]" || dso.starts_with("[__builtin__")
}

/// Frames of the kernel by address, as far as they were met.
#[derive(Debug, Default)]
pub struct KernelFrames {
    exact: FxHashMap<u64, Arc<Frame>>,
    returns: FxHashMap<u64, Arc<Frame>>,
}

/// So many of each are kept, of about half a kilobyte each with what a sink makes of them.
const KERNEL_FRAMES: usize = 1 << 14;

impl KernelFrames {
    #[inline]
    fn get(&mut self, addr: u64, place: Place, context: &Context) -> Arc<Frame> {
        match self.of(place).get(&addr) {
            Some(frame) => Arc::clone(frame),
            None => self.find(addr, place, context),
        }
    }

    #[inline]
    fn of(&mut self, place: Place) -> &mut FxHashMap<u64, Arc<Frame>> {
        match place {
            Place::Exact => &mut self.exact,
            Place::Return => &mut self.returns,
        }
    }

    #[cold]
    fn find(&mut self, addr: u64, place: Place, context: &Context) -> Arc<Frame> {
        let frame = Arc::new(kernel_frame(addr, place, context));
        // A module or a BPF program may give the address a name later, and what is made there next another one. A module
        // that takes the place of another would too, but the list of symbols is not read again for that either.
        if *frame.symbol == *UNKNOWN || is_made(&frame.dso) {
            return frame;
        }
        let known = self.of(place);
        if known.len() >= KERNEL_FRAMES {
            known.clear();
        }
        known.insert(addr, Arc::clone(&frame));
        frame
    }
}

/// Resolves a sample's call chain.
pub fn frames(sample: &Sample<'_>, context: &Context) -> Vec<Arc<Frame>> {
    let sides = context.sides();
    // Without a marker (a chain of one kind only always has one, but bytes may be anything) the address itself tells:
    // kernel addresses have their top bit set on every 64-bit architecture that perf runs on.
    if sample.is_of_guest() {
        let addresses = sample.callchain().filter(|&addr| addr < PERF_CONTEXT_MAX);
        let frames = addresses.map(|addr| guest_frame(sample, addr));
        return frames.filter(|frame| sides.has(frame.origin == Origin::Kernel)).map(Arc::new).collect();
    }
    let mut marked = None;
    let mut frames = Vec::with_capacity(sample.callchain().size_hint().0);
    let mut place = Place::Exact;
    let mut walked = false;
    let mut kernel = context.kernel_frames();
    // The kernel ends chains there; what was recorded may be longer than what is asked for.
    let mut left = sample.event.max_stack.map_or(usize::MAX, usize::from);
    for addr in sample.callchain() {
        match addr {
            PERF_CONTEXT_KERNEL | PERF_CONTEXT_HV => marked = Some(true),
            PERF_CONTEXT_USER => marked = Some(false),
            marker if marker >= PERF_CONTEXT_MAX => marked = None,
            _ if left == 0 => break,
            _ => {
                let is_kernel = marked.unwrap_or(addr >> 63 == 1);
                if !sides.has(is_kernel) {
                    continue;
                }
                left -= 1;
                if is_kernel {
                    frames.push(kernel.get(addr, place, context));
                } else {
                    walked = true;
                    user_frames(sample, addr, place, context, &mut frames);
                }
                place = Place::Return;
                continue;
            }
        }
        // Each side's innermost frame is where it was, not where it will go on.
        place = Place::Exact;
    }
    // A script may ask for registers and stack beside frames that the kernel walked: those are not found twice.
    let layout = &sample.event.layout;
    if !walked
        && sides.has(false)
        && let (Some(registers), Some(stack)) = (layout.regs_user(sample.record), layout.stack_user(sample.record))
    {
        let mut place = Place::Exact;
        // Those of the kernel count too, as in chains that it walks itself (get_perf_callchain()).
        let limit = sample.event.max_stack.map_or(context.max_stack(), usize::from).saturating_sub(frames.len());
        for addr in unwound::addresses(sample, (&registers, stack), limit, context) {
            user_frames(sample, addr, place, context, &mut frames);
            place = Place::Return;
        }
    }
    frames
}

/// Where a sample's instruction is: the innermost function where inlined ones are told.
pub fn ip_frame(sample: &Sample<'_>, context: &Context) -> Option<Arc<Frame>> {
    ip_frames(sample, context).into_iter().next()
}

/// Where a sample's instruction is: the function that the linker knows, whatever was inlined there.
pub fn ip_function(sample: &Sample<'_>, context: &Context) -> Option<Arc<Frame>> {
    ip_frames(sample, context).pop()
}

fn ip_frames(sample: &Sample<'_>, context: &Context) -> Vec<Arc<Frame>> {
    let Some(addr) = sample.event.layout.ip(sample.record) else { return Vec::new() };
    if sample.is_of_guest() {
        return vec![Arc::new(guest_frame(sample, addr))];
    }
    if sample.is_in_kernel().unwrap_or(addr >> 63 == 1) {
        return vec![context.kernel_frames().get(addr, Place::Exact, context)];
    }
    let mut frames = Vec::new();
    user_frames(sample, addr, Place::Exact, context, &mut frames);
    frames
}

fn kernel_frame(addr: u64, place: Place, context: &Context) -> Frame {
    let back = u64::from(place == Place::Return);
    let (symbol, offset, module) = match context.kernel.symbol(addr.wrapping_sub(back)) {
        Some(symbol) => (symbol.name, symbol.offset + back, symbol.module),
        None => (UNKNOWN.into(), 0, None),
    };
    let symbol: Arc<str> = symbol.as_ref().into();
    let dso = module.map_or_else(|| "[kernel.kallsyms]".into(), |module| format!("[{module}]").into());
    Frame { addr, symbol, offset, origin: Origin::Kernel, dso, dso_offset: addr, srcline: None, slot: Slot::default() }
}

/// A frame of a virtual machine, whose addresses say nothing here.
fn guest_frame(sample: &Sample<'_>, addr: u64) -> Frame {
    let in_kernel = sample.is_in_kernel().unwrap_or(addr >> 63 == 1);
    let origin = if in_kernel { Origin::Kernel } else { Origin::User { pid: sample.pid_tid().0 } };
    let (symbol, dso) = (UNKNOWN.into(), "[guest]".into());
    Frame { addr, symbol, offset: 0, origin, dso, dso_offset: addr, srcline: None, slot: Slot::default() }
}

/// The function at an address of the sample's process, after those that were inlined into it there.
fn user_frames(sample: &Sample<'_>, addr: u64, place: Place, context: &Context, frames: &mut Vec<Arc<Frame>>) {
    let pid = sample.pid_tid().0;
    let resolved = context.with_symbols(|symbols| symbols.user(pid as u32, addr, sample.time(), place));
    // What is kept was resolved for this address of this process.
    match resolved.slot.get::<Vec<Arc<Frame>>>() {
        Some(made) => frames.extend_from_slice(made),
        None => {
            let made: Vec<Arc<Frame>> = user(&resolved, pid, addr, place).map(Arc::new).collect();
            frames.extend_from_slice(&made);
            resolved.slot.put(made);
        }
    }
}

fn user(resolved: &Resolved, pid: i32, addr: u64, place: Place) -> impl Iterator<Item = Frame> {
    let Resolved { symbol, dso, dso_offset, inlined, srcline, .. } = resolved;
    // The place that was looked up is the call's, the address shown is behind it.
    let dso_offset = dso_offset.wrapping_add(u64::from(place == Place::Return));
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

    use super::*;
    use crate::{
        abi::{
            PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_KERNEL, PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN,
            PERF_SAMPLE_IP,
        },
        event::{EventType, Format},
        record::SampleLayout,
        tracefs::{EventFormat, Kernel, KernelSymbol},
    };

    /// Two functions, one after the other.
    struct Two;

    impl Kernel for Two {
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
        let frames = frames(&Sample { event: &event, record: &record }, &Context::new(Box::new(Two), 0));
        frames.iter().map(|f| format!("{}+{:#x} {} {:?}", f.symbol, f.offset, f.dso, f.origin)).collect()
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
            let (sample, context) = (Sample { event: &event, record: &record }, Context::new(Box::new(Two), 0));
            let frames = frames(&sample, &context).into_iter().chain(ip_frame(&sample, &context));
            frames.map(|frame| format!("{} {} {:x}", frame.symbol, frame.dso, frame.addr - BASE)).collect::<Vec<_>>()
        };
        assert_eq!(shown(PERF_RECORD_MISC_KERNEL), ["first [kernel.kallsyms] 4"; 2]);
        assert_eq!(shown(PERF_RECORD_MISC_GUEST_KERNEL), ["Unknown [guest] 4"; 2]);
    }

    #[test]
    fn without_markers_the_address_tells() {
        assert_eq!(
            shown(&[BASE, 0x1000]),
            ["first+0x0 [kernel.kallsyms] Kernel", "Unknown+0x1000 [unknown] User { pid: -1 }"]
        );
    }
}
