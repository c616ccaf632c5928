//! The outcome of a run: why it ended, what was lost, and the exit status.

use anyhow::{Error, Result};
use perf_prof_capture::Capture;
use perf_prof_events::event::Stop;
use perf_prof_format::record::Ended;
use perf_prof_symbols::symbol::UnnamedFrames;
use perf_prof_system::{output, signals::Signals};

use crate::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        kernel_tables::KernelTables,
        losses,
        run_loop::Ending,
        sample_routes::CountedLosses,
    },
    plan::{Face, RunPlan},
    recorder::Summary,
    recording::empty_result::{SampleCounts, SelectionSource},
};

/// The outcome of a run.
pub struct Outcome {
    /// Why the run ended.
    pub ending: Ending,
    /// How the sink's exit handler ended the run, if it did.
    pub at_exit: Option<Stop>,
    /// The result of reading the recording; `None` for live events.
    pub replayed: Option<Replayed>,
    /// The number of events that were lost.
    pub lost: u64,
    /// The exit status of the command or of the replay. It is used if the run ended by itself.
    pub(super) own: Option<u8>,
    /// Why the run could not begin or continue: the events were not enabled, or the recording is damaged.
    pub(super) failure: Option<Error>,
    /// The recording that was written during the run, if there is one.
    pub(super) recorded: Result<Option<Summary>>,
    /// The open events, which the caller has to close.
    pub closing: Closing,
}

/// The result of reading a recording.
pub struct Replayed {
    /// The time of the last sample, in ns.
    pub last: u64,
    /// The numbers of lost samples, as perf counted them.
    pub lost: CountedLosses,
    /// How many samples were delivered and left out.
    pub counts: SampleCounts,
    /// The frames without names that were seen.
    pub unnamed_frames: UnnamedFrames,
    /// True if records of the recording are missing, because it is damaged or cut off.
    pub lacks_records: bool,
    /// Descriptions of the damage to the recording. Empty if another process prints them.
    pub damage: Vec<String>,
}

/// Open events of a run that has ended. Closing them is slow, so it comes last, after all output was written.
#[derive(Default)]
pub struct Closing {
    pub(super) capture: Option<Capture>,
    pub(super) tables: KernelTables,
}

impl Closing {
    /// Closes the events.
    pub fn close(self) {
        if let Some(capture) = self.capture {
            capture.close();
        }
        self.tables.close();
    }
}

impl Outcome {
    /// Prints what the run left out or could not name, and what it recorded. Fails if the run could not begin, or if
    /// the recording is damaged.
    pub fn report(&mut self, plan: &RunPlan) -> Result<()> {
        if let (Some(replayed), Some(input)) = (&self.replayed, plan.input()) {
            let source = match plan.face {
                Face::Script => Some(SelectionSource::UserAndScript(plan.verbosity)),
                Face::Command => Some(SelectionSource::User(plan.verbosity)),
                Face::Program => None,
            };
            if let Some(source) = source {
                losses::print_unnamed_frames(&replayed.unnamed_frames, plan.verbosity);
                replayed.counts.report(input, &plan.capture.events, source);
            }
        }
        self.check()?;
        match &self.recorded {
            Ok(None) => {}
            Ok(Some(summary)) => summary.report("", plan.verbosity),
            Err(error) => output::say(format_args!("{error:#}")),
        }
        Ok(())
    }

    /// Fails if the run could not begin, or if the recording is damaged.
    pub fn check(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Returns the exit status of a process that has replayed a part of a recording for another process. The status is
    /// 0 if the part has a result, and also after a signal.
    pub fn status_of_part(&self) -> ExitStatus {
        match self.ending {
            Ending::Signal { .. } => ExitStatus(0),
            ending => ExitStatus(exit_status(ending, self.at_exit, Callbacks::Returned, None)),
        }
    }

    /// Returns the exit status.
    pub fn status(&self, callbacks: Callbacks) -> ExitStatus {
        let is_whole = matches!(&self.recorded, Ok(summary) if summary.as_ref().is_none_or(|it| it.failure.is_none()));
        match exit_status(self.ending, self.at_exit, callbacks, self.own) {
            0 if !is_whole => ExitStatus(1),
            status => ExitStatus(status),
        }
    }
}

/// A run whose events were delivered to a sink. The signal handlers stay installed as long as this value exists.
pub struct Delivered<S> {
    /// The outcome of the run.
    pub outcome: Outcome,
    /// The sink that got the events.
    pub sink: S,
    pub(super) _signals: Signals,
}

impl<S> Delivered<S> {
    /// Returns the exit status of a command without callbacks.
    pub fn status(&self) -> ExitStatus {
        self.outcome.status(Callbacks::Returned)
    }
}

/// The outcomes of several recordings, added up.
#[derive(Default)]
pub struct Totals {
    /// The number of recordings that could not be read to their ends.
    pub unreadable: usize,
    counts: SampleCounts,
    /// The number of delivered samples.
    pub delivered: u64,
    /// The number of lost samples.
    pub lost: u64,
    /// True if one of the recordings is damaged or cut off.
    pub damaged: bool,
    /// The latest time up to which a recording was read, in ns since the Unix epoch.
    pub reached: u64,
    /// How a callback or a signal ended the run before the last recording.
    pub ended: Option<Ending>,
}

impl Totals {
    /// Adds the outcome of a recording.
    pub fn add(&mut self, outcome: &Outcome, about: &super::About) {
        if let Some(Replayed { counts, lost, .. }) = &outcome.replayed {
            self.counts.add(counts);
            self.lost += about.stats.total_lost().max(lost.per_event.iter().sum());
        }
        self.damaged |= about.stats.is_damaged();
        self.delivered += about.stats.total_delivered();
        self.reached = self.reached.max(about.context.reached_unseen().unwrap_or(0).max(0) as u64);
        self.ended = match outcome.ending {
            Ending::Source(_) => outcome.at_exit.map(Ending::Program),
            ending => Some(ending),
        };
    }

    /// Prints what was left out in all recordings together. Returns the exit status.
    pub fn report(&self, plan: &RunPlan, at_exit: Option<Stop>, callbacks: Callbacks) -> ExitStatus {
        if let Some(input) = plan.input() {
            self.counts.report(input, &plan.capture.events, SelectionSource::UserAndScript(plan.verbosity));
        }
        let ending = self.ended.unwrap_or(Ending::Source(Ended::EndOfInput));
        let status = exit_status(ending, at_exit, callbacks, Some(self.counts.status()));
        ExitStatus(if status == 0 && self.unreadable > 0 { 1 } else { status })
    }
}
