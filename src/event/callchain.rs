//! Call chain addresses to frames.

use std::sync::Arc;

use super::{Context, Sample, unwound};
use crate::{
    abi::{PERF_CONTEXT_HV, PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER},
    symbol::{Place, Resolved},
};

/// One frame of a call chain, innermost first in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
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

/// The name of a frame without a symbol.
pub const UNKNOWN: &str = "Unknown";

/// Resolves a sample's call chain.
pub fn frames(sample: &Sample<'_>, context: &Context) -> Vec<Frame> {
    // Without a marker (a chain of one kind only always has one, but bytes may be anything) the address itself tells:
    // kernel addresses have their top bit set on every 64-bit architecture that perf runs on.
    let mut marked = None;
    let mut frames = Vec::new();
    let mut place = Place::Exact;
    let mut walked = false;
    for addr in sample.callchain() {
        match addr {
            PERF_CONTEXT_KERNEL | PERF_CONTEXT_HV => marked = Some(true),
            PERF_CONTEXT_USER => marked = Some(false),
            marker if marker >= PERF_CONTEXT_MAX => marked = None,
            _ => {
                if marked.unwrap_or(addr >> 63 == 1) {
                    frames.push(kernel_frame(addr, place, context));
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
        && let (Some(registers), Some(stack)) = (layout.regs_user(sample.record), layout.stack_user(sample.record))
    {
        let mut place = Place::Exact;
        for addr in unwound::addresses(sample, &registers, stack, context) {
            user_frames(sample, addr, place, context, &mut frames);
            place = Place::Return;
        }
    }
    frames
}

/// Where a sample's instruction is: the innermost function where inlined ones are told.
pub fn ip_frame(sample: &Sample<'_>, context: &Context) -> Option<Frame> {
    let addr = sample.event.layout.ip(sample.record)?;
    if sample.is_in_kernel().unwrap_or(addr >> 63 == 1) {
        return Some(kernel_frame(addr, Place::Exact, context));
    }
    let mut frames = Vec::new();
    user_frames(sample, addr, Place::Exact, context, &mut frames);
    frames.into_iter().next()
}

fn kernel_frame(addr: u64, place: Place, context: &Context) -> Frame {
    let back = u64::from(place == Place::Return);
    let kernel = || "[kernel.kallsyms]".into();
    let nameless =
        Frame { addr, symbol: UNKNOWN.into(), offset: 0, origin: Origin::Kernel, dso: kernel(), srcline: None };
    match context.kernel.symbol(addr.wrapping_sub(back)) {
        Some(symbol) => Frame {
            symbol: symbol.name.as_ref().into(),
            offset: symbol.offset + back,
            dso: symbol.module.map_or_else(kernel, |module| format!("[{module}]").into()),
            ..nameless
        },
        None => nameless,
    }
}

/// The function at an address of the sample's process, after those that were inlined into it there.
fn user_frames(sample: &Sample<'_>, addr: u64, place: Place, context: &Context, frames: &mut Vec<Frame>) {
    let pid = sample.pid_tid().0;
    let resolved = context.with_symbols(|symbols| symbols.user(pid as u32, addr, sample.time(), place));
    let Resolved { symbol, dso, dso_offset, inlined, srcline, .. } = &*resolved;
    for function in inlined {
        let srcline = (!function.file.is_empty()).then(|| (function.file.clone(), function.line));
        let (symbol, offset, origin) = (function.name.clone(), 0, Origin::Inlined { pid });
        frames.push(Frame { addr, symbol, offset, origin, dso: dso.clone(), srcline });
    }
    let (symbol, offset) = match symbol {
        Ok(symbol) => (symbol.name.clone(), symbol.offset),
        // The place that was looked up is the call's, the address shown is behind it.
        Err(_) => (UNKNOWN.into(), dso_offset.wrapping_add(u64::from(place == Place::Return))),
    };
    frames.push(Frame {
        addr,
        symbol,
        offset,
        origin: Origin::User { pid },
        dso: dso.clone(),
        srcline: srcline.clone(),
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        abi::{PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN},
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
        let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout };
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
    fn without_markers_the_address_tells() {
        assert_eq!(
            shown(&[BASE, 0x1000]),
            ["first+0x0 [kernel.kallsyms] Kernel", "Unknown+0x1000 [unknown] User { pid: -1 }"]
        );
    }
}
