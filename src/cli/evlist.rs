//! The options of `perf-prof evlist`.

use std::path::PathBuf;

use clap::Args;
use perf_prof_session::{engine::ExitStatus, plan::ReadLimits};
use perf_prof_tools::commands::evlist::{self, EventListing};

use super::{failure::Failure, script::recording_path, values::owner};

const AFTER_HELP: &str = "\
Examples:
  perf-prof evlist
      list the events in perf.data
  perf-prof evlist -v -i DIR
      list the events in DIR, and how they were recorded
  perf-prof evlist --json | jq '.[].name'
      print the name of each event, for programs

The list also has events without samples. One of them is `dummy`: perf adds it to record names and mappings of tasks.";

/// List the events in a recording, and how they were recorded
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Evlist {
    /// The recording: a file, a directory, or - for a pipe [default: a pipe on stdin, else perf.data]
    #[arg(short, long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Read the recording of another user too
    #[arg(short, long)]
    force: bool,
    /// Print for each event also the members of its samples, the sample rate and flags
    #[arg(short, long)]
    verbose: bool,
    /// Print a JSON array with all details, for programs
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

impl Evlist {
    /// Prints the list.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        let shown = match (self.json, self.verbose) {
            (true, _) => EventListing::Json,
            (_, true) => EventListing::Attrs,
            _ => EventListing::Names,
        };
        evlist::run(
            &recording_path(self.input.as_deref()),
            &ReadLimits { owner: owner(self.force), memory: None },
            shown,
        )?;
        Ok(ExitStatus(0))
    }
}
