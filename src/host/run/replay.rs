//! Runs a script on the events in a recording: selects the events, and replays the whole recording or a part of it.

use std::{mem, sync::Arc};

use anyhow::{Context as _, Result};
use perf_prof_core::{
    derive::{self, Derived},
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        losses,
        run_loop::{Ending, FinishAs},
        sample_routes::{Intervals, LossReporting, ReplayState, Span},
    },
    event::{Context, EventType, NamedSamples, Processes, Sink, Stats, Targets},
    perfdata::{Layouts, Recording, Replay, Selection},
    plan::{Input, ReadLimits, TaskSelection, Verbosity},
    record::Source as _,
    recording::{
        binaries::binaries,
        carried::Carried,
        clock::{RealtimeOffset, realtime_offset, realtime_offset_by_unpacking, span, times},
        columns::ColumnParts,
        empty_result::SelectionSource,
        kernel::RecordedKernel,
        open,
        replay::{ReplayOutcome, ReplayRun, Warnings},
        select::{self, Selected},
    },
    sys::{blocked_signals::BlockedSignals, capability, memory, output as messages, signals::Signals},
    tracefs::EventFormat,
};

use super::{
    RunEnd, jobs,
    missing_events::MissingEvents,
    one_part, output,
    plan::{Module, ScriptPlan},
    script::{AvailableEvents, Script},
    script_run::{self, Outcome, ScriptEventSource},
    shard::{Merging, Shard},
    spans,
};
use crate::script::{EventAttr, Program, PythonChoice, RecordingFacts, Run, Trailers, set_part_of_process};

/// Runs the script on a recording.
pub(super) fn run(plan: &ScriptPlan, input: &Input) -> Result<ExitStatus> {
    capability::give_up_right_to_read();
    output::redirect(plan)?;
    // Opening a pipe may block. Ctrl-C has to end the process while it is blocked, so signals are not blocked yet.
    let (recording, selected) = open_selected(plan, input)?;
    let Module::Script { module, args } = &plan.module else {
        return output::print_template(plan, &derive::delivered(&selected.types, &selected.derived));
    };
    say_what_is_missing(plan, &recording, &selected, plan.verbosity)?;
    let work = ReplayWork { plan, input, script: Script { module, args } };
    match (&input.jobs, &plan.part) {
        (Some(jobs), Some(part)) => one_part::run(&work, jobs, part, recording, selected),
        (Some(jobs), None) => jobs::run(&work, jobs, recording, selected),
        (None, _) => work.run_part(recording, selected, BlockedSignals::new()?, Part::Whole),
    }
}

/// Delivers the events in a recording to the receiver that `receive` creates. No script is loaded. The receiver also gets
/// what is needed to decode columns in parts, if no sample depends on those before it.
pub(super) fn deliver<S: Sink>(
    plan: &ScriptPlan,
    input: &Input,
    signals: &Signals,
    receive: impl FnOnce(Arc<Run>, Option<Box<ColumnParts>>) -> S,
) -> Result<RunEnd> {
    let (mut recording, selected) = open_selected(plan, input)?;
    // A program can filter messages itself.
    say_what_is_missing(plan, &recording, &selected, Verbosity::Normal)?;
    let work = ReplayWork { plan, input, script: Script::none() };
    let parts = match plan.exit_n.is_none() && input.names.are_all() {
        true => {
            let selection = selection(plan, input, &mut recording, &selected)?;
            ColumnParts::new(&mut recording, &selected, &selection, input.guests)?.map(Box::new)
        }
        false => None,
    };
    let mut events = RecordedEvents::open(&work, recording, selected, Part::Whole, signals)?;
    let run = Arc::new(events.describe_run());
    let mut receiver = receive(run.clone(), parts);
    let mut outcome = events.deliver_to(&mut receiver, &Part::Whole, &run, signals);
    outcome.check()?;
    Ok(RunEnd {
        ending: outcome.ending,
        status: exit_status(outcome.ending, outcome.at_exit, Callbacks::Returned, None),
    })
}

/// Opens the recording and selects its events.
pub(super) fn open_selected(plan: &ScriptPlan, input: &Input) -> Result<(Recording, Selected)> {
    let recording = open::open(&input.path, &limits(plan, input))?;
    // If an event is missing, damage to the recording may be the reason. So the warnings about the recording are
    // printed too.
    let selected = select::select(&plan.capture.events, plan.own_events, &recording).inspect_err(|_| {
        recording.warnings.iter().for_each(|warning| messages::say(format_args!("warning: {warning}")))
    })?;
    Ok((recording, selected))
}

