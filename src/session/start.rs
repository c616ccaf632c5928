//! From plan to run and from its end to a status.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::RawFd, unix::process::ExitStatusExt},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    ExitStatus,
    events::{self, Selected},
    names::RunningKernel,
    plan::{self, Module, Order, Plan, Verbosity},
    program,
    pump::{LossWindow, Pump},
    record::{self, AfterFailure, Recorded, Recording, Summary},
    replay, report,
    rights::{self, Limits},
    run_loop::{Ending, Last, RunLoop},
    status::status,
    target,
};
use crate::{
    capture::{Capture, CaptureError, EventRequest, Mappings},
    event::{Context, EventType, Processes, Stats},
    record::{EventIds, Source},
    script::{Choice, Interpreter, Run, ScriptError, interrupt},
    spec::EventKind,
    sys::{
        clock::{self, Calibration},
        hold::Held,
        output,
        signals::{self, Signals},
        tracefs::{Tracefs, explain_filter},
        workload::Workload,
    },
    template,
};

/// Carries a plan out; the result is the exit status.
pub fn run(plan: Plan) -> Result<ExitStatus> {
    if let Some(input) = &plan.input {
        return replay::run(&plan, input);
    }
    if let Some(plan::Recorded { path, .. }) = &plan.record {
        record::Form::File(path.clone(), None).check()?;
    }
    let held = Held::new()?;
    if let Some(path) = &plan.output {
        output::append_to(path).with_context(|| format!("cannot append to '{}'", path.display()))?;
    }
    let tracefs = rights::tracefs(&plan.capture)?;
    let mut selected = events::select(&plan.capture, &tracefs)?;
    if plan.record.is_some() {
        record::check(&selected)?;
    }
    let Module::Script { module, args } = &plan.module else {
        return program::print_template(&plan, &described(&plan.capture, &selected)?);
    };
    let limits = rights::limit(&mut selected);
    let choice = Choice::make(plan.python.as_deref())?;
    // Before the interpreter: a child that is forked from a process with threads may do little.
    let workload = match &plan.capture.target {
        plan::Target::Workload(command) => Some(Workload::fork(command)?),
        _ => None,
    };
    let interpreter = Interpreter::start(&choice)?;
    // However it ends, the interpreter is ended too: it flushes, and joins the script's threads.
    let result = with_interpreter(&plan, &tracefs, (&selected, &limits), workload, (module, args), held);
    finish(interpreter, result).map(ExitStatus)
}

/// What a run leaves behind.
struct Outcome {
    status: u8,
    capture: Option<Capture>,
}

/// Ends the interpreter, so that all output is out, before the slow closing of events.
fn finish(interpreter: Interpreter, result: Result<Outcome>) -> Result<u8> {
    let flushed = program::end(interpreter);
    let Outcome { status, capture } = result?;
    if let Some(capture) = capture {
        capture.close();
    }
    Ok(flushed.status(status))
}

