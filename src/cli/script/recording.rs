//! The options of all commands that print a recording: they select the recording and its samples.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use perf_prof_format::spec::{CpuSet, Ids, TimeRanges, parse_recorded_ids, parse_size};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, InterpreterFrameUse, Names, ReadLimits, Switch, TaskSelection, Verbosity},
};
use perf_prof_system::file;
use perf_prof_tools::commands::header;

#[cfg(feature = "python")]
use crate::targets::TargetOptions;
use crate::{
    failure::Failure,
    values::{self, owner},
};

/// Returns the path of the recording. A recording that comes through a pipe needs no `-i -`, as in perf.
pub fn recording_path(written: Option<&Path>) -> PathBuf {
    match written {
        Some(path) => path.to_owned(),
        None if file::stdin_is_pipe() => "-".into(),
        None => "perf.data".into(),
    }
}

/// The options of all commands that print a recording.
#[derive(Args)]
pub struct RecordingOptions {
    /// The recording: a file, a directory, or - for a pipe [default: a pipe on stdin, else perf.data]
    #[arg(short, long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Only these CPUs, for example 0-3,7
    #[arg(short = 'C', long = "cpu", alias = "cpus", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Only these processes, for example 1,2,3
    #[arg(short, long = "pid", alias = "pids", value_name = "LIST", value_parser = parse_recorded_ids)]
    pids: Option<Ids>,
    /// Only these threads, for example 1,2,3
    #[arg(short, long = "tid", alias = "tids", value_name = "LIST", value_parser = parse_recorded_ids)]
    tids: Option<Ids>,
    /// Only samples of tasks in these cgroups and in those below them: paths or globs, for recordings with --all-cgroups
    #[arg(long, visible_alias = "cgroup", value_name = "LIST", value_delimiter = ',')]
    cgroups: Vec<String>,
    /// Only samples of tasks with these names, for example sh,make
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only samples in these functions, for example schedule,do_exit; also in Python functions that are shown
    #[arg(short = 'S', long, value_name = "NAMES", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Only samples in these files, by path or name, for example libc.so.6,[kernel.kallsyms]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Show at most N frames of each call chain, besides inlined functions
    #[arg(long, value_name = "N", value_parser = parse_max_stack)]
    max_stack: Option<u16>,
    /// Whether recordings of `record --python` show the functions of Python programs: yes (the default), only (no native
    /// functions of these programs), or no
    #[arg(
        long = "python",
        value_name = "yes|only|no",
        value_parser = values::interpreter_frames(),
        hide_possible_values = true
    )]
    pub python_frames: Option<InterpreterFrameUse>,
    /// Print only this part of the recording: `12.5,13` (from second 12.5 to second 13 of its clock), `21:49:13,21:50` (local
    /// time of day; with a date `2026-11-27T21:49,`), `10%-20%` or `10%,20%` (from 10 % to 20 %), or `10%/2` (the second tenth)
    #[arg(long, value_name = "FROM,TO")]
    time: Option<TimeRanges>,
    /// Read the recording of another user too
    #[arg(short, long)]
    force: bool,
    /// Memory limit for records that were read and not printed yet, for spans, sums and columns, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    buffer: Option<usize>,
    /// Also use the samples of virtual machines; without this option they are only counted
    #[arg(long)]
    guest: bool,
    /// Print only errors and losses
    #[arg(short, long)]
    quiet: bool,
    /// Print more messages; -vv prints even more
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Print only the header of the recording: host, command line, times of the samples
    #[arg(long)]
    header_only: bool,
}

/// Parses the value of --max-stack. A number that is too large for a u16 becomes the largest u16, because callchains
/// are shorter anyway.
fn parse_max_stack(text: &str) -> Result<u16, String> {
    let frames: Result<u64, _> = text.parse();
    frames
        .map(|frames| frames.try_into().unwrap_or(u16::MAX))
        .map_err(|_| format!("`{text}` is not a number of frames"))
}

impl RecordingOptions {
    /// If `--header-only` is given, prints the header of the recording and returns the exit status.
    pub fn header(&self) -> Result<Option<ExitStatus>, Failure> {
        if !self.header_only {
            return Ok(None);
        }
        header::run(&recording_path(self.input.as_deref()), &self.limits())?;
        Ok(Some(ExitStatus(0)))
    }

    /// Returns the path of the recording if the user wrote one.
    #[cfg(feature = "python")]
    pub fn written_input(&self) -> Option<&Path> {
        self.input.as_deref()
    }

    /// Returns the target of live events.
    #[cfg(feature = "python")]
    pub fn target(&self, all_cpus: bool) -> TargetOptions {
        let (cpus, pids, tids) = (self.cpus.clone(), self.pids.clone(), self.tids.clone());
        TargetOptions { all_cpus, cpus, pids, tids, cgroups: self.cgroups.clone(), exec: Vec::new() }
    }

    /// Returns the first given option that cannot be used with live events, because it selects samples of a recording.
    #[cfg(feature = "python")]
    pub fn only_for_recordings(&self) -> Option<&'static str> {
        let given = [
            ("-i", self.input.is_some()),
            ("--comms", !self.comms.is_empty()),
            ("--symbols", !self.symbols.is_empty()),
            ("--dsos", !self.dsos.is_empty()),
            ("--max-stack", self.max_stack.is_some()),
            ("--python-frames", self.python_frames.is_some()),
            ("--time", self.time.is_some()),
            ("--guest", self.guest),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// Returns the first given option that has no effect on a script that opens its events itself.
    #[cfg(feature = "python")]
    pub fn of_events(&self) -> Option<&'static str> {
        let given = [
            ("-C", self.cpus.is_some()),
            ("-p", self.pids.is_some()),
            ("-t", self.tids.is_some()),
            ("--cgroups", !self.cgroups.is_empty()),
            ("--force", self.force),
            ("--buffer", self.buffer.is_some()),
        ];
        self.only_for_recordings().or_else(|| given.into_iter().find_map(|(option, given)| given.then_some(option)))
    }

    fn limits(&self) -> ReadLimits {
        ReadLimits { owner: owner(self.force), memory: self.buffer }
    }

    /// Returns the recording and the selection of samples, for a plan.
    pub fn input(&self) -> Input {
        let ids = |ids: &Option<Ids>| ids.clone().map(Vec::from);
        Input {
            path: recording_path(self.input.as_deref()),
            limits: self.limits(),
            cpus: self.cpus.clone(),
            pids: ids(&self.pids),
            tids: ids(&self.tids),
            cgroups: self.cgroups.clone(),
            tasks: TaskSelection::Named,
            names: Names { comms: self.comms.clone(), symbols: self.symbols.clone(), dsos: self.dsos.clone() },
            max_stack: self.max_stack,
            times: self.time.clone(),
            guests: if self.guest { Switch::On } else { Switch::Off },
            jobs: None,
            part: None,
            processes: None,
        }
    }

    /// Returns how many messages are printed to stderr.
    pub fn verbosity(&self) -> Verbosity {
        values::verbosity(self.verbose, self.quiet)
    }
}
