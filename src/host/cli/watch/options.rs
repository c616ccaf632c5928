//! The options that the commands of this folder share: where the events come from, live or a recording, and when the
//! run ends.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, value_parser};
use perf_prof_core::{
    derive::source::Coverage,
    plan::{
        Callchain, Capture, DeliveryOrder, Face, Input, LivePlan, Names, Naming, Origin, OwnThreads, ReadLimits,
        RunPlan, Switch, Target, Verbosity, live_target, recorded_tasks,
    },
    record::OtherRecords,
    spec::{CallGraph, CpuSet, EventSpec, Rate, RingSize, TimeRanges, parse_interval, parse_pages, parse_size},
    symbol,
    sys::shell::shell_quote_all,
};

use crate::cli::{
    option_error::OptionError,
    record::target_and_command,
    values::{self, Ids, owner},
};

/// Where the events come from, and when the run ends.
#[derive(Args, Clone, Debug)]
pub struct WatchOptions {
    /// All CPUs; with a command, for as long as it runs
    #[arg(short, long, help_heading = "Events and targets")]
    all_cpus: bool,
    /// Only these CPUs, for example 0-3,7
    #[arg(short = 'C', long = "cpu", alias = "cpus", value_name = "LIST", help_heading = "Events and targets")]
    cpus: Option<CpuSet>,
    /// Only these processes, for example 1,2,3; a live run ends when they have exited
    #[arg(short, long = "pid", alias = "pids", value_name = "LIST", value_parser = values::parse_recorded_ids, help_heading = "Events and targets")]
    pids: Option<Ids>,
    /// Only these threads, for example 1,2,3; a live run ends when they have exited
    #[arg(short, long = "tid", alias = "tids", value_name = "LIST", value_parser = values::parse_recorded_ids, help_heading = "Events and targets")]
    tids: Option<Ids>,
    /// For events other than tracepoints: take one sample every N events
    #[arg(short = 'c', long, value_name = "N", value_parser = values::parse_count, help_heading = "Events and targets")]
    count: Option<Rate>,
    /// For events other than tracepoints: take HZ samples a second; `max` is the highest rate that the kernel allows
    #[arg(short = 'F', long, value_name = "HZ", value_parser = values::parse_freq, help_heading = "Events and targets")]
    freq: Option<Rate>,

    /// Read this recording instead of tracing live: a file or directory of `perf record`, or - for a pipe
    #[arg(long, value_name = "PATH", action = ArgAction::Append, help_heading = "Recordings")]
    input: Vec<PathBuf>,
    /// Read only this part of the recording: `12.5,13` (from second 12.5 to second 13 of its clock), `10%-20%` or
    /// `10%,20%` (from 10 % to 20 %), or `10%/2` (the second tenth)
    #[arg(long, value_name = "FROM,TO", help_heading = "Recordings")]
    time: Option<TimeRanges>,
    /// Read the recording of another user too
    #[arg(short, long, requires = "input", help_heading = "Recordings")]
    force: bool,

    /// Stop after N events
    #[arg(short = 'N', long = "exit-N", value_name = "N", value_parser = value_parser!(u64).range(1..), help_heading = "Run")]
    limit: Option<u64>,
    /// Stop after this time, for example `500` (ms), `10s` or `2m`; a command gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Run")]
    duration: Option<Duration>,
    /// Size of each ring buffer, as a number of pages (for example `128`) or in bytes (for example `8M`)
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Run")]
    mmap_pages: Option<RingSize>,
    /// Memory limit for events that wait to be shown, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Run")]
    buffer: Option<usize>,
    /// Print more messages; -vv prints even more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Run")]
    verbose: u8,
    /// Print only errors and losses besides the result
    #[arg(short, long, help_heading = "Run")]
    quiet: bool,
}

/// What a command needs of its events.
pub struct Needs {
    /// How user frames are found, if events have call chains.
    pub chains: Option<CallGraph>,
    /// How often the command prints while it runs.
    pub interval: Option<Duration>,
}

