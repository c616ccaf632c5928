//! Runs a script on live events or on a recording, from the plan to the exit status. Does not know argv.
//!
//! `script_run` contains the steps that all runs have in common; `live` and `replay` open the source of the
//! script's events.

mod jobs;
mod live;
mod missing_events;
mod output;
pub mod plan;
mod replay;
mod script;
mod script_run;

use anyhow::Result;
use perf_prof_core::engine::ExitStatus;

use plan::ScriptPlan;

/// Runs a script or prints a template, depending on the plan. Returns the exit status.
pub fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    let status = match &plan.input {
        Some(input) => replay::run(plan, input),
        None => live::run(plan),
    }?;
    Ok(output::check(plan, status))
}
