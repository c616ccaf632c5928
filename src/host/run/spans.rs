//! Spans in a recording that several processes replay: what crosses the border between two parts.
//!
//! The processes are forked one after another. Before each of them, the process that forks them reads the samples of the
//! part before it that spans are made of, without an interpreter. The forked process continues with the spans that are
//! open then. It has a copy of them, because it is a copy of the other process.

use std::ops::ControlFlow;

use anyhow::Result;
use perf_prof_core::{
    dividing::Part,
    perfdata::Recording,
    recording::{carried::Carried, select::Selected},
    spec::EventKind,
};

use super::{
    plan::ScriptPlan,
    replay::{self, ReplayWork},
};

/// Returns the number of processes that read the recording in advance.
pub(super) fn readers(plan: &ScriptPlan) -> usize {
    usize::from(plan.capture.events.iter().any(|event| matches!(event.kind, EventKind::Span(_))))
}

/// Reads a part in advance, if spans may go on after it. `check` is called from time to time and can end the reading.
pub(super) fn read(
    &ReplayWork { plan, input, .. }: &ReplayWork<'_>,
    (recording, selected): (&mut Recording, &Selected),
    part: &Part,
    carried: &mut Carried,
    check: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    if selected.derived.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    let mut selection = replay::selection(plan, input, recording, selected)?;
    part.select(&mut selection);
    Ok(carried.read(recording, selected, (selection, input.guests), check)?)
}
