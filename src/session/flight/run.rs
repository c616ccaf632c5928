//! Carries out the plan of a flight recorder: opens the events and the triggers, waits, and makes dumps.

use std::{os::fd::RawFd, time::Instant};

use anyhow::{Result, bail};
use perf_prof_capture::{Capture, EventRequest, Options, Reading, RecordOrder, Samples};
use perf_prof_format::record::{Ended, Source, Wait};
use perf_prof_in_kernel::load::StringWriters;
use perf_prof_system::{
    budget::Budget, close_in_child, memory, output, procfs, signals::Signals, tracefs::Tracefs, workload::Workload,
};

use super::{
    folder::DumpFolder,
    keeper::{Keeper, Kept},
    plan::{FlightPlan, Into},
    request::{Asking, Request},
    rings,
    triggers::Triggers,
};
use crate::{
    engine::{ExitStatus, losses},
    live::{
        chosen::{ArmedEvents, ChosenEvents},
        requests::{self, Sizes},
        select::Selected,
        strings,
    },
    plan::{self, InterpreterFrameUse},
    recorder::{self, Command, Control, Destination, Due, Output, Times},
};

/// The memory for side-band records that were read and are not processed yet, in bytes.
const SIDE_BAND_BACKLOG: usize = 32 << 20;

/// Carries out a plan and returns the exit status.
pub fn run(plan: &FlightPlan) -> Result<ExitStatus> {
    run_with(plan, || Ok(Signals::install()?), |_| {})
}

/// Carries out a plan for a program that has signal handlers of its own. `signals` returns the signals that the
/// recorder handles. `begun` gets the queue for requests as soon as the events are on.
pub fn run_with(
    plan: &FlightPlan,
    signals: impl FnOnce() -> Result<Signals>,
    begun: impl FnOnce(Asking),
) -> Result<ExitStatus> {
    run_chosen(plan, choose(plan)?, signals, begun)
}

/// Selects the events of a plan, and checks whether dumps can be written.
pub(super) fn choose(plan: &FlightPlan) -> Result<ChosenEvents> {
    let capture = &plan.record.capture;
    if capture.callchain.live_python() != InterpreterFrameUse::No {
        bail!(
            "--python: dumps have no names of Python functions; record without --before, --overwrite and --switch-output-event"
        );
    }
    let chosen = ChosenEvents::select(capture)?.recorded(capture)?;
    recorder::check(&chosen.events)?;
    check_output(plan)?;
    Ok(chosen)
}

/// Like [`run_with`], with events that were selected before.
pub(super) fn run_chosen(
    plan: &FlightPlan,
    chosen: ChosenEvents,
    signals: impl FnOnce() -> Result<Signals>,
    begun: impl FnOnce(Asking),
) -> Result<ExitStatus> {
    let record = &plan.record;
    let signals = &signals()?;
    let command = match &record.capture.target {
        plan::Target::Workload(command) => Some(command),
        _ => record.untraced_command.as_ref(),
    };
    let armed = chosen.arm(|| command.map(|command| Workload::fork(command)).transpose())?;
    let ArmedEvents { closing, tracefs, events: selected, limits, mut workload, .. } = armed;
    let requested = requests::requests(&record.capture, &selected)?;
    let sizes = sizes(plan, &requested);
    let (mut capture, writers) =
        open(plan, (&selected, &tracefs, &sizes), requested, workload.as_ref(), signals.wake_fd())?;
    limits.report();
    let (asking, asked) = Asking::new(signals.wake_fd());
    let triggers = open_triggers(plan, workload.as_ref(), &asking)?;
    drop(closing);
    let control = record.control.as_ref().map(|place| Control::open(place, signals.wake_fd())).transpose()?;
    let (memory, target) = (sizes.memory, workload.as_ref().map(Workload::pid));
    let kept = Kept { plan, selected: &selected, tracefs: &tracefs, requests: asked, memory, target };
    let keeper = Keeper::begin(kept, &mut capture, || {
        triggers.iter().for_each(Triggers::start);
        // A command may end at once, so its triggers are on before.
        workload.as_mut().map_or(Ok(()), |workload| Ok(workload.start()?))
    })?;
    begun(asking.clone());
    let times = Times::of(record);
    let mut flight = Flight { capture, keeper, signals, workload, control, asking, times };
    let signal = flight.run();
    drop(triggers);
    let status = recorder::end_command(flight.workload.take(), signal);
    flight.keeper.conclude(&mut flight.capture);
    strings::report_missed(&writers);
    close_in_child::close(writers.into_slow());
    Ok(if flight.keeper.are_complete() { ExitStatus(status) } else { ExitStatus(1) })
}

/// Checks whether dumps can be written. Creates their folder.
fn check_output(plan: &FlightPlan) -> Result<()> {
    let Output::File(path) = &plan.record.output else {
        bail!("-o -: a dump is a file of its own; give a folder for the dumps, for example -o incidents/");
    };
    match plan.into {
        Into::File => Destination::File(path.clone(), None).check(),
        Into::Folder => {
            let folder = DumpFolder::of_output(path);
            let shown = folder.path().display();
            folder
                .create()
                .map_err(|error| anyhow::anyhow!("cannot create the folder '{shown}' for dumps: {error}"))?;
            Destination::File(folder.path().join("perf.data.new"), None).check()
        }
    }
}

