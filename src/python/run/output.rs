//! The output of a run: redirects it to the file of `--output`, and prints the template for `help`.

use std::io::{self, Write};

use anyhow::{Context as _, Result};
use perf_prof_events::{event::EventType, template};
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::output;

use super::plan::ScriptPlan;

/// Redirects stdout and stderr to the file of `--output`, if this option is given.
pub(super) fn redirect(plan: &ScriptPlan) -> Result<()> {
    let Some(path) = &plan.run.output else { return Ok(()) };
    output::append_to(path).with_context(|| format!("cannot append to '{}'", path.display()))
}

/// Reports output that could not be written, for example because the disk is full. Returns the exit status of the run,
/// which is then not 0.
pub(super) fn check(plan: &ScriptPlan, status: ExitStatus) -> ExitStatus {
    let Some(error) = output::write_error() else { return status };
    let name = plan.run.output.as_ref().map_or("the output".to_owned(), |path| format!("'{}'", path.display()));
    output::say(format_args!("cannot write {name}: {error}"));
    ExitStatus(status.0.max(1))
}

/// Prints the template of a script for the event types `types`.
pub(super) fn print_template(plan: &ScriptPlan, types: &[EventType]) -> Result<ExitStatus> {
    let text = template::script(types, &plan.command_line);
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write the template")?;
    Ok(ExitStatus(0))
}
