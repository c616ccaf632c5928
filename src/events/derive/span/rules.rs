//! The rules of a span: what the samples of its events do.

use perf_prof_format::{
    spec::{EventKind, KeyField, ProbeArgument, SpanArguments, SpanEvents, SpanSpec, SpanStack},
    tracefs::EventFormat,
};

use super::{SpanError, flushes::FlushChange};
use crate::{derive::source, event::SpanView};

/// A rule: what the samples of an event do.
#[derive(Clone, Debug)]
pub struct SpanRule {
    /// The event: a tracepoint, whose names may contain wildcards, or a probe.
    pub event: EventKind,
    /// The fields that the probe reads.
    pub arguments: Vec<ProbeArgument>,
    /// What the samples of the event do.
    pub action: Action,
    /// The fields of the key.
    pub key: Vec<String>,
    /// Alternatives to the key. The rule applies to the span that began last among the open spans with any of the keys.
    pub other_keys: Vec<Vec<String>>,
    /// If set, the rule applies only to samples that pass this filter.
    pub when: Option<&'static str>,
    /// If set, the rule applies only if the open span with this key meets the condition, or if there is no open span
    /// with this key.
    pub after: Option<OpenCondition>,
    /// Whether the span works without the event.
    pub presence: Presence,
    /// If set, the rule applies only on kernels whose event has, or lacks, this field.
    pub only_if: Option<FieldCondition>,
}

/// A condition on an open span, and on the samples that it has so far.
pub type OpenCondition = fn(&SpanView<'_>) -> bool;

/// A condition on the event's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCondition {
    /// The event has this field.
    Has(&'static str),
    /// The event does not have this field.
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

/// The effect that a sample has on the open span of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The sample opens a span. An open one with the same key is dropped, unless spans are nested.
    Begin,
    /// The sample opens a span, unless one with the same key is open.
    BeginUnlessOpen,
    /// The sample opens a span, also if others with the same key are open.
    BeginAnother,
    /// The sample ends the span. If several are open, it ends the span that was opened last.
    End,
    /// The sample ends the span that was opened first.
    EndFirst,
    /// The sample is kept with the span.
    Note(Keep),
    /// The sample drops the span.
    Discard,
    /// The sample is a wakeup. It drops the span if it shows that the task of the key has run since the wakeup before.
    /// A rule with `Change::Wakes` for the same event must come before this rule.
    DiscardWokenAgain,
    /// The sample is kept until another sample recalls it. The key is not that of a span: samples that are kept ahead
    /// have keys of their own.
    Ahead(Keep),
    /// The sample recalls the sample that is kept ahead with this key. If it also opens a span, the span keeps the recalled
    /// sample.
    Recall,
    /// The sample drops the sample that is kept ahead with this key.
    Forget,
    /// From now on, the CPU runs the task whose name is in this field, and whose thread id is the key. The engine notes
    /// this, so that a span can list the tasks that ran during its time.
    Run(&'static str),
    /// The scheduler changes the state of the task in the key. If the task leaves a CPU, `prev_state` is the second
    /// part of the key. The engine finds missing events by comparing successive changes.
    Schedule(Change),
    /// The flushes of the device in the key, or the tasks that wait for them, change. The engine opens and ends the spans of
    /// flushes, and ends those of the waits.
    Flush(FlushChange),
}

/// What the scheduler does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The task leaves its CPU.
    Leaves,
    /// The task comes to a CPU.
    Comes,
    /// The task comes to a CPU, and the wakeups of tasks are inputs too.
    ComesAfterWakeup,
    /// The task is woken.
    Wakes,
}

/// Which of a rule's samples an open span keeps. The number of all its samples is counted in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// The first 16.
    Some,
}

/// Whether a span works without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The span does not work without the event.
    #[default]
    Needed,
    /// The span works without the event, which some kernels and some recordings do not have.
    Optional,
    /// The span works without the event. Live runs do not open it, because another event of the span has the same information.
    OnlyRecorded,
}

impl Action {
    /// Returns whether a sample may open a span.
    pub fn begins(self) -> bool {
        matches!(
            self,
            Action::Begin | Action::BeginUnlessOpen | Action::BeginAnother | Action::Flush(FlushChange::Issued)
        )
    }

    /// Returns whether a sample may end a span.
    pub fn ends(self) -> bool {
        matches!(self, Action::End | Action::EndFirst | Action::Flush(FlushChange::Ended | FlushChange::WaitEnded))
    }

    /// Returns whether the samples of an event with this action have call chains, if the span has the setting `stack`.
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
            presence: Presence::Needed,
            only_if: None,
        };
        let begins = begin.iter().map(|event| rule(event, Action::Begin, |key| &key.begin));
        let ends = end.iter().map(|event| rule(event, Action::End, |key| &key.end));
        Ok(begins.chain(ends).map(|rule| rule.with_arguments(&spec.arguments)).collect())
    }

    /// Adds the arguments that the user gave for the probe.
    fn with_arguments(mut self, arguments: &SpanArguments) -> SpanRule {
        let SpanArguments { begin, end } = arguments;
        let wanted = if self.action.begins() { begin } else { end };
        self.arguments.extend_from_slice(wanted);
        self
    }
}
