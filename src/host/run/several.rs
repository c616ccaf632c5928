//! Replays several recordings one after the other, with one script: the script is loaded once, and its functions are bound
//! to the events of each recording.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Error, Result};
use perf_prof_core::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        losses,
        run_loop::Ending,
    },
    event::{Sink, Stop},
    plan::Input,
    record::Ended,
    recording::empty_result::{SampleCounts, SelectionSource},
    sys::{blocked_signals::BlockedSignals, capability, output as messages, signals::Signals},
};

use super::{
    output,
    plan::{Module, Recordings, ScriptPlan},
    replay::{self, Part, RecordedEvents, ReplayWork},
    script::{self, Script},
    script_run::ScriptEventSource as _,
};
use crate::script::{Interpreter, Program, PythonChoice, ScriptError, interrupt, run_of_all, set_current_run};

/// Runs the script on all recordings. A recording that cannot be read is named on stderr, and the others are replayed.
pub(super) fn run(plan: &ScriptPlan, input: &Input, recordings: &Recordings) -> Result<ExitStatus> {
    capability::give_up_right_to_read();
    output::redirect(plan)?;
    let Module::Script { module, args } = &plan.module else { return Ok(ExitStatus(1)) };
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
    result.map(|status| ExitStatus(flushed.status(status)))
}

/// The replays of all recordings.
struct Replays<'a> {
    plan: &'a ScriptPlan,
    input: &'a Input,
    script: Script<'a>,
    signals: &'a Signals,
    totals: Totals,
}

/// What was found in all recordings so far.
#[derive(Default)]
struct Totals {
    /// The number of recordings that could not be read to their ends.
    unreadable: usize,
    /// How many samples were delivered or left out.
    counts: SampleCounts,
    /// The number of delivered samples, for `-N`.
    delivered: u64,
    /// The number of lost samples.
    lost: u64,
    /// The latest time that was reached, in ns since the epoch.
    reached: u64,
    /// How a callback or a signal ended the run before the last recording.
    ended: Option<Ending>,
}

impl Replays<'_> {
    /// Returns the exit status.
    fn run(mut self, paths: &[PathBuf]) -> Result<u8> {
        let mut program = None;
        let mut last_error = None;
        for path in paths {
            match self.replay(path, &mut program) {
                Ok(()) => {}
                // The script itself cannot run, or has ended the run.
                Err(Failure::Script(ScriptError::Exited(status))) => return Ok(status),
                Err(Failure::Script(error)) => return Err(error.into()),
                Err(Failure::Recording(error)) => {
                    messages::say(format_args!("{error:#}"));
                    self.totals.unreadable += 1;
                    last_error = Some(error);
                }
            }
            if self.totals.ended.is_some() {
                break;
            }
        }
        let Some(mut program) = program else {
            // Each error was printed.
            return Ok(u8::from(last_error.is_some()));
        };
        // Afterwards, no recording is the current one, as with --jobs.
        let Totals { delivered, lost, reached, .. } = self.totals;
        set_current_run(Some(Arc::new(run_of_all(delivered, lost, reached))));
        let mut at_exit = None;
        program.enter(&mut |program| at_exit = program.exit().break_value());
        let callbacks = program.callbacks();
        program.clear();
        self.status(at_exit, callbacks)
    }

    fn status(self, at_exit: Option<Stop>, callbacks: Callbacks) -> Result<u8> {
        let Totals { unreadable, counts, ended, .. } = self.totals;
        counts.report(self.input, &self.plan.capture.events, SelectionSource::UserAndScript(self.plan.verbosity));
        let ending = ended.unwrap_or(Ending::Source(Ended::EndOfInput));
        let status = exit_status(ending, at_exit, callbacks, Some(counts.status()));
        Ok(if status == 0 && unreadable > 0 { 1 } else { status })
    }

    /// Replays one recording. `program` is the script, after the first recording was opened.
    fn replay(&mut self, path: &Path, program: &mut Option<Program>) -> Result<(), Failure> {
        let input = Input { path: path.to_owned(), ..self.input.clone() };
        let left = self.plan.exit_n.map(|limit| limit - self.totals.delivered.min(limit));
        let plan = ScriptPlan { input: Some(input.clone()), exit_n: left, ..self.plan.clone() };
        let (recording, selected) = replay::open_selected(&plan, &input)?;
        replay::say_what_is_missing(&plan, &recording, &selected, plan.verbosity)?;
        let work = ReplayWork { plan: &plan, input: &input, script: self.script };
        let mut events = RecordedEvents::open(&work, recording, selected, Part::OneOfSeveral, self.signals)?;
        let run = Arc::new(events.describe_run());
        let bound = match program.take() {
            Some(program) => program.continue_with(run.clone()),
            None => events.with_available(|available| script::load(&plan, run.clone(), self.script, available)),
        };
        let bound = program.insert(bound.map_err(Failure::Script)?);
        let mut outcome = events.deliver_to(bound, &Part::OneOfSeveral, &run, self.signals);
        let nameless = run.context.with_symbols(|symbols| symbols.unnamed_frames().clone());
        losses::print_unnamed_frames(&nameless, plan.verbosity);
        losses::print_lost(&run.stats);
        self.totals.counts.add(&outcome.sample_counts);
        self.totals.delivered += run.stats.total_delivered();
        self.totals.lost += run.stats.total_lost().max(outcome.lost.iter().sum());
        self.totals.reached = self.totals.reached.max(run.context.reached().unwrap_or(0).max(0) as u64);
        match outcome.ending {
            Ending::Source(_) => self.totals.ended = outcome.at_exit.map(Ending::Program),
            ending => self.totals.ended = Some(ending),
        }
        outcome.check().map_err(|error| Failure::Recording(error.into()))
    }
}

/// Why a recording was not replayed to its end.
enum Failure {
    /// This recording is the reason. The others can be replayed.
    Recording(Error),
    Script(ScriptError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Recording(error)
    }
}
