//! The options of `perf-prof report`, and its plan.

use std::{ffi::OsStr, path::PathBuf};

use clap::{ArgAction, Args};
use perf_prof_events::event::{CallerSums, GroupKey};
use perf_prof_format::spec::SpecError;
use perf_prof_session::{engine::ExitStatus, selectors};
use perf_prof_tools::commands::report::{self, Before, FlamePlan, Form, ReportPlan};

use super::{
    compared::{Part, earlier},
    failure::Failure,
    script::RecordingOptions,
};

const LONG_ABOUT: &str = "Show the functions in which the samples of a recording were taken.

perf-prof prints a table for each event. Each line has a comm, a dso and a function, and their percentage of the \
event's total count. -g prints the callers below each function. With --children, the percentage of a function also \
includes the functions that it calls.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof record -e cpu-clock -F 997 -g -- CMD && perf-prof report
      show the functions in which CMD spent its time
  perf-prof report -g --sort symbol | less
      print functions, and below each function its callers
  perf-prof report -e cycles --children
      show only the samples of cycles, with callees included
  perf-prof report --sort comm,dso -C 0 --time 50%,100%
      print comms and dsos, on CPU 0, in the second half of the recording
  perf-prof report --flame time.svg >/dev/null
      write a flame graph
  perf-prof report --pprof profile.pb.gz >/dev/null && pprof -http : profile.pb.gz
      show the samples in pprof
  perf-prof report --flame change.svg --diff before.data -i after.data >/dev/null
      show what changed between two recordings, as a picture; without --flame, as a table
  perf-prof report --diff-time 0%-50% --time 50%-100%
      compare the second half of a recording with the first one

The keys are comm, pid, tid, cpu, cgroup (of recordings with --all-cgroups), dso and symbol. Callers with less than half a percent are left out.";

/// Show the functions in which samples were taken: a table (with or without callers), a flame graph, a profile for pprof
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = "--help explains more, with examples.", after_long_help = AFTER_HELP)]
pub struct Report {
    #[command(flatten)]
    of: RecordingOptions,
    /// Only these events, as in `perf-prof python`; `perf-prof evlist` lists the events in the recording
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    events: Vec<String>,
    /// Add up samples with the same values of these keys: comm, pid, tid, cpu, cgroup, dso, symbol
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',', default_value = "comm,dso,symbol")]
    sort: Vec<GroupKey>,
    /// Print the callers below each line
    #[arg(short = 'g', long, conflicts_with = "children")]
    call_graph: bool,
    /// Include called functions in the percentage of a function
    #[arg(long)]
    children: bool,
    /// Leave called functions out, as without --children
    #[arg(long, overrides_with = "children")]
    no_children: bool,
    /// Accepted, because perf record and perf script have it: a recording is read as a whole
    #[arg(short, long)]
    all_cpus: bool,
    /// Print text, as perf report does with this option. The report is always text
    #[arg(long)]
    stdio: bool,
    /// Write a flame graph: a picture (x.svg), or folded stacks as text for other programs (x.folded)
    #[arg(long, value_name = "FILE", value_parser = parse_flame)]
    flame: Option<PathBuf>,
    /// Write a profile for pprof, Pyroscope or Parca: x.pb.gz, or x.pb without compression
    #[arg(long, value_name = "FILE", conflicts_with_all = ["diff", "diff_time"])]
    pprof: Option<PathBuf>,
    /// Compare with an earlier recording: the table has the shares before and after, and their change in percentage points.
    /// In a flame graph, functions with a larger share of their own are red, those with a smaller one blue; x.folded has
    /// both counts of each stack
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["call_graph", "children"])]
    diff: Option<PathBuf>,
    /// Compare with this part of the earlier recording, or, without --diff, of the same recording; written as for --time
    #[arg(long, value_name = "FROM,TO", conflicts_with_all = ["call_graph", "children"])]
    diff_time: Option<Part>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

fn parse_flame(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some("svg" | "folded") => Ok(path),
        _ => Err("the name of a flame graph must end in .svg or .folded".to_owned()),
    }
}

impl Report {
    /// Adds up the samples and prints the report.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        const READ_ON: &str = "`perf-prof report --help` explains the options, with examples";
        let wrong = |error: SpecError| Failure::Usage(error.to_string(), READ_ON.into());
        let mut events = Vec::new();
        for list in &self.events {
            events.extend(selectors::parse(list).map_err(wrong)?);
        }
        let input = self.of.input();
        let plan = ReportPlan {
            before: earlier(self.diff, self.diff_time, &input).map(|(input, name)| Before { input, name }),
            input,
            events,
            by: self.sort,
            callers: match (self.call_graph, self.children && !self.no_children) {
                (true, _) => CallerSums::Trees,
                (_, true) => CallerSums::Children,
                _ => CallerSums::Ignored,
            },
            python: self.of.python_frames,
            flame: self.flame.map(|path| FlamePlan { path }),
            pprof: self.pprof,
            form: if self.json { Form::Json } else { Form::Text },
            verbosity: self.of.verbosity(),
        };
        Ok(report::run(&plan)?)
    }
}
