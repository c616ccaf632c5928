//! Runs a script on events of the running kernel: selects, opens and delivers the events, and records them if
//! requested.

use std::{os::fd::RawFd, sync::Arc, thread};

use anyhow::Result;
use perf_prof_core::{
    capture::{Capture, CaptureError, EventRequest, Mappings},
    derive::DerivingSink,
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
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
        select::{self, Derived, Selected, Selection},
        unprivileged::{self, LimitedEvents},
        workload_end::end_workload,
    },
    plan::{self, DeliveryOrder, Verbosity},
    record::{EventAttr, EventIds, SampleLayout, Source},
    recorder::{self, AfterFailure, RecordingTee, RecordingWriter, Subject, Summary},
    sys::{
        blocked_signals::BlockedSignals,
        clock::{self, Calibration},
        close_in_child::ClosingHeldOff,
        output as messages,
        own_threads::OwnThread,
        perf,
        signals::{self, Signals},
        tracefs::Tracefs,
        workload::Workload,
    },
};

use super::{
    RunEnd, output,
    plan::{self as script_plan, Module, ScriptPlan},
    script::{AvailableEvents, Script},
    script_run::{self, Outcome, ScriptEventSource},
};
use crate::script::{self, Program, PythonChoice, Run, Trailers};

/// Runs the script on live events.
pub(super) fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    if let Some(script_plan::RecordingOutput { path, .. }) = &plan.record {
        recorder::Destination::File(path.clone(), None).check()?;
    }
    let held = BlockedSignals::new()?;
    output::redirect(plan)?;
    let closing = ClosingHeldOff::new();
    let mut tracefs = unprivileged::tracefs(&plan.capture)?;
    let Selection { events: mut selected, derived } = select::select(&plan.capture, &tracefs)?;
    if plan.record.is_some() {
        recorder::check(&selected)?;
    }
    let Module::Script { module, args } = &plan.module else {
        return output::print_template(plan, &planned_event_types(&plan.capture, &selected, &derived)?);
    };
    let limits = unprivileged::limit_to_user_space(&mut selected);
    let choice = PythonChoice::make(plan.python.as_deref())?;
    // The command is forked before the interpreter starts. If a process has threads, a forked child may only call
    // async-signal-safe functions.
    let workload = plan.capture.workload().map(Workload::fork_until_end).transpose()?;
    file_rights::give_up(&mut tracefs, &selected);
    let script = Script { module, args };
    script_run::run(plan, script, &choice, held, |signals| {
        LiveEvents::open(plan, &tracefs, (&selected, &derived), &limits, workload, closing, signals)
    })
}

/// Delivers live events to the receiver that `receive` creates. No script is loaded.
pub(super) fn deliver<S: Sink>(
    plan: &ScriptPlan,
    signals: &Signals,
    receive: impl FnOnce(Arc<Run>) -> S,
) -> Result<RunEnd> {
    let closing = ClosingHeldOff::new();
    let mut tracefs = unprivileged::tracefs(&plan.capture)?;
    let Selection { events: mut selected, derived } = select::select(&plan.capture, &tracefs)?;
    let limits = unprivileged::limit_to_user_space(&mut selected);
    let workload = plan.capture.workload().map(Workload::fork_until_end).transpose()?;
    file_rights::give_up(&mut tracefs, &selected);
    let mut events = LiveEvents::open(plan, &tracefs, (&selected, &derived), &limits, workload, closing, signals)?;
    let run = Arc::new(events.describe());
    let mut receiver = receive(run.clone());
    let Delivered { ending, at_exit, workload_status, started, capture, .. } =
        events.deliver_to(&mut receiver, &run, signals);
    capture.close();
    started?;
    Ok(RunEnd { ending, status: exit_status(ending, at_exit, Callbacks::Returned, workload_status) })
}

/// Returns the event types before the events are opened. Only the offsets of the ids in samples may differ from those
/// of the opened events.
fn planned_event_types(plan: &plan::Capture, selected: &[Selected], derived: &[Derived]) -> Result<Vec<EventType>> {
    let layouts = Capture::layouts(&requests::requests(plan, selected)?);
    Ok(event_types(selected, derived, |event| layouts[event]))
}

