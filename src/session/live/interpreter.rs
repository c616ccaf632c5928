//! Which events have frames of an interpreter: those whose samples a program can write.

use anyhow::{Result, bail};
use perf_prof_capture::{EventRequest, Sampling};
use perf_prof_format::abi::*;
use perf_prof_system::{output, procfs};

use super::select::Selected;

/// The members that samples have if a program writes them. The kernel knows the others only when it samples the event itself.
const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_IP
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_STREAM_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_PERIOD
    | PERF_SAMPLE_CALLCHAIN
    | PERF_SAMPLE_REGS_USER
    | PERF_SAMPLE_STACK_USER
    | PERF_SAMPLE_REGS_INTR
    | PERF_SAMPLE_CGROUP;

/// Returns whether a program can write the samples of an event that is no tracepoint. Programs would see breakpoints of all processes
/// that have something at the address.
pub fn can_be_written(request: &EventRequest) -> bool {
    request.samples.sample_type & !MEMBERS == 0 && request.event.kind != PERF_TYPE_BREAKPOINT
}

/// Returns the request for samples that a program writes.
pub fn written(request: &EventRequest) -> EventRequest {
    let mut request = request.clone();
    request.samples.sample_type |= PERF_SAMPLE_RAW;
    let is_clock = request.event.kind == PERF_TYPE_SOFTWARE
        && [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].contains(&request.event.config);
    // The kernel refuses higher frequencies, but no periods.
    let most = procfs::perf_event_max_sample_rate().unwrap_or(u64::MAX);
    if let (Sampling::Frequency(frequency), true) = (request.sampling, is_clock)
        && frequency <= most
    {
        // So does the kernel (`perf_swevent_init_hrtimer()` in kernel/events/core.c). Samples that programs write have no period.
        request.sampling = Sampling::Period(1_000_000_000 / frequency.max(1));
    }
    request
}

/// Says which events have no frames of Python functions, although the user wants them. Fails if no event has them.
pub fn tell_missing(selected: &[Selected]) -> Result<()> {
    let missing: Vec<&str> = selected
        .iter()
        .filter(|event| !event.format.has_interpreter_frames())
        .map(|event| event.request.name.as_str())
        .collect();
    let why = "only timers, counters without addresses, tracepoints whose fields have a fixed size, and sources that are made of them, have Python \
               frames";
    match missing.as_slice() {
        [] => {}
        names if names.len() == selected.len() => bail!("{}: {why}", names.join(", ")),
        names => output::say(format_args!("warning: {}: {why}", names.join(", "))),
    }
    Ok(())
}
