//! `perf-prof report`: its options, and what plan they make.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

use clap::Args;

use super::{report::Failure, script::OfRecording};
use crate::{
    event::{By, Callers},
    session::shares::{self, Form, Plan},
};

const LONG_ABOUT: &str = "Say where the samples of a recording are.

A table for each event: the share of each function, by task and file, of all that was counted. With -g below each function \
who called it; with --children what functions took with all that they called.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof record -e cpu-clock -F 997 -g -- CMD && perf-prof report
      what CMD executed
  perf-prof report -g --sort symbol | less
      functions, and below each its callers
  perf-prof report --sort comm,dso -C 0 --time 50%,100%
      tasks and files, on one CPU, in the second half
  perf-prof report --flame time.svg >/dev/null
      a flame graph

Keys are comm, pid, tid, cpu, dso and symbol. Callers with less than half a percent are left out.";

/// Say where the samples of a recording are: a table, callers, a flame graph
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = "--help says more, with examples.", after_long_help = AFTER_HELP)]
pub struct Report {
    #[command(flatten)]
    of: OfRecording,
    /// By what samples are put together, as comm,dso,symbol
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',', default_value = "comm,dso,symbol")]
    sort: Vec<By>,
    /// Callers below each line
    #[arg(short = 'g', long, conflicts_with = "children")]
    call_graph: bool,
    /// What functions took with all that they called
    #[arg(long)]
    children: bool,
    /// Write a flame graph: a picture, x.svg, or text for other programs, x.folded
    #[arg(long, value_name = "FILE", value_parser = parse_flame)]
    flame: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    json: bool,
}

fn parse_flame(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some("svg" | "folded") => Ok(path),
        _ => Err("a flame graph is saved as .svg or .folded".to_owned()),
    }
}

impl Report {
    /// Sums up and prints.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        let plan = Plan {
            input: self.of.input(),
            by: self.sort,
            callers: match (self.call_graph, self.children) {
                (true, _) => Callers::Trees,
                (_, true) => Callers::Children,
                _ => Callers::Ignored,
            },
            flame: self.flame,
            form: if self.json { Form::Json } else { Form::Text },
            verbosity: self.of.verbosity(),
        };
        Ok(ExitCode::from(shares::run(&plan)?.0))
    }
}
