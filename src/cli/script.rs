//! `perf-prof script`: its options, and what plan they make.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    options::{Ids, parse_recorded_ids},
    report::Failure,
};
use crate::{
    event::{Chains, Digits, Fields},
    session::{
        header,
        plan::{Input, Verbosity},
        text::{self, Plan},
    },
    spec::{CpuSet, TimeRanges},
    symbol::{Inline, Options},
};

const LONG_ABOUT: &str = "Print the events of a recording as text.

A line for each event, in the order of time, as `perf script` prints it: task, thread, CPU, time, event, and the kernel's \
own text for a tracepoint's data, or where the CPU was for other events. Where call chains were recorded they follow, \
innermost function first, and an empty line.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof script | less
      print perf.data
  perf record -o - -e sched:sched_switch -a sleep 1 | perf-prof script -i -
      print what comes through a pipe
  perf-prof script -i DIR -C 0 --time 10%/2 --ns
      of a recording, CPU 0 in the second tenth of its time, times to the nanosecond
  perf-prof script --header-only
      when it was recorded, where and by which command, and from when to when its samples are
  perf-prof script -G -F +pid,-cpu
      no call chains; process ids too, and no CPU

Fields are comm, pid, tid, cpu, time, period, event, trace, ip, sym, symoff, dso. A list of them replaces those that an \
event has by itself; with + and - it changes them.

Events that were lost have no line; how many there were is said at the end, on stderr.";

/// Print the events of a recording as text, as perf script does
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = "--help says more, with examples.", after_long_help = AFTER_HELP)]
pub struct Script {
    #[command(flatten)]
    of: OfRecording,
    /// Times to the nanosecond
    #[arg(long)]
    ns: bool,
    /// What a line shows, as time,event,trace or +pid,-cpu
    #[arg(short = 'F', long, value_name = "LIST", allow_hyphen_values = true)]
    fields: Option<Fields>,
    /// No call chains
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// No inlined functions in call chains
    #[arg(long)]
    no_inline: bool,
}

/// The recording, and what is wanted of it.
#[derive(Args)]
pub struct OfRecording {
    /// The recording: a file, a directory, or - for a pipe
    #[arg(short, long, value_name = "PATH", default_value = "perf.data")]
    input: PathBuf,
    /// Only these CPUs, as 0-3,7
    #[arg(short = 'C', long = "cpu", alias = "cpus", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Only these processes, as 1,2,3
    #[arg(short, long = "pid", alias = "pids", value_name = "LIST", value_parser = parse_recorded_ids)]
    pids: Option<Ids>,
    /// Only these threads, as 1,2,3
    #[arg(short, long = "tid", alias = "tids", value_name = "LIST", value_parser = parse_recorded_ids)]
    tids: Option<Ids>,
    /// Only these times: 12.5,13 (seconds of its clock), 10%,20%, or 10%/2, the second tenth
    #[arg(long, value_name = "FROM,TO")]
    time: Option<TimeRanges>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print what the recording says of itself, as host, command line and times, and nothing else
    #[arg(long)]
    header_only: bool,
}

impl OfRecording {
    /// Prints what the recording says of itself, if that is all that is asked for.
    pub fn header(&self) -> Result<Option<ExitCode>, Failure> {
        if !self.header_only {
            return Ok(None);
        }
        header::run(&self.input)?;
        Ok(Some(ExitCode::SUCCESS))
    }

    /// The recording, and what is wanted of it.
    pub fn input(&self) -> Input {
        let ids = |ids: &Option<Ids>| ids.clone().map(|Ids(ids)| ids);
        Input {
            path: self.input.clone(),
            cpus: self.cpus.clone(),
            pids: ids(&self.pids),
            tids: ids(&self.tids),
            times: self.time.clone(),
            jobs: None,
        }
    }

    /// How much is said.
    pub fn verbosity(&self) -> Verbosity {
        if self.quiet { Verbosity::Quiet } else { Verbosity::Normal }
    }
}

impl Script {
    /// Prints.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        let plan = Plan {
            input: self.of.input(),
            fields: self.fields.unwrap_or_default(),
            digits: if self.ns { Digits::Nanos } else { Digits::Micros },
            chains: if self.hide_call_graph { Chains::Hidden } else { Chains::Shown },
            symbols: Options {
                inline: if self.no_inline || self.hide_call_graph { Inline::No } else { Inline::Yes },
                ..Options::default()
            },
            verbosity: self.of.verbosity(),
        };
        Ok(ExitCode::from(text::run(&plan)?.0))
    }
}
