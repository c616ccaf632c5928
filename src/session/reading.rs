//! What the commands that look at a recording have in common: it is opened, all its events are selected, and what is
//! wanted of it goes through the run loop to a sink. No interpreter is started.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::{
    ExitStatus,
    plan::{Input, Verbosity},
    pump::{LossWindow, Pump},
    recorded::{self, Selected},
    recorded_kernel::RecordedKernel,
    replay::{Replaying, binaries},
    replayed::Replayed,
    run_loop::{Last, RunLoop},
    status::status,
};
use crate::{
    event::{Context, EventType, Processes, Sink, Stats},
    perfdata::{Recording, Selection},
    record::{EventIds, SampleLayout, Source as _, TrailerLayout},
    symbol,
    sys::{output, signals::Signals},
};

/// A recording that is to be looked at.
pub(super) struct Reading {
    recording: Recording,
    selected: Selected,
    selection: Selection,
    /// The knowledge of names that its events are shown with.
    pub context: Arc<Context>,
    verbosity: Verbosity,
}

/// What became of it.
pub(super) struct Read {
    /// The status to exit with.
    pub status: ExitStatus,
    /// How many events were lost when it was recorded.
    pub lost: u64,
}

impl Reading {
    /// Opens a recording, and selects all of its events.
    pub fn open(input: &Input, symbols: symbol::Options, verbosity: Verbosity) -> Result<Reading> {
        // A pipe may keep us waiting here, and is left with Ctrl-C.
        let mut recording = Recording::open(&input.path)?;
        let selected = recorded::select(&[], &recording)?;
        let selection = Selection {
            attrs: None,
            cpus: input.cpus.clone(),
            pids: input.pids.clone(),
            tids: input.tids.clone(),
            times: times(input, &mut recording)?,
        };
        let recorded = binaries(&recording);
        let kernel = RecordedKernel::new(&recording, &recorded);
        // Nothing that is shown here has the time of day.
        let context = Context::new(Box::new(kernel), 0).with_symbol_options(symbols, Processes::Recorded(recorded));
        Ok(Reading { recording, selected, selection, context: Arc::new(context), verbosity })
    }

    /// What it says of itself.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Its events that can have samples, in the order in which a sink is told their indices.
    pub fn types(&self) -> &[EventType] {
        &self.selected.types
    }

    /// Of each of them, its index among all events of the recording.
    pub fn attrs(&self) -> Vec<usize> {
        let mut attrs = vec![0; self.selected.types.len()];
        for (attr, routes) in self.selected.routes.iter().enumerate() {
            routes.iter().for_each(|route| attrs[route.event] = attr);
        }
        attrs
    }

    /// Shows a sink what is wanted, in the order of time.
    pub fn run(self, sink: &mut impl Sink) -> Result<Read> {
        let signals = Signals::install()?;
        let Reading { recording, selected: Selected { types, routes, .. }, selection, context, verbosity } = self;
        let layouts = recording.layouts().clone();
        let mut replay = recording.replay(selection)?;
        replay.set_wake(signals.wake_fd());
        let rings = replay.ring_cpus().len();
        let stats = Arc::new(Stats::new(types.len(), rings));
        let pump = Pump::new(
            EventIds::new(&[]),
            (SampleLayout::new(0, 0), TrailerLayout::new(0)),
            context,
            stats.clone(),
            LossWindow::Times,
            rings,
            None,
        );
        let mut run_loop = RunLoop {
            source: Replaying::new(replay, verbosity),
            pump: pump.of_recording(Replayed::new(layouts, routes, None)),
            events: &types,
            stats,
            signals: &signals,
            interval: None,
            usage_every: None,
            calibrate: &mut || {},
            on_loss: "they were lost when it was recorded",
            reopen: &|| {},
        };
        let ending = run_loop.run(sink);
        let (last, strangers) =
            run_loop.pump.replayed().map_or((0, 0), |replayed| (replayed.last(), replayed.strangers()));
        let at_exit = run_loop.finish(ending, Last::Exit, sink, last);
        if strangers != 0 && verbosity > Verbosity::Quiet {
            output::say(format_args!("{strangers} samples were left out: the recording has no event with their ids"));
        }
        if let Some(failure) = run_loop.source.replay.take_failure() {
            return Err(failure.into());
        }
        Ok(Read { status: ExitStatus(status(ending, at_exit, None)), lost: run_loop.stats.total_lost() })
    }
}

/// The ranges of time that are wanted, in the recording's clock; none for all of it.
pub(super) fn times(input: &Input, recording: &mut Recording) -> Result<Vec<(u64, u64)>> {
    let Some(times) = &input.times else { return Ok(Vec::new()) };
    if !times.has_shares() {
        return Ok(times.of(0, u64::MAX));
    }
    match recording.times()? {
        Some((first, last)) => Ok(times.of(first, last)),
        None => bail!("--time: {} does not say when it begins and ends, so there are no shares of it", recording.name),
    }
}