/// Prints what the selected events lack in the recording. Fails if the plan needs call chains in a wrong way.
pub(super) fn say_what_is_missing(
    plan: &ScriptPlan,
    recording: &Recording,
    selected: &Selected,
    verbosity: Verbosity,
) -> Result<()> {
    select::sides(&plan.capture.callchain)?;
    // This is printed with -q too: the result may be that of other probes than the user has selected.
    selected.unknown_files(recording).iter().for_each(|warning| messages::say(format_args!("warning: {warning}")));
    if verbosity > Verbosity::Quiet {
        for missing in selected.missing_chains(&plan.capture.callchain, recording) {
            messages::say(format_args!("warning: {missing}"));
        }
    }
    Ok(())
}

/// Returns how the recording is opened. Several processes share the allowed memory.
fn limits(plan: &ScriptPlan, input: &Input) -> ReadLimits {
    let processes = match &plan.part {
        Some(part) => part.processes,
        None => input.jobs.map_or(1, |jobs| jobs.count + spans::readers(plan)),
    };
    let memory = input.limits.memory.unwrap_or_else(memory::default_buffer) / processes;
    ReadLimits { memory: Some(memory), ..input.limits }
}

/// The replay of a recording with a script.
#[derive(Clone, Copy)]
pub(super) struct ReplayWork<'a> {
    pub plan: &'a ScriptPlan,
    pub input: &'a Input,
    pub script: Script<'a>,
}

/// The part of the replay that this process does.
pub(super) enum Part<'a> {
    /// The whole replay.
    Whole,
    /// The whole replay of one of several recordings, for a program that goes on after it.
    OneOfSeveral,
    /// The replay of one shard, to which the shards before it carry something. The result is written to the files of
    /// the shard.
    Shard(&'a Shard, Carried),
    /// No replay: this process merges the results of the shards.
    Merge(&'a mut Merging),
}

impl Part<'_> {
    /// Says whether this process prints warnings about the recording. If there are several processes, only one of them
    /// prints the warnings.
    fn warnings(&self) -> Warnings {
        match self {
            Part::Whole | Part::OneOfSeveral => Warnings::Printed,
            Part::Shard(shard, _) if shard.part.is_first() => Warnings::Printed,
            Part::Shard(..) | Part::Merge(_) => Warnings::PrintedElsewhere,
        }
    }
}

impl ReplayWork<'_> {
    /// Does a part of the replay in a new interpreter. `held` blocks signals until signal handlers are installed.
    pub fn run_part(
        &self,
        recording: Recording,
        selected: Selected,
        held: BlockedSignals,
        part: Part<'_>,
    ) -> Result<ExitStatus> {
        let choice = PythonChoice::make(self.plan.python.as_deref())?;
        script_run::run(self.plan, self.script, &choice, held, |signals| {
            RecordedEvents::open(self, recording, selected, part, signals)
        })
    }
}

/// The selected events in a recording, ready to be replayed.
pub(super) struct RecordedEvents<'a> {
    plan: &'a ScriptPlan,
    input: &'a Input,
    part: Part<'a>,
    replay: Replay,
    replay_state: ReplayState,
    types: Vec<EventType>,
    derived: Vec<Derived>,
    /// What the shards before this one carry to it.
    carried: Carried,
    /// The attr of each event in `types`.
    attrs: Vec<EventAttr>,
    layouts: Arc<Layouts>,
    /// The formats of all tracepoints in the recording.
    formats: Vec<Arc<EventFormat>>,
    missing: MissingEvents,
    context: Arc<Context>,
    machine: Option<String>,
    /// What the recording says about itself.
    facts: Option<RecordingFacts>,
}

