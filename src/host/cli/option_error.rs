//! Errors of options that several commands share.

use perf_prof_core::{spec::SpecError, sys::shell::shell_quote};

/// Why the options of a command are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// `perf-prof record` without `-e`.
    #[error(
        "no event selected; use -e, for example `perf-prof record -e sched:sched_wakeup -a` (`perf-prof list` lists \
         all events)"
    )]
    NoEvent,
    /// An event selector is wrong.
    #[error("-e {0}")]
    Event(#[from] SpecError),
    /// `--filter` before the first `-e`.
    #[error(
        "--filter {filter} has no event: write it after the -e of the tracepoints that it selects", filter = shell_quote(.0)
    )]
    FilterBeforeEvent(String),
    /// `--filter` for an event without fields.
    #[error(
        "--filter cannot be applied to `{0}`: only tracepoints have fields; use an -e of its own for the tracepoints, \
         and write --filter after it"
    )]
    FilterOfOtherEvent(String),
    /// Two options that select different targets.
    #[error("{0} and {1} cannot be combined: select only one target for the events")]
    TwoTargets(&'static str, &'static str),
    /// Both a sample period and a sample frequency.
    #[error("-c and -F cannot be combined: use -c for one sample every N events, or -F for N samples a second")]
    PeriodAndFrequency,
}
