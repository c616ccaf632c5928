//! Events that are derived from other events. A derivation receives samples from the run loop, and delivers samples of its
//! own to the sink. It keeps state between samples: for example, it makes one span of two events.
//!
//! [`Derived`] is a derived event that the user selected. A run opens or reads the inputs of derived events besides the
//! events that the user selected. [`DerivingSink`] passes the samples of the inputs to each [`Derivation`].

mod compat_calls;
mod outlet;
mod pair;
mod sink;
pub mod source;
mod span;
mod started;

use std::sync::Arc;

pub use self::{
    pair::{PairChain, PairLayout, PairSplitter, ProgramFrames},
    sink::{DerivingSink, Losses},
    span::{Action, Change, Filters, Keep, KeyPart, KeyPlan, Presence, Span, SpanError, SpanRule, Step},
    started::Derivations,
};
use crate::event::{Context, EventType, Flow, SpanCounts, Stats};

/// A derived event during a run, with its state.
pub trait Derivation: Send {
    /// Processes a sample. `input` is the index of its event among the inputs. To deliver a derived sample, the derivation
    /// calls `emit` with a whole record in the layout of the derived event.
    fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow;

    /// Processes a sample of the first input and a sample of the second input. A BPF program has found that they begin and
    /// end the same span. The BPF program has already counted the spans that it dropped.
    fn pair(&mut self, _begin: &[u8], _end: &[u8], _emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        Flow::Continue(())
    }

    /// Reports that a ring starts to lose samples. Until [`Derivation::lost`] reports the end of this loss, the derivation
    /// must not combine a sample with an earlier one.
    fn loss_begins(&mut self) {}

    /// Reports that samples were lost between the times `start` and `end`, in ns. Both are 0 if the times are unknown. The
    /// derivation must discard all state that may be wrong because of the loss.
    fn lost(&mut self, start: u64, end: u64);

    /// Reports that the thread `tid` exited at `time`, in ns. May be called again for an exit before the current part of a
    /// recording.
    fn task_exited(&mut self, _tid: i32, _time: u64) {}

    /// Reports that the thread `tid` was created at `time`, in ns. May be called again, as [`Derivation::task_exited`].
    fn task_created(&mut self, _tid: i32, _time: u64) {}

    /// Makes the derivation keep a record of each span that it drops because of a loss, for [`Derivation::take_missing`].
    fn keep_missing(&mut self) {}

    /// Passes the kept records to `take`. The duration in such a record is the longest that the span can have had.
    fn take_missing(&mut self, _take: &mut dyn FnMut(&[u8])) {}

    /// Makes the derivation deliver nothing until [`Derivation::continue_in`] is called. The derivation still follows its
    /// inputs.
    fn mute(&mut self);

    /// Continues the derivation in another process, or in another part of a recording. The derivation then counts in
    /// `counts` and takes names from `context`. Open spans stay open. The caller calls [`Derivation::loss_begins`] again for
    /// each ring that is losing samples at this moment.
    fn continue_in(&mut self, counts: Arc<SpanCounts>, context: &Arc<Context>);

    /// Reports that all events until `time`, in ns, were delivered. The run goes on.
    fn delivered_until(&mut self, _time: u64) {}

    /// Reports that no event can follow after `time`, in ns. Spans that have not ended last until `time`. The last input
    /// sample may be older, for example if the inputs are events of a task that hangs.
    fn events_ended(&mut self, _time: u64) {}

    /// Ends the derivation, which emits its last samples. Called once, after the last input sample.
    fn finish(&mut self, _emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        Flow::Continue(())
    }

    /// Returns, after [`Derivation::finish`], how many spans had not ended and would have been delivered with the option
    /// `open`. Returns `None` if the option was given, and for spans that seldom outlast a run.
    fn not_ended(&self) -> Option<u64> {
        None
    }
}

/// A derived event that the user selected.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The span. All clones share it.
    pub span: Arc<Span>,
    /// The indexes of its inputs among the events that the run opens or reads.
    pub inputs: Vec<usize>,
}

impl Derived {
    /// Returns the event type of the derived event. `captured` are the types of the events that the run opens or reads.
    pub fn event_type(&self, captured: &[EventType]) -> Result<EventType, SpanError> {
        let inputs: Vec<EventType> = self.inputs.iter().filter_map(|&input| captured.get(input).cloned()).collect();
        self.span.event_type(&inputs)
    }

    /// Starts the derivation. `event` is the index of the derived event in `types`, the result of [`with_derived`].
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

/// Returns the event types whose samples a program receives: all but the inputs of derived events. `types` is the result of
/// [`with_derived`].
pub fn delivered(types: &[EventType], derived: &[Derived]) -> Vec<EventType> {
    let are_delivered = are_delivered(types.len(), derived);
    types.iter().zip(are_delivered).filter(|(_, is_delivered)| *is_delivered).map(|(event, _)| event.clone()).collect()
}

/// Returns, for each of the first `events` event types, whether a program receives its samples. It does not receive samples
/// of the inputs of derived events.
pub fn are_delivered(events: usize, derived: &[Derived]) -> Vec<bool> {
    (0..events).map(|event| !derived.iter().any(|derived| derived.inputs.contains(&event))).collect()
}

/// Appends the event types of derived events to `types`, the types of the events that the run opens or reads.
pub fn with_derived(mut types: Vec<EventType>, derived: &[Derived]) -> Result<Vec<EventType>, SpanError> {
    let captured = types.len();
    for derived in derived {
        types.push(derived.event_type(&types[..captured])?);
    }
    Ok(types)
}
