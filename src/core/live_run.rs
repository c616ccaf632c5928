//! A run on events of the running kernel: selects and opens the events, delivers them to a sink, and records them if
//! requested. Does not know argv or Python.

use std::{os::fd::RawFd, path::PathBuf, sync::Arc, thread, time::Duration};

use anyhow::Result;

use crate::{
    capture::{Capture, CaptureError, EventRequest, Mappings},
    derive::{self, Derived, DerivingSink, SpanError},
    engine::{
        losses,
        pump::{LossWindow, Pump, PumpSettings},
        run_loop::{Ending, FinishAs, RunLoop},
    },
    event::{Context, EventType, Processes, Sink, Stats, Stop, Targets},
    live::{
        file_rights,
        kernel::RunningKernel,
        refusal::open_error,
        requests::{self, Sizes},
        select::{self, Selected, Selection},
        unprivileged::{self, LimitedEvents},
        workload_end::end_workload,
    },
    plan::{self, DeliveryOrder, Verbosity},
    record::{EventIds, OtherRecords, SampleLayout, Source as _},
    recorder::{self, AfterFailure, RecordingTee, RecordingWriter, Subject, Summary},
    symbol,
    sys::{
        clock::{self, Calibration},
        close_in_child::ClosingHeldOff,
        output as messages,
        own_threads::OwnThread,
        signals::{self, Signals},
        tracefs::Tracefs,
        workload::Workload,
    },
};

/// What a live run is told before its events are opened.
#[derive(Clone, Copy, Debug)]
pub struct LivePlan<'a> {
    /// The events, the target they are attached to, and how they are captured.
    pub capture: &'a plan::Capture,
    /// The recording to write while the events are delivered.
    pub recording: Option<&'a RecordingOutput>,
    /// The records other than samples that the sink receives.
    pub others: OtherRecords,
    /// How often [`crate::event::Deliver::interval`] is called.
    pub interval: Option<Duration>,
    /// The time after which the run ends.
    pub duration: Option<Duration>,
    /// The number of delivered samples after which the run ends.
    pub limit: Option<u64>,
    /// How often this process's own CPU and memory use is printed.
    pub usage_every: Option<Duration>,
    /// How many messages are printed to stderr.
    pub verbosity: Verbosity,
    /// The end of each message about losses: their cause, and what the user can do.
    pub loss_advice: &'static str,
}

/// A recording that is written while events are delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOutput {
    /// The path of the recording.
    pub path: PathBuf,
    /// The command line of the run, one entry per word. It is stored in the recording.
    pub command_line: Vec<String>,
}

impl RecordingOutput {
    /// Fails if no recording can be written to the path.
    pub fn check(&self) -> Result<()> {
        recorder::Destination::File(self.path.clone(), None).check()
    }
}

/// The selected events of this kernel. Nothing is opened yet.
pub struct SelectedEvents {
    /// Held until the events are open, and until the formats were read that a recording contains.
    closing: ClosingHeldOff,
    tracefs: Tracefs,
    events: Vec<Selected>,
    derived: Vec<Derived>,
}

impl SelectedEvents {
    /// Selects the events of the plan.
    pub fn select(capture: &plan::Capture) -> Result<SelectedEvents> {
        let closing = ClosingHeldOff::new();
        let tracefs = unprivileged::tracefs(capture)?;
        let Selection { events, derived } = select::select(capture, &tracefs)?;
        Ok(SelectedEvents { closing, tracefs, events, derived })
    }

    /// Fails if the events cannot be recorded.
    pub fn check_recordable(&self) -> Result<()> {
        recorder::check(&self.events)
    }

    /// Returns the event types that a program receives, before the events are opened. Only the offsets of the ids in samples may differ from those
    /// of the opened events.
    pub fn planned_event_types(&self, capture: &plan::Capture) -> Result<Vec<EventType>> {
        let layouts = Capture::layouts(&requests::requests(capture, &self.events)?);
        let types = event_types(&self.events, &self.derived, |event| layouts[event])?;
        Ok(derive::delivered(&types, &self.derived))
    }

