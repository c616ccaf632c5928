//! Carries out the plan of a recording: opens the events, writes the tasks and mappings that already exist, records,
//! and finishes the file.

use std::{
    io::{self, IsTerminal},
    os::fd::RawFd,
    sync::Arc,
    time::Instant,
};

use anyhow::{Result, bail};
use perf_prof_capture::{Capture, EventRequest, EventStart, Mappings, Options, Switching};
use perf_prof_format::{
    record::{Source, Wait},
    spec::EventKind,
};
use perf_prof_in_kernel::load::StringWriters;
use perf_prof_recordings::{
    OwnUpdate,
    write::{DEFAULT_BUFFER, WriteError},
};
use perf_prof_system::{
    budget::Budget,
    clock, close_in_child, output,
    signals::Signals,
    tracefs::Tracefs,
    workload::{Stdout, Workload},
};

use super::{
    container::Destination,
    control::{Command, Control},
    frame_names::FrameNames,
    lifecycle::{self, RecordingWriter, Subject},
    off_times::OffTimes,
    plan::{Delay, Output, RecordPlan},
    tee::{AfterFailure, RecordingTee},
    times::{Due, Times},
    writer_threads::{self, Files, WriterResults},
};
use crate::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        losses,
        run_loop::Ending,
    },
    live::{
        chosen::{ArmedEvents, ChosenEvents},
        kernel_target::KernelTarget,
        refusal,
        requests::{self, Sizes},
        select::Selected,
        strings, workload_end,
    },
    plan::{self, InterpreterFrameUse},
};

/// The default limit, in bytes, for the memory of records that are not written yet.
const DEFAULT_BACKLOG: usize = 256 << 20;

/// Carries out a plan and returns the exit status.
pub fn run(plan: &RecordPlan) -> Result<ExitStatus> {
    hint_at_minima(plan);
    let Recorded { status, failure } = run_with(plan, || Ok(Signals::install()?), || {})?;
    Ok(if failure.is_none() { status } else { ExitStatus(1) })
}

/// Says that the recording also contains the events of shorter spans, if the user selected a minimum length.
fn hint_at_minima(plan: &RecordPlan) {
    if plan.verbosity < plan::Verbosity::Normal {
        return;
    }
    for event in &plan.capture.events {
        if let EventKind::Span(span) = &event.kind
            && span.min != 0
        {
            output::say(format_args!(
                "{}: events of shorter spans are recorded too, because spans are made when the recording is read; give the \
                 same selector with --input",
                event.selector
            ));
        }
    }
}

/// How a recording ended.
#[derive(Debug)]
pub struct Recorded {
    /// The exit status of `perf-prof record`.
    pub status: ExitStatus,
    /// Why the recording is cut off; `None` if it is complete. The reason was already printed.
    pub failure: Option<WriteError>,
}

/// Carries out a plan for a program that has signal handlers of its own. `signals` returns the signals that the
/// recorder handles. `begun` is called when the recording has begun.
pub fn run_with(
    plan: &RecordPlan,
    signals: impl FnOnce() -> Result<Signals>,
    begun: impl FnOnce(),
) -> Result<Recorded> {
    let destination = destination(plan)?;
    let chosen = ChosenEvents::select(&plan.capture)?.recorded(&plan.capture)?;
    lifecycle::check(&chosen.events)?;
    let signals = &signals()?;
    let command = match &plan.capture.target {
        plan::Target::Workload(command) => Some(command),
        _ => plan.untraced_command.as_ref(),
    };
    // If the recording goes to the standard output, the command's output must not be mixed with it.
    let stdout = if plan.output == Output::Stdout { Stdout::ToStderr } else { Stdout::Inherited };
    let armed = chosen.arm(|| command.map(|command| Workload::fork_with(command, stdout)).transpose())?;
    let ArmedEvents { closing, tracefs, events: selected, limits, mut workload, .. } = armed;
    // The clocks are compared before the rings are opened, because the rings may take all the memory that the user may
    // lock.
    let offset = clock::realtime_offset(requests::clock(&plan.capture)).ok();
    let requests = requests::requests(&plan.capture, &selected)?;
    let sizes = sizes(&plan.capture, &requests);
    let opened = (selected.as_slice(), &tracefs, &sizes);
    let unordered = |options| Options { order: None, ..options };
    let (capture, writers) = open(plan, opened, requests, workload.as_ref(), signals.wake_fd(), unordered)?;
    limits.report();
    requests::report_opened(&sizes, &selected, &capture, plan.verbosity, "recorded");
    if (plan.delay, &plan.control) == (Delay::UntilEnabled, &None) && plan.verbosity > plan::Verbosity::Quiet {
        output::say("-D -1 without --control: nothing can turn the events on, so no event will be recorded");
    }
    let followed = matches!(plan.capture.target, plan::Target::Workload(_) | plan::Target::Processes(_));
    let is_read = |event: &&Selected| event.spec.grouping.is_read_by_leader();
    if let (Some(leader), true) = (selected.iter().find(is_read), followed && plan.verbosity > plan::Verbosity::Quiet) {
        output::say(format_args!(
            "{}: threads and processes that start during the recording are not recorded, because tasks do not \
             inherit a group if its leader reads the other members; use -a to record the group on all CPUs",
            leader.spec.selector
        ));
    }
    let control = plan.control.as_ref().map(|place| Control::open(place, signals.wake_fd())).transpose()?;
    let subject = Subject {
        command_line: &plan.command_line,
        plan: &plan.capture,
        capture: &capture,
        selected: &selected,
        tracefs: &tracefs,
        offset,
        made: None,
    };
    let mut recording = RecordingWriter::create(destination, &subject)?;
    drop(closing);
    recording.gather(plan.flush_bytes.unwrap_or(DEFAULT_BUFFER));
    let mut source = RecordingTee::new(capture, AfterFailure::Stop);
    source.name_frames(FrameNames::new(&writers, &selected, &source.source));
    let shared = match begin(plan, &mut source.source, workload.as_mut(), &mut recording, signals.wake_fd()) {
        Ok(shared) => shared,
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    };
    source.record(recording);
    let times = Times::of(plan);
    let off = OffTimes::new(requests::clock(&plan.capture));
    let mut recorder = Recorder { control, times, source, shared, signals, workload, writers, off };
    begun();
    let signal = recorder.run();
    let status = ExitStatus(end_command(recorder.workload.take(), signal));
    Ok(Recorded { status, failure: recorder.finish(plan)? })
}

