//! Runs a script on live events or on a recording, from the plan to the exit status. Does not know argv.
//!
//! `script_run` contains the steps that all runs have in common; `live` and `replay` open the source of the
//! script's events.

mod engine;
mod jobs;
mod live;
mod missing_events;
mod one_part;
mod output;
mod parts;
pub mod plan;
mod replay;
mod script;
mod script_run;
mod several;
mod shard;
mod spans;

use std::sync::Arc;

use anyhow::Result;
use perf_prof_core::{
    engine::{ExitStatus, run_loop::Ending},
    event::Sink,
    recording::columns::ColumnParts,
    sys::signals::Signals,
};

pub use parts::{DividedRecording, Merged};
use plan::{Engine, ScriptPlan};

use crate::script::Run;

/// Runs a script or prints a template, depending on the plan. Returns the exit status.
pub fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    let status = match (&plan.input, &plan.recordings) {
        (Some(input), Some(recordings)) if recordings.engine == Engine::OneAfterAnother => {
            several::run(plan, input, recordings)
        }
        (Some(_), Some(recordings)) => engine::run(plan, recordings),
        (Some(input), None) => replay::run(plan, input),
        (None, _) => live::run(plan),
    }?;
    Ok(output::check(plan, status))
}

/// How a run without a script ended.
pub struct RunEnd {
    /// Why it ended.
    pub ending: Ending,
    /// The exit status that the run would have as a command; that of the plan's command if it has one.
    pub status: u8,
}

/// Delivers the events of a plan to the receiver that `receive` creates, and loads no script. The receiver also gets what is
/// needed to decode columns of a recording in parts, if this is possible. The calling thread may lose rights to files, so it
/// should be a thread for this run alone.
pub fn deliver<S: Sink>(
    plan: &ScriptPlan,
    signals: &Signals,
    receive: impl FnOnce(Arc<Run>, Option<Box<ColumnParts>>) -> S,
) -> Result<RunEnd> {
    match &plan.input {
        Some(input) => replay::deliver(plan, input, signals, receive),
        None => live::deliver(plan, signals, |run| receive(run, None)),
    }
}
