//! From plan to recording: open, describe, record, finish.

use std::{
    io,
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use super::{
    control::{Command, Control},
    machine,
    output::{Form, Recording},
    plan::{Delay, Output, Plan},
    running,
    threads::{self, Shared},
};
use crate::{
    abi::PERF_SAMPLE_IP,
    capture::{Begin, Capture, EventAttr, Mapped, Mappings, Members, Options},
    perfdata::write::{Dsos, FINISHED_ROUND, Feature, Features, GATHERED, Stream, Synthesis, WriteError},
    record::{Batch, Source, Wait},
    session::{
        ExitStatus,
        events::{self, Selected},
        plan::{self, Verbosity},
        start, target,
    },
    spec::{CallGraph, EventKind},
    sys::{
        output, procfs,
        signals::{Pending, Signals},
        tracefs::Tracefs,
        workload::{Stdout, Workload},
    },
};

/// How long records are gathered before perf may sort them: longer than any writer is interrupted between taking the time
/// and taking its place in a ring.
const ROUND: Duration = Duration::from_millis(100);

/// Carries a plan out; the result is the exit status.
pub fn run(plan: &Plan) -> Result<ExitStatus> {
    let tracefs = Tracefs::find()?;
    let selected = events::select(&plan.capture, &tracefs)?;
    if let Some(probe) = selected.iter().find(|event| matches!(event.spec.kind, EventKind::Probe(_))) {
        bail!(
            "{}: a recording can hold probes only as the tracepoints that tracefs makes of them: define it, as in \
             `echo 'p:mine /bin/bash:0x4245c0' >> /sys/kernel/tracing/uprobe_events`, and record `-e uprobes:mine`",
            probe.spec.selector
        );
    }
    let signals = Signals::install()?;
    let command = match &plan.capture.target {
        plan::Target::Workload(command) => Some(command),
        _ => plan.meanwhile.as_ref(),
    };
    // In a pipe there is room for the recording alone.
    let stdout = if plan.output == Output::Stdout { Stdout::ToStderr } else { Stdout::Inherited };
    let mut workload = command.map(|command| Workload::fork_with(command, stdout)).transpose()?;
    let mut capture = open(plan, &selected, workload.as_ref(), signals.wake_fd())?;
    let attrs: Vec<EventAttr> = capture.attrs().iter().filter(|event| !event.ids.is_empty()).cloned().collect();
    for event in capture.attrs().iter().filter(|event| event.ids.is_empty()) {
        output::say(format_args!("{} is left out: the kernel does not let it be sampled", event.name));
    }
    let mut features = machine::features(&plan.command_line, target::clock(&plan.capture));
    features.set(&Feature::EventDesc(&attrs));
    let tracepoints = selected.iter().filter_map(|event| event.format.tracepoint());
    let tracepoints: Vec<(&str, &str)> = tracepoints.map(|format| (&*format.system, &*format.name)).collect();
    if !tracepoints.is_empty() {
        features.set(&Feature::TracingData(&machine::tracing_data(&tracefs, tracepoints.into_iter())?));
    }
    if let (Output::Stdout, Some(level)) = (&plan.output, plan.compression) {
        // How much smaller they will be is not known yet.
        features.set(&Feature::Compressed { level, ratio: 1 });
    }
    let control = plan.control.as_ref().map(|place| Control::open(place, signals.wake_fd())).transpose()?;
    let form = match (&plan.output, &plan.threads) {
        (Output::File(path), None) => Form::File(path.clone(), plan.compression),
        (Output::File(path), Some(_)) => Form::Directory(path.clone()),
        (Output::Stdout, _) => Form::Pipe(plan.compression),
    };
    let mut recording = Recording::create(form, &attrs, capture.layout(0), &features)?;
    recording.stream().gather(gathered(plan));
    let mut dsos = Dsos::default();
    let begun = begin(plan, &mut capture, workload.as_mut(), &mut recording, &mut dsos, signals.wake_fd());
    let (shared, failure) = match begun {
        Ok(shared) => (shared, None),
        Err(NotBegun::Written(error)) => (None, Some(error)),
        Err(NotBegun::Started(error)) => {
            recording.discard();
            return Err(error);
        }
    };
    if let Some(workload) = &workload {
        workload.wake_at_exit(signals.wake_fd());
    }
    let begin_at = match plan.delay {
        Delay::For(time) => Some(Instant::now() + time),
        Delay::None | Delay::UntilEnabled => None,
    };
    let mut recorder = Recorder { control, begin_at, capture, recording, shared, signals: &signals, workload, failure };
    let signal = recorder.run();
    let status = recorder.status(signal);
    let failed = recorder.finish(plan, features, dsos)?;
    Ok(ExitStatus(if failed { 1 } else { status }))
}

/// Why nothing is recorded.
enum NotBegun {
    /// What there was before could not be written.
    Written(WriteError),
    /// The events or the command could not be started.
    Started(anyhow::Error),
}

fn begin(
    plan: &Plan,
    capture: &mut Capture,
    workload: Option<&mut Workload>,
    recording: &mut Recording,
    dsos: &mut Dsos,
    wake: RawFd,
) -> Result<Option<Arc<Shared>>, NotBegun> {
    let started = |error: anyhow::Error| NotBegun::Started(error);
    let shared = match (recording.form(), &plan.threads) {
        (Form::Directory(path), Some(threads)) => {
            Some(threads::split(capture, threads, path, (plan.compression, gathered(plan)), wake).map_err(started)?)
        }
        _ => None,
    };
    // What begins while the tasks are listed is told by the kernel.
    capture.follow_tasks().map_err(|error| started(error.into()))?;
    describe(plan, capture, workload.as_deref(), recording, dsos).map_err(NotBegun::Written)?;
    capture.enable().map_err(|error| started(error.into()))?;
    workload.map_or(Ok(()), Workload::start).map_err(|error| started(error.into()))?;
    Ok(shared)
}

fn open(plan: &Plan, selected: &[Selected], workload: Option<&Workload>, wake: RawFd) -> Result<Capture> {
    let mut requests = target::requests(&plan.capture, selected)?;
    requests.iter_mut().for_each(|request| request.samples.sample_type |= PERF_SAMPLE_IP);
    // A command that is only run meanwhile is no target.
    let traced = workload.filter(|_| matches!(plan.capture.target, plan::Target::Workload(_)));
    let target = target::target(&plan.capture, traced.map(Workload::pid))?;
    let options = target::options(&plan.capture, Mappings::Identified(mapped(plan)), wake);
    let begin = if plan.delay == Delay::None { Begin::AtOnce } else { Begin::Later };
    let options = Options { members: Members::Recorded, begin, order: None, ..options };
    Capture::open(&target, &requests, &options).map_err(|error| start::explained(error, selected))
}

/// How much is gathered before it is written.
fn gathered(plan: &Plan) -> usize {
    plan.gathered.unwrap_or(GATHERED)
}

/// Which mappings have to be known.
fn mapped(plan: &Plan) -> Mapped {
    match plan.capture.callchain.how {
        CallGraph::Dwarf(_) => Mapped::All,
        CallGraph::FramePointer | CallGraph::LastBranches => Mapped::Code,
    }
}

/// Writes what there is before the first event.
fn describe(
    plan: &Plan,
    capture: &Capture,
    workload: Option<&Workload>,
    recording: &mut Recording,
    dsos: &mut Dsos,
) -> Result<(), WriteError> {
    let mut synthesis = Synthesis::new(capture.trailer().size());
    running::kernel(&mut synthesis, dsos);
    let mut pids = match &plan.capture.target {
        plan::Target::Workload(_) => Vec::new(),
        plan::Target::Processes(pids) => pids.clone(),
        plan::Target::Threads(tids) => tids.iter().map(|&tid| procfs::process_of(tid).unwrap_or(tid)).collect(),
        plan::Target::AllCpus | plan::Target::Cpus(_) | plan::Target::Cgroups { .. } => procfs::processes(),
    };
    if let Some(workload) = workload {
        // It will be another program when it begins. perf, which keeps what one had mapped before its exec, would take
        // that for its own, and unwind no stack of it.
        pids.retain(|&pid| pid != workload.pid());
        running::task(&mut synthesis, workload.pid());
    }
    running::processes(&mut synthesis, dsos, mapped(plan), &pids);
    recording.stream().own(synthesis.bytes())
}

struct Recorder<'a> {
    capture: Capture,
    recording: Recording,
    /// What threads that write leave.
    shared: Option<Arc<Shared>>,
    signals: &'a Signals,
    workload: Option<Workload>,
    control: Option<Control>,
    /// When the events are to be turned on.
    begin_at: Option<Instant>,
    failure: Option<WriteError>,
}

