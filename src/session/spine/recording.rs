//! A session of a recording: opens the recording, selects its events, and replays the whole or a part of it.

use std::{
    ops::ControlFlow,
    sync::{Arc, LazyLock},
};

use anyhow::{Result, bail};
use perf_prof_events::{
    derive::{self, Derived},
    event::{
        Context, EventType, FoundOffset, NamedSamples, Processes, Provenance, RunInterpreters, Sink, SpansOf, Stats,
        Targets,
    },
};
use perf_prof_format::{
    record::{OtherRecords, Source as _},
    spec::{EventKind, EventSpec},
};
use perf_prof_recordings::{Recording, Replay, Selection};
use perf_prof_system::{eventfd::EventFd, memory, output as messages, signals::Signals};

use super::{
    about::{About, Available, EventAttr, MissingEvents, RecordingFacts, Trailers},
    chosen::Armed,
    opened::{Receiver, Session, Source},
    outcome::{Closing, Delivered, Outcome, Replayed},
    selected_times::SelectedTimes,
    slice::Slice,
};
use crate::{
    dividing::{Part, Whole},
    engine::{
        losses,
        pump::TaskCgroups,
        run_loop::FinishAs,
        sample_routes::{Intervals, ReplayState, Span},
        span_report,
    },
    plan::{Face, Input, InterpreterFrameUse, Jobs, ReadLimits, RunPlan, TaskSelection, Verbosity},
    recorder,
    recording::{
        binaries::binaries,
        carried::Carried,
        clock::{self, RealtimeOffset, realtime_offset, realtime_offset_by_unpacking},
        columns::ColumnParts,
        kernel::{self, RecordedKernel},
        open,
        replay::ReplayRun,
        select::{self, Selected},
    },
};

/// Returns where and when the selected events of a recording happened. `first` is the time of its first sample, and `ended`
/// its end.
fn provenance(recording: &Recording, selection: &Selection, first: Option<u64>, ended: Option<u64>) -> Provenance {
    let times = selection.times_within(first.zip(ended));
    let length = |(first, last)| SelectedTimes::new(&selection.times, recording.off_times()).length_within(first, last);
    // Without a clock in the recording, the time of day is a guess that takes long.
    let dates = recording.features.clock.zip(times);
    Provenance {
        host: recording.features.hostname.clone(),
        began: dates.map(|(clock, (first, _))| clock.time_of_day(first)),
        ended: dates.map(|(clock, (_, last))| clock.time_of_day(last)),
        duration: times.map(length),
        command: super::command::of_replay(&recording.features.cmdline),
    }
}

/// An open recording with its selected events. Nothing has read its samples yet.
pub struct ChosenRecording {
    pub(super) plan: Arc<RunPlan>,
    input: Input,
    recording: Recording,
    selected: Selected,
    /// The records other than samples that the sink receives.
    others: OtherRecords,
    /// `None` until [`ChosenRecording::prepare`] was called.
    prepared: Option<Prepared>,
}

/// The results of [`ChosenRecording::prepare`].
struct Prepared {
    /// The selection of samples, for all parts together.
    selection: Selection,
    /// The time range that is replayed, if the plan needs it and the recording contains it.
    span: Option<Span>,
    context: Arc<Context>,
    /// An eventfd that is readable until a process has printed the warning about the time of day (guessed or unknown).
    warns: Arc<EventFd>,
}

impl ChosenRecording {
    /// Opens the recording, and selects the events of the plan. If the plan has none, selects all events of the
    /// recording. If the recording is a pipe without data, this call waits.
    pub fn select(plan: &RunPlan, input: &Input) -> Result<ChosenRecording> {
        let recording = open::open(&input.path, &limits(input, &plan.capture.events))?;
        let selected = select::select(&plan.capture.events, plan.own_events, &recording).inspect_err(|_| {
            // Damage to the recording may be the reason why an event is missing.
            recording.warnings.iter().for_each(|warning| messages::say(format_args!("warning: {warning}")));
        })?;
        if input.tasks == TaskSelection::ForScript {
            selected.require_all_cpus(&recording)?;
        }
        let (plan, input, others) = (Arc::new(plan.clone()), input.clone(), plan.others);
        let chosen = ChosenRecording { plan, input, recording, selected, others, prepared: None };
        if !chosen.input.cgroups.is_empty() {
            chosen.require_cgroups("--cgroups")?;
        }
        Ok(chosen)
    }

