//! A session of live events: opens the events, delivers them to a sink, and records them if requested.

use std::{os::fd::RawFd, path::PathBuf, sync::Arc};

use anyhow::Result;
use perf_prof_capture::{Capture, CaptureError, EventRequest, Mappings};
use perf_prof_events::{
    derive::{
        self, Derived, DerivingSink,
        source::{Scope, scope},
    },
    event::{Cgroups, Context, EventType, Format, Processes, Provenance, RunInterpreters, Sink, Stats, Targets},
};
use perf_prof_format::{
    record::{Ended, EventIds, Source as _},
    spec::EventSpec,
};
use perf_prof_symbols::{running_kernel::RunningKernel, runtime::Interpreters};
use perf_prof_system::{
    cgroup,
    clock::{self, Calibration},
    close_in_child::ClosingHeldOff,
    own_threads, perf,
    signals::Signals,
    topology::hostname,
    tracefs::Tracefs,
    workload::Workload,
};

use super::{
    about::{About, Available, EventAttr, Trailers},
    opened::{Session, Source},
    outcome::{Closing, Outcome},
};
use crate::{
    engine::{
        kernel_tables::{EventUse, KernelTables},
        losses,
        pump::{LossWindow, MoveEvent, Pump, PumpSettings, SharedSamples, TaskCgroups},
        refresh::Refresh,
        run_loop::{Ending, EventsEnd, FinishAs, RunLoop},
        span_report,
    },
    live::{
        chosen::{ArmedEvents, event_types},
        in_kernel::OpenEvents,
        kernel_target,
        pairs::{PreparedPairs, UnopenedEvents},
        read_ahead::ReadAhead,
        refusal::open_error,
        requests::{self, Sizes},
        select::{self, Selected},
        sharing,
        workload_end::end_workload,
    },
    plan::{self, DeliveryOrder, Face, LivePlan, OwnThreads, RecordingOutput, RunPlan, Switch, Target},
    recorder::{self, AfterFailure, FrameNames, RecordingTee, RecordingWriter, Subject, Summary},
};

/// Live events that are open but not enabled.
pub(super) struct LiveSession {
    plan: Arc<RunPlan>,
    of_live: LivePlan,
    tracefs: Tracefs,
    selected: Vec<Selected>,
    derived: Vec<Derived>,
    pairs: PreparedPairs,
    moves: Option<usize>,
    workload: Option<Workload>,
    calibration: Calibration,
    /// The time of day minus the events' clock, in ns.
    offset: i64,
    capture: Capture,
    /// The tracepoints whose samples several events get, if there are any.
    shared: Option<SharedSamples>,
    closing: ClosingHeldOff,
}

