//! From plan to run and from its end to a status.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{fd::RawFd, unix::process::ExitStatusExt},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    ExitStatus,
    events::{self, Selected},
    ids::EventIds,
    names::RunningKernel,
    plan::{self, Module, Order, Plan, Verbosity},
    pump::{LossWindow, Pump},
    run_loop::{Ending, RunLoop},
    target,
};
use crate::{
    capture::{Capture, CaptureError, EventRequest, Mappings},
    event::{Context, EventType, Processes, Stats, Stop},
    record::{Ended, Source},
    script::{self, Choice, Interpreter, Program, Run, ScriptError, announce, interrupt},
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
    let held = Held::new()?;
    if let Some(path) = &plan.output {
        output::append_to(path).with_context(|| format!("cannot append to '{}'", path.display()))?;
    }
    let tracefs = Tracefs::find()?;
    let selected = events::select(&plan, &tracefs)?;
    let Module::Script { module, args } = &plan.module else {
        let text = template::script(&described(&plan, &selected)?, &plan.command_line);
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write the template")?;
        return Ok(ExitStatus(0));
    };
    let choice = Choice::make(plan.python.as_deref())?;
    // Before the interpreter: a child that is forked from a process with threads may do little.
    let workload = match &plan.target {
        plan::Target::Workload(command) => Some(Workload::fork(command)?),
        _ => None,
    };
    let interpreter = Interpreter::start(&choice)?;
    // However it ends, the interpreter is ended too: it flushes, and joins the script's threads.
    let result = with_interpreter(&plan, &tracefs, &selected, workload, (module, args), held);
    finish(interpreter, result).map(ExitStatus)
}

/// What a run leaves behind.
struct Outcome {
    status: u8,
    capture: Option<Capture>,
}

/// Ends the interpreter, so that all output is out, before the slow closing of events.
fn finish(interpreter: Interpreter, result: Result<Outcome>) -> Result<u8> {
    let failed = interpreter.finish() != 0;
    let Outcome { status, capture } = result?;
    if let Some(capture) = capture {
        capture.close();
    }
    // 120 is what python3 ends with when it cannot flush.
    Ok(if status == 0 && failed { 120 } else { status })
}

fn with_interpreter(
    plan: &Plan,
    tracefs: &Tracefs,
    selected: &[Selected],
    mut workload: Option<Workload>,
    script: (&OsStr, &[OsString]),
    held: Held,
) -> Result<Outcome> {
    // After the interpreter, which sets a handler of its own for SIGINT.
    let signals = Signals::install()?;
    signals.on_second_interrupt(interrupt);
    drop(held);
    let requests = target::requests(plan, selected)?;
    let mappings = target::mappings(&requests);
    let mut capture = open(plan, selected, &requests, workload.as_ref(), signals.wake_fd())?;

    for (index, event) in selected.iter().enumerate() {
        if !capture.ids().iter().any(|&(_, opened)| opened == index) {
            output::say(format_args!("{} is left out: the kernel does not let it be sampled", event.format.name()));
        }
    }
    if plan.verbosity >= Verbosity::Verbose {
        let (rings, ids) = (capture.ring_count(), capture.ids().len());
        let target::Sizes { ring, buffer } = target::sizes(plan);
        let (ring, buffer) = (ring >> 10, buffer >> 20);
        output::say(format_args!(
            "{} events, {ids} descriptors, {rings} rings of {ring} KiB, at most {buffer} MiB of backlog",
            selected.len()
        ));
        selected.iter().filter_map(|event| event.note.as_ref()).for_each(output::say);
    }
    let mut calibration = Calibration::new(target::clock(plan))?;
    let kernel = RunningKernel::new(tracefs.clone());
    let processes = if mappings == Mappings::Told { Processes::Followed } else { Processes::Ignored };
    let context = Context::new(Box::new(kernel), calibration.realtime_offset()?);
    let context = Arc::new(context.with_symbol_options(plan.symbols, processes));
    let layout = |event: usize| capture.layout(event);
    let types: Vec<EventType> = selected.iter().enumerate().map(|(at, event)| event.event_type(layout(at))).collect();
    let stats = Arc::new(Stats::new(types.len(), capture.ring_cpus().len()));
    let run = Run { events: types, context: context.clone(), stats: stats.clone(), ring_cpus: capture.ring_cpus() };
    let run = Arc::new(run);

    let mut program = match load(plan, tracefs, selected, run.clone(), script) {
        Ok(program) => program,
        Err(ScriptError::Exited(status)) => return Ok(Outcome { status, capture: Some(capture) }),
        Err(error) => return Err(error.into()),
    };

    note_tasks(&context);
    context.find_mappings();
    // From here on the script has begun, so its `__exit__` runs whatever fails.
    let started = enable(&mut capture, workload.as_mut());
    let pump = Pump::new(
        EventIds::new(capture.ids()),
        (capture.layout(0), capture.trailer()),
        context.clone(),
        stats.clone(),
        if plan.order == Order::Time { LossWindow::Times } else { LossWindow::Zero },
        run.ring_cpus.len(),
        plan.exit_n,
    );
    let reopen = || {
        // The file cannot be opened now: what is open stays in use.
        if let Some(Err(error)) = plan.output.as_ref().map(|path| output::append_to(path)) {
            output::say(format_args!("cannot reopen the output: {error}"));
        }
    };
    let mut calibrate = || {
        // Without a new measurement the one before stays in use.
        if let Ok(offset) = calibration.realtime_offset() {
            context.set_realtime_offset(offset);
        }
    };
    let mut run_loop = RunLoop {
        source: capture,
        pump,
        events: &run.events,
        stats: stats.clone(),
        signals: &signals,
        interval: plan.interval,
        usage_every: plan.usage_self,
        calibrate: &mut calibrate,
        reopen: &reopen,
    };
    let ending = if started.is_ok() { run_loop.run(&mut program) } else { Ending::NotStarted };
    let workload_status = workload.and_then(|workload| {
        let ended_by_itself = matches!(ending, Ending::Source(_));
        end_workload(workload, (!ended_by_itself).then_some(libc::SIGTERM))
    });
    let now = context.time_of_realtime(clock::realtime());
    let at_exit = run_loop.finish(ending, &mut program, now);
    program.clear();
    started?;
    let status = status(ending, at_exit, workload_status);
    Ok(Outcome { status, capture: Some(run_loop.source) })
}

