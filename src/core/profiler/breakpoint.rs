//! `mem:ADDR[/LEN][:rwx]`: samples accesses to an address in memory.

use super::{Source, SourceError, perf_event};
use crate::{
    abi::*,
    capture::{Config, PerfEvent, Sampling},
    spec::{Access, Breakpoint},
};

/// Returns the source of a breakpoint. Every access is a sample.
pub(super) fn source(breakpoint: Breakpoint, terms: &str) -> Result<Source, SourceError> {
    let Breakpoint { addr, len, access: Access { read, write, execute } } = breakpoint;
    // The kernel requires `sizeof(long)` for execution. For data, 4 bytes is perf's default.
    let default = if execute { size_of::<usize>() as u8 } else { 4 };
    let kinds = [(read, HW_BREAKPOINT_R), (write, HW_BREAKPOINT_W), (execute, HW_BREAKPOINT_X)];
    let event = PerfEvent {
        kind: PERF_TYPE_BREAKPOINT,
        config1: Config::Number(addr),
        config2: len.unwrap_or(default).into(),
        breakpoint: kinds.into_iter().filter(|&(on, _)| on).map(|(_, bit)| bit).sum(),
        ..PerfEvent::default()
    };
    let mut source = Source::new("mem", event, Sampling::Period(1));
    source.request.samples.sample_type = PERF_SAMPLE_ADDR;
    perf_event::take_own_terms(&mut source, terms)?;
    Ok(source)
}