/// Returns the event types that the script sees: first the captured events, then the derived sources.
fn event_types(selected: &[Selected], derived: &[Derived], layout: impl Fn(usize) -> SampleLayout) -> Vec<EventType> {
    let captured = selected.iter().enumerate().map(|(at, event)| event.event_type(layout(at)));
    captured.chain(derived.iter().map(|source| source.event_type(layout(source.inputs.start)))).collect()
}

/// Live events that are open but not enabled.
struct LiveEvents<'a> {
    plan: &'a ScriptPlan,
    tracefs: &'a Tracefs,
    selected: &'a [Selected],
    derived: &'a [Derived],
    workload: Option<Workload>,
    calibration: Calibration,
    /// The time of day minus the events' clock, in ns.
    offset: i64,
    capture: Capture,
    context: Arc<Context>,
    /// Held until the events are open, and until the formats were read that a recording contains.
    closing: ClosingHeldOff,
}

impl<'a> LiveEvents<'a> {
    fn open(
        plan: &'a ScriptPlan,
        tracefs: &'a Tracefs,
        (selected, derived): (&'a [Selected], &'a [Derived]),
        limits: &LimitedEvents,
        workload: Option<Workload>,
        closing: ClosingHeldOff,
        signals: &Signals,
    ) -> Result<Self> {
        let requests = requests::requests(&plan.capture, selected)?;
        let (mappings, sizes) = (requests::mappings(&requests), requests::sizes(&plan.capture, &requests));
        // The clock is calibrated before the rings are opened, because the rings may use all the memory that the user
        // may lock.
        let mut calibration = Calibration::new(requests::clock(&plan.capture)).map_err(CaptureError::of_clock)?;
        let capture = open(plan, selected, requests, workload.as_ref(), sizes, signals.wake_fd())?;
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
            requests::report_capture(sizes, selected, &capture);
        }
        let kernel = RunningKernel::new(tracefs.clone());
        let processes = if mappings == Mappings::Delivered { Processes::Followed } else { Processes::Ignored };
        let offset = calibration.realtime_offset()?;
        let targets = targets(plan, workload.as_ref());
        let context = Context::new(Box::new(kernel), offset).with_targets(targets);
        let events = event_types(selected, derived, |event| capture.layout(event));
        let context = Arc::new(context.with_symbol_options(plan.symbols_for(&events), processes));
        Ok(LiveEvents { plan, tracefs, selected, derived, workload, calibration, offset, capture, context, closing })
    }
}

impl ScriptEventSource for LiveEvents<'_> {
    fn describe(&mut self) -> Run {
        let events = event_types(self.selected, self.derived, |event| self.capture.layout(event));
        let ring_cpus = self.capture.ring_cpus();
        let stats = Stats::new(events.len(), ring_cpus.len()).with_own_samples(self.capture.own_samples());
        let stats = Arc::new(stats);
        let opened = self.capture.attrs().iter().take(self.selected.len());
        let attr = |(index, opened): (usize, &EventAttr)| script::EventAttr {
            index,
            bytes: perf::attr_bytes(&opened.attr).to_vec(),
        };
        let attrs = opened.enumerate().map(attr).collect();
        let trailers = Trailers::Live(self.capture.trailer());
        Run { events, attrs, trailers, context: self.context.clone(), stats, ring_cpus, machine: None }
    }

    fn with_available<R>(&self, load: impl FnOnce(&AvailableEvents<'_>) -> R) -> R {
        let events = || self.tracefs.events().unwrap_or_default();
        load(&AvailableEvents { events: &events, missing: None })
    }

    fn abandon(self, status: u8) -> Outcome {
        Outcome { status, capture: Some(self.capture) }
    }

    fn deliver(self, mut program: Program, run: &Arc<Run>, signals: &Signals) -> Result<Outcome> {
        let verbosity = self.plan.verbosity;
        let Delivered { ending, at_exit, workload_status, started, recorded, capture } =
            self.deliver_to(&mut program, run, signals);
        let callbacks = program.callbacks();
        program.clear();
        started?;
        let is_whole = match recorded {
            Ok(None) => true,
            Ok(Some(summary)) => {
                summary.report("", verbosity);
                summary.is_whole
            }
            Err(error) => {
                messages::say(format_args!("{error:#}"));
                false
            }
        };
        let status = match exit_status(ending, at_exit, callbacks, workload_status) {
            0 if !is_whole => 1,
            status => status,
        };
        Ok(Outcome { status, capture: Some(capture) })
    }
}