    /// Finds the times to replay, the names of tasks and the clock. This may read and unpack the whole file. Commands call
    /// it before they install signal handlers, so that Ctrl-C ends the process at once. For scripts,
    /// [`ChosenRecording::open`] finds them, because their handlers are already installed.
    pub fn prepare(&mut self) -> Result<()> {
        self.prepared().map(drop)
    }

    fn prepared(&mut self) -> Result<&mut Prepared> {
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => self.find()?,
        };
        Ok(self.prepared.insert(prepared))
    }

    fn find(&mut self) -> Result<Prepared> {
        let Self { plan, input, recording, selected, others, .. } = self;
        let (pids, tids) = input.tasks_of_samples();
        let times = clock::times(input, recording)?;
        let selection = Selection {
            attrs: selected.attrs(recording),
            cpus: input.cpus.clone(),
            pids,
            tids,
            holes: Selection::holes(&times),
            times,
            others: *others,
            gaps: selected.gaps(),
        };
        let needs_span = plan.interval.is_some() || input.jobs.is_some();
        let span = if needs_span { clock::span(&selection.times, recording)? } else { None };
        let warns = Arc::new(EventFd::new()?);
        warns.signal();
        let context = context(plan, input, recording, &selected.types, warns.clone())?;
        Ok(Prepared { selection, span, context, warns })
    }

    /// Suppresses the messages of the run, because another process prints them.
    pub fn quiet(mut self) -> ChosenRecording {
        self.plan = Arc::new(RunPlan { verbosity: Verbosity::Quiet, ..(*self.plan).clone() });
        self
    }

    /// Suppresses the warning that the time of day is guessed, because another process prints it.
    pub fn time_of_day_is_told(&mut self) -> Result<()> {
        self.prepared()?.warns.drain();
        Ok(())
    }

    /// Fails if there are spans among the events.
    pub fn refuse_spans(&self) -> Result<()> {
        match self.selected.derived.first() {
            Some(derived) => bail!(
                "{}: spans are made by scripts, by trace, top and hist, and by export for Parquet, Arrow and NDJSON files; \
                 select the events that begin and end it",
                derived.span.name()
            ),
            None => Ok(()),
        }
    }

    /// Fails if no selected event has samples with the cgroups of their tasks. `option` is the option that needs them.
    pub fn require_cgroups(&self, option: &str) -> Result<()> {
        if self.selected.types.iter().any(|event| event.layout.has_cgroup()) {
            return Ok(());
        }
        bail!(
            "{option}: {} does not contain the cgroups of its samples; record with --all-cgroups",
            self.recording.name
        )
    }

    /// Prints what is missing in the recording for the selected events.
    pub fn warn(&self) {
        let Self { plan, recording, selected, .. } = self;
        let warnings = selected.warnings(plan, recording);
        warnings.iter().for_each(|warning| messages::say(format_args!("warning: {warning}")));
    }

    /// Delivers the samples to the receiver that `receive` creates, and prints what the run left out.
    pub fn deliver<R: Receiver>(self, receive: impl FnOnce(&Arc<About>) -> Result<R>) -> Result<Delivered<R>> {
        Armed::Recorded(Box::new(self)).deliver(None, receive)
    }

    /// Returns the recording.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Returns the selected events.
    pub fn selected(&self) -> &Selected {
        &self.selected
    }

    /// Returns the event types that a program receives.
    pub fn planned_types(&self) -> Vec<EventType> {
        derive::delivered(&self.selected.types, &self.selected.derived)
    }

    /// Returns, for each selected event, whether the sink receives its samples.
    pub fn is_delivered(&self) -> Vec<bool> {
        derive::are_delivered(self.selected.types.len(), &self.selected.derived)
    }

    /// Lets the sink also receive these records. Must be called before [`ChosenRecording::prepare`].
    pub fn request_records(&mut self, others: OtherRecords) {
        self.others = others;
    }

    /// Finds the time of day at which the recording was made, so that the context knows the time of day of samples.
    /// Fails if this is not possible.
    pub fn find_time_of_day(&mut self) -> Result<()> {
        if !self.look_for_time_of_day()? {
            bail!("{} does not say at what time of day it was recorded", self.recording.name);
        }
        Ok(())
    }

    /// Returns the selected ranges of time, in the recording's clock. The result is empty if no range was selected.
    pub fn selected_times(&mut self) -> Result<&[(u64, u64)]> {
        Ok(&self.prepared()?.selection.times)
    }

    /// Returns the times of the first and the last sample, even if the records have to be unpacked for this.
    pub fn times(&mut self) -> Result<Option<(u64, u64)>> {
        Ok(self.recording.times()?)
    }

    /// Like [`ChosenRecording::find_time_of_day`], but returns false instead of failing.
    pub fn look_for_time_of_day(&mut self) -> Result<bool> {
        let found = realtime_offset(&mut self.recording, &self.input.path)?;
        let (offset, warning) = find_offset(found, &self.recording.name, &self.input);
        if let Some(warning) = warning {
            messages::say(format_args!("{warning}"));
        }
        if let Some(offset) = offset {
            self.prepared()?.context.set_realtime_offset(offset);
        }
        Ok(offset.is_some())
    }

    /// Prepares to decode columns of the recording in parts. Returns `None` if this is not possible.
    pub fn column_parts(&mut self) -> Result<Option<Box<ColumnParts>>> {
        if self.plan.limit.is_some() || !self.input.names.are_all() || !self.input.cgroups.is_empty() {
            return Ok(None);
        }
        let selection = self.prepared()?.selection.clone();
        let parts = ColumnParts::new(&mut self.recording, &self.selected, &selection, &self.input)?;
        Ok(parts.map(Box::new))
    }

    /// Divides the recording into parts. Fails if the parts together would have another result than a replay of the
    /// whole recording.
    pub fn divide(&mut self, jobs: &Jobs) -> Result<Vec<Part>> {
        let span = self.prepared()?.span;
        let Self { plan, recording, selected: Selected { routes, derived, .. }, .. } = self;
        let whole = Whole { recording, routes, derived, span, interval: plan.interval };
        whole.check(jobs.split)?;
        Ok(whole.divide(jobs)?)
    }

    /// Reads a part in advance, without an interpreter, if derived events may continue in the next part. The process of
    /// the next part is forked afterwards, so it has a copy of the open spans. `check` is called after each batch and
    /// can end the reading.
    pub fn read_in_advance(
        &mut self,
        part: &Part,
        carried: &mut Carried,
        check: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if self.selected.derived.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let Prepared { selection, context, .. } = self.prepared()?;
        let (mut selection, context) = (selection.clone(), context.clone());
        let (budget, input) = (context.budget(), &self.input);
        if carried.is_empty() {
            let flow = carried.read_before(&self.recording, &self.selected, &selection, input, &context, check);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        part.select(&mut selection);
        Ok(carried.read(&self.recording, &self.selected, selection, input, budget, check)?)
    }

    /// Opens a slice of the recording.
    pub fn open(mut self, mut slice: Slice, signals: &Signals) -> Result<Session> {
        let Prepared { mut selection, span, context, .. } = match self.prepared.take() {
            Some(prepared) => prepared,
            None => self.find()?,
        };
        let ChosenRecording { plan, input, mut recording, selected, .. } = self;
        let times = recording.known_times()?;
        // The last record of the recording may be one of another task, and the recording may go on after its last record.
        let ended = recording.end().max(times.map(|(_, last)| last));
        let provenance = provenance(&recording, &selection, times.map(|(first, _)| first), ended);
        let whole = selection.clone();
        let loss_reporting = slice.limit(&mut selection);
        let reading = (&recording, &selected, &selection);
        let carried = carried_to(&mut slice, reading, &input, &context, signals);
        let span = span.map(|span| slice.part_of(span));
        span.inspect(|span| context.note_reached(span.intervals_after));
        let layouts = recording.layouts().clone();
        let selects_tasks = !input.cgroups.is_empty() && !input.tasks.is_of_samples();
        let needs_tasks = selects_tasks || !selected.derived.is_empty();
        let task_cgroups = needs_tasks.then(|| selected.task_cgroups(&recording)).flatten();
        let attrs = attrs(&recording, &selected);
        let Selected { types, derived, routes, missing_events, lacking, .. } = selected;
        let missing = MissingEvents {
            names: missing_events,
            recording: recording.name.clone(),
            damage: recording.warnings.clone(),
            warnings: slice.warnings(),
        };
        let formats = recording.events.iter().filter_map(|event| event.format.clone()).collect();
        let machine = recording.features.arch.clone();
        let facts = facts(&recording, times, &input, &selection);
        let until = ended.map_or(0, |ended| ended.min(selection.last_time()));
        let intervals = plan.interval.map(|every| Intervals::new(every, span));
        let limits = select::sample_limits(&recording);
        let off = recording.off_times().to_vec();
        let mut replay = recording.replay(selection)?;
        replay.set_wake(signals.wake_fd());
        let ring_cpus = replay.ring_cpus();
        let stats = Arc::new(Stats::new(types.len(), ring_cpus.len()).with_spans(derived.len()));
        lacking.note(&stats);
        note_times(&stats, &whole, &off);
        stats.set_provenance(provenance);
        let replay_state = ReplayState::new(layouts.clone(), routes, intervals, loss_reporting)
            .with_limits(limits, stats.clone())
            .selecting(&input);
        let about = About {
            is_delivered: derive::are_delivered(types.len(), &derived),
            stats,
            events: types,
            trailers: Trailers::Recorded(layouts),
            attrs,
            context,
            ring_cpus,
            recording: Some(facts),
            machine,
            selectors: Vec::new(),
            refresh: None,
            available: Available::Recorded(formats),
            missing: Some(missing),
        };
        let session =
            RecordedSession { plan, input, replay, replay_state, task_cgroups, derived, slice, carried, until };
        Ok(Session::new(about, Source::Recorded(Box::new(session))))
    }
}

