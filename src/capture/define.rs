//! Probes that tasks inherit or that are recorded: from events of the probes' PMUs to tracepoints that are defined for the capture.

use std::borrow::Cow;

use super::{CaptureError, Cause, Config, EventRequest, Members, PerfEvent, Refusal, Target, refusal::Use};
use crate::{abi::PERF_TYPE_TRACEPOINT, sys::definition::Defined};

/// The requests as they can be opened on `target`, and what is defined in tracefs for them as long as they are open.
///
/// An inherited event is made from its parent's attr, and for one of the PMUs `uprobe` and `kprobe` the kernel reads the
/// file's or function's name once more then (`perf_uprobe_init()` and `perf_kprobe_init()` in
/// kernel/trace/trace_event_perf.c): at our address, but in the memory of the task that forks. Its fork() or clone()
/// would fail. The tracepoint of a definition is found by a number. In a recording that number tells what samples hold,
/// where those of the PMUs have none (`common_type` is 0).
pub(super) fn tracepoints<'a>(
    target: &Target,
    events: &'a [EventRequest],
    members: Members,
) -> Result<(Cow<'a, [EventRequest]>, Vec<Defined>), CaptureError> {
    let mut events = Cow::Borrowed(events);
    let mut all = Vec::new();
    let inherited = matches!(target, Target::Processes(_) | Target::Workload { .. });
    if !inherited && members == Members::Lean {
        return Ok((events, all));
    }
    for at in 0..events.len() {
        let (Config::Text(_), Some(definition)) = (&events[at].event.config1, &events[at].definition) else { continue };
        // The kernel would take the definition of who may write to tracefs, and then refuse the event.
        let refusal = Refusal::of(&events[at], Use::Sampled, None);
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
