//! Which events have frames of an interpreter: those whose samples a program can write.

use anyhow::{Result, bail};
use perf_prof_capture::{EventRequest, PerfEvent, Sampling};
use perf_prof_events::derive::Derived;
use perf_prof_format::{abi::*, spec::NamedEvent, tracefs::EventFormat};
use perf_prof_in_kernel::strings::can_write_samples;
use perf_prof_system::{output, procfs};

use super::select::Selected;

/// The members that samples have if a program writes them. The kernel knows other members only when it samples the event
/// itself.
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

/// Returns whether a program can write the samples of an event that is no tracepoint. Breakpoints are excluded, because a
/// program would see the accesses of all processes that have something at the address.
pub fn can_be_written(request: &EventRequest) -> bool {
    request.samples.sample_type & !MEMBERS == 0 && request.event.kind != PERF_TYPE_BREAKPOINT
}

/// Returns whether a program can write the samples of a tracepoint or of a probe. A probe that another program has defined
/// looks like a tracepoint, but the kernel runs another type of BPF programs there.
pub fn can_be_written_at(format: &EventFormat, request: &EventRequest) -> bool {
    let is_probe = ["__probe_ip", "__probe_func"].iter().any(|field| format.field(field).is_some());
    !is_probe || request.definition.as_ref().is_some_and(|definition| can_write_samples(format, definition))
}

/// Returns the request for samples that a program writes.
pub fn written(request: &EventRequest) -> EventRequest {
    let mut request = request.clone();
    request.samples.sample_type |= PERF_SAMPLE_RAW;
    let PerfEvent { kind, config, .. } = request.event;
    let is_clock = NamedEvent { kind, config }.is_clock();
    // The kernel refuses higher frequencies, but no periods.
    let most = procfs::perf_event_max_sample_rate().unwrap_or(u64::MAX);
    if let (Sampling::Frequency(frequency), true) = (request.sampling, is_clock)
        && frequency <= most
    {
        // The kernel also turns the frequency into a period (`perf_swevent_init_hrtimer()` in kernel/events/core.c).
        // Samples that programs write have no period.
        request.sampling = Sampling::Period(1_000_000_000 / frequency.max(1));
    }
    request
}

/// Says which events have no frames of Python functions, although the user wants them. The end of a span needs no such
/// frames. Fails if no event has such frames.
pub fn tell_missing(selected: &[Selected], derived: &[Derived]) -> Result<()> {
    let has_frames = |at: usize| selected[at].format.has_interpreter_frames();
    let is_of_others = |at: usize| {
        derived.iter().any(|of| of.inputs.contains(&at) && of.inputs.iter().any(|&input| has_frames(input)))
    };
    let lacks_frames = |at: &usize| !has_frames(*at) && !is_of_others(*at);
    let missing = (0..selected.len()).filter(lacks_frames);
    let missing: Vec<&str> = missing.map(|at| selected[at].request.name.as_str()).collect();
    let why = "only timers, counters without addresses, tracepoints whose fields have a fixed size, entry probes of programs with \
               arguments in registers, and sources that are made of them, have Python frames";
    let instead = match missing.contains(&"page-faults") {
        true => "; in place of page-faults, use exceptions:page_fault_user",
        false => "",
    };
    match missing.as_slice() {
        [] => {}
        names if names.len() == selected.len() => bail!("{}: {why}{instead}", names.join(", ")),
        names => output::say(format_args!("warning: {}: {why}{instead}", names.join(", "))),
    }
    Ok(())
}
