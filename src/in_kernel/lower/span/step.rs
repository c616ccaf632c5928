//! What an event does with the open span of a key, in the form that a program executes.

use perf_prof_events::{
    derive::{Action, Change, KeyPart, KeyPlan, Step},
    event::reader::Read,
};
use perf_prof_format::tracefs::Field;

use super::super::{Unsuited, filter, read::Reader};
use crate::expression::{Number, Test};

const MOST_KEY_PARTS: usize = 4;

/// What an event does with the open span of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredStep {
    /// What it does.
    pub action: StepAction,
    /// The key, and alternative keys.
    pub keys: Vec<Vec<Number>>,
    /// If set, the step applies only to events that pass this test.
    pub when: Option<Test>,
}

/// What a step does with the open span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StepAction {
    Begin,
    BeginUnlessOpen,
    End,
    /// Drops the open span.
    Discard,
    /// Drops the open span if this is a second wakeup and the task has run since the first.
    DiscardWokenAgain,
    /// The task leaves its CPU. The number is its state.
    Leaves(Number),
    /// The task starts to run on a CPU.
    Comes,
    /// The task is woken.
    Wakes,
}

impl StepAction {
    /// Returns whether the step is a change of a task's state.
    pub fn is_of_scheduler(self) -> bool {
        matches!(self, StepAction::Leaves(_) | StepAction::Comes | StepAction::Wakes)
    }
}

/// Returns a step in the form that a program executes.
pub(super) fn lowered(reader: Reader<'_>, step: &Step) -> Result<LoweredStep, Unsuited> {
    if step.after.is_some() {
        return Err(Unsuited::Spans("programs do not pair this source: what its events do depends on open spans"));
    }
    let key = |plan: &KeyPlan| plan.parts().iter().map(|part| key_part(reader, part)).collect::<Result<Vec<_>, _>>();
    let mut keys: Vec<Vec<Number>> =
        [&step.key].into_iter().chain(&step.other_keys).map(key).collect::<Result<_, _>>()?;
    if keys.iter().any(|key| key.len() > MOST_KEY_PARTS) {
        return Err(Unsuited::Spans("its key has too many parts"));
    }
    let action = match step.action {
        Action::Begin => StepAction::Begin,
        Action::BeginUnlessOpen => StepAction::BeginUnlessOpen,
        Action::End => StepAction::End,
        Action::Discard => StepAction::Discard,
        Action::DiscardWokenAgain => StepAction::DiscardWokenAgain,
        // The state is the last part of the key.
        Action::Schedule(Change::Leaves) => match keys[0].pop() {
            Some(state) if !keys[0].is_empty() => StepAction::Leaves(state),
            _ => return Err(Unsuited::Spans("the state of a task is not known")),
        },
        Action::Schedule(Change::Comes | Change::ComesAfterWakeup) => StepAction::Comes,
        Action::Schedule(Change::Wakes) => StepAction::Wakes,
        _ => return Err(Unsuited::Spans("programs do not pair this source: what its events do depends on open spans")),
    };
    let when = step.when.as_ref().map(|filter| filter::test(filter.node(), &mut { reader })).transpose()?;
    Ok(LoweredStep { action, keys, when })
}

fn key_part(reader: Reader<'_>, part: &KeyPart) -> Result<Number, Unsuited> {
    match part {
        KeyPart::Tid => reader.number(&Read::Tid, "_tid"),
        KeyPart::Pid => reader.number(&Read::Pid, "_pid"),
        KeyPart::Cpu => Ok(Number::Cpu),
        KeyPart::Number(number) => Ok(Number::Constant(*number)),
        KeyPart::Field(field) if field.kind.element().is_none() => of_field(reader, field),
        KeyPart::Field(_) => Err(Unsuited::Spans("its key has text")),
        KeyPart::Sum(..) => Err(Unsuited::Spans("its key has a sum")),
    }
}

pub(super) fn of_field(reader: Reader<'_>, field: &Field) -> Result<Number, Unsuited> {
    reader.number(&Read::Field(field.clone()), &field.name)
}