/// Returns where the recording is written. Fails if the recording cannot be written there.
fn destination(plan: &RecordPlan) -> Result<Destination> {
    let destination = match (&plan.output, &plan.threads) {
        (Output::File(path), None) => Destination::File(path.clone(), plan.compression),
        (Output::File(path), Some(_)) => Destination::Directory(path.clone(), plan.compression),
        (Output::Stdout, _) => Destination::Pipe(plan.compression),
    };
    destination.check()?;
    if plan.capture.callchain.live_python() != InterpreterFrameUse::No
        && (plan.output == Output::Stdout || plan.threads.is_some())
    {
        bail!(
            "--python: the names of Python functions are written at the end of a file, by one thread; use neither `-o -` \
             nor --threads"
        )
    }
    if plan.output == Output::Stdout && io::stdout().is_terminal() {
        bail!(
            "-o -: a recording is binary and cannot be shown on a terminal; add `| perf-prof script -i -`, or give a \
             file with -o"
        )
    }
    Ok(destination)
}

fn begin(
    plan: &RecordPlan,
    capture: &mut Capture,
    workload: Option<&mut Workload>,
    recording: &mut RecordingWriter,
    wake: RawFd,
) -> Result<Option<Arc<WriterResults>>> {
    let flush_bytes = plan.flush_bytes.unwrap_or(DEFAULT_BUFFER);
    let shared = match (recording.folder(), &plan.threads) {
        (Some(folder), Some(threads)) => {
            let destination = recording.destination();
            let files = Files { destination, folder, flush_bytes, strays: recording.strays() };
            Some(writer_threads::split(capture, threads, &files, wake)?)
        }
        _ => None,
    };
    if plan.control.is_some() {
        recording.tell(&OwnUpdate::Switchable);
    }
    recording.begin(&plan.capture, capture, workload)?;
    Ok(shared)
}

/// Returns the sizes in the plan, or default sizes. The default buffer is small, because records stay in it only until
/// they are written. If the recorder is too slow for a long time, a larger buffer becomes full too, and events are lost
/// anyway.
fn sizes(plan: &plan::Capture, requests: &[EventRequest]) -> Sizes {
    let sizes = requests::sizes(plan, requests);
    let buffer = plan.buffer.unwrap_or(sizes.buffer.bytes().min(DEFAULT_BACKLOG));
    Sizes { buffer: Budget::new(buffer), ..sizes }
}

/// Opens the events, and starts the programs that write the records of events with strings. `with` makes the options
/// those of the recorder.
pub fn open(
    plan: &RecordPlan,
    (selected, tracefs, sizes): (&[Selected], &Tracefs, &Sizes),
    requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    wake: RawFd,
    with: impl FnOnce(Options) -> Options,
) -> Result<(Capture, StringWriters)> {
    // With another target, the command only runs during the recording and is not traced.
    let traced = workload.filter(|_| matches!(plan.capture.target, plan::Target::Workload(_)));
    requests::report_missing_cpus(&plan.capture, selected)?;
    let target = requests::target(&plan.capture, traced.map(Workload::pid))?;
    let options = requests::options(&plan.capture, sizes, Mappings::Ignored, wake);
    let begin = if plan.delay == Delay::None { EventStart::AtOnce } else { EventStart::Later };
    let is_switched = begin == EventStart::Later || plan.control.is_some();
    let switching = if is_switched { Switching::Repeated } else { Switching::Once };
    let options = Options { begin, switching, ends_with: workload.map(Workload::pid), ..options };
    let (requests, options) = lifecycle::with_members_of_recordings(&plan.capture, requests, with(options));
    let opened = requests::open_with_rings_that_fit(&plan.capture, options, |options| {
        Capture::open(&target, &requests, options)
    });
    let capture = opened.map_err(|error| refusal::open_error(error, selected))?;
    let target = KernelTarget { capture: &plan.capture, tracefs, target: &target };
    let writers = strings::start(&target, selected, &requests, &capture)?;
    Ok((capture, writers))
}