impl<'a> RecordedEvents<'a> {
    pub fn open(
        &ReplayWork { plan, input, .. }: &ReplayWork<'a>,
        mut recording: Recording,
        selected: Selected,
        mut part: Part<'a>,
        signals: &Signals,
    ) -> Result<Self> {
        let mut selection = selection(plan, input, &mut recording, &selected)?;
        let needs_span = plan.interval.is_some() || input.jobs.is_some();
        let mut span = if needs_span { span(&selection.times, &mut recording)? } else { None };
        let mut loss_reporting = LossReporting::for_cpus(selection.cpus.as_ref());
        let mut carried = Carried::default();
        if let Part::Shard(shard, of_shard) = &mut part {
            set_part_of_process(&shard.part);
            loss_reporting = LossReporting::for_part(selection.cpus.as_ref());
            shard.part.select(&mut selection);
            span = span.map(|span| shard.part.part_of(span));
            carried = mem::take(of_shard);
        }
        let context = context(plan, input, &mut recording, (&selected.types, span))?;
        let layouts = recording.layouts().clone();
        let attr_of = |index: usize| EventAttr { index, bytes: recording.events[index].attr.bytes.to_vec() };
        let attrs = selected.attr_of_each_type().into_iter().map(attr_of).collect();
        let Selected { types, derived, routes, missing_events, .. } = selected;
        let missing = MissingEvents {
            names: missing_events,
            recording: recording.name.clone(),
            damage: recording.warnings.clone(),
            warnings: part.warnings(),
        };
        let formats = recording.events.iter().filter_map(|event| event.format.clone()).collect();
        let machine = recording.features.arch.clone();
        let facts = Some(RecordingFacts {
            path: input.path.clone(),
            hostname: recording.features.hostname.clone(),
            kernel: recording.features.os_release.clone(),
            times: recording.known_times()?,
        });
        let intervals = plan.interval.map(|every| Intervals::new(every, span));
        let replay_state =
            ReplayState::new(layouts.clone(), routes, intervals, loss_reporting).with_guests(input.guests);
        let mut replay = recording.replay(selection)?;
        replay.set_wake(signals.wake_fd());
        Ok(RecordedEvents {
            plan,
            input,
            part,
            replay,
            replay_state,
            types,
            derived,
            carried,
            attrs,
            layouts,
            formats,
            missing,
            context,
            machine,
            facts,
        })
    }
}

/// Returns the samples that are replayed, of all parts.
pub(super) fn selection(
    plan: &ScriptPlan,
    input: &Input,
    recording: &mut Recording,
    selected: &Selected,
) -> Result<Selection> {
    let times = times(input, recording)?;
    let (pids, tids) = input.tasks_of_samples();
    let (attrs, cpus) = (selected.attrs(recording), input.cpus.clone());
    Ok(Selection { attrs, cpus, pids, tids, times, others: plan.dialect.other_records(), gaps: selected.gaps() })
}

/// Creates the context of the replay. All names and clock offsets come from the recording. None comes from the programs
/// that run on this machine now.
fn context(
    plan: &ScriptPlan,
    input: &Input,
    recording: &mut Recording,
    (events, span): (&[EventType], Option<Span>),
) -> Result<Arc<Context>> {
    let offset = realtime_offset(recording, &input.path)?;
    let known_offset = if let RealtimeOffset::Known(offset) = offset { Some(offset) } else { None };
    let binaries = binaries(recording, &input.path)?;
    let kernel = RecordedKernel::new(recording, &binaries);
    let sides = select::sides(&plan.capture.callchain)?;
    let ids = |ids: &Option<Vec<u32>>| ids.clone().unwrap_or_default();
    let targets = Targets::recorded(&ids(&input.pids), &ids(&input.tids));
    let targets = (input.tasks == TaskSelection::ForScript).then_some(targets);
    let mut context = Context::new(Box::new(kernel), known_offset.unwrap_or(0))
        .with_sides(sides)
        .with_frame_limit(input.max_stack)
        .with_targets(targets)
        .with_machine(recording.features.arch.as_deref());
    if known_offset.is_none() {
        let (path, name, limits) = (input.path.clone(), recording.name.clone(), input.limits);
        context = context.with_offset_found_by(move || {
            let found = match offset {
                RealtimeOffset::AfterUnpacking => realtime_offset_by_unpacking(&path, &limits),
                RealtimeOffset::Known(_) | RealtimeOffset::Unknown => None,
            };
            if found.is_none() {
                // This function is called at most once.
                messages::say(format_args!(
                    "{name} does not say at what time of day it was recorded: _realtime is None, and realtime() is the \
                     time of the recording's clock"
                ));
            }
            found
        });
    }
    let context = Arc::new(context.with_symbol_options(plan.symbols_for(events), Processes::Recorded(binaries)));
    span.inspect(|span| context.note_reached(span.intervals_after));
    Ok(context)
}