pub(super) fn open(plan: Arc<RunPlan>, armed: ArmedEvents, signals: &Signals) -> Result<Session> {
    let ArmedEvents { closing, tracefs, events: mut selected, derived, moves, limits, workload } = armed;
    // The last event may be the event about moves of tasks between cgroups, which no program receives.
    let received = moves.unwrap_or(selected.len());
    let of_live = plan.live().cloned().unwrap_or_default();
    let unopened = UnopenedEvents {
        plan: &plan,
        tracefs: &tracefs,
        derived: &derived,
        received,
        workload: workload.as_ref().map(Workload::pid),
    };
    let pairs = unopened.prepare_pairs(&mut selected)?;
    let requests = requests::requests(&plan.capture, &selected)?;
    let (mappings, sizes) = (requests::mappings(&plan.capture, &requests), requests::sizes(&plan.capture, &requests));
    // The clock is calibrated before the rings are opened, because the rings may take all the memory that the user may
    // lock.
    let mut calibration = Calibration::new(requests::clock(&plan.capture)).map_err(CaptureError::of_clock)?;
    let (recorded, wake) = (of_live.recording.is_some(), signals.wake_fd());
    let capture = open_capture(&plan.capture, recorded, &selected, requests, workload.as_ref(), &sizes, wake)?;
    requests::report_missing_cpus(&plan.capture, &selected)?;
    limits.report();
    requests::report_opened(&sizes, &selected, &capture, plan.verbosity, "delivered");
    let processes = if mappings == Mappings::Delivered { Processes::Followed } else { Processes::Ignored };
    let offset = calibration.realtime_offset()?;
    // A context switch belongs to two tasks. So the kernel also reports switches between perf-prof and other tasks. The
    // context leaves these switches out.
    let left_out = (plan.capture.own_threads == OwnThreads::LeftOut).then(std::process::id);
    let context = Context::new(Box::new(RunningKernel::new(tracefs.clone())), offset)
        .with_budget(sizes.buffer)
        .with_targets(targets(&plan.capture, workload.as_ref())?, plan.capture.spans_of)
        .with_left_out(left_out);
    let events =
        event_types(&selected[..received], &derived, |event| capture.layout(selected[event].opened_at(event)))?;
    let context = Arc::new(context.with_symbol_options(plan.symbols_for(&events), processes));
    let ring_cpus = capture.ring_cpus();
    let stats = Stats::new(events.len(), ring_cpus.len()).with_spans(derived.len());
    let about = About {
        is_delivered: derive::are_delivered(events.len(), &derived),
        selectors: selectors(&plan, &selected[..received], &events),
        events,
        trailers: Trailers::Live(capture.trailer()),
        attrs: attrs(&capture, received),
        context,
        stats: Arc::new(stats.with_own_samples(capture.own_samples())),
        ring_cpus,
        recording: None,
        machine: None,
        refresh: Some(Refresh::new(signals.waker()?)),
        available: Available::Kernel(tracefs.clone()),
        missing: None,
    };
    let session = LiveSession {
        shared: sharing::shared_samples(&selected, &capture)?,
        plan,
        of_live,
        tracefs,
        selected,
        derived,
        pairs,
        moves,
        workload,
        calibration,
        offset,
        capture,
        closing,
    };
    Ok(Session::new(about, Source::Live(Box::new(session))))
}

/// Returns the attrs of the first `received` events.
fn attrs(capture: &Capture, received: usize) -> Vec<EventAttr> {
    let opened = capture.attrs().iter().take(received).enumerate();
    opened
        .map(|(index, opened)| EventAttr { index, bytes: perf::attr_bytes(&opened.attr).to_vec(), ids: Vec::new() })
        .collect()
}

impl LiveSession {
    /// Returns the pid of the command, which waits until the run starts.
    pub(super) fn command(&self) -> Option<u32> {
        self.workload.as_ref().map(Workload::pid)
    }

    /// Closes the events without a run.
    pub(super) fn abandon(self) -> Closing {
        Closing { capture: Some(self.capture), tables: KernelTables::default() }
    }