impl Recorder<'_> {
    /// Until something ends it: the signal that did.
    fn run(&mut self) -> Option<i32> {
        let mut signal = None;
        let mut next_round = Instant::now() + ROUND;
        let (mut flushing, mut any) = (false, false);
        if self.failure.is_some() {
            self.capture.stop();
        }
        loop {
            let round_at = (any && !flushing).then_some(next_round);
            let until = round_at.into_iter().chain(self.begin_at).min();
            let written = match self.capture.wait(until) {
                Wait::Batch(Batch::Ring(chunk)) => {
                    any = true;
                    self.recording.stream().records(chunk.bytes())
                }
                // The capture sorts nothing.
                Wait::Batch(Batch::Sorted(_)) | Wait::Timeout => Ok(()),
                // All rings have been emptied since the round before.
                Wait::Flushed => {
                    flushing = false;
                    next_round = Instant::now() + ROUND;
                    let stream = self.recording.stream();
                    stream.own(&FINISHED_ROUND).and_then(|()| stream.flush())
                }
                Wait::Woken => {
                    if self.attend(&mut signal) == Attention::Impatient {
                        return signal;
                    }
                    Ok(())
                }
                Wait::Ended(_) => return signal,
            };
            let written = written.and_then(|()| match self.shared.as_ref().and_then(|shared| shared.take_failure()) {
                None => Ok(()),
                Some(error) => Err(error),
            });
            if let Err(error) = written {
                self.failure = Some(error);
                self.capture.stop();
            }
            if self.begin_at.is_some_and(|at| Instant::now() >= at) {
                self.begin_at = None;
                self.command(Command::Enable);
            }
            if any && !flushing && Instant::now() >= next_round {
                (any, flushing) = (false, true);
                self.capture.flush();
            }
        }
    }

    /// Signals, and the end of the command.
    fn attend(&mut self, signal: &mut Option<i32>) -> Attention {
        let Pending { interrupt, terminate, hangup, .. } = self.signals.take();
        for (count, number) in [(interrupt, libc::SIGINT), (terminate, libc::SIGTERM), (hangup, libc::SIGHUP)] {
            if count == 0 {
                continue;
            }
            // The first stops the events, and what was recorded is written; another one ends that too.
            if signal.replace(number).is_some() || count > 1 {
                return Attention::Impatient;
            }
            self.capture.stop();
        }
        while let Some(command) = self.control.as_ref().and_then(Control::next) {
            self.command(command);
            if let Some(control) = &mut self.control {
                control.ack();
            }
        }
        if self.workload.as_mut().is_some_and(|workload| matches!(workload.try_wait(), Ok(Some(_)))) {
            self.capture.stop();
        }
        Attention::Patient
    }

    fn command(&mut self, command: Command) {
        let done = match command {
            Command::Enable => self.capture.enable_events(),
            Command::Disable => self.capture.disable_events(),
            Command::Ping => Ok(()),
            Command::Stop => {
                self.capture.stop();
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

    /// Writes the end, says what became of it. Whether it failed.
    fn finish(mut self, plan: &Plan, mut features: Features, mut dsos: Dsos) -> Result<bool> {
        let losses = self.capture.losses();
        let trailer = self.capture.trailer().size();
        // The threads that write have ended by then.
        self.capture.close();
        let stream = self.recording.stream();
        let mut failure = self.failure.take();
        let mut try_to = |result: Result<(), WriteError>| {
            if let Err(error) = result {
                failure.get_or_insert(error);
            }
        };
        try_to(stream.flush());
        let asides = self.shared.as_ref().map(|shared| shared.take_streams()).unwrap_or_default();
        if let Some(error) = self.shared.as_ref().and_then(|shared| shared.take_failure()) {
            try_to(Err(error));
        }
        // What the kernel dropped last of all, nothing in a ring tells.
        let told = stream.written().lost + asides.iter().map(|aside| aside.written().lost).sum::<u64>();
        let untold = losses.as_ref().map_or(0, |counts| counts.per_ring.iter().sum::<u64>().saturating_sub(told));
        if untold > 0 {
            let mut synthesis = Synthesis::new(trailer);
            synthesis.lost_samples(untold);
            try_to(stream.own(synthesis.bytes()));
        }
        try_to(stream.flush());
        let (mut tally, mut dropped, (mut raw, mut packed)) =
            (stream.written().clone(), stream.dropped(), stream.packed());
        for aside in &asides {
            tally.take(&mut aside.written().clone());
            dropped += aside.dropped();
            raw += aside.packed().0;
            packed += aside.packed().1;
        }
        if self.shared.is_some() {
            features.set(&Feature::Directory);
        }
        if let Some((first, last)) = tally.times {
            features.set(&Feature::SampleTime(first, last));
        }
        if let Some(level) = plan.compression {
            let ratio = raw.checked_div(packed).unwrap_or(1) as u32;
            features.set(&Feature::Compressed { level, ratio });
        }
        dsos.extend(tally.dsos);
        running::look_up(&mut dsos);
        features.set(&Feature::BuildIds(&dsos));
        let name = self.recording.form().to_string();
        let size = self.recording.finish(&features, &dsos)? + asides.iter().map(Stream::end).sum::<u64>();
        // Whoever has read enough of a pipe closes it.
        let failure = failure.filter(|error| error.0.kind() != io::ErrorKind::BrokenPipe);
        if let Some(error) = &failure {
            let dropped = match dropped {
                0 => String::new(),
                dropped => format!("; {dropped} samples that had been taken are not in it"),
            };
            output::say(format_args!("cannot write {name}: {error}; the recording ends here{dropped}"));
        }
        if plan.verbosity > Verbosity::Quiet {
            let lost = losses.map_or(told + untold, |counts| counts.per_event.iter().sum());
            let of = tally.samples + lost;
            let share = match lost {
                0 => "0 lost".to_owned(),
                lost => {
                    let more = if self.shared.is_none() { ", --threads" } else { "" };
                    let percent = 100.0 * lost as f64 / of as f64;
                    format!("{lost} lost ({percent:.1} %): a larger -m{more} or fewer events help")
                }
            };
            output::say(format_args!("{name}: {} samples in {}, {share}", tally.samples, bytes(size)));
        }
        Ok(failure.is_some())
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

/// A size, for people.
fn bytes(size: u64) -> String {
    match size {
        0..10_240 => format!("{size} bytes"),
        10_240..10_485_760 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}
