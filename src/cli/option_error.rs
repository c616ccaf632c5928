//! Errors of options that several commands share.

use std::path::PathBuf;

use perf_prof_format::spec::SpecError;
use perf_prof_session::plan::{PlanError, RunOption};
use perf_prof_system::shell::shell_quote;

use super::flight::FlightError;

/// Why the options of a command are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// `perf-prof record` without `-e`.
    #[error(
        "no event selected; use -e, for example `perf-prof record -e sched:sched_wakeup -a`, or `-e profile` for what \
         CPUs run (`perf-prof list` lists all events)"
    )]
    NoEvent,
    /// `perf-prof top` or `hist` without an event.
    #[error(
        "no event selected; write it after `{0}`, for example `perf-prof {0} {1}` (`perf-prof list` lists all events)"
    )]
    NoEventToCount(&'static str, &'static str),
    /// An event selector is wrong.
    #[error("-e {0}")]
    Event(#[from] SpecError),
    /// `--filter` comes before the first `-e`.
    #[error(
        "--filter {filter} comes before the first -e: write it after the -e of the tracepoints that it filters", filter = shell_quote(.0)
    )]
    FilterBeforeEvent(String),
    /// `--filter` for an event without fields.
    #[error(
        "--filter cannot be applied to `{0}`: only tracepoints have fields; use an -e of its own for the tracepoints, \
         and write --filter after it"
    )]
    FilterOfOtherEvent(String),
    /// A second `--input` for a command that reads one recording.
    #[error(
        "--input {}: this command reads one recording; `perf-prof python` reads several with one script",
        .0.display()
    )]
    SeveralRecordings(PathBuf),
    /// Options of a flight recorder are refused.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// Two options do not fit together.
    #[error("{}", .0.message(option_name))]
    Plan(PlanError),
}

impl From<PlanError> for OptionError {
    fn from(error: PlanError) -> Self {
        OptionError::Plan(error)
    }
}

/// Returns an option as the user writes it on the command line.
pub fn option_name(option: RunOption) -> &'static str {
    match option {
        RunOption::AllCpus => "-a",
        RunOption::Cpus => "-C",
        RunOption::Pids => "-p",
        RunOption::Tids => "-t",
        RunOption::Cgroups => "--cgroups",
        RunOption::AllCgroups => "--all-cgroups",
        RunOption::Exec => "--exec",
        RunOption::Period => "-c",
        RunOption::Frequency => "-F",
        RunOption::RingSize => "-m",
        RunOption::Watermark => "--watermark",
        RunOption::SamplingLimit => "--sampling-limit",
        RunOption::Monotonic => "--monotonic",
        RunOption::Duration => "--duration",
        RunOption::Recording => "--record",
        RunOption::Input => "--input",
        RunOption::Times => "--time",
        RunOption::Jobs => "--jobs",
        RunOption::Split => "--split",
        RunOption::Limit => "-N",
        RunOption::InKernel => "--in-kernel always",
    }
}
