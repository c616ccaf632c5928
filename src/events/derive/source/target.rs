//! The tasks and CPUs whose events a source needs.

use perf_prof_format::spec::{EventKind, EventSpec};
use thiserror::Error;

use super::{Scope, source_of};

/// Why a source does not allow a selection of tasks or CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceTargetError {
    /// The user selected tasks, a source that needs the events of all tasks, and an event that is not a source. This event
    /// would be delivered for all tasks too.
    #[error(
        "{source_name} needs the events of all tasks, so tasks cannot be selected for {other} in the same run; leave the \
         selection of tasks out, or use separate runs"
    )]
    Mixed {
        /// The source.
        source_name: String,
        /// The other event.
        other: String,
    },
    /// The source needs the events of all CPUs, but the user selected some CPUs.
    #[error(
        "{source_name} needs the events of all CPUs, because it may begin on one CPU and end on another; leave -C and \
         cpus= out; for fewer spans, use -p, -t, --cgroups or a filter"
    )]
    Parts {
        /// The source.
        source_name: String,
    },
}

/// Which CPUs are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All CPUs.
    All,
    /// Only some CPUs.
    Parts,
}

impl Coverage {
    /// Returns the coverage of the CPUs that the user selected.
    pub fn of<T>(cpus: &Option<T>) -> Coverage {
        if cpus.is_some() { Coverage::Parts } else { Coverage::All }
    }
}

/// Fails if a source needs the events of all CPUs, but the user selected some CPUs.
pub fn check_coverage(events: &[EventSpec], coverage: Coverage) -> Result<(), SourceTargetError> {
    for event in events {
        let EventKind::Span(span) = &event.kind else { continue };
        let Ok(Some(source)) = source_of(span) else { continue };
        let is_in_parts = coverage == Coverage::Parts || event.attrs.cpus.is_some();
        if is_in_parts && !source.stays_on_its_cpu() {
            return Err(SourceTargetError::Parts { source_name: source.name.to_owned() });
        }
    }
    Ok(())
}

/// Returns [`Scope::Task`] if the events of the selected tasks suffice, and [`Scope::Machine`] if the events of all tasks
/// are needed. Fails if a source needs all tasks and another event is not a source: this event would be delivered for all
/// tasks too.
pub fn scope(events: &[EventSpec]) -> Result<Scope, SourceTargetError> {
    let is_source = |event: &EventSpec| match &event.kind {
        EventKind::Span(span) => source_of(span).ok().flatten(),
        _ => None,
    };
    let of_machine = |event: &&EventSpec| is_source(event).is_some_and(|source| source.scope == Scope::Machine);
    let Some(of_machine) = events.iter().find(of_machine) else { return Ok(Scope::Task) };
    match events.iter().find(|event| is_source(event).is_none()) {
        Some(other) => {
            Err(SourceTargetError::Mixed { source_name: of_machine.selector.clone(), other: other.selector.clone() })
        }
        None => Ok(Scope::Machine),
    }
}
