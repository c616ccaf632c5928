//! Defines probes in tracefs if tasks inherit them, if they are recorded, or if they have arguments, semaphores or
//! several places. The tracepoint of a definition is then opened instead of an event of the PMU `kprobe` or `uprobe`.

use std::borrow::Cow;

use perf_prof_format::abi::PERF_TYPE_TRACEPOINT;
use perf_prof_system::probe_definition::DefinedProbe;

use super::{CaptureError, Cause, CommonMembers, EventRequest, PerfEvent, Refusal, Target, refusal::Purpose};

/// Returns the requests in the form in which they can be opened on `target`. Also returns the definitions in tracefs
/// that have to exist while the events are open.
///
/// The kernel creates an inherited event from the attr of the parent event. For an event of the PMUs `uprobe` and
/// `kprobe`, the kernel then reads the name of the file or function again (`perf_uprobe_init()` and
/// `perf_kprobe_init()` in kernel/trace/trace_event_perf.c). The attr contains an address in perf-prof's memory, but
/// the kernel reads at this address in the memory of the task that forks. So fork() or clone() would fail in that task.
/// The attr of a definition's tracepoint contains a number instead of an address. In a recording, this number also
/// tells which fields the samples have. In samples of the two PMUs the number is missing (`common_type` is 0), and
/// these PMUs support no arguments.
pub(super) fn tracepoints<'a>(
    target: &Target,
    events: &'a [EventRequest],
    members: CommonMembers,
) -> Result<(Cow<'a, [EventRequest]>, Vec<DefinedProbe>), CaptureError> {
    let mut events = Cow::Borrowed(events);
    let mut all = Vec::new();
    let inherited = matches!(target, Target::Processes(_) | Target::Workload { .. });
    let needed = inherited || members != CommonMembers::Lean;
    for at in 0..events.len() {
        let Some(definition) = &events[at].definition else { continue };
        if !needed && !definition.needs_tracefs() {
            continue;
        }
        // Permission is checked first. A user who may write to tracefs could define the probe, but the kernel would
        // then refuse the event.
        let refusal = Refusal::explain(&events[at], Purpose::Sampled, None);
        if matches!(refusal.cause, Cause::Capability { .. }) {
            return Err(CaptureError::Permission { event: events[at].name.clone(), refusal });
        }
        let defined = definition
            .define()
            .map_err(|source| CaptureError::Definition { event: events[at].name.clone(), source })?;
        events.to_mut()[at].event =
            PerfEvent { kind: PERF_TYPE_TRACEPOINT, config: defined.id().into(), ..PerfEvent::default() };
        all.push(defined);
    }
    Ok((events, all))
}
