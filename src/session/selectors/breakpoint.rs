//! `mem:ADDR[/LEN][:rwx]`: samples accesses to an address in memory. `breakpoint/ADDR[/LEN][:rwx] OPTIONS/` is the form of
//! the C implementation.

use perf_prof_capture::{Config, PerfEvent, Sampling};
use perf_prof_format::{
    abi::*,
    spec::{Access, Breakpoint, breakpoint_at},
};

use super::{Machine, Source, SourceError, add_registers, options, perf_event};

/// The name of the source in the C implementation.
pub(super) const NAME: &str = "breakpoint";

/// Returns the source of `breakpoint/ADDR[/LEN][:rwx] OPTIONS/`.
pub(super) fn with_options(text: &str, machine: &dyn Machine) -> Result<Source, SourceError> {
    let mut unplaced = Source::new(NAME, PerfEvent::default(), Sampling::Period(1));
    let place = options::apply(&mut unplaced, NAME, text)?.unwrap_or_default();
    let breakpoint = breakpoint_at(place).ok_or_else(|| SourceError::OptionValue {
        source_name: NAME.to_owned(),
        option: "ADDR[/LEN][:rwx]",
        needs: "an address such as 0x601040, a length of 1, 2, 4 or 8 and the accesses to watch (put the section in quotes, \
                as it has a `/`)",
        value: place.to_owned(),
    })?;
    let mut placed = source(breakpoint, "", machine)?;
    placed.request.name = NAME.to_owned();
    options::apply(&mut placed, NAME, text)?;
    if !machine.has_c_members() {
        add_registers(&mut placed)?;
    }
    Ok(placed)
}

/// Returns the source of a breakpoint. Every access is sampled.
pub(super) fn source(breakpoint: Breakpoint, terms: &str, machine: &dyn Machine) -> Result<Source, SourceError> {
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
    if machine.has_c_members() {
        add_registers(&mut source)?;
    }
    Ok(source)
}
