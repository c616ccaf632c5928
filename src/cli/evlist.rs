//! `perf-prof evlist`: its options.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::report::Failure;
use crate::session::evlist::{self, Shown};

const AFTER_HELP: &str = "\
Examples:
  perf-prof evlist
      the events of perf.data
  perf-prof evlist -v -i DIR
      and how they were recorded
  perf-prof evlist --json | jq '.[].name'

Events without samples of their own are shown too, as `dummy`, which perf adds for the names and mappings of tasks.";

/// List the events of a recording
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Evlist {
    /// The recording: a file, a directory, or - for a pipe
    #[arg(short, long, value_name = "PATH", default_value = "perf.data")]
    input: PathBuf,
    /// With what samples hold, how often they are taken, and flags
    #[arg(short, long)]
    verbose: bool,
    /// All of it, for programs
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

impl Evlist {
    /// Prints the list.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let shown = match (self.json, self.verbose) {
            (true, _) => Shown::Json,
            (_, true) => Shown::Attrs,
            _ => Shown::Names,
        };
        evlist::run(&self.input, shown)?;
        Ok(ExitCode::SUCCESS)
    }
}
