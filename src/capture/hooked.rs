//! Probes at which BPF programs run. The events of these probes have no samples, but make the kernel set the breakpoints in
//! the programs of the target.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    slice,
};

use perf_prof_format::abi::PERF_TYPE_TRACEPOINT;
use perf_prof_system::probe_definition::{DefinedProbe, ProbeDefinition};

use super::{
    CaptureError, EventRequest, PerfEvent, Target,
    attach::{self, Attachment, Binding},
    attr::{self, Follow},
    context::{self, KeepUntil, KeptContexts},
    open::open_event,
    refusal::Purpose,
};

/// A probe that is open on a target. Dropping this value removes the probe.
#[derive(Debug)]
pub struct HookedProbe {
    /// The descriptors of the probe's events. BPF programs are attached to the first one.
    descriptors: Vec<OwnedFd>,
    /// Prevents the kernel from swapping the contexts of tasks.
    _contexts: KeptContexts,
    /// The definition in tracefs. It can be removed only after the descriptors are closed, so it is dropped last.
    _definition: DefinedProbe,
}

impl HookedProbe {
    /// Defines a probe, and opens it on the target. `event` is the request of the event whose samples a program writes at
    /// the probe.
    pub fn open(
        target: &Target,
        event: &EventRequest,
        definition: &ProbeDefinition,
    ) -> Result<HookedProbe, CaptureError> {
        let undefined = |source| CaptureError::Definition { event: event.name.clone(), source };
        let defined = definition.define().map_err(undefined)?;
        let tracepoint = PerfEvent { kind: PERF_TYPE_TRACEPOINT, config: defined.id().into(), ..PerfEvent::default() };
        let definition = Some(definition.clone());
        let event = EventRequest { event: tracepoint, definition, ..event.clone() };
        let opened = attach::attach(target, slice::from_ref(&event), Binding::Anywhere, |on, follow| {
            let contexts = context::keep(slice::from_ref(&event), on, follow, KeepUntil::Opened);
            Ok((open(&event, on, follow)?, contexts))
        });
        let ((descriptors, contexts), _) = opened?;
        Ok(HookedProbe { descriptors, _contexts: contexts, _definition: defined })
    }

    /// Returns a descriptor of the probe. The kernel runs a program that is attached to this descriptor whenever the probe
    /// is hit, in all programs of the target.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.descriptors.first().map(OwnedFd::as_fd)
    }
}

/// Opens the events. Programs are attached to the first event, which no task inherits. When an inherited event is closed,
/// because its task exits, the kernel also detaches the program of the parent event (`perf_event_free_bpf_prog()` in
/// kernel/events/core.c).
fn open(event: &EventRequest, on: &[Attachment<'_>], follow: Follow) -> Result<Vec<OwnedFd>, CaptureError> {
    // Programs also run while the events are disabled.
    let [of_program, of_tasks] = [Follow::Nothing, follow].map(|follow| {
        let mut attr = attr::counter(event, follow);
        attr.set_disabled(1);
        attr
    });
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let gone = attach::to_each(on, |on| {
        let first = descriptors.is_empty().then_some(&of_program);
        for attr in first.into_iter().chain([&of_tasks]) {
            let fd = open_event(attr, on.attach(), None).map_err(|error| match error.errno() {
                libc::EMFILE | libc::ENFILE => {
                    CaptureError::too_many_files(&error, descriptors.len() + 1, descriptors.len())
                }
                _ => CaptureError::open(event, Purpose::Sampled, Some(on.to), error),
            })?;
            descriptors.push(fd);
        }
        Ok(())
    })?;
    match descriptors.is_empty() {
        true => Err(CaptureError::NoSuchTask { kind: "thread", ids: gone }),
        false => Ok(descriptors),
    }
}