    /// Delivers the events to the sink until the run ends.
    pub(super) fn run(self, about: &About, sink: &mut dyn Sink, (uses, signals): (Vec<EventUse>, &Signals)) -> Outcome {
        let LiveSession { plan, of_live, tracefs, selected, derived, moves, mut capture, offset, closing, .. } = self;
        let (mut workload, mut calibration, pairs, shared) = (self.workload, self.calibration, self.pairs, self.shared);
        let About { context, stats, events, .. } = about;
        note_existing(&plan, context);
        let open = OpenEvents {
            plan: &plan,
            selected: &selected,
            types: events,
            derived: &derived,
            is_delivered: &about.is_delivered,
            tracefs: &tracefs,
            workload: workload.as_ref().map(Workload::pid),
            budget: context.budget(),
            context,
            stats,
        };
        let (mut tables, added_up) = open.add_up(&uses, pairs, &mut capture);
        let mut source = RecordingTee::new(capture, AfterFailure::GoOn);
        let subject = TeeSubject {
            capture: &plan.capture,
            output: of_live.recording.as_ref(),
            tracefs: &tracefs,
            selected: &selected,
            context,
            offset,
        };
        begin(&mut tables, &plan, &selected, (&mut source.source, about));
        let started = added_up.and_then(|()| subject.start(&mut source, workload.as_mut()));
        drop(closing);
        let limit = plan.limit.or(selected.iter().find_map(|event| event.limit));
        // The limit counts delivered events, not the events that spans are made of.
        let pump = pump(&plan, &source.source, &selected, about, (limit.filter(|_| derived.is_empty()), moves));
        // If the measurement fails, the last measured offset is still used.
        let mut calibrate = || calibration.realtime_offset().into_iter().for_each(|at| context.set_realtime_offset(at));
        let sink = DerivingSink::start(sink, events, &derived, stats, context);
        let mut sink = sink.with_pairs(tables.pairs().splitters(), context).with_limit(limit);
        let mut run_loop = RunLoop {
            source,
            pump: pump.with_shared_samples(shared),
            events,
            stats: stats.clone(),
            tables,
            refresh: about.refresh.as_ref(),
            signals,
            interval: plan.interval,
            duration: of_live.duration,
            usage_every: plan.usage_every,
            calibrate: &mut calibrate,
            loss_advice: loss_advice(plan.face, &plan.capture.events),
            output: plan.output.as_deref(),
        };
        let ending = if started.is_ok() { run_loop.run(&mut sink) } else { Ending::NotStarted };
        let end_signal = (!matches!(ending, Ending::Source(_))).then_some(libc::SIGTERM);
        let command = workload.and_then(|workload| end_workload(workload, end_signal));
        let end = end(run_loop.source.off_at(), about);
        let recorded = finish_recording(&mut run_loop.source, ending, end.of_spans);
        let at_exit = run_loop.finish(ending, finish_as(ending, plan.face), &mut sink, end);
        print_shortcomings(about, &plan, command.is_none().then_some(ending));
        Outcome {
            ending,
            at_exit,
            replayed: None,
            lost: stats.total_lost(),
            own: command,
            failure: started.err(),
            recorded,
            closing: Closing { capture: Some(run_loop.source.source), tables: run_loop.tables },
        }
    }
}

/// Notes when the events ended: at `off_at` in the time of day, or now.
fn end(off_at: Option<i64>, About { context, stats, .. }: &About) -> EventsEnd {
    let off_at = off_at.unwrap_or_else(clock::realtime);
    stats.set_provenance(stats.provenance().until(off_at));
    EventsEnd::at(context.time_of_realtime(off_at))
}

/// Begins the run of the programs in the kernel.
fn begin(
    tables: &mut KernelTables,
    plan: &RunPlan,
    selected: &[Selected],
    (capture, About { context, stats, .. }): (&mut Capture, &About),
) {
    stats.set_provenance(Provenance::begins(hostname(), clock::realtime(), super::command::command()));
    if let Some(in_kernel) = tables.interpreters() {
        let interpreters = Interpreters::new(Box::new(in_kernel.with_ids(kernel_target::id_offsets())));
        context.follow_interpreters(RunInterpreters::new(plan.capture.callchain.live_python(), interpreters));
        capture.set_preview(Box::new(ReadAhead::new(context, selected, capture)));
        // The look-up makes the kernel's list of symbols known. If the first event read the list, processes would end
        // meanwhile.
        let _ = context.kernel.symbol(0);
    }
    tables.begin();
}

/// Returns the selector of each event type, as the user wrote it: first of the selected events, then of the derived ones.
fn selectors(plan: &RunPlan, selected: &[Selected], types: &[EventType]) -> Vec<String> {
    let of_derived = |event: &EventType| {
        let name = event.shown_name();
        let name = name.rsplit(':').next().unwrap_or_default();
        let typed = plan.capture.events.iter().map(|spec| &spec.selector);
        let begins = |selector: &&String| {
            let rest = selector.strip_prefix("span:").unwrap_or(selector).strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || "_-:".contains(next)))
        };
        typed.clone().find(begins).cloned().unwrap_or_else(|| event.shown_name())
    };
    let of_selected = selected.iter().map(|event| event.spec.selector.clone());
    of_selected.chain(types.iter().skip(selected.len()).map(of_derived)).collect()
}

/// Returns `Part` for a command without a script whose run did not start, because it has no result to print. Returns
/// `Program` for all other runs, so that [`RunLoop::finish`] calls the exit handler.
fn finish_as(ending: Ending, face: Face) -> FinishAs {
    let has_result = !matches!(ending, Ending::NotStarted) || face != Face::Command;
    if has_result { FinishAs::Program } else { FinishAs::Part }
}