struct Recorder<'a> {
    source: RecordingTee<Capture>,
    /// The streams and failures of the writer threads, if there are any.
    shared: Option<Arc<WriterResults>>,
    signals: &'a Signals,
    workload: Option<Workload>,
    control: Option<Control>,
    times: Times,
    /// The programs that write the records of events with strings.
    writers: StringWriters,
    off: OffTimes,
}

impl Recorder<'_> {
    /// Records until something ends the recording. Returns the signal if a signal ended it.
    fn run(&mut self) -> Option<i32> {
        let mut signal = None;
        loop {
            match self.source.wait(self.times.next()) {
                Wait::Batch(batch) => self.source.delivered(&batch, usize::MAX),
                Wait::Timeout | Wait::Flushed => {}
                Wait::Woken => {
                    losses::report_offline_cpus(&mut self.source);
                    if self.handle_wakeup(&mut signal) == EndRequest::Impatient {
                        return signal;
                    }
                }
                Wait::Ended(_) => return signal,
            }
            self.handle_failure_of_threads();
            self.attend_to_times(Instant::now());
        }
    }

    fn attend_to_times(&mut self, now: Instant) {
        while let Some(due) = self.times.take_due(now) {
            match due {
                Due::Begin => self.command(Command::Enable),
                Due::End => self.source.stop(),
                Due::Usage(line) => output::write_line(&line),
            }
        }
    }

    fn handle_failure_of_threads(&mut self) {
        let failure = self.shared.as_ref().and_then(|shared| shared.take_failure());
        if let (Some(error), Some(recording)) = (failure, self.source.recording()) {
            recording.keep_failure(Err(error));
            self.source.handle_failure();
        }
    }

    /// Handles signals, and commands from `--control`, after the recorder was woken.
    fn handle_wakeup(&mut self, signal: &mut Option<i32>) -> EndRequest {
        for (count, number) in self.signals.take_pending().end_requests() {
            // After the first signal, the events stop, and the records in the rings are still written. After a second
            // signal, the recording ends at once.
            if signal.replace(number).is_some() || count > 1 {
                return EndRequest::Impatient;
            }
            self.source.stop();
        }
        while let Some(command) = self.control.as_ref().and_then(Control::next) {
            self.command(command);
            if let Some(control) = &mut self.control {
                control.ack();
            }
        }
        EndRequest::Patient
    }

    fn command(&mut self, command: Command) {
        if command == Command::Snapshot {
            output::say("--control: `snapshot` makes a dump only with --before or --overwrite");
        }
        let update = self.off.switch(command, &mut self.source.source);
        if let (Some(update), Some(recording)) = (update, self.source.recording()) {
            recording.tell(&update);
        }
    }

    /// Writes the end of the recording, and prints a summary. If the recording is cut off, returns the reason.
    fn finish(mut self, plan: &RecordPlan) -> Result<Option<WriteError>> {
        let lost = self.source.source.lost();
        strings::report_missed(&self.writers);
        close_in_child::close(std::mem::take(&mut self.writers).into_slow());
        // This also ends the writer threads.
        self.source.source.end_lanes();
        self.handle_failure_of_threads();
        let ended = self.source.off_at().and_then(|off_at| {
            let offset = clock::realtime_offset(requests::clock(&plan.capture)).ok()?;
            Some(off_at.saturating_sub(offset) as u64)
        });
        let Some(mut recording) = self.source.take_recording() else { return Ok(None) };
        recording.turned_off(self.off.over());
        if let Some(ended) = self.off.since().or(ended) {
            recording.ended_at(ended);
        }
        let mut ring_streams = self.shared.as_ref().map(|shared| shared.take_streams()).unwrap_or_default();
        let summary = recording.finish(lost.as_deref(), &mut ring_streams)?;
        summary.report_left_out();
        summary.report(if self.shared.is_none() { ", --threads" } else { "" }, plan.verbosity);
        Ok(summary.failure)
    }
}

/// Ends the command, as perf does, if it still runs. Returns the exit status of perf-prof: the status for the signal,
/// if a signal ended the recording; the command's own status, if it exited by itself; otherwise 0.
pub fn end_command(mut workload: Option<Workload>, signal: Option<i32>) -> u8 {
    let has_exited = |workload: &mut Workload| matches!(workload.try_wait(), Ok(Some(_)) | Err(_));
    let to_end = (!workload.as_mut().is_none_or(has_exited)).then_some(libc::SIGTERM);
    if to_end.is_some() && signal.is_none() {
        output::say("the recording ended before the command, which now gets SIGTERM");
    }
    let command = workload.and_then(|workload| workload_end::end_workload(workload, to_end));
    exit_status(Ending::of_tasks(signal, to_end.is_none()), None, Callbacks::Returned, command)
}

/// How the recorder continues after a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndRequest {
    /// The recorder still writes the records in the rings.
    Patient,
    /// The recorder ends at once.
    Impatient,
}