    /// Forks the command of the plan, which waits until the run starts, and gives up rights to files that are not needed
    /// any more. If a process has threads, a forked child may only call async-signal-safe functions. So this is called
    /// before an interpreter starts.
    pub fn prepare(mut self, capture: &plan::Capture) -> Result<PreparedEvents> {
        let limits = unprivileged::limit_to_user_space(&mut self.events);
        let workload = capture.workload().map(Workload::fork_until_end).transpose()?;
        file_rights::give_up(&mut self.tracefs, &self.events);
        Ok(PreparedEvents { selected: self, limits, workload })
    }
}

/// The selected events, ready to be opened.
pub struct PreparedEvents {
    selected: SelectedEvents,
    limits: LimitedEvents,
    workload: Option<Workload>,
}

/// Live events that are open but not enabled.
pub struct LiveEvents<'a> {
    plan: LivePlan<'a>,
    tracefs: Tracefs,
    selected: Vec<Selected>,
    derived: Vec<Derived>,
    types: Vec<EventType>,
    workload: Option<Workload>,
    calibration: Calibration,
    /// The time of day minus the events' clock, in ns.
    offset: i64,
    capture: Capture,
    context: Arc<Context>,
    closing: ClosingHeldOff,
}

impl PreparedEvents {
    /// Opens the events. `symbols` decides how the addresses in samples of these types are resolved.
    pub fn open<'a>(
        self,
        plan: LivePlan<'a>,
        symbols: impl FnOnce(&[EventType]) -> symbol::Options,
        signals: &Signals,
    ) -> Result<LiveEvents<'a>> {
        let PreparedEvents { selected, limits, workload } = self;
        let SelectedEvents { closing, tracefs, events: selected, derived } = selected;
        let requests = requests::requests(plan.capture, &selected)?;
        let (mappings, sizes) = (requests::mappings(&requests), requests::sizes(plan.capture, &requests));
        // The clock is calibrated before the rings are opened, because the rings may use all the memory that the user
        // may lock.
        let mut calibration = Calibration::new(requests::clock(plan.capture)).map_err(CaptureError::of_clock)?;
        let capture = open(&plan, &selected, requests, workload.as_ref(), sizes, signals.wake_fd())?;
        limits.report();
        requests::report_missing_calls_of_children(capture.of_children());
        requests::report_smaller_rings(sizes, &capture, plan.verbosity);
        for (index, event) in selected.iter().enumerate() {
            if !capture.ids().iter().any(|&(_, opened)| opened == index) {
                messages::say(format_args!(
                    "{} is not delivered: the kernel does not allow sampling of this event",
                    event.format.name()
                ));
            }
        }
        if plan.verbosity >= Verbosity::Verbose {
            requests::report_capture(sizes, &selected, &capture);
        }
        let kernel = RunningKernel::new(tracefs.clone());
        let processes = if mappings == Mappings::Delivered { Processes::Followed } else { Processes::Ignored };
        let offset = calibration.realtime_offset()?;
        let targets = targets(plan.capture, workload.as_ref());
        // A switch belongs to two tasks, so the switches of perf-prof itself arrive.
        let left_out = (plan.capture.own_threads == plan::OwnThreads::LeftOut).then(std::process::id);
        let context = Context::new(Box::new(kernel), offset).with_targets(targets).with_left_out(left_out);
        let events = event_types(&selected, &derived, |event| capture.layout(event))?;
        let context = Arc::new(context.with_symbol_options(symbols(&events), processes));
        Ok(LiveEvents {
            plan,
            tracefs,
            selected,
            derived,
            types: events,
            workload,
            calibration,
            offset,
            capture,
            context,
            closing,
        })
    }
}

