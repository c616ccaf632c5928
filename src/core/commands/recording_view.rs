//! The common part of the commands that show a recording: opens the recording, selects all of its events, and sends the
//! samples through the run loop to a sink. No Python interpreter is started.

use std::sync::Arc;

use anyhow::{Result, bail};

use crate::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        losses,
        run_loop::FinishAs,
        sample_routes::{LossReporting, ReplayState},
    },
    event::{Context, EventType, NamedSamples, Processes, Sink, Stats, Targets},
    perfdata::{Recording, Selection},
    plan::{Input, TaskSelection, Verbosity},
    record::{OtherRecords, Source as _},
    recording::{
        binaries::binaries,
        carried::Carried,
        clock::{RealtimeOffset, realtime_offset, realtime_offset_by_unpacking, times},
        empty_result::SelectionSource,
        kernel::RecordedKernel,
        open,
        replay::{ReplayRun, Warnings},
        select::{self, Selected},
    },
    spec::EventSpec,
    symbol,
    sys::output,
    sys::signals::Signals,
};

/// An open recording. Its samples were not read yet.
pub struct OpenRecording {
    recording: Recording,
    selected: Selected,
    selection: Selection,
    /// The names of tasks and symbols.
    pub context: Arc<Context>,
    input: Input,
    events: Vec<EventSpec>,
    limit: Option<u64>,
    verbosity: Verbosity,
}

/// The outcome of reading a recording.
pub struct ReadOutcome {
    /// The exit status.
    pub status: ExitStatus,
    /// The number of events that were lost when the recording was made.
    pub lost: u64,
}

impl OpenRecording {
    /// Opens a recording, and selects `events`; all of its events if there are none. Fails if there are spans among
    /// them.
    pub fn open(
        input: &Input,
        events: &[EventSpec],
        symbols: symbol::Options,
        verbosity: Verbosity,
    ) -> Result<OpenRecording> {
        let opened = OpenRecording::open_with_spans(input, events, symbols, verbosity)?;
        if let Some(derived) = opened.selected.derived.first() {
            bail!(
                "{}: spans are made by scripts, by trace, top and hist, and by export for Parquet, Arrow and NDJSON files; \
                 select the events that begin and end it",
                derived.span.name()
            );
        }
        Ok(opened)
    }

    /// Opens a recording, and selects `events`, which may be spans; all of its events if there are none.
    pub fn open_with_spans(
        input: &Input,
        events: &[EventSpec],
        symbols: symbol::Options,
        verbosity: Verbosity,
    ) -> Result<OpenRecording> {
        // If the recording is a pipe without data, this call waits. Signals are not handled yet, so Ctrl-C ends the
        // process.
        let mut recording = open::open(&input.path, &input.limits)?;
        let selected = select::select(events, 0, &recording)?;
        // This is printed with -q too: the result may be that of other probes than the user has selected.
        selected.unknown_files(&recording).iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
        let (pids, tids) = match input.tasks {
            TaskSelection::OfSamples => (input.pids.clone(), input.tids.clone()),
            TaskSelection::ForScript => (None, None),
        };
        let targets = (input.tasks == TaskSelection::ForScript).then(|| {
            let ids = |ids: &Option<Vec<u32>>| ids.clone().unwrap_or_default();
            Targets::recorded(&ids(&input.pids), &ids(&input.tids))
        });
        let selection = Selection {
            attrs: selected.attrs(&recording),
            cpus: input.cpus.clone(),
            pids,
            tids,
            times: times(input, &mut recording)?,
            others: OtherRecords::NONE,
            gaps: selected.gaps(),
        };
        let recorded = binaries(&mut recording, &input.path)?;
        let kernel = RecordedKernel::new(&recording, &recorded);
        // The offset to the time of day is 0 until a command asks for it.
        let context = Context::new(Box::new(kernel), 0)
            .with_frame_limit(input.max_stack)
            .with_targets(targets)
            .with_machine(recording.features.arch.as_deref())
            .with_symbol_options(symbols, Processes::Recorded(recorded));
        let (context, input, events) = (Arc::new(context), input.clone(), events.to_vec());
        Ok(OpenRecording { recording, selected, selection, context, input, events, limit: None, verbosity })
    }