impl ScriptEventSource for RecordedEvents<'_> {
    fn describe(&mut self) -> Run {
        self.describe_run()
    }

    fn with_available<R>(&self, load: impl FnOnce(&AvailableEvents<'_>) -> R) -> R {
        let events = || self.formats.iter().map(|format| (format.system.to_string(), format.name.clone())).collect();
        load(&AvailableEvents { events: &events, missing: Some(&self.missing) })
    }

    fn abandon(self, status: u8) -> Outcome {
        status.into()
    }

    fn deliver(mut self, mut program: Program, run: &Arc<Run>, signals: &Signals) -> Result<Outcome> {
        let (plan, input) = (self.plan, self.input);
        if let Part::Merge(merging) = self.part {
            return jobs::merge(merging, program, run).map(Outcome::from);
        }
        let part = mem::replace(&mut self.part, Part::Whole);
        let mut outcome = self.deliver_to(&mut program, &part, run, signals);
        let mut callbacks = program.callbacks();
        if let Part::Shard(shard, _) = &part {
            let partial = program.partial();
            program.clear();
            let left = shard.write_result(run, &outcome, callbacks, partial?);
            left.with_context(|| {
                format!("cannot store the result of __partial__() in {}", std::env::temp_dir().display())
            })?;
            // The process that merges the results returns the status of callbacks that raised and of signals.
            callbacks = Callbacks::Returned;
            if matches!(outcome.ending, Ending::Signal { .. }) {
                return Ok(0.into());
            }
        } else {
            let nameless = run.context.with_symbols(|symbols| symbols.unnamed_frames().clone());
            losses::print_unnamed_frames(&nameless, plan.verbosity);
            program.clear();
            outcome.sample_counts.report(input, &plan.capture.events, SelectionSource::UserAndScript(plan.verbosity));
        }
        outcome.check()?;
        // A process that replays a part exits with an error status only if it failed. It is not a failure if the part
        // contains no samples.
        let own = if matches!(part, Part::Whole) { outcome.sample_counts.status() } else { 0 };
        Ok(exit_status(outcome.ending, outcome.at_exit, callbacks, Some(own)).into())
    }
}

impl RecordedEvents<'_> {
    /// Returns the run that the receiver sees. Called once.
    pub fn describe_run(&mut self) -> Run {
        let (events, attrs) = (mem::take(&mut self.types), mem::take(&mut self.attrs));
        let ring_cpus = self.replay.ring_cpus();
        let stats = Arc::new(Stats::new(events.len(), ring_cpus.len()).with_spans(self.derived.len()));
        let trailers = Trailers::Recorded(self.layouts.clone());
        let recording = self.facts.take();
        let is_input = |at: usize| self.derived.iter().any(|derived| derived.inputs.contains(&at));
        Run {
            is_delivered: (0..events.len()).map(|at| !is_input(at)).collect(),
            events,
            attrs,
            trailers,
            context: self.context.clone(),
            stats,
            ring_cpus,
            recording,
            machine: self.machine.take(),
        }
    }

    /// Delivers the events to any receiver.
    pub fn deliver_to(
        self,
        receiver: &mut impl Sink,
        part: &Part<'_>,
        run: &Arc<Run>,
        signals: &Signals,
    ) -> ReplayOutcome {
        let RecordedEvents { plan, input, mut replay, replay_state, derived, carried, context, .. } = self;
        let last = match part {
            Part::Whole => FinishAs::Program,
            Part::OneOfSeveral => FinishAs::LastPart,
            Part::Shard(shard, _) if shard.part.is_last() => FinishAs::LastPart,
            Part::Shard(..) | Part::Merge(_) => FinishAs::Part,
        };
        if matches!(part, Part::Whole | Part::OneOfSeveral) {
            // If there are several parts, their processes already use all CPUs, so reading ahead would not help.
            replay.read_ahead();
        }
        let reopen = || output::reopen(plan);
        let delivery = ReplayRun {
            replay,
            replay_state,
            events: &run.events,
            derived: &derived,
            carried,
            context,
            stats: run.stats.clone(),
            signals,
            limit: plan.exit_n,
            usage_every: plan.usage_self,
            reopen: &reopen,
            last,
            verbosity: plan.verbosity,
            warnings: part.warnings(),
        };
        let mut selected = NamedSamples::new(receiver, &input.names, &run.events, run.context.clone());
        let outcome = delivery.run(&mut selected);
        losses::print_endings(run.context.endings(), plan.verbosity);
        outcome
    }
}