/// Prints which spans, call chains and cgroups are missing. `ending` is `None` if the run has a command.
fn print_shortcomings(About { context, stats, events, .. }: &About, plan: &RunPlan, ending: Option<Ending>) {
    let verbosity = plan.verbosity;
    if ending == Some(Ending::Source(Ended::TasksExited)) {
        losses::print_removed_cgroups(requests::names_of_cgroups(&plan.capture));
    }
    span_report::print_unfulfilled(events, stats, context, verbosity);
    losses::print_endings(context.endings(), verbosity);
    losses::print_unknown_cgroups(context);
}

/// Returns the pump for the records of the capture. `moves` is the index of the event about moves of tasks between
/// cgroups.
fn pump(
    plan: &RunPlan,
    capture: &Capture,
    selected: &[Selected],
    about: &About,
    (limit, moves): (Option<u64>, Option<usize>),
) -> Pump {
    let is_ordered = plan.capture.delivery_order() == DeliveryOrder::Time;
    let pump = Pump::new(PumpSettings {
        ids: EventIds::new(capture.ids())
            .with_foreign_event(select::event_of_foreign_ids(selected))
            .with_closed_events(capture.closed_ids()),
        layout: capture.layout(0),
        trailer: capture.trailer(),
        context: about.context.clone(),
        stats: about.stats.clone(),
        window: if is_ordered { LossWindow::Times } else { LossWindow::Zero },
        rings: about.ring_cpus.len(),
        limit,
    });
    let is_recorded = plan.live().is_some_and(|live| live.recording.is_some());
    let cgroups = task_cgroups(plan, capture, selected, moves, about);
    let pump = pump.with_other_records(plan.others).with_cgroups(cgroups);
    if is_recorded { pump.with_build_ids() } else { pump }
}

/// Returns the object that follows in which cgroup each task is, if the run needs it.
fn task_cgroups(
    plan: &RunPlan,
    capture: &Capture,
    selected: &[Selected],
    moves: Option<usize>,
    about: &About,
) -> Option<TaskCgroups> {
    let event = |index: usize| match &selected.get(index)?.format {
        Format::Tracepoint(format) => {
            let layout = capture.layout(selected[index].opened_at(index));
            Some(MoveEvent { index, format: format.clone(), layout, hierarchy: cgroup::hierarchy_id() })
        }
        Format::Other(_) | Format::Span(_) => None,
    };
    let moves = moves.and_then(event);
    (plan.capture.cgroups == Switch::On).then(|| TaskCgroups { types: about.events.clone(), moves })
}

/// Returns the end of each message about losses: their cause, and what the user can do.
fn loss_advice(face: Face, events: &[EventSpec]) -> &'static str {
    // The filter of a source that needs the events of all tasks selects spans, and so does -p.
    let are_fewer = !matches!(scope(events), Ok(Scope::Machine));
    match (face, are_fewer) {
        (Face::Script | Face::Program, true) => {
            "the script is slower than the events; use a larger -m or --buffer, a filter or fewer events"
        }
        (Face::Script | Face::Program, false) => {
            "the script is slower than the events; use a larger -m or --buffer, or fewer sources: filters and -p select \
             spans, and the events of all tasks are needed to make them"
        }
        (Face::Command, true) => {
            "they came faster than they could be shown; use a larger -m or --buffer, a filter or fewer events"
        }
        (Face::Command, false) => {
            "they came faster than they could be shown; use a larger -m or --buffer, or fewer sources: filters and -p select \
             spans, and the events of all tasks are needed to make them"
        }
    }
}

/// The events that are enabled, and the recording that is written while they are delivered.
struct TeeSubject<'a> {
    capture: &'a plan::Capture,
    output: Option<&'a RecordingOutput>,
    tracefs: &'a Tracefs,
    selected: &'a [Selected],
    context: &'a Arc<Context>,
    offset: i64,
}

