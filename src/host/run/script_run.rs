//! The steps that all runs of a script have in common: starts the interpreter, opens the source of events, loads the
//! script, delivers the events, and ends the interpreter. Does not know rings or files: [`ScriptEventSource`] hides the
//! differences between live events and a recording.

use std::sync::Arc;

use anyhow::Result;
use perf_prof_core::{
    capture::Capture,
    engine::ExitStatus,
    sys::{blocked_signals::BlockedSignals, signals::Signals},
};

use super::{
    plan::ScriptPlan,
    script::{self, AvailableEvents, Script},
};
use crate::script::{Interpreter, Program, PythonChoice, Run, ScriptError, interrupt};

/// A source of events that is open, but has not delivered any event yet.
pub(super) trait ScriptEventSource {
    /// Returns the run that the script sees: its events, context and statistics. Called once.
    fn describe(&mut self) -> Run;

    /// Calls `load` with the available events of this source.
    fn with_available<R>(&self, load: impl FnOnce(&AvailableEvents<'_>) -> R) -> R;

    /// Delivers the events to the program, and then ends the program. The script has already started, so its `__exit__`
    /// is called even if an error happens.
    fn deliver(self, program: Program, run: &Arc<Run>, signals: &Signals) -> Result<Outcome>;

    /// Ends the run with the exit status `status`, because the script exited while it was loaded.
    fn abandon(self, status: u8) -> Outcome;
}

/// The result of a run.
pub(super) struct Outcome {
    pub status: u8,
    /// The capture, if there is one. Its events still have to be closed.
    pub capture: Option<Capture>,
}

impl From<u8> for Outcome {
    fn from(status: u8) -> Outcome {
        Outcome { status, capture: None }
    }
}

/// Runs the script in a new interpreter. `held` blocks signals until the run has its own handlers.
pub(super) fn run<O: ScriptEventSource>(
    plan: &ScriptPlan,
    script: Script<'_>,
    choice: &PythonChoice,
    held: BlockedSignals,
    open: impl FnOnce(&Signals) -> Result<O>,
) -> Result<ExitStatus> {
    let interpreter = Interpreter::start(choice)?;
    // The interpreter is ended even after an error: it has to flush the output and join the script's threads.
    let result = with_interpreter(plan, script, held, open);
    let flushed = script::end(interpreter);
    let Outcome { status, capture } = result?;
    // Closing events is slow, so it is done last, after all output was written.
    if let Some(capture) = capture {
        capture.close();
    }
    Ok(ExitStatus(flushed.status(status)))
}

fn with_interpreter<O: ScriptEventSource>(
    plan: &ScriptPlan,
    script: Script<'_>,
    held: BlockedSignals,
    open: impl FnOnce(&Signals) -> Result<O>,
) -> Result<Outcome> {
    // When the interpreter starts, it installs its own handler for SIGINT. The handlers here have to replace it, so
    // they are installed after the start of the interpreter.
    let signals = Signals::install()?;
    signals.on_second_interrupt(interrupt);
    drop(held);
    let mut opened = open(&signals)?;
    let run = Arc::new(opened.describe());
    let loaded = opened.with_available(|available| script::load(plan, run.clone(), script, available));
    match loaded {
        Ok(program) => opened.deliver(program, &run, &signals),
        Err(ScriptError::Exited(status)) => Ok(opened.abandon(status)),
        Err(error) => Err(error.into()),
    }
}
