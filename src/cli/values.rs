//! Option values that several commands share: intervals, owners of recordings, and verbosity.

use std::{path::Path, time::Duration};

use perf_prof_format::spec::parse_interval;
use perf_prof_session::plan::{Owner, Verbosity};
use perf_prof_system::shell::shell_quote;

/// Reads the interval of `-i`. Other commands name a recording with `-i`, so an error mentions --input.
pub fn parse_interval_not_file(text: &str) -> Result<Duration, String> {
    parse_interval(text).map_err(|error| match Path::new(text).exists() {
        true => format!("{error}; --input {} reads the recording", shell_quote(text)),
        false => error.to_string(),
    })
}

/// Returns the owners of recordings that may be read. `force` is the option -f.
pub fn owner(force: bool) -> Owner {
    if force { Owner::Anybody } else { Owner::UserOrRoot }
}

pub fn verbosity(verbose: u8, quiet: bool) -> Verbosity {
    match (verbose, quiet) {
        (0, true) => Verbosity::Quiet,
        (0, false) => Verbosity::Normal,
        (1, _) => Verbosity::Verbose,
        (2.., _) => Verbosity::Debug,
    }
}
