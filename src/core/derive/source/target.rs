//! The tasks that the user selects, if the events of a source also happen in other tasks.

use thiserror::Error;

use super::{Scope, of};
use crate::{
    plan::{Target, TaskSelection},
    spec::{EventKind, EventSpec},
};

/// An event that cannot be selected beside a source whose events also happen in other tasks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{source_name} is made of events of all tasks, and {other} would be delivered for all tasks too; leave the selection \
     of tasks out, or use separate runs"
)]
pub struct MixedScopes {
    source_name: String,
    other: String,
}

/// Returns the scope of the events. Fails if some are those of the selected tasks, and others are not.
fn scope(events: &[EventSpec]) -> Result<Scope, MixedScopes> {
    let is_source = |event: &EventSpec| match &event.kind {
        EventKind::Span(span) => of(span).ok().flatten(),
        _ => None,
    };
    let of_machine = |event: &&EventSpec| is_source(event).is_some_and(|source| source.scope == Scope::Machine);
    let Some(of_machine) = events.iter().find(of_machine) else { return Ok(Scope::Task) };
    match events.iter().find(|event| is_source(event).is_none()) {
        Some(other) => Err(MixedScopes { source_name: of_machine.selector.clone(), other: other.selector.clone() }),
        None => Ok(Scope::Machine),
    }
}

/// Returns the target of a live run, and the tasks that are selected among all: if sources need the events of all tasks,
/// the target is the whole machine.
pub fn live_target(events: &[EventSpec], target: Target) -> Result<(Target, Option<Target>), MixedScopes> {
    match &target {
        Target::Processes(_) | Target::Threads(_) | Target::Workload(_) if scope(events)? == Scope::Machine => {
            Ok((Target::AllCpus, Some(target)))
        }
        _ => Ok((target, None)),
    }
}

/// Returns what `-p` and `-t` select in a recording.
pub fn recorded_tasks(events: &[EventSpec], are_given: bool) -> Result<TaskSelection, MixedScopes> {
    if are_given && scope(events)? == Scope::Machine {
        return Ok(TaskSelection::ForScript);
    }
    Ok(TaskSelection::OfSamples)
}
