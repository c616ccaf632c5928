//! Samples of a tracepoint that is opened once and selected several times. Each selected event gets the samples that
//! pass its own limits.

use std::ops::ControlFlow;

use perf_prof_events::event::Deliver;
use perf_prof_format::record::SampleLayout;

use super::{BreakReason, Pump};
use crate::engine::sample_routes::Route;

/// The tracepoints that several selected events share.
pub struct SharedSamples {
    /// For each opened event, its tracepoint if several events get its samples.
    of_opened: Vec<Option<SharedTracepoint>>,
}

/// A tracepoint whose samples several events get.
pub struct SharedTracepoint {
    /// The layout of the samples.
    pub layout: SampleLayout,
    /// The events that get the samples.
    pub routes: Vec<Route>,
}

impl SharedSamples {
    /// Creates the value from the tracepoint of each opened event. It is `None` if only this event gets the samples.
    pub fn new(of_opened: Vec<Option<SharedTracepoint>>) -> SharedSamples {
        SharedSamples { of_opened }
    }

    pub(super) fn tracepoint(&self, opened: usize) -> Option<&SharedTracepoint> {
        self.of_opened.get(opened)?.as_ref()
    }
}

impl SharedTracepoint {
    pub(super) fn events<'a>(&'a self, record: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
        let cpu = self.layout.cpu(record);
        let raw = || self.layout.raw(record).unwrap_or(&[]);
        self.routes.iter().filter(move |route| route.wants(cpu, raw)).map(|route| route.event)
    }
}

impl Pump {
    /// Makes the pump deliver the samples of shared tracepoints to all of their events.
    pub fn with_shared_samples(self, shared: Option<SharedSamples>) -> Self {
        Self { shared: shared.map(Box::new), ..self }
    }

    /// Delivers a sample of the opened event `opened` to all events that get it.
    #[inline(never)]
    pub(super) fn shared_sample(
        &mut self,
        (opened, ring): (usize, usize),
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        let Some(shared) = self.shared.take() else { return ControlFlow::Continue(()) };
        let flow = match shared.tracepoint(opened) {
            Some(tracepoint) => {
                tracepoint.events(record).try_for_each(|event| self.sample_of(event, ring, record, program))
            }
            None => self.sample_of(opened, ring, record, program),
        };
        self.shared = Some(shared);
        flow
    }
}