impl TeeSubject<'_> {
    /// Enables the events and starts the workload. Then reads the names of tasks that changed before.
    fn start(&self, source: &mut RecordingTee<Capture>, workload: Option<&mut Workload>) -> Result<()> {
        self.enable(source, workload)?;
        read_tasks(self.context, Context::find_changed_names);
        Ok(())
    }

    /// Enables the events and starts the workload. If there is a recording, also starts to record the events.
    fn enable(&self, source: &mut RecordingTee<Capture>, workload: Option<&mut Workload>) -> Result<()> {
        let capture = &mut source.source;
        let Some(RecordingOutput { path, command_line }) = self.output else {
            capture.enable()?;
            workload.map_or(Ok(()), Workload::start)?;
            return Ok(());
        };
        let destination = recorder::Destination::File(path.clone(), None);
        let (selected, tracefs) = (self.selected, self.tracefs);
        let subject = Subject {
            command_line,
            plan: self.capture,
            capture,
            selected,
            tracefs,
            offset: Some(self.offset),
            made: None,
        };
        let mut recording = RecordingWriter::create(destination, &subject)?;
        match recording.begin(self.capture, capture, workload) {
            Ok(()) => {
                let names = FrameNames::of_run(self.context, selected, &source.source);
                source.name_frames(names);
                source.record(recording);
            }
            Err(error) => {
                recording.discard();
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Returns the tasks that the user selected, if the run delivers the events of all tasks.
fn targets(capture: &plan::Capture, workload: Option<&Workload>) -> Result<Option<Targets>> {
    let Some(selected) = &capture.selected_tasks else { return Ok(None) };
    Ok(Some(match (selected, workload) {
        (Target::Processes(pids), _) => Targets::running(pids, &[]),
        (Target::Threads(tids), _) => Targets::running(&[], tids),
        (Target::Cgroups { cgroups, .. }, _) => {
            let folders = requests::cgroups(cgroups)?;
            let path = |folder: &PathBuf| cgroup::path_in_hierarchy(folder).display().to_string();
            Targets::running(&[], &[]).in_cgroups(&folders.iter().map(path).collect::<Vec<_>>())
        }
        (_, Some(workload)) => Targets::running(&[workload.pid()], &[]),
        _ => return Ok(None),
    }))
}

/// If there is a recording, finishes it. `end` is the time at which the events were turned off.
fn finish_recording(source: &mut RecordingTee<Capture>, ending: Ending, end: u64) -> Result<Option<Summary>> {
    let Some(mut recording) = source.take_recording() else { return Ok(None) };
    // If delivery ended early, the kernel's counts include losses from after the end of the recording.
    let lost = if ending.is_complete() { source.source.lost() } else { None };
    if ending.is_complete() && recording.failure().is_none() {
        recording.ended_at(end);
    }
    recording.finish(lost.as_deref(), &mut []).map(Some)
}

fn open_capture(
    plan: &plan::Capture,
    is_recorded: bool,
    selected: &[Selected],
    mut requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    sizes: &Sizes,
    wake: RawFd,
) -> Result<Capture> {
    let target = requests::target(plan, workload.map(Workload::pid))?;
    let mut options = requests::options(plan, sizes, requests::mappings(plan, &requests), wake);
    if is_recorded {
        let seen = recorder::with_members_of_scripts(requests, selected);
        (requests, options) = recorder::with_members_of_recordings(plan, seen, options);
    }
    let opened =
        requests::open_with_rings_that_fit(plan, options, |options| Capture::open(&target, &requests, options));
    opened.map_err(|error| open_error(error, selected))
}

/// Notes the tasks, mappings and cgroups that already exist.
fn note_existing(plan: &RunPlan, context: &Arc<Context>) {
    if plan.capture.cgroups == Switch::On {
        context.find_cgroups();
        context.with_cgroups(Cgroups::follow_tasks);
    }
    read_tasks(context, Context::find_tasks);
    context.find_mappings();
}

/// Starts a thread that reads the names of all tasks. A machine may have a hundred thousand tasks, so the run does not
/// wait for their names.
fn read_tasks(context: &Arc<Context>, read: fn(&Context)) {
    let context = context.clone();
    // If the thread cannot be started, each name is looked up when it is needed.
    let _ = own_threads::spawn("tasks", move || read(&context));
}
