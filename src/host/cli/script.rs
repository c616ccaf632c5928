//! The options of `perf-prof script`, and the plan made from them.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use perf_prof_core::{
    commands::{
        header,
        script_text::{self, ScriptTextPlan},
    },
    event::{Chains, Digits, Fields},
    plan::{Input, ReadLimits, Switch, TaskSelection, Verbosity},
    spec::{CpuSet, TimeRanges, parse_size},
    symbol::{Inline, Options},
};

use super::{
    failure::Failure,
    values::{Ids, owner, parse_recorded_ids},
};

#[cfg(feature = "python")]
use super::perf_script::PerfScript;
#[cfg(feature = "python")]
use crate::run::{
    self,
    plan::{PerfScriptOptions, Signs},
};

const LONG_ABOUT: &str = "Print the events in a recording as text.

Each event is printed on one line, in the order of time, in the format of `perf script`: comm, tid, CPU, time and \
event, then the data. The data of a tracepoint is the text that the kernel prints for it; for other events it is the \
function that the CPU was executing. If the event has a call chain, the chain is printed below the line, innermost \
function first, and an empty line follows.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof script | less
      print perf.data
  perf record -o - -e sched:sched_switch -a sleep 1 | perf-prof script -i -
      print a recording while it is read from a pipe
  perf-prof script -i DIR -C 0 --time 10%/2 --ns
      print only CPU 0, in the second tenth of the recording, with nanoseconds
  perf-prof script --header-only
      print when, where and by which command it was recorded, and the time of the first and the last sample
  perf-prof script -G -F +pid,-cpu
      print no call chains, add the process id and remove the CPU

The fields are comm, pid, tid, cpu, time, period, event, trace, ip, sym, symoff, dso. `-F comm,time` prints only these \
fields. `-F +pid,-cpu` adds pid to the usual fields of an event and removes cpu.

Lost events have no line. Their number is printed to stderr at the end.";

/// Print the events in a recording as text, as perf script does
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = "--help explains more, with examples.", after_long_help = AFTER_HELP)]
pub struct Script {
    #[command(flatten)]
    of: RecordingOptions,
    /// Print times with nanoseconds
    #[arg(long)]
    ns: bool,
    /// The fields to print, for example `time,event,trace`, or `+pid,-cpu` to change the usual fields
    #[arg(short = 'F', long, value_name = "LIST", allow_hyphen_values = true)]
    fields: Option<Fields>,
    /// Do not print call chains
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// Do not show inlined functions in call chains
    #[arg(long)]
    no_inline: bool,
    /// Run a Python script that was written for `perf script`
    #[cfg(feature = "python")]
    #[arg(short = 's', long, value_name = "FILE")]
    script: Option<std::ffi::OsString>,
    /// Give scripts the true values of negative numbers, which perf shows as large positive ones
    #[cfg(feature = "python")]
    #[arg(long, requires = "script")]
    signed: bool,
    /// The arguments of the script
    #[cfg(feature = "python")]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, requires = "script", value_name = "ARGS")]
    args: Vec<std::ffi::OsString>,
}

/// The options of all commands that print a recording: they select the recording and its samples.
#[derive(Args)]
pub struct RecordingOptions {
    /// The recording: a file, a directory, or - for a pipe
    #[arg(short, long, value_name = "PATH", default_value = "perf.data")]
    input: PathBuf,
    /// Only these CPUs, for example 0-3,7
    #[arg(short = 'C', long = "cpu", alias = "cpus", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Only these processes, for example 1,2,3
    #[arg(short, long = "pid", alias = "pids", value_name = "LIST", value_parser = parse_recorded_ids)]
    pids: Option<Ids>,
    /// Only these threads, for example 1,2,3
    #[arg(short, long = "tid", alias = "tids", value_name = "LIST", value_parser = parse_recorded_ids)]
    tids: Option<Ids>,
    /// Print only this part of the recording: `12.5,13` (from second 12.5 to second 13 of its clock), `10%-20%` or
    /// `10%,20%` (from 10 % to 20 %), or `10%/2` (the second tenth)
    #[arg(long, value_name = "FROM,TO")]
    time: Option<TimeRanges>,
    /// Read the recording of another user too
    #[arg(short, long)]
    force: bool,
    /// Memory limit for records that were read and not printed yet, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    buffer: Option<usize>,
    /// Also use the samples of virtual machines; without this option they are only counted
    #[arg(long)]
    guest: bool,
    /// Print only errors and losses
    #[arg(short, long)]
    quiet: bool,
    /// Print only the header of the recording: host, command line, times of the samples
    #[arg(long)]
    header_only: bool,
}

impl RecordingOptions {
    /// Prints the header of the recording and returns the exit status if `--header-only` is given.
    pub fn header(&self) -> Result<Option<ExitCode>, Failure> {
        if !self.header_only {
            return Ok(None);
        }
        header::run(&self.input, &self.limits())?;
        Ok(Some(ExitCode::SUCCESS))
    }

    fn limits(&self) -> ReadLimits {
        ReadLimits { owner: owner(self.force), memory: self.buffer }
    }

    /// Returns the recording and the selection of samples, for a plan.
    pub fn input(&self) -> Input {
        let ids = |ids: &Option<Ids>| ids.clone().map(|Ids(ids)| ids);
        Input {
            path: self.input.clone(),
            limits: self.limits(),
            cpus: self.cpus.clone(),
            pids: ids(&self.pids),
            tids: ids(&self.tids),
            tasks: TaskSelection::OfSamples,
            times: self.time.clone(),
            guests: if self.guest { Switch::On } else { Switch::Off },
            jobs: None,
        }
    }

    /// Returns how many messages are printed to stderr.
    pub fn verbosity(&self) -> Verbosity {
        if self.quiet { Verbosity::Quiet } else { Verbosity::Normal }
    }
}

impl Script {
    /// Prints the events.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        let symbols = Options {
            inline: if self.no_inline || self.hide_call_graph { Inline::No } else { Inline::Yes },
            ..Options::default()
        };
        #[cfg(feature = "python")]
        if let Some(script) = self.script {
            let signs = if self.signed { Signs::True } else { Signs::AsPerf };
            let options = PerfScriptOptions { signs };
            let script = PerfScript { script, args: self.args, symbols, options };
            return Ok(ExitCode::from(run::run(&script.plan_for_recording(&self.of))?.0));
        }
        let plan = ScriptTextPlan {
            input: self.of.input(),
            fields: self.fields.unwrap_or_default(),
            digits: if self.ns { Digits::Nanos } else { Digits::Micros },
            chains: if self.hide_call_graph { Chains::Hidden } else { Chains::Shown },
            symbols,
            verbosity: self.of.verbosity(),
        };
        Ok(ExitCode::from(script_text::run(&plan)?.0))
    }
}
