//! What the commands that look at a recording have in common: it is opened, all its events are selected, and what is
//! wanted of it goes through the run loop to a sink. No interpreter is started.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::{
    ExitStatus,
    delivery::{Delivery, Warnings},
    found::Asked,
    opened,
    plan::{Input, Verbosity},
    recorded::{self, Selected},
    recorded_kernel::RecordedKernel,
    replay::binaries,
    replayed::{Replayed, Told},
    report,
    run_loop::Last,
    status::status,
};
use crate::{
    event::{Context, EventType, Processes, Sink, Stats},
    perfdata::{Recording, Selection},
    record::Source as _,
    symbol,
    sys::signals::Signals,
};

/// A recording that is to be looked at.
pub(super) struct Reading {
    recording: Recording,
    selected: Selected,
    selection: Selection,
    /// The knowledge of names that its events are shown with.
    pub context: Arc<Context>,
    input: Input,
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
        let mut recording = opened::open(&input.path)?;
        let selected = recorded::select(&[], 0, &recording)?;
        let selection = Selection {
            attrs: None,
            cpus: input.cpus.clone(),
            pids: input.pids.clone(),
            tids: input.tids.clone(),
            times: times(input, &mut recording)?,
        };
        let recorded = binaries(&mut recording, &input.path)?;
        let kernel = RecordedKernel::new(&recording, &recorded);
        // Nothing that is shown here has the time of day.
        let context = Context::new(Box::new(kernel), 0).with_symbol_options(symbols, Processes::Recorded(recorded));
        let (context, input) = (Arc::new(context), input.clone());
        Ok(Reading { recording, selected, selection, context, input, verbosity })
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
        let Reading { recording, selected, selection, context, input, verbosity } = self;
        let Selected { types, routes, .. } = selected;
        let layouts = recording.layouts().clone();
        let told = Told::of(selection.cpus.as_ref());
        let mut replay = recording.replay(selection)?;
        replay.set_wake(signals.wake_fd());
        replay.read_ahead();
        let stats = Arc::new(Stats::new(types.len(), replay.ring_cpus().len()));
        let delivery = Delivery {
            replay,
            replayed: Replayed::new(layouts, routes, None, told),
            events: &types,
            context: context.clone(),
            stats: stats.clone(),
            signals: &signals,
            limit: None,
            usage_every: None,
            reopen: &|| {},
            last: Last::Exit,
            verbosity,
            warnings: Warnings::Said,
        };
        let mut delivered = delivery.run(sink);
        report::print_endings(context.endings(), verbosity);
        context.with_symbols(|symbols| report::print_nameless(symbols.nameless_frames(), verbosity));
        delivered.found.say(&input, &[], Asked::Here(verbosity));
        delivered.check()?;
        Ok(Read {
            status: ExitStatus(status(delivered.ending, delivered.at_exit, Some(delivered.found.status()))),
            lost: stats.total_lost(),
        })
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