/// How a live run ended.
pub struct Delivered {
    /// Why the run ended.
    pub ending: Ending,
    /// How the sink's exit handler ended the run, if it did.
    pub at_exit: Option<Stop>,
    /// The exit status of the command.
    pub workload_status: Option<u8>,
    /// Whether the events and the command were started.
    pub started: Result<()>,
    /// The recording that was written, if there is one.
    pub recorded: Result<Option<Summary>>,
    /// The events still have to be closed.
    pub capture: Capture,
}

impl LiveEvents<'_> {
    /// Returns the types of the events that the sink receives: first the captured events, then the derived events.
    pub fn event_types(&self) -> Vec<EventType> {
        self.types.clone()
    }

    /// Returns whether an event is only an input of derived events. The sink does not receive its samples.
    pub fn is_input(&self, event: usize) -> bool {
        self.derived.iter().any(|derived| derived.inputs.contains(&event))
    }

    /// Returns the number of captured events. The types of derived events come after them.
    pub fn captured(&self) -> usize {
        self.selected.len()
    }

    /// Returns the open events.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Returns the symbols, the names of tasks, and the clocks.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the events that this kernel has.
    pub fn tracefs(&self) -> &Tracefs {
        &self.tracefs
    }

    /// Returns counts of samples that are all 0.
    pub fn stats(&self) -> Stats {
        let rings = self.capture.ring_cpus().len();
        let stats = Stats::new(self.selected.len() + self.derived.len(), rings).with_spans(self.derived.len());
        stats.with_own_samples(self.capture.own_samples())
    }

    /// Closes the events without a run.
    pub fn into_capture(self) -> Capture {
        self.capture
    }

    /// Delivers the events to the sink. `events` and `stats` are those that this value returned. `reopen` is called when
    /// SIGUSR1 arrives.
    pub fn deliver(
        self,
        sink: &mut impl Sink,
        events: &[EventType],
        stats: &Arc<Stats>,
        signals: &Signals,
        reopen: &dyn Fn(),
    ) -> Delivered {
        let LiveEvents { plan, tracefs, selected, derived, capture, context, offset, closing, .. } = self;
        let (mut workload, mut calibration) = (self.workload, self.calibration);
        note_tasks(&context);
        context.find_mappings();
        let rings = capture.ring_cpus().len();
        let mut source = RecordingTee::new(capture, AfterFailure::GoOn);
        let started = start(&plan, &mut source, (&tracefs, &selected), offset, workload.as_mut());
        drop(closing);
        let capture = &source.source;
        let limit = plan.limit.or(selected.iter().find_map(|event| event.limit));
        let pump = Pump::new(PumpSettings {
            ids: EventIds::new(capture.ids()).with_foreign_event(select::event_of_foreign_ids(&selected)),
            layout: capture.layout(0),
            trailer: capture.trailer(),
            context: context.clone(),
            stats: stats.clone(),
            window: if plan.capture.delivery_order() == DeliveryOrder::Time {
                LossWindow::Times
            } else {
                LossWindow::Zero
            },
            rings,
            // The limit is a number of delivered events, not of events that spans are made of.
            limit: if derived.is_empty() { limit } else { None },
        })
        .with_other_records(plan.others);
        let mut calibrate = || {
            // If the measurement fails, the last measured offset is still used.
            if let Ok(offset) = calibration.realtime_offset() {
                context.set_realtime_offset(offset);
            }
        };
        let mut sink = DerivingSink::start(sink, events, &derived, stats, &context).with_limit(limit);
        let mut run_loop = RunLoop {
            source,
            pump: if plan.recording.is_some() { pump.with_build_ids() } else { pump },
            events,
            stats: stats.clone(),
            signals,
            interval: plan.interval,
            duration: plan.duration,
            usage_every: plan.usage_every,
            calibrate: &mut calibrate,
            loss_advice: plan.loss_advice,
            reopen,
        };
        let ending = if started.is_ok() { run_loop.run(&mut sink) } else { Ending::NotStarted };
        let workload_status = workload.and_then(|workload| {
            let ended_by_itself = matches!(ending, Ending::Source(_));
            end_workload(workload, (!ended_by_itself).then_some(libc::SIGTERM))
        });
        let now = context.time_of_realtime(clock::realtime());
        let recorded = finish_recording(&mut run_loop.source, ending);
        let at_exit = run_loop.finish(ending, FinishAs::Program, &mut sink, now);
        losses::print_endings(context.endings(), plan.verbosity);
        Delivered { ending, at_exit, workload_status, started, recorded, capture: run_loop.source.source }
    }
}

