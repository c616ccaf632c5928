//! Replays several recordings in other processes. This process or an executor starts the other processes. The Python
//! file `_engines.py` of the package does the work.

use anyhow::Result;
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::capability;

use super::{
    output,
    plan::{Engine, Module, Recordings, ScriptPlan},
    script,
};
use crate::script::{Interpreter, PythonChoice, RecordingsOfScript, ScriptError, replay_by_engine};

/// Runs the script on the parts of all recordings, and merges the results.
pub(super) fn run(plan: &ScriptPlan, recordings: &Recordings) -> Result<ExitStatus> {
    capability::give_up_right_to_read();
    output::redirect(plan)?;
    let Module::Script { module, args } = &plan.module else { return Ok(ExitStatus(1)) };
    let choice = PythonChoice::make(plan.python.as_deref())?;
    let interpreter = Interpreter::start(&choice)?;
    let (processes, executor) = match &recordings.engine {
        Engine::OneAfterAnother => (Some(1), None),
        Engine::Processes(count) => (Some(*count), None),
        Engine::Executor(function) => (None, Some(&**function)),
    };
    let status = replay_by_engine(&RecordingsOfScript {
        module,
        args,
        paths: &recordings.paths,
        options: &recordings.options,
        processes,
        executor,
        parts: plan.run.input().and_then(|input| input.jobs).map_or(1, |jobs| jobs.count),
        own_events: plan.run.own_events,
    });
    let flushed = script::end(interpreter);
    match status {
        Ok(status) | Err(ScriptError::Exited(status)) => Ok(ExitStatus(flushed.status(status))),
        Err(error) => Err(error.into()),
    }
}
