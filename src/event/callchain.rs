//! Call chain addresses to frames.

use super::Sample;
use crate::{
    abi::{PERF_CONTEXT_HV, PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER},
    tracefs::Kernel,
};

/// One frame of a call chain, innermost first in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Instruction address; for all but the innermost frame, the return address.
    pub addr: u64,
    /// The function's name, or `Unknown`.
    pub symbol: String,
    /// Distance from the function's start; from 0 where there is no function.
    pub offset: u64,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// `[kernel.kallsyms]`, `[module]` or a file's path.
    pub dso: String,
}

/// The name of a frame without a symbol.
const UNKNOWN: &str = "Unknown";

/// Resolves a sample's call chain.
pub fn frames(sample: &Sample<'_>, names: &dyn Kernel) -> Vec<Frame> {
    // Without a marker (a chain of one kind only always has one, but bytes may be anything) the address itself tells:
    // kernel addresses have their top bit set on every 64-bit architecture that perf runs on.
    let mut marked = None;
    let mut frames = Vec::new();
    let mut place = Place::Exact;
    for addr in sample.callchain() {
        match addr {
            PERF_CONTEXT_KERNEL | PERF_CONTEXT_HV => marked = Some(true),
            PERF_CONTEXT_USER => marked = Some(false),
            marker if marker >= PERF_CONTEXT_MAX => marked = None,
            _ => {
                frames.push(frame(addr, place, marked.unwrap_or(addr >> 63 == 1), names));
                place = Place::Return;
                continue;
            }
        }
        // Each side's innermost frame is where it was, not where it will go on.
        place = Place::Exact;
    }
    frames
}

/// Where a sample's instruction is.
pub fn ip_frame(sample: &Sample<'_>, names: &dyn Kernel) -> Option<Frame> {
    let addr = sample.event.layout.ip(sample.record)?;
    Some(frame(addr, Place::Exact, sample.is_in_kernel().unwrap_or(addr >> 63 == 1), names))
}

/// What a frame's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The instruction that was executed.
    Exact,
    /// The one after a call. After a call that never returns, at a function's end, that is the next function's first.
    Return,
}

fn frame(addr: u64, place: Place, kernel: bool, names: &dyn Kernel) -> Frame {
    if !kernel {
        return Frame { addr, symbol: UNKNOWN.into(), offset: 0, kernel, dso: "[unknown]".into() };
    }
    let back = u64::from(place == Place::Return);
    match names.symbol(addr.wrapping_sub(back)) {
        Some(symbol) => Frame {
            addr,
            symbol: symbol.name.to_owned(),
            offset: symbol.offset + back,
            kernel,
            dso: symbol.module.map_or_else(|| "[kernel.kallsyms]".to_owned(), |module| format!("[{module}]")),
        },
        None => Frame { addr, symbol: UNKNOWN.into(), offset: 0, kernel, dso: "[kernel.kallsyms]".into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        abi::{PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN},
        event::{EventType, Format},
        record::SampleLayout,
        tracefs::{EventFormat, KernelSymbol},
    };

    /// Two functions, one after the other.
    struct Two;

    impl Kernel for Two {
        fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
            let (name, start) = if addr < BASE + 0x10 { ("first", BASE) } else { ("second", BASE + 0x10) };
            let module = (name == "second").then_some("mod");
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
        let frames = frames(&Sample { event: &event, record: &record }, &Two);
        frames.iter().map(|f| format!("{}+{:#x} {} {}", f.symbol, f.offset, f.dso, f.kernel)).collect()
    }

    #[test]
    fn a_return_address_at_a_functions_end_is_that_functions() {
        let chain = [PERF_CONTEXT_KERNEL, BASE + 0x10, BASE + 0x10, BASE + 4, PERF_CONTEXT_USER, 0x1000];
        let expected = [
            "second+0x0 [mod] true",
            "first+0x10 [kernel.kallsyms] true",
            "first+0x4 [kernel.kallsyms] true",
            "Unknown+0x0 [unknown] false",
        ];
        assert_eq!(shown(&chain), expected);
    }

    #[test]
    fn without_markers_the_address_tells() {
        assert_eq!(shown(&[BASE, 0x1000]), ["first+0x0 [kernel.kallsyms] true", "Unknown+0x0 [unknown] false"]);
    }
}
