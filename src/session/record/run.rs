//! From plan to recording: open, describe, record, finish.

use std::{
    io::{self, IsTerminal},
    os::fd::RawFd,
    sync::Arc,
    time::Instant,
};

use anyhow::{Result, bail};

use super::{
    container::Form,
    control::{Command, Control},
    plan::{Delay, Output, Plan},
    recorded::{AfterFailure, Recorded},
    recording::{self, Recording},
    threads::{self, Shared},
};
use crate::{
    capture::{Begin, Capture, Mappings, Options, Switching},
    perfdata::write::GATHERED,
    record::{Source, Wait},
    session::{
        ExitStatus,
        events::{self, Selected},
        plan, rights, start, target,
    },
    sys::{
        clock, output,
        signals::Signals,
        workload::{Stdout, Workload},
    },
};

/// Carries a plan out; the result is the exit status.
pub fn run(plan: &Plan) -> Result<ExitStatus> {
    let form = match (&plan.output, &plan.threads) {
        (Output::File(path), None) => Form::File(path.clone(), plan.compression),
        (Output::File(path), Some(_)) => Form::Directory(path.clone(), plan.compression),
        (Output::Stdout, _) => Form::Pipe(plan.compression),
    };
    form.check()?;
    if plan.output == Output::Stdout && io::stdout().is_terminal() {
        bail!(
            "-o -: a recording is no text for a terminal; a pipe reads it, as `| perf-prof script -i -`, or -o FILE keeps it"
        )
    }
    let tracefs = rights::tracefs(&plan.capture)?;
    let mut selected = events::select(&plan.capture, &tracefs)?;
    recording::check(&selected)?;
    let limits = rights::limit(&mut selected);
    let signals = Signals::install()?;
    let command = match &plan.capture.target {
        plan::Target::Workload(command) => Some(command),
        _ => plan.meanwhile.as_ref(),
    };
    // In a pipe there is room for the recording alone.
    let stdout = if plan.output == Output::Stdout { Stdout::ToStderr } else { Stdout::Inherited };
    let mut workload = command.map(|command| Workload::fork_with(command, stdout)).transpose()?;
    // Before the rings, which may take all that the user may lock.
    let offset = clock::realtime_offset(target::clock(&plan.capture)).ok();
    let capture = open(plan, &selected, workload.as_ref(), signals.wake_fd())?;
    limits.say();
    target::say_what_may_be_missing(capture.of_children());
    target::say_how_small_rings_are(&plan.capture, &capture, plan.verbosity);
    for event in capture.attrs().iter().filter(|event| event.ids.is_empty()) {
        output::say(format_args!("{} is left out: the kernel does not let it be sampled", event.name));
    }
    if plan.verbosity >= plan::Verbosity::Verbose {
        target::say_what_is_captured(&plan.capture, &selected, &capture);
    }
    if (plan.delay, &plan.control) == (Delay::UntilEnabled, &None) && plan.verbosity > plan::Verbosity::Quiet {
        output::say("-D -1 without --control: nobody can turn the events on, and none is recorded");
    }
    let followed = matches!(plan.capture.target, plan::Target::Workload(_) | plan::Target::Processes(_));
    let is_read = |event: &&Selected| event.spec.grouping.is_read_by_leader();
    if let (Some(leader), true) = (selected.iter().find(is_read), followed && plan.verbosity > plan::Verbosity::Quiet) {
        output::say(format_args!(
            "{} reads its group: threads and processes that are created meanwhile are not in it, as no task inherits such a \
             group; -a records it on all CPUs",
            leader.spec.selector
        ));
    }
    let control = plan.control.as_ref().map(|place| Control::open(place, signals.wake_fd())).transpose()?;
    let mut recording =
        Recording::create(form, &plan.command_line, &plan.capture, (&capture, &selected), &tracefs, offset)?;
    recording.gather(plan.gathered.unwrap_or(GATHERED));
    let mut source = Recorded::new(capture, AfterFailure::Stop);
    let shared = match begin(plan, &mut source.source, workload.as_mut(), &mut recording, signals.wake_fd()) {
        Ok(shared) => shared,
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    };
    source.record(recording);
    if let Some(workload) = &workload {
        workload.wake_at_exit(signals.wake_fd());
    }
    let begin_at = match plan.delay {
        Delay::For(time) => Some(Instant::now() + time),
        Delay::None | Delay::UntilEnabled => None,
    };
    let mut recorder = Recorder { control, begin_at, source, shared, signals: &signals, workload };
    let signal = recorder.run();
    let status = recorder.status(signal);
    let is_whole = recorder.finish(plan)?;
    Ok(ExitStatus(if is_whole { status } else { 1 }))
}

fn begin(
    plan: &Plan,
    capture: &mut Capture,
    workload: Option<&mut Workload>,
    recording: &mut Recording,
    wake: RawFd,
) -> Result<Option<Arc<Shared>>> {
    let gathered = plan.gathered.unwrap_or(GATHERED);
    let shared = match (recording.form(), &plan.threads) {
        (Form::Directory(path, level), Some(threads)) => {
            Some(threads::split(capture, threads, path, (*level, gathered), recording.strays(), wake)?)
        }
        _ => None,
    };
    recording.begin(&plan.capture, capture, workload)?;
    Ok(shared)
}