/// Notes which times of a recording a run selects, and whether the events were off in some of them.
fn note_times(stats: &Stats, selection: &Selection, off: &[(u64, u64)]) {
    if !selection.times.is_empty() {
        stats.note_of_part();
    }
    if !selection.holes.is_empty() {
        stats.note_holes();
    }
    if off.iter().any(|&(off, on)| selection.some_time(off, on)) {
        stats.note_off();
    }
}

fn facts(recording: &Recording, times: Option<(u64, u64)>, input: &Input, selection: &Selection) -> RecordingFacts {
    RecordingFacts {
        path: input.path.clone(),
        hostname: recording.features.hostname.clone(),
        kernel: recording.features.os_release.clone(),
        is_of_this_kernel: kernel::is_running(recording),
        times,
        selected: selection.times.clone(),
        off: recording.off_times().to_vec(),
    }
}

/// Returns the attr of each event type.
fn attrs(recording: &Recording, selected: &Selected) -> Vec<EventAttr> {
    let attr_of = |index: usize| {
        let event = &recording.events[index];
        EventAttr { index, bytes: event.attr.bytes.to_vec(), ids: event.ids.clone() }
    };
    selected.attr_of_each_type().into_iter().map(attr_of).collect()
}

/// Returns the state of derived events at the start of a slice. Reads what comes before the selected time if no part before
/// was read.
fn carried_to(
    slice: &mut Slice,
    (recording, selected, selection): (&Recording, &Selected, &Selection),
    input: &Input,
    context: &Context,
    signals: &Signals,
) -> Carried {
    let Some(mut carried) = slice.take_carried() else { return Carried::default() };
    if carried.is_empty() {
        let check = &mut || if signals.is_pending() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        // A signal also ends the run.
        let _ = carried.read_before(recording, selected, selection, input, context, check);
    }
    carried
}