impl WatchOptions {
    /// Returns the recording that the user wrote.
    pub fn is_of_recording(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns the plan for these events.
    pub fn plan(self, events: Vec<EventSpec>, command: Vec<OsString>, needs: Needs) -> Result<RunPlan, OptionError> {
        let verbosity = values::verbosity(self.verbose, self.quiet);
        let limit = self.limit;
        let chains = if needs.chains.is_some() { Switch::On } else { Switch::Off };
        let frames = (chains == Switch::On).then_some(Switch::On);
        let callchain =
            Callchain { every_event: chains, how: needs.chains.unwrap_or_default(), user: frames, kernel: frames };
        // The names of tasks are right only in the order of time: a task gets its name on another CPU, maybe, than the one
        // it runs on later.
        // Each line that a command prints is a system call. If it traced itself, it would never come to an end.
        let own_threads = OwnThreads::LeftOut;
        let capture = Capture { events, callchain, order: DeliveryOrder::Time, own_threads, ..Capture::default() };
        let is_pattern =
            |path: &PathBuf| path.as_os_str().to_string_lossy().contains(['*', '?', '[']) && !path.exists();
        let several = self.input.get(1).or_else(|| self.input.iter().find(|path| is_pattern(path)));
        if let Some(path) = several {
            return Err(OptionError::SeveralRecordings(path.clone()));
        }
        if self.is_of_recording() {
            let input = self.recording(&command, needs.interval, &capture.events)?;
            let plan = RunPlan::of_recording(&input, &capture.events, verbosity);
            return Ok(RunPlan { capture, limit, ..plan });
        }
        if self.time.is_some() {
            return Err(OptionError::TimeWithoutInput);
        }
        let origin = Origin::Live(LivePlan { recording: None, duration: self.duration });
        let capture = self.live(capture, command, verbosity)?;
        Ok(RunPlan {
            capture,
            own_events: 0,
            origin,
            others: OtherRecords::NONE,
            symbols: symbol::Options::default(),
            naming: Naming::Own,
            interval: needs.interval,
            limit,
            usage_every: None,
            output: None,
            face: Face::Command,
            verbosity,
        })
    }

    /// Returns the recording, and the selection of its samples.
    fn recording(
        self,
        command: &[OsString],
        interval: Option<Duration>,
        events: &[EventSpec],
    ) -> Result<Input, OptionError> {
        let of_live = [
            ("-a", self.all_cpus),
            ("-m", self.mmap_pages.is_some()),
            ("-F", self.freq.is_some()),
            ("-c", self.count.is_some()),
            ("--duration", self.duration.is_some()),
            ("-i", interval.is_some()),
        ];
        if let Some((option, _)) = of_live.into_iter().find(|(_, given)| *given) {
            return Err(OptionError::LiveOptionWithInput(option));
        }
        if !command.is_empty() {
            return Err(OptionError::CommandWithInput(shell_quote_all(command)));
        }
        let tasks = recorded_tasks(events, self.pids.is_some() || self.tids.is_some(), Coverage::of(&self.cpus))?;
        let ids = |ids: Option<Ids>| ids.map(|Ids(ids)| ids);
        Ok(Input {
            path: self.input.into_iter().next().unwrap_or_default(),
            limits: ReadLimits { owner: owner(self.force), memory: self.buffer },
            cpus: self.cpus,
            pids: ids(self.pids),
            tids: ids(self.tids),
            tasks,
            names: Names::default(),
            max_stack: None,
            times: self.time,
            guests: Switch::Off,
            jobs: None,
            processes: None,
        })
    }

    /// Adds the target of live events.
    fn live(self, capture: Capture, command: Vec<OsString>, verbosity: Verbosity) -> Result<Capture, OptionError> {
        for (option, ids) in [("-p", &self.pids), ("-t", &self.tids)] {
            if ids.as_ref().is_some_and(|Ids(ids)| ids.contains(&0)) {
                return Err(OptionError::IdleTaskId(option));
            }
        }
        let command = Some(command).filter(|command| !command.is_empty());
        let (target, untraced) =
            target_and_command(self.all_cpus, self.cpus, self.pids, self.tids, command, verbosity)?;
        let selected_tasks = match (untraced, &target) {
            (Some(command), Target::AllCpus) => Some(Target::Workload(command)),
            (Some(_), _) => return Err(OptionError::CommandBesideTarget),
            (None, _) => None,
        };
        let (target, selected_tasks) = match selected_tasks {
            None => live_target(&capture.events, target)?,
            selected_tasks => (target, selected_tasks),
        };
        Ok(Capture {
            target,
            selected_tasks,
            rate: values::rate(self.count, self.freq)?,
            ring_size: self.mmap_pages,
            buffer: self.buffer,
            ..capture
        })
    }
}
