//! The selected events of the running kernel, before they are opened. Runs, recordings and counts start here.

use anyhow::Result;
use perf_prof_capture::Capture;
use perf_prof_events::{
    derive::{self, Derived, SpanError},
    event::EventType,
};
use perf_prof_format::record::SampleLayout;
use perf_prof_system::{
    close_in_child::ClosingHeldOff,
    tracefs::Tracefs,
    workload::{Workload, WorkloadError},
};

use super::{
    file_rights, requests,
    select::{self, Selected, Selection},
    unprivileged::{self, LimitedEvents},
};
use crate::plan;

/// The selected events of this kernel. Nothing is opened yet.
pub struct ChosenEvents {
    /// Keeps other perf-prof processes from closing tracepoints. It is needed until the events are open and a recording
    /// has read the formats.
    closing: ClosingHeldOff,
    tracefs: Tracefs,
    /// The events to open. The inputs of derived events are among them, the derived events are not.
    pub events: Vec<Selected>,
    derived: Vec<Derived>,
    moves: Option<usize>,
}

/// The selected events, ready to be opened.
pub struct ArmedEvents {
    /// Keeps other perf-prof processes from closing tracepoints. It is needed until the events are open and a recording
    /// has read the formats.
    pub closing: ClosingHeldOff,
    /// The events that this kernel has.
    pub tracefs: Tracefs,
    /// The events to open.
    pub events: Vec<Selected>,
    /// The derived events. Their inputs are in `events`.
    pub derived: Vec<Derived>,
    /// The index of the event about moves of tasks between cgroups, `cgroup:cgroup_attach_task`. It is the last event.
    /// No program receives it.
    pub moves: Option<usize>,
    /// The events that were limited to user space.
    pub limits: LimitedEvents,
    /// The forked command, which waits until the run starts.
    pub workload: Option<Workload>,
}

impl ChosenEvents {
    /// Selects the events of the plan.
    pub fn select(capture: &plan::Capture) -> Result<ChosenEvents> {
        let closing = ClosingHeldOff::new();
        let tracefs = unprivileged::tracefs(capture)?;
        let Selection { events, derived, moves } = select::select(capture, &tracefs)?;
        Ok(ChosenEvents { closing, tracefs, events, derived, moves })
    }

    /// Replaces spans by the events that they are made of, for a recording. The spans are made when the recording is
    /// read.
    pub fn recorded(self, capture: &plan::Capture) -> Result<ChosenEvents> {
        let events = Selection { events: self.events, derived: self.derived, moves: None }.recorded(capture)?;
        Ok(ChosenEvents { events, derived: Vec::new(), moves: None, ..self })
    }

    /// Makes the events that are the same tracepoint share its samples, for a run that is recorded.
    pub fn share(self, capture: &plan::Capture) -> Result<ChosenEvents> {
        let mut selection = Selection { events: self.events, derived: self.derived, moves: self.moves };
        selection.share(capture)?;
        let Selection { events, derived, moves } = selection;
        Ok(ChosenEvents { events, derived, moves, ..self })
    }

    /// Returns the event types that a program receives, before the events are opened. Only the offsets of the ids in
    /// samples may differ from those of the opened events.
    pub fn planned_types(&self, capture: &plan::Capture) -> Result<Vec<EventType>> {
        let layouts = Capture::layouts(&requests::requests(capture, &self.events)?);
        let delivered = self.moves.unwrap_or(self.events.len());
        let types = event_types(&self.events[..delivered], &self.derived, |event| {
            layouts[self.events[event].opened_at(event)]
        })?;
        Ok(derive::delivered(&types, &self.derived))
    }

    /// Limits the events to what the user may trace, and forks the command with `fork`.
    pub fn arm(mut self, fork: impl FnOnce() -> Result<Option<Workload>, WorkloadError>) -> Result<ArmedEvents> {
        let limits = unprivileged::limit_to_user_space(&mut self.events);
        let ChosenEvents { closing, tracefs, events, derived, moves } = self;
        Ok(ArmedEvents { closing, tracefs, events, derived, moves, limits, workload: fork()? })
    }

    /// Reads the files that are needed later, before another run of this process gives up the rights to them.
    pub fn keep_files(&mut self) {
        file_rights::keep_files(&mut self.tracefs, &self.events);
    }

    /// Like [`ChosenEvents::arm`], for a run whose events are processed in this process. The kernel kills the command
    /// if this process ends. Drops the capability to read all files, unless the run needs it later.
    pub fn arm_for_run(self, capture: &plan::Capture) -> Result<ArmedEvents> {
        let mut armed = self.arm(|| capture.workload().map(Workload::fork_until_end).transpose())?;
        file_rights::give_up(&mut armed.tracefs, &armed.events);
        Ok(armed)
    }
}

/// Returns the event types: first the captured events, then the derived events.
pub fn event_types(
    selected: &[Selected],
    derived: &[Derived],
    layout: impl Fn(usize) -> SampleLayout,
) -> Result<Vec<EventType>, SpanError> {
    let captured = selected.iter().enumerate().map(|(at, event)| event.event_type(layout(at)));
    derive::with_derived(captured.collect(), derived)
}
