//! Runs a script on live events or on a recording, from the plan to the exit status.
//!
//! Each run of a script uses `script_run`. `jobs` divides a run between processes. `several` and `engine` replay
//! several recordings.

mod engine;
pub mod imports;
pub mod inputs;
mod jobs;
mod missing_events;
mod one_part;
mod output;
mod parts;
pub mod plan;
pub mod program;
mod script;
mod script_run;
mod several;
mod shard;

use std::sync::Arc;

use anyhow::Result;
use perf_prof_events::event::Sink;
use perf_prof_session::{
    engine::{ExitStatus, exit_status::Callbacks, kernel_tables::EventUse},
    plan::RunPlan,
    recording::columns::ColumnParts,
    spine::{About, Armed, Chosen, Slice},
};
use perf_prof_system::signals::Signals;

pub use parts::{DividedRecording, Merged};
use plan::{Engine, ScriptPlan};

/// Runs a script or prints a template, depending on the plan. Returns the exit status.
pub fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    let status = match &plan.recordings {
        Some(recordings) if recordings.engine == Engine::OneAfterAnother => several::run(plan, recordings),
        Some(recordings) => engine::run(plan, recordings),
        None => script_run::run(plan),
    }?;
    Ok(output::check(plan, status))
}

/// Delivers the events of a plan to the receiver that `receive` creates, without a script. `receive` gets the run, and
/// the recording if its columns can be decoded in parts. `receive` also returns the use of each event type; an empty
/// list means that the receiver needs all samples. The calling thread may lose rights to files, so use it only for this
/// run. Returns the exit status of the plan's command. Without a command, returns the status that `perf-prof` would
/// return for this run.
pub fn deliver<S: Sink>(
    plan: &RunPlan,
    signals: &Signals,
    receive: impl FnOnce(&Arc<About>, Option<Box<ColumnParts>>) -> (S, Vec<EventUse>),
) -> Result<ExitStatus> {
    let chosen = Chosen::select(plan)?;
    chosen.warn();
    let mut armed = chosen.arm()?;
    let parts = match &mut armed {
        Armed::Recorded(recording) => recording.column_parts()?,
        Armed::Live(..) => None,
    };
    let slice = slice(plan, &mut armed)?;
    let session = armed.open(slice, signals)?;
    let (mut receiver, uses) = receive(session.about(), parts);
    let mut outcome = session.with_uses(uses).run(&mut receiver, signals);
    std::mem::take(&mut outcome.closing).close();
    outcome.check()?;
    Ok(outcome.status(Callbacks::Returned))
}

/// Returns the part of the recording that the plan selects. A recording may have fewer parts than were requested; the
/// part of a higher number has no events.
fn slice(plan: &RunPlan, armed: &mut Armed) -> Result<Slice> {
    let part = plan.input().and_then(|input| Some((input.jobs?, input.part?)));
    let (Armed::Recorded(recording), Some((jobs, number))) = (armed, part) else { return Ok(Slice::Whole) };
    let mut parts = recording.divide(&jobs)?;
    if number >= parts.len() {
        return Ok(Slice::Merge);
    }
    Ok(Slice::Part(parts.swap_remove(number), Box::default()))
}