fn open(plan: &Plan, selected: &[Selected], workload: Option<&Workload>, wake: RawFd) -> Result<Capture> {
    let requests = target::requests(&plan.capture, selected)?;
    // A command that is only run meanwhile is no target.
    let traced = workload.filter(|_| matches!(plan.capture.target, plan::Target::Workload(_)));
    let target = target::target(&plan.capture, traced.map(Workload::pid))?;
    let options = target::options(&plan.capture, Mappings::Ignored, wake);
    let begin = if plan.delay == Delay::None { Begin::AtOnce } else { Begin::Later };
    let is_switched = begin == Begin::Later || plan.control.is_some();
    let switching = if is_switched { Switching::Repeated } else { Switching::Once };
    let options = Options { begin, switching, order: None, ..options };
    let (requests, options) = recording::recordable(&plan.capture, requests, options);
    let opened =
        target::with_rings_that_fit(&plan.capture, options, |options| Capture::open(&target, &requests, options));
    opened.map_err(|error| start::explained(error, selected))
}

struct Recorder<'a> {
    source: Recorded<Capture>,
    /// What threads that write leave.
    shared: Option<Arc<Shared>>,
    signals: &'a Signals,
    workload: Option<Workload>,
    control: Option<Control>,
    /// When the events are to be turned on.
    begin_at: Option<Instant>,
}

impl Recorder<'_> {
    /// Until something ends it: the signal that did.
    fn run(&mut self) -> Option<i32> {
        let mut signal = None;
        loop {
            match self.source.wait(self.begin_at) {
                Wait::Batch(batch) => self.source.delivered(&batch, usize::MAX),
                Wait::Timeout | Wait::Flushed => {}
                Wait::Woken => {
                    if self.attend(&mut signal) == Attention::Impatient {
                        return signal;
                    }
                }
                Wait::Ended(_) => return signal,
            }
            self.look_for_failure_of_threads();
            if self.begin_at.is_some_and(|at| Instant::now() >= at) {
                self.begin_at = None;
                self.command(Command::Enable);
            }
        }
    }

    fn look_for_failure_of_threads(&mut self) {
        let failure = self.shared.as_ref().and_then(|shared| shared.take_failure());
        if let (Some(error), Some(recording)) = (failure, self.source.recording()) {
            recording.note(Err(error));
            self.source.look_for_failure();
        }
    }

    /// Signals, and the end of the command.
    fn attend(&mut self, signal: &mut Option<i32>) -> Attention {
        for (count, number) in self.signals.take().to_end() {
            // The first stops the events, and what was recorded is written; another one ends that too.
            if signal.replace(number).is_some() || count > 1 {
                return Attention::Impatient;
            }
            self.source.stop();
        }
        while let Some(command) = self.control.as_ref().and_then(Control::next) {
            self.command(command);
            if let Some(control) = &mut self.control {
                control.ack();
            }
        }
        if self.workload.as_mut().is_some_and(|workload| matches!(workload.try_wait(), Ok(Some(_)))) {
            self.source.stop();
        }
        Attention::Patient
    }

    fn command(&mut self, command: Command) {
        let capture = &mut self.source.source;
        let done = match command {
            Command::Enable => capture.enable_events(),
            Command::Disable => capture.disable_events(),
            Command::Ping => Ok(()),
            Command::Stop => {
                capture.stop();
                Ok(())
            }
        };
        if let Err(error) = done {
            output::say(error);
        }
    }

    /// The status of the command or of the signal.
    fn status(&mut self, signal: Option<i32>) -> u8 {
        let command =
            self.workload.take().and_then(|workload| start::end_workload(workload, signal.map(|_| libc::SIGTERM)));
        match (signal, command) {
            (Some(libc::SIGINT), _) => 0,
            (Some(signal), _) => 128 + signal as u8,
            (None, command) => command.unwrap_or(0),
        }
    }

    /// Writes the end, says what became of it. Whether it is whole.
    fn finish(mut self, plan: &Plan) -> Result<bool> {
        let lost = self.source.source.lost();
        // The threads that write end with it.
        self.source.source.end_lanes();
        self.look_for_failure_of_threads();
        let Some(recording) = self.source.take_recording() else { return Ok(true) };
        let mut asides = self.shared.as_ref().map(|shared| shared.take_streams()).unwrap_or_default();
        let summary = recording.finish(lost.as_deref(), &mut asides)?;
        summary.say_left_out();
        summary.say(if self.shared.is_none() { ", --threads" } else { "" }, plan.verbosity);
        Ok(summary.is_whole)
    }
}

/// How a signal is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attention {
    /// What was recorded is to be written.
    Patient,
    /// It is to end at once.
    Impatient,
}