    /// Returns the recording.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Returns the selected events that can have samples. The sink receives the index of an event in this slice.
    pub fn types(&self) -> &[EventType] {
        &self.selected.types
    }

    /// Returns, for each event in [`OpenRecording::types`], whether the sink receives its samples. It does not receive
    /// those of events that are only inputs of spans.
    pub fn is_delivered(&self) -> Vec<bool> {
        let Selected { types, derived, .. } = &self.selected;
        (0..types.len()).map(|event| !derived.iter().any(|derived| derived.inputs.contains(&event))).collect()
    }

    /// Returns, for each event in [`OpenRecording::types`], its index among all events of the recording.
    pub fn attrs(&self) -> Vec<usize> {
        self.selected.attr_of_each_type()
    }

    /// Requests records other than samples. They are delivered to the sink too.
    pub fn with_other_records(mut self, others: OtherRecords) -> OpenRecording {
        self.selection.others = others;
        self
    }

    /// Sets the number of samples after which reading ends.
    pub fn with_limit(mut self, limit: Option<u64>) -> OpenRecording {
        self.limit = limit;
        self
    }

    /// Finds the time of day at which the recording was made, so that the context can tell the time of day of samples.
    pub fn with_time_of_day(mut self) -> Result<OpenRecording> {
        let offset = match realtime_offset(&mut self.recording, &self.input.path)? {
            RealtimeOffset::Known(offset) => Some(offset),
            RealtimeOffset::Unknown => None,
            RealtimeOffset::AfterUnpacking => realtime_offset_by_unpacking(&self.input.path, &self.input.limits),
        };
        let Some(offset) = offset else {
            bail!("{} does not say at what time of day it was recorded", self.recording.name);
        };
        self.context.set_realtime_offset(offset);
        Ok(self)
    }

    /// Delivers the selected samples to the sink, ordered by time.
    pub fn run(self, sink: &mut impl Sink) -> Result<ReadOutcome> {
        let signals = Signals::install()?;
        let OpenRecording { recording, selected, selection, context, input, events, limit, verbosity } = self;
        let Selected { types, routes, derived, .. } = selected;
        let layouts = recording.layouts().clone();
        let loss_reporting = LossReporting::for_cpus(selection.cpus.as_ref());
        let mut replay = recording.replay(selection)?;
        replay.set_wake(signals.wake_fd());
        replay.read_ahead();
        let stats = Arc::new(Stats::new(types.len(), replay.ring_cpus().len()).with_spans(derived.len()));
        let delivery = ReplayRun {
            replay,
            replay_state: ReplayState::new(layouts, routes, None, loss_reporting).with_guests(input.guests),
            events: &types,
            derived: &derived,
            carried: Carried::default(),
            context: context.clone(),
            stats: stats.clone(),
            signals: &signals,
            limit,
            usage_every: None,
            reopen: &|| {},
            last: FinishAs::Program,
            verbosity,
            warnings: Warnings::Printed,
        };
        let mut outcome = delivery.run(&mut NamedSamples::new(sink, &input.names, &types, context.clone()));
        losses::print_endings(context.endings(), verbosity);
        context.with_symbols(|symbols| losses::print_unnamed_frames(symbols.unnamed_frames(), verbosity));
        outcome.sample_counts.report(&input, &events, SelectionSource::User(verbosity));
        outcome.check()?;
        let own = outcome.sample_counts.status();
        Ok(ReadOutcome {
            status: ExitStatus(exit_status(outcome.ending, outcome.at_exit, Callbacks::Returned, Some(own))),
            lost: stats.total_lost(),
        })
    }
}