fn enable(capture: &mut Capture, workload: Option<&mut Workload>) -> Result<()> {
    capture.enable()?;
    workload.map_or(Ok(()), Workload::start)?;
    Ok(())
}

fn open(
    plan: &Plan,
    selected: &[Selected],
    requests: &[EventRequest],
    workload: Option<&Workload>,
    wake: RawFd,
) -> Result<Capture> {
    let target = target::target(plan, workload.map(Workload::pid))?;
    let options = target::options(plan, target::mappings(requests), wake);
    Capture::open(&target, requests, &options).map_err(|error| explained(error, selected))
}

/// Why these events could not be opened; of a filter, the kernel's own reason and the fields that there are.
pub(super) fn explained(error: CaptureError, selected: &[Selected]) -> anyhow::Error {
    let CaptureError::Filter { event, filter, .. } = &error else { return error.into() };
    let mut formats = selected.iter().filter_map(|event| event.format.tracepoint());
    let Some(format) = formats.find(|format| format!("{}:{}", format.system, format.name) == *event) else {
        return error.into();
    };
    let reason = explain_filter(&format.system, &format.name, filter);
    let fields = format.fields().iter().chain(format.common_fields());
    let fields: Vec<String> = fields.map(|field| format!("{} ({})", field.name, template::c_type(field))).collect();
    let reason = reason.map(|reason| format!(": {}", reason.trim())).unwrap_or_default();
    anyhow!("{error}{reason}\nits fields: {}", fields.join(", "))
}

fn load(
    plan: &Plan,
    tracefs: &Tracefs,
    selected: &[Selected],
    run: Arc<Run>,
    (module, args): (&OsStr, &[OsString]),
) -> Result<Program, ScriptError> {
    let module = script::Module::load(module, args)?;
    announce(module.path(), plan.verbosity == Verbosity::Quiet);
    for (name, why) in events::unused_handlers(&module.handler_like_names(), selected, tracefs) {
        output::say(format_args!("warning: {name}() is never called: {why}"));
    }
    let mut program = module.bind(run, plan.on_error)?;
    if !program.has_handlers() && !program.has_interval() && plan.verbosity > Verbosity::Quiet {
        output::say("no function handles the selected events, they are only counted (__sample__(event) handles all)");
    }
    program.init()?;
    Ok(program)
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
fn described(plan: &Plan, selected: &[Selected]) -> Result<Vec<EventType>> {
    let layouts = Capture::layouts(&target::requests(plan, selected)?);
    Ok(selected.iter().zip(layouts).map(|(event, layout)| event.event_type(layout)).collect())
}

/// The workload's status. One that is still to run is sent a signal first, as its events are of no use to anybody.
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
            output::say(format_args!("the command (pid {}) does not end and is left running", workload.pid()));
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The exit status: what the script asked for at its end, then what ended the run, then the workload's own.
fn status(ending: Ending, at_exit: Option<Stop>, workload: Option<u8>) -> u8 {
    let of_stop = |stop: Stop| match stop {
        Stop::Exit(status) => status,
        Stop::Failed => 1,
        Stop::Interrupted | Stop::ClosedPipe => 0,
    };
    let run = match ending {
        Ending::Program(stop) => of_stop(stop),
        Ending::Signal { number: libc::SIGINT, .. } => 0,
        Ending::Signal { number, .. } => 128 + number as u8,
        Ending::NotStarted => 1,
        Ending::Limit | Ending::Source(_) => 0,
    };
    match (at_exit, run) {
        (Some(Stop::Exit(status)), _) => status,
        (Some(stop), 0) => of_stop(stop),
        (None, 0) if matches!(ending, Ending::Source(Ended::TasksExited)) => workload.unwrap_or(0),
        (_, run) => run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::run_loop::Rest;

    #[test]
    fn the_status_is_the_scripts_then_the_runs_then_the_commands() {
        let exited = Ending::Source(Ended::TasksExited);
        let signal = |number| Ending::Signal { number, rest: Rest::Delivered };
        let rows = [
            (exited, None, Some(3), 3),
            (exited, Some(Stop::Exit(0)), Some(3), 0),
            (exited, Some(Stop::Exit(5)), Some(3), 5),
            (exited, Some(Stop::Failed), Some(3), 1),
            (exited, None, None, 0),
            (Ending::Limit, None, Some(143), 0),
            (signal(libc::SIGINT), None, Some(130), 0),
            (signal(libc::SIGTERM), None, None, 143),
            (signal(libc::SIGHUP), None, None, 129),
            (signal(libc::SIGTERM), Some(Stop::Exit(5)), None, 5),
            (Ending::Program(Stop::Exit(7)), None, Some(3), 7),
            (Ending::Program(Stop::Failed), None, None, 1),
            (Ending::Program(Stop::Failed), Some(Stop::Exit(4)), None, 4),
            (Ending::Program(Stop::ClosedPipe), None, None, 0),
            (Ending::NotStarted, None, None, 1),
        ];
        for (ending, at_exit, workload, expected) in rows {
            assert_eq!(status(ending, at_exit, workload), expected, "{ending:?} {at_exit:?} {workload:?}");
        }
    }
}