/// The selected events in a recording, ready to be replayed.
pub(super) struct RecordedSession {
    plan: Arc<RunPlan>,
    input: Input,
    replay: Replay,
    replay_state: ReplayState,
    task_cgroups: Option<TaskCgroups>,
    derived: Vec<Derived>,
    slice: Slice,
    /// The state of derived events before the selected time.
    carried: Carried,
    /// The end of the selected time; 0 if it is not known. If the recording does not say when it ended, that is the time
    /// of its last sample of any task.
    until: u64,
}

impl RecordedSession {
    /// Delivers the selected samples to the sink, ordered by time.
    pub(super) fn run(self, about: &About, sink: &mut dyn Sink, signals: &Signals) -> Outcome {
        let RecordedSession { plan, input, mut replay, replay_state, task_cgroups, derived, slice, carried, until } =
            self;
        let (verbosity, warnings, last) = (plan.verbosity, slice.warnings(), slice.finish_as());
        // The counts of samples decide the status of the run only for a whole recording. A part may have no samples.
        let is_whole = matches!(slice, Slice::Whole);
        let has_status = is_whole && plan.face != Face::Program;
        // With several parts, their processes already use all CPUs, so reading ahead would not help.
        if !matches!(slice, Slice::Part(..)) {
            replay.read_ahead();
        }
        let delivery = ReplayRun {
            replay,
            replay_state,
            task_cgroups,
            events: &about.events,
            derived: &derived,
            carried,
            context: about.context.clone(),
            stats: about.stats.clone(),
            signals,
            limit: plan.limit,
            usage_every: plan.usage_every,
            output: plan.output.as_deref(),
            last,
            until,
            verbosity,
            warnings,
        };
        let mut named = NamedSamples::new(sink, &input.names, &about.events, about.context.clone());
        let mut outcome = delivery.run(&mut named);
        if last == FinishAs::Program {
            span_report::print_unfulfilled(&about.events, &about.stats, &about.context, verbosity);
        }
        losses::print_endings(about.context.endings(), verbosity);
        losses::print_unknown_cgroups(&about.context);
        if let Some(nothing) = named.nothing_selected().filter(|_| is_whole && verbosity > Verbosity::Quiet) {
            messages::say(nothing);
        }
        if is_whole && !input.tasks.is_of_samples() {
            report_unknown_names(&about.context, &input);
        }
        let failure = outcome.check().err().map(Into::into);
        let replayed = Replayed {
            last: outcome.last,
            counts: outcome.sample_counts,
            unnamed_frames: about.context.with_symbols(|symbols| symbols.unnamed_frames().clone()),
            lost: outcome.lost,
            lacks_records: about.stats.is_damaged(),
            damage: outcome.damage,
        };
        Outcome {
            ending: outcome.ending,
            at_exit: outcome.at_exit,
            lost: about.stats.total_lost(),
            replayed: Some(replayed),
            own: has_status.then(|| outcome.sample_counts.status()),
            failure,
            recorded: Ok(None),
            closing: Closing::default(),
        }
    }
}

