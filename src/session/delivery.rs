//! A recording's way through the run loop, whoever its events are for. Knows nothing of scripts and of what is printed.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use super::{
    found::{Found, Reach},
    plan::Verbosity,
    pump::Pump,
    replayed::Replayed,
    run_loop::{Ending, Last, RunLoop},
};
use crate::{
    event::{Context, EventType, Sink, Stats, Stop},
    perfdata::{PerfDataError, Replay},
    record::{LossCounts, Source, Wait},
    sys::{output, signals::Signals},
};

/// What is delivered, and how.
pub(super) struct Delivery<'a> {
    pub replay: Replay,
    pub replayed: Replayed,
    /// The selected events.
    pub events: &'a [EventType],
    pub context: Arc<Context>,
    pub stats: Arc<Stats>,
    pub signals: &'a Signals,
    /// `-N`.
    pub limit: Option<u64>,
    /// `--usage-self`.
    pub usage_every: Option<Duration>,
    /// Opens the output anew when SIGUSR1 comes.
    pub reopen: &'a dyn Fn(),
    /// What comes after the last event.
    pub last: Last,
    pub verbosity: Verbosity,
    pub warnings: Warnings,
}

/// Who says what is wrong with the recording. It is said even with `-q`: numbers are of what is left then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warnings {
    /// This process.
    Said,
    /// Another one that reads it too.
    SaidElsewhere,
}

/// What became of it.
pub(super) struct Delivered {
    pub ending: Ending,
    /// The time of the last sample.
    pub last: u64,
    /// The lost samples of each event, as perf counted them.
    pub lost: Vec<u64>,
    /// What the sink asked for at the end.
    pub at_exit: Option<Stop>,
    pub found: Found,
    failure: Option<PerfDataError>,
}

impl Delivery<'_> {
    /// Shows a sink all that is wanted, in the order of time.
    pub fn run(self, sink: &mut impl Sink) -> Delivered {
        let Delivery {
            replay,
            replayed,
            events,
            context,
            stats,
            signals,
            limit,
            usage_every,
            reopen,
            last,
            verbosity,
            warnings,
        } = self;
        let rings = replay.ring_cpus().len();
        let mut run_loop = RunLoop {
            source: Watched::new(replay, verbosity, warnings),
            pump: Pump::of_recording(replayed, context.clone(), stats.clone(), rings, limit),
            events,
            stats: stats.clone(),
            signals,
            interval: None,
            usage_every,
            calibrate: &mut || {},
            on_loss: "they were lost when it was recorded",
            reopen,
        };
        let ending = run_loop.run(sink);
        let replayed = run_loop.pump.replayed();
        let (last_time, strangers) = replayed.map_or((0, 0), |replayed| (replayed.last(), replayed.strangers()));
        let lost = replayed.map_or_else(Vec::new, Replayed::lost_per_event);
        context.come_to(last_time);
        if last == Last::Exit
            && let Ending::Signal { .. } = ending
        {
            let (seconds, micros) = (last_time / 1_000_000_000, last_time / 1000 % 1_000_000);
            output::say(format_args!("interrupted: what follows is of what was recorded until {seconds}.{micros:06}"));
        }
        let at_exit = run_loop.finish(ending, last, sink, last_time);
        let found = Found { delivered: stats.total_delivered(), strangers, reach: Reach::of(ending) };
        Delivered { ending, last: last_time, lost, at_exit, found, failure: run_loop.source.replay.take_failure() }
    }
}

impl Delivered {
    /// The error is why it ended early, if the recording is to blame.
    pub fn check(&mut self) -> Result<(), PerfDataError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// A replay that says what goes wrong, and on a terminal how far it is.
struct Watched {
    replay: Replay,
    warnings: Warnings,
    bar: Option<ProgressBar>,
}

impl Watched {
    fn new(replay: Replay, verbosity: Verbosity, warnings: Warnings) -> Self {
        let total = replay.progress().total;
        let wanted = verbosity > Verbosity::Quiet && total != 0 && io::stderr().is_terminal();
        Self { replay, warnings, bar: wanted.then(|| ProgressBar::new(total)) }
    }

    fn show_progress(&mut self, wait: &Wait) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.replay.progress().done);
        if matches!(wait, Wait::Ended(_)) {
            bar.finish_and_clear();
        }
    }
}

impl Source for Watched {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        let wait = self.replay.wait(until);
        self.show_progress(&wait);
        let warnings = match self.warnings {
            Warnings::Said => self.replay.take_warnings(),
            Warnings::SaidElsewhere => self.replay.take_own_warnings(),
        };
        warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
        wait
    }

    fn flush(&mut self) {
        self.replay.flush();
    }

    fn stop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.replay.stop();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        self.replay.losses()
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.replay.ring_cpus()
    }

    fn late(&self) -> u64 {
        self.replay.late()
    }

    fn limited(&self) -> u64 {
        self.replay.limited()
    }

    fn backlog(&self) -> usize {
        self.replay.backlog()
    }
}