/// Returns the event types: first the captured events, then the derived events.
fn event_types(
    selected: &[Selected],
    derived: &[Derived],
    layout: impl Fn(usize) -> SampleLayout,
) -> Result<Vec<EventType>, SpanError> {
    let captured = selected.iter().enumerate().map(|(at, event)| event.event_type(layout(at)));
    derive::with_derived(captured.collect(), derived)
}

/// Enables the events and starts the workload. If the plan contains a recording, also starts to record the events.
fn start(
    plan: &LivePlan<'_>,
    source: &mut RecordingTee<Capture>,
    (tracefs, selected): (&Tracefs, &[Selected]),
    offset: i64,
    workload: Option<&mut Workload>,
) -> Result<()> {
    let capture = &mut source.source;
    let Some(RecordingOutput { path, command_line }) = plan.recording else {
        capture.enable()?;
        workload.map_or(Ok(()), Workload::start)?;
        return Ok(());
    };
    let destination = recorder::Destination::File(path.clone(), None);
    let subject = Subject { command_line, plan: plan.capture, capture, selected, tracefs, offset: Some(offset) };
    let mut recording = RecordingWriter::create(destination, &subject)?;
    match recording.begin(plan.capture, capture, workload) {
        Ok(()) => source.record(recording),
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the tasks that the user selected, if the events of all tasks are delivered.
fn targets(capture: &plan::Capture, workload: Option<&Workload>) -> Option<Targets> {
    Some(match (capture.selected_tasks.as_ref()?, workload) {
        (plan::Target::Processes(pids), _) => Targets::running(pids, &[]),
        (plan::Target::Threads(tids), _) => Targets::running(&[], tids),
        (_, Some(workload)) => Targets::running(&[workload.pid()], &[]),
        _ => return None,
    })
}

/// If there is a recording, finishes it.
fn finish_recording(source: &mut RecordingTee<Capture>, ending: Ending) -> Result<Option<Summary>> {
    let Some(recording) = source.take_recording() else { return Ok(None) };
    // If delivery ended early, the kernel's counts also include events that were lost after the end of the recording.
    let lost = if ending.is_complete() { source.source.lost() } else { None };
    recording.finish(lost.as_deref(), &mut []).map(Some)
}

fn open(
    plan: &LivePlan<'_>,
    selected: &[Selected],
    mut requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    sizes: Sizes,
    wake: RawFd,
) -> Result<Capture> {
    let target = requests::target(plan.capture, workload.map(Workload::pid))?;
    let mut options = requests::options(plan.capture, sizes, requests::mappings(&requests), wake);
    if plan.recording.is_some() {
        let seen = recorder::with_members_of_scripts(requests, selected);
        (requests, options) = recorder::with_members_of_recordings(plan.capture, seen, options);
    }
    let opened =
        requests::open_with_rings_that_fit(plan.capture, options, |options| Capture::open(&target, &requests, options));
    opened.map_err(|error| open_error(error, selected))
}

/// Starts a thread that reads the names of all tasks. A machine may have a hundred thousand tasks, and the run should
/// not wait until all names are read.
fn note_tasks(context: &Arc<Context>) {
    let context = context.clone();
    let body = move || {
        signals::block_in_this_thread();
        let _own = OwnThread::enter();
        context.find_tasks();
    };
    // If the thread cannot be started, each name is looked up when it is needed.
    let _ = thread::Builder::new().name("tasks".into()).spawn(body);
}