fn with_interpreter(
    plan: &Plan,
    tracefs: &Tracefs,
    (selected, limits): (&[Selected], &Limits),
    mut workload: Option<Workload>,
    script: (&OsStr, &[OsString]),
    held: Held,
) -> Result<Outcome> {
    // After the interpreter, which sets a handler of its own for SIGINT.
    let signals = Signals::install()?;
    signals.on_second_interrupt(interrupt);
    drop(held);
    let requests = target::requests(&plan.capture, selected)?;
    let mappings = target::mappings(&requests);
    // Before the rings, which may take all that the user may lock.
    let mut calibration = Calibration::new(target::clock(&plan.capture))?;
    let capture = open(plan, selected, requests, workload.as_ref(), signals.wake_fd())?;
    limits.say();
    target::say_what_may_be_missing(capture.of_children());
    target::say_how_small_rings_are(&plan.capture, &capture, plan.verbosity);

    for (index, event) in selected.iter().enumerate() {
        if !capture.ids().iter().any(|&(_, opened)| opened == index) {
            output::say(format_args!("{} is left out: the kernel does not let it be sampled", event.format.name()));
        }
    }
    if plan.verbosity >= Verbosity::Verbose {
        target::say_what_is_captured(&plan.capture, selected, &capture);
    }
    let kernel = RunningKernel::new(tracefs.clone());
    let processes = if mappings == Mappings::Told { Processes::Followed } else { Processes::Ignored };
    let offset = calibration.realtime_offset()?;
    let context = Context::new(Box::new(kernel), offset);
    let context = Arc::new(context.with_symbol_options(plan.symbols, processes));
    let layout = |event: usize| capture.layout(event);
    let types: Vec<EventType> = selected.iter().enumerate().map(|(at, event)| event.event_type(layout(at))).collect();
    let stats = Arc::new(Stats::new(types.len(), capture.ring_cpus().len()));
    let ring_cpus = capture.ring_cpus();
    let run = Run { events: types, context: context.clone(), stats: stats.clone(), ring_cpus, machine: None };
    let run = Arc::new(run);

    let kernel_events = || tracefs.events().unwrap_or_default();
    let mut program = match program::load(plan, run.clone(), script, &kernel_events, None) {
        Ok(program) => program,
        Err(ScriptError::Exited(status)) => return Ok(Outcome { status, capture: Some(capture) }),
        Err(error) => return Err(error.into()),
    };

    note_tasks(&context);
    context.find_mappings();
    // From here on the script has begun, so its `__exit__` runs whatever fails.
    let mut source = Recorded::new(capture, AfterFailure::GoOn);
    let started = start(plan, &mut source, (tracefs, selected), offset, workload.as_mut());
    let capture = &source.source;
    let pump = Pump::new(
        EventIds::new(capture.ids()).with_stray(events::stray(selected)),
        (capture.layout(0), capture.trailer()),
        context.clone(),
        stats.clone(),
        if plan.capture.order == Order::Time { LossWindow::Times } else { LossWindow::Zero },
        run.ring_cpus.len(),
        plan.exit_n,
    );
    let reopen = || program::reopen_output(plan);
    let mut calibrate = || {
        // Without a new measurement the one before stays in use.
        if let Ok(offset) = calibration.realtime_offset() {
            context.set_realtime_offset(offset);
        }
    };
    let mut run_loop = RunLoop {
        source,
        pump: if plan.record.is_some() { pump.with_build_ids() } else { pump },
        events: &run.events,
        stats: stats.clone(),
        signals: &signals,
        interval: plan.interval,
        usage_every: plan.usage_self,
        calibrate: &mut calibrate,
        on_loss: "the script is slower than the events; a larger -m or --buffer, a filter or fewer events help",
        reopen: &reopen,
    };
    let ending = if started.is_ok() { run_loop.run(&mut program) } else { Ending::NotStarted };
    let workload_status = workload.and_then(|workload| {
        let ended_by_itself = matches!(ending, Ending::Source(_));
        end_workload(workload, (!ended_by_itself).then_some(libc::SIGTERM))
    });
    let now = context.time_of_realtime(clock::realtime());
    let recorded = finish_recording(&mut run_loop.source, ending);
    let at_exit = run_loop.finish(ending, Last::Exit, &mut program, now);
    report::print_endings(context.endings(), plan.verbosity);
    program.clear();
    started?;
    let is_whole = match recorded {
        Ok(None) => true,
        Ok(Some(summary)) => {
            summary.say("", plan.verbosity);
            summary.is_whole
        }
        Err(error) => {
            output::say(format_args!("{error:#}"));
            false
        }
    };
    let status = match status(ending, at_exit, workload_status) {
        0 if !is_whole => 1,
        status => status,
    };
    Ok(Outcome { status, capture: Some(run_loop.source.source) })
}

/// Starts the events, and the recording of them if there is to be one.
fn start(
    plan: &Plan,
    source: &mut Recorded<Capture>,
    (tracefs, selected): (&Tracefs, &[Selected]),
    offset: i64,
    workload: Option<&mut Workload>,
) -> Result<()> {
    let capture = &mut source.source;
    let Some(plan::Recorded { path, command_line }) = &plan.record else {
        capture.enable()?;
        workload.map_or(Ok(()), Workload::start)?;
        return Ok(());
    };
    let form = record::Form::File(path.clone(), None);
    let mut recording =
        Recording::create(form, command_line, &plan.capture, (capture, selected), tracefs, Some(offset))?;
    match recording.begin(&plan.capture, capture, workload) {
        Ok(()) => source.record(recording),
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    }
    Ok(())
}

