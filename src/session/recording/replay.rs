//! Replays a recording: the run loop delivers its samples to a sink.

use std::{
    io::{self, IsTerminal},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use perf_prof_events::{
    derive::{Derived, DerivingSink},
    event::{Context, EventType, Sink, Stats, Stop},
};
use perf_prof_format::record::{LossCounts, Source, Wait};
use perf_prof_recordings::{DamagedSamples, PerfDataError, Replay};
use perf_prof_system::{output, signals::Signals};

use super::{
    carried::Carried,
    empty_result::{ReadExtent, SampleCounts},
};
use crate::{
    engine::{
        kernel_tables::KernelTables,
        pump::{Pump, TaskCgroups},
        run_loop::{Ending, EventsEnd, FinishAs, RunLoop},
        sample_routes::{CountedLosses, ReplayState},
    },
    plan::Verbosity,
};

/// A replay that is ready to run: the records, and how they are delivered.
pub struct ReplayRun<'a> {
    /// The records that were selected.
    pub replay: Replay,
    /// The state that assigns samples to events.
    pub replay_state: ReplayState,
    /// Follows the cgroups of tasks, if something needs them.
    pub task_cgroups: Option<TaskCgroups>,
    /// The selected events. The types of derived events are the last ones.
    pub events: &'a [EventType],
    /// The derived events among `events`.
    pub derived: &'a [Derived],
    /// The state of derived events at the end of the part before this part.
    pub carried: Carried,
    /// Resolves tasks and addresses to names.
    pub context: Arc<Context>,
    /// Counts of delivered and lost events.
    pub stats: Arc<Stats>,
    /// The signals that this process received.
    pub signals: &'a Signals,
    /// The maximum number of events to deliver (`-N`).
    pub limit: Option<u64>,
    /// How often perf-prof's own CPU and memory use is printed (`--usage-self`).
    pub usage_every: Option<Duration>,
    /// The file of the output, which is reopened on SIGUSR1.
    pub output: Option<&'a Path>,
    /// What happens after the last event: the program ends, or the result is merged with other parts of the recording.
    pub last: FinishAs,
    /// The time until which spans last that have not ended; 0 if it is not known.
    pub until: u64,
    /// How much is printed to stderr.
    pub verbosity: Verbosity,
    /// Which process prints warnings about the recording.
    pub warnings: Warnings,
}

/// Which process prints warnings about the recording. The warnings are printed even with `-q`, because the results do
/// not contain the damaged parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warnings {
    /// This process prints them.
    Printed,
    /// Another process that reads the same recording prints them. This process prints only warnings about its own part.
    PrintedElsewhere,
}

/// The outcome of a replay.
pub struct ReplayOutcome {
    /// Why the replay ended.
    pub ending: Ending,
    /// The time of the last sample, in ns.
    pub last: u64,
    /// The numbers of lost samples, as perf counted them.
    pub lost: CountedLosses,
    /// How the sink's exit handler ended the program, if it did.
    pub at_exit: Option<Stop>,
    /// How many samples were delivered and left out.
    pub sample_counts: SampleCounts,
    /// Descriptions of the damage that this process found in the recording.
    pub damage: Vec<String>,
    failure: Option<PerfDataError>,
}

