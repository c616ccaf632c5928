//! The options that `trace`, `top` and `hist` share. These options say where the events come from (live, or a
//! recording), and when the run ends.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, value_parser};
use perf_prof_format::spec::{CallGraph, EventSpec, RingSize, TimeRanges, parse_pages, parse_size};
use perf_prof_session::plan::{
    Callchain, DeliveryOrder, Draft, Face, InterpreterFrameUse, OwnThreads, RunPlan, Switch,
};

use crate::{
    option_error::OptionError,
    targets::{self, RateOptions, TargetOptions},
    values::{self, InKernelOption, owner},
};

/// Where the events come from, and when the run ends.
#[derive(Args, Clone, Debug)]
#[command(mut_args(targets::or_samples))]
pub struct WatchOptions {
    #[command(flatten)]
    target: TargetOptions,
    /// Sample the cgroup of each event's task, and show its path
    #[arg(long)]
    all_cgroups: bool,
    #[command(flatten)]
    rate: RateOptions,

    /// Read this recording instead of tracing live: a file or directory of `perf record`, or - for a pipe
    #[arg(long, value_name = "PATH", action = ArgAction::Append, help_heading = "Recordings")]
    input: Vec<PathBuf>,
    /// Read only this part of the recording: `12.5,13` (from second 12.5 to second 13 of its clock), `21:49:13,21:50` (local
    /// time of day; with a date `2026-11-27T21:49,`), `10%-20%` or `10%,20%` (from 10 % to 20 %), or `10%/2` (the second tenth)
    #[arg(long, value_name = "FROM,TO", help_heading = "Recordings")]
    time: Option<TimeRanges>,
    /// Read the recording of another user too
    #[arg(short, long, requires = "input", help_heading = "Recordings")]
    force: bool,

    /// Stop after N events
    #[arg(short = 'N', long = "exit-N", value_name = "N", value_parser = value_parser!(u64).range(1..), help_heading = "Run")]
    limit: Option<u64>,
    /// Stop after this time, for example `500` (ms), `10s` or `2m`; a command gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration, help_heading = "Run")]
    duration: Option<Duration>,
    /// Size of each ring buffer, as a number of pages (for example `128`) or in bytes (for example `8M`)
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Run")]
    mmap_pages: Option<RingSize>,
    /// Memory limit for events that wait to be shown, for spans that are open and for sums, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Run")]
    buffer: Option<usize>,
    #[command(flatten)]
    in_kernel: InKernelOption,
    /// Print more messages; -vv prints even more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Run")]
    verbose: u8,
    /// Print only errors and losses besides the result
    #[arg(short, long, help_heading = "Run")]
    quiet: bool,
}

/// What a command needs for its events.
pub struct Needs {
    /// How user frames are found; `None` if the events need no callchains.
    pub chains: Option<CallGraph>,
    /// Whether callchains contain the frames of Python functions.
    pub python: Option<InterpreterFrameUse>,
    /// How often the command prints while it runs.
    pub interval: Option<Duration>,
    /// `On` if each live sample must contain the cgroup of its task.
    pub cgroups: Switch,
}

impl WatchOptions {
    /// Returns whether the events come from a recording.
    pub fn is_of_recording(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns the command to run. `command` contains the words after the options.
    pub fn command(&self, command: Vec<OsString>) -> Vec<OsString> {
        self.target.command(command)
    }

    /// Returns the plan for these events.
    pub fn plan(self, events: Vec<EventSpec>, command: Vec<OsString>, needs: Needs) -> Result<RunPlan, OptionError> {
        let is_pattern =
            |path: &PathBuf| path.as_os_str().to_string_lossy().contains(['*', '?', '[']) && !path.exists();
        let several = self.input.get(1).or_else(|| self.input.iter().find(|path| is_pattern(path)));
        if let Some(path) = several {
            return Err(OptionError::SeveralRecordings(path.clone()));
        }
        let verbosity = values::verbosity(self.verbose, self.quiet);
        let selection = self.target.selection(command);
        if self.input.is_empty() && self.time.is_none() {
            targets::say_what_has_no_effect(&selection, verbosity);
        }
        let draft = Draft {
            events,
            selection,
            callchain: Callchain::with_all_frames(needs.chains).with_python(needs.python),
            period: self.rate.count,
            frequency: self.rate.freq,
            ring_size: self.mmap_pages,
            buffer: self.buffer,
            // The events are delivered in the order of time, because a task may get its name on one CPU and later run
            // on another CPU.
            order: DeliveryOrder::Time,
            cgroups: if self.all_cgroups { Switch::On } else { needs.cgroups },
            // The threads of perf-prof itself are left out: printing a line is a system call, so each line would cause
            // another line.
            own_threads: OwnThreads::LeftOut,
            in_kernel: self.in_kernel.when(),
            duration: self.duration,
            input: self.input.into_iter().next(),
            owner: owner(self.force),
            times: self.time,
            interval: needs.interval,
            limit: self.limit,
            face: Face::Command,
            verbosity,
            ..Draft::default()
        };
        Ok(draft.checked()?)
    }
}