/// Ends the recording of what was delivered.
fn finish_recording(source: &mut Recorded<Capture>, ending: Ending) -> Result<Option<Summary>> {
    let Some(recording) = source.take_recording() else { return Ok(None) };
    // When delivery ended early, what was lost is that of a time which is not in the recording.
    let lost = if ending.is_complete() { source.source.lost() } else { None };
    recording.finish(lost.as_deref(), &mut []).map(Some)
}

fn open(
    plan: &Plan,
    selected: &[Selected],
    mut requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    wake: RawFd,
) -> Result<Capture> {
    let target = target::target(&plan.capture, workload.map(Workload::pid))?;
    let mut options = target::options(&plan.capture, target::mappings(&requests), wake);
    if plan.record.is_some() {
        let seen = record::with_members_of_scripts(requests, selected);
        (requests, options) = record::recordable(&plan.capture, seen, options);
    }
    let opened =
        target::with_rings_that_fit(&plan.capture, options, |options| Capture::open(&target, &requests, options));
    opened.map_err(|error| explained(error, selected))
}

/// Why these events could not be opened; of a filter, the kernel's own reason and the fields that there are.
pub(super) fn explained(mut error: CaptureError, selected: &[Selected]) -> anyhow::Error {
    if let Some(name) = error.event_mut() {
        // Of all breakpoints and of all events of a PMU the name is the same.
        let mut of_name = selected.iter().filter(|event| event.request.name == *name);
        if let (Some(event), None) = (of_name.next(), of_name.next()) {
            match event.spec.kind {
                EventKind::Breakpoint { .. } | EventKind::Source { option: Some(_), .. } => {
                    name.clone_from(&event.spec.selector);
                }
                _ => {}
            }
        }
    }
    let CaptureError::Filter { event, filter, .. } = &error else { return error.into() };
    let Some(of_event) = selected.iter().find(|selected| selected.format.name() == *event) else {
        return error.into();
    };
    let Some(format) = of_event.format.tracepoint() else { return error.into() };
    // For the probes of perf events the kernel knows the common fields alone, and they have no file in tracefs.
    let is_probe = matches!(of_event.spec.kind, EventKind::Probe(_));
    let reason = if is_probe { None } else { explain_filter(&format.system, &format.name, filter) };
    let own = if is_probe { &[] } else { format.fields() };
    let fields = own.iter().chain(format.common_fields());
    let fields: Vec<String> = fields.map(|field| format!("{} ({})", field.name, template::c_type(field))).collect();
    let reason = reason.map(|reason| format!(": {}", reason.trim())).unwrap_or_default();
    anyhow!("{error}{reason}\nits fields: {}", fields.join(", "))
}

/// Learns the names of all tasks beside the run: a machine may have a hundred thousand, and nothing waits for them.
fn note_tasks(context: &Arc<Context>) {
    let context = context.clone();
    let body = move || {
        signals::block_in_this_thread();
        context.find_tasks();
    };
    // Without the thread, names are looked up when they are asked for.
    let _ = thread::Builder::new().name("tasks".into()).spawn(body);
}

/// The event types as they will be captured, but for where their ids are found.
fn described(plan: &plan::Capture, selected: &[Selected]) -> Result<Vec<EventType>> {
    let layouts = Capture::layouts(&target::requests(plan, selected)?);
    Ok(selected.iter().zip(layouts).map(|(event, layout)| event.event_type(layout)).collect())
}

/// The workload's status. One that is not to run on is sent a signal first.
pub(super) fn end_workload(mut workload: Workload, signal: Option<i32>) -> Option<u8> {
    const PATIENCE: Duration = Duration::from_millis(500);
    if let Some(signal) = signal {
        workload.signal(signal);
    }
    let begun = Instant::now();
    loop {
        match workload.try_wait() {
            Ok(Some(status)) => {
                let of_signal = status.signal().map(|signal| 128 + signal);
                return status.code().or(of_signal).map(|status| status as u8);
            }
            Ok(None) => {}
            // A script that waits for any child (`os.wait()`) has taken the status.
            Err(_) => return None,
        }
        if begun.elapsed() > PATIENCE {
            let why = if signal.is_some() { "does not end and " } else { "" };
            output::say(format_args!("the command (pid {}) {why}is left running", workload.pid()));
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
