//! The options of `perf-prof python` for a flight recorder, and its plan. The flight recorder keeps the events that the
//! script gets.

use std::{ffi::OsString, path::Path};

use perf_prof_session::{
    flight::FlightPlan,
    plan::{Capture, RunPlan},
    recorder::{Delay, Output, RecordPlan},
};

use super::options::Options;
use crate::{flight::FlightError, option_error::OptionError};

/// Returns the plan of the flight recorder beside a run; `None` without `--before`. `argv` is the whole command line,
/// which snapshots contain.
pub fn plan(options: &Options, run: &RunPlan, argv: &[OsString]) -> Result<Option<FlightPlan>, OptionError> {
    let Some(before) = options.before else {
        let given = [("--after", options.after.is_some()), ("--max-files", options.max_files.is_some())];
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(FlightError::NothingKept(option).into()),
            None => Ok(None),
        };
    };
    // A path that ends with a slash is a folder, even if it does not exist yet.
    let folder = options.record.as_deref().unwrap_or(Path::new(".")).join("");
    let record = RecordPlan {
        // -m and --watermark are for the rings whose events are delivered to the script.
        capture: Capture { ring_size: None, watermark: None, sampling_limit: None, ..run.capture.clone() },
        command_line: argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        output: Output::File(folder),
        threads: None,
        flush_bytes: None,
        delay: Delay::None,
        duration: None,
        usage_self: None,
        control: None,
        compression: None,
        untraced_command: None,
        verbosity: run.verbosity,
    };
    let max_files = options.max_files.map(|count| count as usize);
    Ok(Some(FlightPlan::on_request(record, before, options.after.unwrap_or_default(), max_files)))
}