/// The first size of each ring, and the maximum memory for all rings, in bytes.
struct KeptSizes {
    ring: usize,
    memory: usize,
    /// The size of each ring for side-band records.
    side_band: usize,
}

fn sizes(plan: &FlightPlan, requests: &[EventRequest]) -> KeptSizes {
    let capture = &plan.record.capture;
    let default = || memory::default_buffer().min(rings::DEFAULT_MEMORY);
    let memory = capture.buffer.unwrap_or_else(default);
    let Sizes { ring, .. } = requests::sizes(capture, requests);
    let is_measured = plan.before.is_some() && capture.ring_size.is_none();
    let rings = match &capture.target {
        plan::Target::Threads(threads) => threads.len(),
        _ => procfs::online_cpus().map_or(1, |cpus| cpus.iter().count()),
    };
    let at_first = || rings::AT_FIRST.min(ring).min(rings::largest(rings, memory));
    KeptSizes { ring: if is_measured { at_first() } else { ring }, memory, side_band: rings::of_side_band(rings) }
}

/// Opens the events, whose samples stay in the rings. Starts the BPF programs that write the records of events with strings.
fn open(
    plan: &FlightPlan,
    (selected, tracefs, sizes): (&[Selected], &Tracefs, &KeptSizes),
    requests: Vec<EventRequest>,
    workload: Option<&Workload>,
    wake: RawFd,
) -> Result<(Capture, StringWriters)> {
    let of_side_band = Sizes { ring: sizes.side_band, buffer: Budget::new(SIDE_BAND_BACKLOG) };
    let samples = Samples::Kept { ring_bytes: sizes.ring };
    let kept = |options| Options { samples, order: Some(RecordOrder::default()), ..options };
    let opened = (selected, tracefs, &of_side_band);
    let (capture, writers) = recorder::open(&plan.record, opened, requests, workload, wake, kept)?;
    requests::report_opened(&of_side_band, selected, &capture, plan.record.verbosity, "recorded");
    Ok((capture, writers))
}

fn open_triggers(plan: &FlightPlan, workload: Option<&Workload>, asking: &Asking) -> Result<Option<Triggers>> {
    let Some(mut draft) = plan.triggers.clone() else { return Ok(None) };
    if let (plan::Target::Workload(_), Some(workload)) = (&plan.record.capture.target, workload) {
        draft.selection.pids = Some(vec![workload.pid()]);
    }
    Triggers::open(draft, asking.clone()).map(Some)
}

struct Flight<'a> {
    capture: Capture,
    keeper: Keeper<'a>,
    signals: &'a Signals,
    workload: Option<Workload>,
    control: Option<Control>,
    asking: Asking,
    times: Times,
}

impl Flight<'_> {
    /// Waits and makes dumps until something ends the recording. Returns the signal if a signal ended it.
    fn run(&mut self) -> Option<i32> {
        let mut signal = None;
        loop {
            let times = [self.times.next(), self.keeper.next_time()];
            match self.capture.wait(times.into_iter().flatten().min()) {
                Wait::Batch(batch) => self.keeper.add(&batch, &self.capture),
                Wait::Timeout | Wait::Flushed => {}
                Wait::Woken => self.keeper.woken = true,
                Wait::Ended(Ended::TasksExited) if signal.is_none() && self.keeper.stays() => {
                    return self.answer_requests();
                }
                Wait::Ended(_) => return signal,
            }
            self.keeper.attend(&mut self.capture);
            while std::mem::take(&mut self.keeper.woken) {
                self.handle_wakeup(&mut signal);
                self.keeper.attend(&mut self.capture);
            }
            self.attend_to_times(Instant::now());
        }
    }

    /// Makes the requested dumps until a signal ends the recorder. The traced tasks have exited, but the rings still
    /// contain their last events.
    fn answer_requests(&mut self) -> Option<i32> {
        loop {
            self.keeper.attend(&mut self.capture);
            if let Some((_, signal)) = self.signals.take_pending().end_requests().next() {
                return Some(signal);
            }
            // A signal or a command may have arrived while a dump waited for side-band records.
            if !std::mem::take(&mut self.keeper.woken)
                && self.capture.wait_woken(self.keeper.next_time()) == Reading::Over
            {
                return None;
            }
        }
    }

    fn attend_to_times(&mut self, now: Instant) {
        while let Some(due) = self.times.take_due(now) {
            match due {
                Due::Begin => self.command(Command::Enable),
                Due::End => self.capture.stop(),
                Due::Usage(line) => output::write_line(&line),
            }
        }
    }

    /// Handles signals, and commands from `--control`, after the recorder was woken.
    fn handle_wakeup(&mut self, signal: &mut Option<i32>) {
        losses::report_offline_cpus(&mut self.capture);
        let pending = self.signals.take_pending();
        if pending.user2 != 0 {
            self.asking.send(Request::asked("signal"));
        }
        for (_, number) in pending.end_requests() {
            *signal = Some(number);
            self.capture.stop();
        }
        while let Some(command) = self.control.as_ref().and_then(Control::next) {
            self.command(command);
            if let Some(control) = &mut self.control {
                control.ack();
            }
        }
    }

    fn command(&mut self, command: Command) {
        if command == Command::Snapshot {
            self.asking.send(Request::asked("snapshot"));
            self.keeper.attend(&mut self.capture);
        }
        self.keeper.switch(command, &mut self.capture);
    }
}
