//! Events that are computed from other events. A derivation takes samples from the run loop and delivers samples to the sink.
//! It keeps state from one sample to the next: for example, it makes a span event from a start event and an end event.
//!
//! [`Derived`] is a derived event that the user selected. Live runs and replays add its inputs to their own events, and
//! [`DerivingSink`] passes the samples of the inputs to its [`Derivation`].

mod pair;
mod sink;
pub mod source;
mod span;

use std::sync::Arc;

pub use self::{
    pair::{PairLayout, PairSplitter},
    sink::{Derivations, DerivingSink, Losses},
    span::{Action, Change, Filters, Keep, KeyPart, KeyPlan, Presence, Span, SpanError, SpanRule, Step},
};
use crate::event::{Context, EventType, Flow, SpanCounts, Stats};

/// The state of a derived event during a run.
pub trait Derivation: Send {
    /// Processes a sample of the input with the index `input`. To deliver a derived sample, it calls `emit` with a
    /// whole record in the layout of the derived event.
    fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow;

    /// Processes a pair of samples, one of the first input and one of the second input. A BPF program has found that they
    /// belong together. The program has already counted the spans that it dropped or lost.
    fn pair(&mut self, _begin: &[u8], _end: &[u8], _emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        Flow::Continue(())
    }

    /// Reports that a ring begins to lose samples. Until [`Derivation::lost`] is called for this loss, the derivation must not
    /// combine a sample with an earlier one.
    fn loss_begins(&mut self) {}

    /// Reports that input samples were lost between the times `start` and `end` (in ns; both are 0 if the times are not
    /// known). The derivation must discard all state that depends on a lost sample.
    fn lost(&mut self, start: u64, end: u64);

    /// Makes the derivation keep a record for each span that is missing, for [`Derivation::take_missing`].
    fn keep_missing(&mut self) {}

    /// Passes a record to `take` for each span that is missing because of losses. The duration in the record is the
    /// maximum that the span may have had.
    fn take_missing(&mut self, _take: &mut dyn FnMut(&[u8])) {}

    /// Makes the derivation keep its state but deliver nothing, until [`Derivation::continue_in`] is called.
    fn mute(&mut self);

    /// Continues in another process, or in another part of a recording. From now on, the derivation counts in `counts` and
    /// takes names from `context`. Open spans stay open. For each ring that is losing samples at this time, the caller calls
    /// [`Derivation::loss_begins`] again.
    fn continue_in(&mut self, counts: Arc<SpanCounts>, context: &Arc<Context>);

    /// Ends the derivation: emits its last samples. Called once, after the last input sample.
    fn finish(&mut self, _emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        Flow::Continue(())
    }
}

/// A derived event that the user selected.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The span. All copies share it.
    pub span: Arc<Span>,
    /// The indices of its inputs among the events of the run.
    pub inputs: Vec<usize>,
}

impl Derived {
    /// Returns the event type of the derived event. `captured` are the event types of the run's own events.
    pub fn event_type(&self, captured: &[EventType]) -> Result<EventType, SpanError> {
        let inputs: Vec<EventType> = self.inputs.iter().filter_map(|&input| captured.get(input).cloned()).collect();
        self.span.event_type(&inputs)
    }

    /// Starts the derivation. `event` is the index of the derived event in `types`, as [`with_derived`] returned them.
    fn start(
        &self,
        event: usize,
        types: &[EventType],
        stats: &Stats,
        context: &Arc<Context>,
    ) -> Option<Box<dyn Derivation>> {
        self.span.start(types.get(event)?, stats.span(event)?.clone(), context.clone())
    }
}

/// Returns the event types whose samples a program receives: those that are not inputs of derived events. `types` is the result
/// of [`with_derived`].
pub fn delivered(types: &[EventType], derived: &[Derived]) -> Vec<EventType> {
    let are_delivered = are_delivered(types.len(), derived);
    types.iter().zip(are_delivered).filter(|(_, is_delivered)| *is_delivered).map(|(event, _)| event.clone()).collect()
}

/// Returns for each of the first `events` event types whether a program receives its samples. A program does not
/// receive the samples of an input of derived events.
pub fn are_delivered(events: usize, derived: &[Derived]) -> Vec<bool> {
    (0..events).map(|event| !derived.iter().any(|derived| derived.inputs.contains(&event))).collect()
}

/// Appends the event types of derived events to those of the run's own events.
pub fn with_derived(mut types: Vec<EventType>, derived: &[Derived]) -> Result<Vec<EventType>, SpanError> {
    let captured = types.len();
    for derived in derived {
        types.push(derived.event_type(&types[..captured])?);
    }
    Ok(types)
}