/// Prints which of the selected cgroups are not in the recording.
fn report_unknown_names(context: &Context, input: &Input) {
    for name in context.with_cgroups(|cgroups| cgroups.without_match(&input.cgroups)) {
        let path = input.path.display();
        messages::say(format_args!(
            "no cgroup in {path} matches `--cgroups {name}`; `perf-prof report -i {path} --sort cgroup` lists its cgroups"
        ));
    }
}

/// Returns how the recording is opened. Several processes share the allowed memory.
fn limits(input: &Input, events: &[EventSpec]) -> ReadLimits {
    // For spans, one more process reads parts in advance.
    let readers = usize::from(events.iter().any(|event| matches!(event.kind, EventKind::Span(_))));
    let of_jobs = || input.jobs.map_or(1, |jobs| jobs.count + readers);
    let processes = input.processes.unwrap_or_else(of_jobs);
    let memory = input.limits.memory.unwrap_or_else(memory::default_buffer) / processes;
    ReadLimits { memory: Some(memory), ..input.limits }
}

/// Creates the context of the replay. All names and clock offsets come from the recording, and nothing from the
/// programs that run on this machine now.
///
/// The first process that needs the time of day drains `warns`. Only this process prints the warning.
fn context(
    plan: &RunPlan,
    input: &Input,
    recording: &mut Recording,
    events: &[EventType],
    warns: Arc<EventFd>,
) -> Result<Arc<Context>> {
    let sides = select::sides(&plan.capture.callchain)?;
    let offset = match plan.face {
        Face::Script | Face::Program => realtime_offset(recording, &input.path)?,
        // The offset is 0 until a command needs the time of day (`find_time_of_day`).
        Face::Command => RealtimeOffset::Exact(0),
    };
    let binaries = binaries(recording, &input.path)?;
    let kernel = RecordedKernel::new(recording, &binaries);
    let ids = |ids: &Option<Vec<u32>>| ids.clone().unwrap_or_default();
    let targets = Targets::recorded(&ids(&input.pids), &ids(&input.tids)).in_cgroups(&input.cgroups);
    let targets = (!input.tasks.is_of_samples()).then_some(targets);
    let spans_of = match input.tasks {
        TaskSelection::ForScript => SpansOf::AllTasks,
        TaskSelection::Named | TaskSelection::WithChildren | TaskSelection::OfSpans => SpansOf::SelectedTasks,
    };
    let exact_offset = if let RealtimeOffset::Exact(offset) = offset { Some(offset) } else { None };
    let mut context = Context::new(Box::new(kernel), exact_offset.unwrap_or(0))
        .with_budget(recording.budget().clone())
        .with_sides(sides)
        .with_frame_limit(input.max_stack)
        .with_targets(targets, spans_of)
        .with_recorded_queues(recording.hardware_queues())
        .with_machine(recording.features.arch.as_deref());
    context.note_recorded_since(recording.known_times()?.map_or(u64::MAX, |(first, _)| first));
    if exact_offset.is_none() {
        let (input, name) = (input.clone(), recording.name.clone());
        // This closure is called at most once, when a time of day is needed.
        context = context.with_offset_found_by(move || {
            let (offset, warning) = find_offset(offset, &name, &input);
            let shown: Box<dyn FnOnce() + Send> = Box::new(move || {
                if warns.take() {
                    messages::say(format_args!("{}", warning.unwrap_or_else(|| unknown_time_of_day(&name))));
                }
            });
            FoundOffset { offset, shown: LazyLock::new(shown) }
        });
    }
    let context = context.with_symbol_options(plan.symbols_for(events), Processes::Recorded(binaries));
    if let Some(frames) = &recording.features.interpreter_frames {
        let how = plan.recorded_python();
        if how != InterpreterFrameUse::No {
            context.follow_interpreters(RunInterpreters::recorded(how, recorder::told(frames)));
        }
    }
    Ok(Arc::new(context))
}

fn unknown_time_of_day(recording: &str) -> String {
    format!(
        "{recording} does not say at what time of day it was recorded: _realtime is None, and realtime() is the time of the \
         recording's clock"
    )
}

/// Returns the number to add to the times of records, and a warning if this number is guessed.
fn find_offset(found: RealtimeOffset, recording: &str, input: &Input) -> (Option<i64>, Option<String>) {
    let guess = match found {
        RealtimeOffset::Exact(offset) => return (Some(offset), None),
        RealtimeOffset::Guessed(guess) => Some(guess),
        RealtimeOffset::Unknown => None,
        RealtimeOffset::AfterUnpacking => realtime_offset_by_unpacking(&input.path, &input.limits),
    };
    guess.map_or((None, None), |guess| (Some(guess.offset), Some(format!("warning: {}", guess.warning(recording)))))
}
