//! The rules of a span: what the samples of its events do to spans.

use perf_prof_format::{
    spec::{EventKind, KeyField, ProbeArgument, SpanArguments, SpanEvents, SpanSpec, SpanStack},
    tracefs::EventFormat,
};

use super::{SpanError, flushes::FlushChange};
use crate::{
    derive::source,
    event::{PartView, SpanView},
};

/// What the samples of an event do to spans.
#[derive(Clone, Debug)]
pub struct SpanRule {
    /// The event: a probe, or a tracepoint whose name may contain wildcards.
    pub event: EventKind,
    /// The fields that the probe reads.
    pub arguments: Vec<ProbeArgument>,
    /// What the samples do.
    pub action: Action,
    /// The fields of the key.
    pub key: Vec<String>,
    /// Alternative keys. Of the open spans with `key` or one of these keys, the span that began last is meant.
    pub other_keys: Vec<Vec<String>>,
    /// If set, the rule applies only to samples that pass this filter.
    pub when: Option<&'static str>,
    /// If set, the open span with the key must meet this condition. The rule also applies if no span with the key is open.
    pub after: Option<OpenCondition>,
    /// If set, several spans with the same key may be open at once, and this function says which of them a sample can
    /// belong to.
    pub belongs: Option<Belongs>,
    /// Whether the span works without the event.
    pub presence: Presence,
    /// If set, the rule applies only on kernels whose event has, or lacks, this field.
    pub only_if: Option<FieldCondition>,
}

/// A condition on an open span and its samples so far.
pub type OpenCondition = fn(&SpanView<'_>) -> bool;

/// A function that returns `None` if a sample cannot belong to an open span with its key. Otherwise, it returns by how much
/// the span must have changed since its begin if the sample belongs to it.
pub type Belongs = fn(&SpanView<'_>, &PartView<'_>) -> Option<u64>;

/// A condition on the fields of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCondition {
    /// The event has this field.
    Has(&'static str),
    /// The event lacks this field.
    Lacks(&'static str),
}

impl FieldCondition {
    /// Returns whether the condition is met.
    pub fn is_met(self, format: &EventFormat) -> bool {
        match self {
            FieldCondition::Has(name) => format.field(name).is_some(),
            FieldCondition::Lacks(name) => format.field(name).is_none(),
        }
    }
}

/// What a sample does to the open span with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The sample opens a span. It drops the open span with this key, unless spans are nested.
    Begin,
    /// The sample opens a span, unless a span with this key is open.
    BeginUnlessOpen,
    /// The sample opens a span, even if spans with this key are open.
    BeginAnother,
    /// The sample ends the span. If several are open, it ends the span that was opened last.
    End,
    /// The sample ends the span that was opened first.
    EndFirst,
    /// The sample is kept with the span.
    Note(Keep),
    /// The sample drops the span.
    Discard,
    /// The sample is a wakeup. It drops the span if the task in the key must have run since its last wakeup. A rule with
    /// `Change::Wakes` for the same event must come before this rule.
    DiscardWokenAgain,
    /// The sample is kept until a later sample recalls it. Its key is not the key of a span: samples that are kept ahead
    /// have keys of their own.
    Ahead(Keep),
    /// The sample recalls the sample that was kept ahead with this key. If the sample also opens a span, the span gets the
    /// recalled sample.
    Recall,
    /// The sample drops the sample that was kept ahead with this key.
    Forget,
    /// From now on, the CPU runs another task: its name is in this field, and its thread id is the key. A span can then
    /// list the tasks that ran during the span.
    Run(&'static str),
    /// The state of the task in the key changes. If the task leaves a CPU, `prev_state` is the second part of the key. The
    /// engine compares successive changes to find missing events.
    Schedule(Change),
    /// A flush of the device in the key changes, or a task's wait for a flush ends. The engine opens and ends the spans of
    /// flushes, and ends the spans of waits.
    Flush(FlushChange),
}

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The task leaves its CPU.
    Leaves,
    /// The task starts to run on a CPU.
    Comes,
    /// The task starts to run on a CPU. The source's events include wakeups.
    ComesAfterWakeup,
    /// The task is woken.
    Wakes,
}

/// Which samples of a rule an open span keeps. All samples are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The first sample.
    First,
    /// The last sample.
    Last,
    /// The first 16 samples.
    Some,
}

/// Whether a span works without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The span does not work without the event.
    #[default]
    Needed,
    /// The span works without the event, which some kernels and some recordings lack.
    Optional,
    /// The span works without the event. Live runs do not open it, because another event of the span contains the same
    /// information.
    OnlyRecorded,
}

impl Action {
    /// Returns whether a sample can open a span.
    pub fn begins(self) -> bool {
        matches!(
            self,
            Action::Begin | Action::BeginUnlessOpen | Action::BeginAnother | Action::Flush(FlushChange::Issued)
        )
    }

    /// Returns whether a sample can end a span.
    pub fn ends(self) -> bool {
        matches!(self, Action::End | Action::EndFirst | Action::Flush(FlushChange::Ended | FlushChange::WaitEnded))
    }

    /// Returns whether samples of an event with this action contain call chains, if the user selected `stack`.
    pub fn has_chain(self, stack: SpanStack) -> bool {
        match stack {
            SpanStack::Inherit => false,
            SpanStack::Begin => self.begins(),
            SpanStack::End => self.ends(),
            SpanStack::Both => !matches!(
                self,
                Action::Discard
                    | Action::DiscardWokenAgain
                    | Action::Recall
                    | Action::Forget
                    | Action::Schedule(_)
                    | Action::Flush(FlushChange::Requeued)
            ),
        }
    }
}

impl SpanRule {
    /// Returns the rules of a span. A sample applies the rules of its event in this order.
    pub fn all(spec: &SpanSpec) -> Result<Vec<SpanRule>, SpanError> {
        let (begin, end) = match &spec.events {
            SpanEvents::Selected { begin, end } => (begin, end),
            SpanEvents::Source { function, .. } => {
                let definition = source::source_of(spec)?.ok_or_else(|| SpanError::Source(spec.name.clone()))?;
                let resolved = definition.rules.iter().map(|rule| rule.resolve(function.as_deref()));
                return Ok(resolved.map(|rule| rule.with_arguments(&spec.arguments)).collect());
            }
        };
        let rule = |event: &EventKind, action, key: fn(&KeyField) -> &String| SpanRule {
            event: event.clone(),
            arguments: Vec::new(),
            action,
            key: spec.key.iter().map(|field| key(field).clone()).collect(),
            other_keys: Vec::new(),
            when: None,
            after: None,
            belongs: None,
            presence: Presence::Needed,
            only_if: None,
        };
        let begins = begin.iter().map(|event| rule(event, Action::Begin, |key| &key.begin));
        let ends = end.iter().map(|event| rule(event, Action::End, |key| &key.end));
        Ok(begins.chain(ends).map(|rule| rule.with_arguments(&spec.arguments)).collect())
    }

    /// Adds the arguments that the user gave to the probe.
    fn with_arguments(mut self, arguments: &SpanArguments) -> SpanRule {
        let SpanArguments { begin, end } = arguments;
        let wanted = if self.action.begins() { begin } else { end };
        self.arguments.extend_from_slice(wanted);
        self
    }
}
