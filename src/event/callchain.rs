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
    for addr in sample.callchain() {
        match addr {
            PERF_CONTEXT_KERNEL | PERF_CONTEXT_HV => marked = Some(true),
            PERF_CONTEXT_USER => marked = Some(false),
            marker if marker >= PERF_CONTEXT_MAX => marked = None,
            _ => frames.push(frame(addr, marked.unwrap_or(addr >> 63 == 1), names)),
        }
    }
    frames
}

fn frame(addr: u64, kernel: bool, names: &dyn Kernel) -> Frame {
    if !kernel {
        return Frame { addr, symbol: UNKNOWN.into(), offset: 0, kernel, dso: "[unknown]".into() };
    }
    match names.symbol(addr) {
        Some(symbol) => Frame {
            addr,
            symbol: symbol.name.to_owned(),
            offset: symbol.offset,
            kernel,
            dso: symbol.module.map_or_else(|| "[kernel.kallsyms]".to_owned(), |module| format!("[{module}]")),
        },
        None => Frame { addr, symbol: UNKNOWN.into(), offset: 0, kernel, dso: "[kernel.kallsyms]".into() },
    }
}
