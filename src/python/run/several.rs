//! Replays several recordings with one script, one after the other. The script is loaded once. Its functions are bound
//! to the events of each recording.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Error, Result};
use perf_prof_events::event::{Sink, Stats};
use perf_prof_session::{
    engine::{ExitStatus, losses, span_report},
    plan::{Input, Origin, RunPlan},
    spine::{ChosenRecording, Slice, Totals},
};
use perf_prof_system::{blocked_signals::BlockedSignals, capability, output as messages, signals::Signals};

use super::{
    output,
    plan::{Module, Recordings, ScriptPlan},
    script::{self, Script},
};
use crate::script::{Interpreter, Program, PythonChoice, ScriptError, interrupt, run_of_all, set_current_run};

/// Runs the script on all recordings. If a recording cannot be read, prints an error and goes on with the next one.
pub(super) fn run(plan: &ScriptPlan, recordings: &Recordings) -> Result<ExitStatus> {
    capability::give_up_right_to_read();
    output::redirect(plan)?;
    let (Module::Script { module, args }, Some(input)) = (&plan.module, plan.run.input()) else {
        return Ok(ExitStatus(1));
    };
    let held = BlockedSignals::new()?;
    let choice = PythonChoice::make(plan.python.as_deref())?;
    let interpreter = Interpreter::start(&choice)?;
    let signals = Signals::install();
    let result = signals.map_err(Error::from).and_then(|signals| {
        signals.on_second_interrupt(interrupt);
        drop(held);
        let script = Script { module, args };
        Replays { plan, input, script, signals: &signals, totals: Totals::default() }.run(&recordings.paths)
    });
    let flushed = script::end(interpreter);
    result.map(|ExitStatus(status)| ExitStatus(flushed.status(status)))
}

/// The replays of all recordings.
struct Replays<'a> {
    plan: &'a ScriptPlan,
    input: &'a Input,
    script: Script<'a>,
    signals: &'a Signals,
    totals: Totals,
}

impl Replays<'_> {
    /// Replays the recordings at `paths`. Returns the exit status.
    fn run(mut self, paths: &[PathBuf]) -> Result<ExitStatus> {
        let mut program = None;
        for path in paths {
            match self.replay(path, &mut program) {
                Ok(()) => {}
                // The script cannot be loaded, or the script has ended the run.
                Err(Failure::Script(ScriptError::Exited(status))) => return Ok(ExitStatus(status)),
                Err(Failure::Script(error)) => return Err(error.into()),
                Err(Failure::Recording(error)) => {
                    messages::say(format_args!("{error:#}"));
                    self.totals.unreadable += 1;
                }
            }
            if self.totals.ended.is_some() {
                break;
            }
        }
        let Some(mut program) = program else {
            // No recording could be replayed. The error of each recording has been printed.
            return Ok(ExitStatus(u8::from(self.totals.unreadable > 0)));
        };
        // From now on, `recording()` returns None, because the result comes from all recordings. With --jobs,
        // `recording()` returns None for the same reason.
        let Totals { delivered, lost, reached, .. } = self.totals;
        let stats = Stats::of_other_processes(delivered, lost);
        if self.totals.damaged || self.totals.unreadable > 0 {
            stats.note_damage();
        }
        set_current_run(Some(Arc::new(run_of_all(stats, reached))));
        let mut at_exit = None;
        program.enter(&mut |program| at_exit = program.exit().break_value());
        let callbacks = program.callbacks();
        program.clear();
        Ok(self.totals.report(&self.plan.run, at_exit, callbacks))
    }

    /// Replays one recording. If it is the first recording, loads the script into `program`.
    fn replay(&mut self, path: &Path, program: &mut Option<Program>) -> Result<(), Failure> {
        let input = Input { path: path.to_owned(), ..self.input.clone() };
        let limit = self.plan.run.limit.map(|limit| limit - self.totals.delivered.min(limit));
        let origin = Origin::Recorded(Box::new(input.clone()));
        let run = RunPlan { origin, limit, ..self.plan.run.clone() };
        let recording = ChosenRecording::select(&run, &input)?;
        recording.warn();
        let session = recording.open(Slice::OneOfSeveral, self.signals)?;
        let about = session.about().clone();
        let bound = match program.take() {
            Some(program) => program.continue_with(about.clone()),
            None => script::load(&ScriptPlan { run, ..self.plan.clone() }, about.clone(), self.script),
        };
        let bound = program.insert(bound.map_err(Failure::Script)?);
        let mut outcome = session.run(bound, self.signals);
        if let Some(replayed) = &outcome.replayed {
            losses::print_unnamed_frames(&replayed.unnamed_frames, self.plan.run.verbosity);
        }
        losses::print_lost(&about.stats, &about.ring_cpus);
        span_report::print_missing(&about.stats, &about.context);
        self.totals.add(&outcome, &about);
        outcome.check().map_err(Failure::Recording)
    }
}

/// Why a recording was not replayed to its end.
enum Failure {
    /// The recording cannot be read. The next recordings can still be replayed.
    Recording(Error),
    Script(ScriptError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Recording(error)
    }
}