/// How a live run ended.
pub(super) struct Delivered {
    pub ending: Ending,
    /// How the receiver's exit handler ended the run, if it did.
    pub at_exit: Option<Stop>,
    /// The exit status of the command.
    pub workload_status: Option<u8>,
    /// Whether the events and the command were started.
    pub started: Result<()>,
    /// The recording that was written, if there is one.
    recorded: Result<Option<Summary>>,
    /// The events still have to be closed.
    pub capture: Capture,
}

impl LiveEvents<'_> {
    /// Delivers the events to any receiver.
    pub fn deliver_to(self, receiver: &mut impl Sink, run: &Arc<Run>, signals: &Signals) -> Delivered {
        let LiveEvents { plan, tracefs, selected, derived, capture, context, offset, closing, .. } = self;
        let (mut workload, mut calibration) = (self.workload, self.calibration);
        note_tasks(&context);
        context.find_mappings();
        let mut source = RecordingTee::new(capture, AfterFailure::GoOn);
        let started = start(plan, &mut source, (tracefs, selected), offset, workload.as_mut());
        drop(closing);
        let capture = &source.source;
        let pump = Pump::new(PumpSettings {
            ids: EventIds::new(capture.ids()).with_foreign_event(select::event_of_foreign_ids(selected)),
            layout: capture.layout(0),
            trailer: capture.trailer(),
            context: context.clone(),
            stats: run.stats.clone(),
            window: if plan.capture.order == DeliveryOrder::Time { LossWindow::Times } else { LossWindow::Zero },
            rings: run.ring_cpus.len(),
            limit: plan.exit_n.or(selected.iter().find_map(|event| event.limit)),
        })
        .with_other_records(plan.dialect.other_records());
        let reopen = || output::reopen(plan);
        let mut calibrate = || {
            // If the measurement fails, the last measured offset is still used.
            if let Ok(offset) = calibration.realtime_offset() {
                context.set_realtime_offset(offset);
            }
        };
        let sources = derived.iter().map(|source| (source.definition, source.inputs.clone()));
        let mut sink = DerivingSink::start(receiver, selected.len(), sources);
        let mut run_loop = RunLoop {
            source,
            pump: if plan.record.is_some() { pump.with_build_ids() } else { pump },
            events: &run.events,
            stats: run.stats.clone(),
            signals,
            interval: plan.interval,
            duration: plan.duration,
            usage_every: plan.usage_self,
            calibrate: &mut calibrate,
            loss_advice: "the script is slower than the events; use a larger -m or --buffer, a filter or fewer events",
            reopen: &reopen,
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

/// Enables the events and starts the workload. If the plan contains a recording, also starts to record the events.
fn start(
    plan: &ScriptPlan,
    source: &mut RecordingTee<Capture>,
    (tracefs, selected): (&Tracefs, &[Selected]),
    offset: i64,
    workload: Option<&mut Workload>,
) -> Result<()> {
    let capture = &mut source.source;
    let Some(script_plan::RecordingOutput { path, command_line }) = &plan.record else {
        capture.enable()?;
        workload.map_or(Ok(()), Workload::start)?;
        return Ok(());
    };
    let destination = recorder::Destination::File(path.clone(), None);
    let subject = Subject { command_line, plan: &plan.capture, capture, selected, tracefs, offset: Some(offset) };
    let mut recording = RecordingWriter::create(destination, &subject)?;
    match recording.begin(&plan.capture, capture, workload) {
        Ok(()) => source.record(recording),
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the tasks that the user selected, if the events of all tasks are delivered.
fn targets(plan: &ScriptPlan, workload: Option<&Workload>) -> Option<Targets> {
    Some(match (plan.capture.selected_tasks.as_ref()?, workload) {
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
    plan: &ScriptPlan,
    selected: &[Selected],
    mut requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    sizes: Sizes,
    wake: RawFd,
) -> Result<Capture> {
    let target = requests::target(&plan.capture, workload.map(Workload::pid))?;
    let mut options = requests::options(&plan.capture, sizes, requests::mappings(&requests), wake);
    if plan.record.is_some() {
        let seen = recorder::with_members_of_scripts(requests, selected);
        (requests, options) = recorder::with_members_of_recordings(&plan.capture, seen, options);
    }
    let opened = requests::open_with_rings_that_fit(&plan.capture, options, |options| {
        Capture::open(&target, &requests, options)
    });
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
