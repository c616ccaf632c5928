//! The rules of a span: what the samples of its events do.

use perf_prof_format::{
    spec::{EventKind, KeyField, ProbeArgument, SpanArguments, SpanEvents, SpanSpec, SpanStack},
    tracefs::EventFormat,
};

use super::SpanError;
use crate::{derive::source, event::PartView};

/// A rule: what the samples of an event do.
#[derive(Clone, Debug)]
pub struct SpanRule {
    /// The event: a tracepoint, whose names may contain wildcards, or a probe.
    pub event: EventKind,
    /// The fields that the probe reads.
    pub arguments: Vec<ProbeArgument>,
    /// What its samples do.
    pub action: Action,
    /// The fields of the key.
    pub key: Vec<String>,
    /// Alternatives to the key. The rule applies to the span that began last among the open spans with any of the keys.
    pub other_keys: Vec<Vec<String>>,
    /// If set, the rule applies only to samples that pass this filter.
    pub when: Option<&'static str>,
    /// A condition on the open span with this key. If the condition is not met, the rule does not apply. If no span with this
    /// key is open, the condition is ignored.
    pub after: Option<BeginCondition>,
    /// Whether the span works without the event.
    pub presence: Presence,
    /// If set, the rule is for kernels whose event has a field, or for those whose event does not have it.
    pub only_if: Option<FieldCondition>,
}

/// A condition on the sample that began an open span and on the first number of its key.
pub type BeginCondition = fn(&PartView<'_>, i64) -> bool;

/// A condition on the event's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCondition {
    /// It has this field.
    Has(&'static str),
    /// It does not have this field.
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

/// What a sample does with the open span of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It opens a span. An open one with the same key is dropped, unless spans are nested.
    Begin,
    /// It opens a span, unless one with the same key is open.
    BeginUnlessOpen,
    /// It opens a span, also if others with the same key are open.
    BeginAnother,
    /// It ends the span. If several are open, this is the one that was opened last.
    End,
    /// It ends the span that was opened first.
    EndFirst,
    /// It is kept with the span.
    Note(Keep),
    /// It drops the span.
    Discard,
    /// It drops the span if it is a wakeup which shows that the task of the key has run since it was woken before. It needs
    /// `Change::Wakes` before it.
    DiscardWokenAgain,
    /// It is kept until the sample that opens a span recalls it. The key is a key of such samples, not of spans.
    Ahead(Keep),
    /// It recalls the sample that is kept ahead with this key. If it opens a span, the span keeps that sample.
    Recall,
    /// It drops the sample that is kept ahead with this key.
    Forget,
    /// The task whose name is in this field, and whose thread id is the key, runs on the CPU from now on. A span that ends
    /// can then list the tasks that ran meanwhile.
    Run(&'static str),
    /// The scheduler did something. The key is the task, with `prev_state` if it leaves a CPU. This finds events that were
    /// not delivered.
    Schedule(Change),
}

/// What the scheduler does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The task leaves its CPU.
    Leaves,
    /// The task comes to a CPU.
    Comes,
    /// The same, and the wakeups of tasks are inputs too.
    ComesAfterWakeup,
    /// The task is woken.
    Wakes,
}

/// Which samples of a rule are kept with an open span. All of them are counted.
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
    /// It does not.
    #[default]
    Needed,
    /// It does: some kernels and some recordings do not have the event.
    Optional,
    /// It does, and live runs do not open the event, because another event of the span has the same information.
    OnlyRecorded,
}

impl Action {
    /// Returns whether a sample may open a span.
    pub fn begins(self) -> bool {
        matches!(self, Action::Begin | Action::BeginUnlessOpen | Action::BeginAnother)
    }

    /// Returns whether a sample may end a span.
    pub fn ends(self) -> bool {
        matches!(self, Action::End | Action::EndFirst)
    }

    /// Returns whether the samples of the event have call chains, if the span has this setting.
    pub fn has_chain(self, stack: SpanStack) -> bool {
        match stack {
            SpanStack::Inherit => false,
            SpanStack::Begin => self.begins(),
            SpanStack::End => self.ends(),
            SpanStack::Both => !matches!(
                self,
                Action::Discard | Action::DiscardWokenAgain | Action::Recall | Action::Forget | Action::Schedule(_)
            ),
        }
    }
}

impl SpanRule {
    /// Returns the rules of a span. The samples of an event apply them in this order.
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

    /// Adds what the user wants the probe to read.
    fn with_arguments(mut self, arguments: &SpanArguments) -> SpanRule {
        let SpanArguments { begin, end } = arguments;
        let wanted = if self.action.begins() { begin } else { end };
        self.arguments.extend_from_slice(wanted);
        self
    }
}