impl ReplayRun<'_> {
    /// Delivers all selected samples to the sink, ordered by time.
    pub fn run(self, sink: &mut dyn Sink) -> ReplayOutcome {
        let ReplayRun {
            replay,
            replay_state,
            task_cgroups,
            events,
            derived,
            mut carried,
            context,
            stats,
            signals,
            limit,
            usage_every,
            output,
            last,
            until,
            verbosity,
            warnings,
        } = self;
        // The limit counts delivered events, not the events that spans are made of.
        let of_pump = if derived.is_empty() { limit } else { None };
        let sink = DerivingSink::start(sink, events, derived, &stats, &context).with_limit(limit);
        let (rings, others) = (replay.ring_cpus().len(), replay.other_records());
        // The pump sets up the cgroups of tasks, and the carried state adds to them. So the pump is made first.
        let pump = Pump::for_recording(replay_state, context.clone(), stats.clone(), rings, of_pump)
            .with_other_records(others)
            .with_cgroups(task_cgroups);
        let sink = &mut carried.continue_in(sink, &stats, &context);
        let mut run_loop = RunLoop {
            tables: KernelTables::default(),
            source: ReplayWithProgress::new(replay, verbosity, warnings, stats.clone()),
            pump,
            events,
            stats: stats.clone(),
            refresh: None,
            signals,
            interval: None,
            duration: None,
            usage_every,
            calibrate: &mut || {},
            loss_advice: "they were lost while the recording was made",
            output,
        };
        let ending = run_loop.run(sink);
        let replay_state = run_loop.pump.replay_state();
        let (last_time, unknown_ids, guests) =
            replay_state.map_or((0, 0, 0), |state| (state.last(), state.unknown_ids(), state.guests()));
        let lost = replay_state.map_or_else(CountedLosses::default, |state| state.counted_losses(rings));
        run_loop.source.tell_damage(replay_state.map(ReplayState::damaged_samples).unwrap_or_default());
        context.note_reached(last_time);
        if last == FinishAs::Program {
            say_if_interrupted(ending, signals, last_time);
        }
        let end = EventsEnd { of_losses: last_time, of_spans: until.max(last_time) };
        let mut at_exit = run_loop.finish(ending, last, sink, end);
        if last == FinishAs::LastPart {
            let losses = carried.unreported_losses(&stats, run_loop.pump.replay_state());
            at_exit = at_exit.or(sink.end_derivations(losses).break_value());
        }
        ReplayOutcome {
            ending,
            last: last_time,
            lost,
            at_exit,
            sample_counts: counts(&stats, unknown_ids, guests, ending),
            damage: std::mem::take(&mut run_loop.source.damage),
            failure: run_loop.source.replay.take_failure(),
        }
    }
}

fn counts(stats: &Stats, unknown_ids: u64, guests: u64, ending: Ending) -> SampleCounts {
    SampleCounts { delivered: stats.total_delivered(), unknown_ids, guests, reach: ReadExtent::from_ending(ending) }
}

/// Prints up to which time of the recording the results reach, if a signal has ended the replay.
fn say_if_interrupted(ending: Ending, signals: &Signals, last: u64) {
    if !matches!(ending, Ending::Signal { .. }) || signals.are_requests() {
        return;
    }
    let (seconds, micros) = (last / 1_000_000_000, last / 1000 % 1_000_000);
    output::say(format_args!("interrupted: the following results are for the recording up to {seconds}.{micros:06}"));
}

impl ReplayOutcome {
    /// Returns an error if the replay ended early because the recording is damaged.
    pub fn check(&mut self) -> Result<(), PerfDataError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// A replay that prints warnings and, on a terminal, a progress bar.
struct ReplayWithProgress {
    replay: Replay,
    warnings: Warnings,
    /// The warnings so far.
    damage: Vec<String>,
    /// The counts of the run. Missing records are noted there before a table of the events so far is shown.
    stats: Arc<Stats>,
    bar: Option<ProgressBar>,
}

impl ReplayWithProgress {
    fn new(replay: Replay, verbosity: Verbosity, warnings: Warnings, stats: Arc<Stats>) -> Self {
        let total = replay.progress().total;
        let wanted = verbosity > Verbosity::Quiet && total != 0 && io::stderr().is_terminal();
        Self { replay, warnings, damage: Vec::new(), stats, bar: wanted.then(|| ProgressBar::new(total)) }
    }

    fn tell_warnings(&mut self) {
        let warnings = match self.warnings {
            Warnings::Printed => self.replay.take_warnings(),
            Warnings::PrintedElsewhere => self.replay.take_own_warnings(),
        };
        warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
        self.damage.extend(warnings);
    }

    fn tell_damage(&mut self, found: DamagedSamples) {
        self.replay.found_damage(found);
        self.tell_warnings();
    }

    fn show_progress(&mut self, wait: &Wait) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.replay.progress().done);
        if matches!(wait, Wait::Ended(_)) {
            bar.finish_and_clear();
        }
    }
}

impl Source for ReplayWithProgress {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        let wait = self.replay.wait(until);
        self.show_progress(&wait);
        self.tell_warnings();
        if self.replay.lacks_records() {
            self.stats.note_damage();
        }
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

    fn dropped_by_limit(&self) -> u64 {
        self.replay.dropped_by_limit()
    }

    fn backlog(&self) -> usize {
        self.replay.backlog()
    }
}
