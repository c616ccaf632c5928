//! Errors of options that several commands share.

use std::path::PathBuf;

use perf_prof_core::{derive::source::SourceTargetError, spec::SpecError, sys::shell::shell_quote};

/// Why the options of a command are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// `perf-prof record` without `-e`.
    #[error(
        "no event selected; use -e, for example `perf-prof record -e sched:sched_wakeup -a` (`perf-prof list` lists \
         all events)"
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
    /// An option for live events, together with `--input`.
    #[error("{0} and --input cannot be combined: {0} sets how live events are recorded, and --input is a recording")]
    LiveOptionWithInput(&'static str),
    /// A command, together with `--input`.
    #[error("`{0}` is not run: the events come from the recording of --input")]
    CommandWithInput(String),
    /// `--time` without `--input`.
    #[error("--time selects a part of a recording; select the recording with --input")]
    TimeWithoutInput,
    /// A second `--input` for a command that reads one recording.
    #[error(
        "--input {}: this command reads one recording; `perf-prof python` reads several with one script",
        .0.display()
    )]
    SeveralRecordings(PathBuf),
    /// The id 0 of the idle tasks, for live events.
    #[error(
        "{0} 0: events cannot be attached to the idle tasks, which have id 0; use -C to trace all tasks on some CPUs, \
         idle tasks included"
    )]
    IdleTaskId(&'static str),
    /// A command that is not traced itself, with another target than all CPUs.
    #[error(
        "a command and -C, -p or -t cannot be combined: select one target for the events, or all CPUs with -a for as \
         long as the command runs"
    )]
    CommandBesideTarget,
    /// A selection of tasks that does not fit to the events.
    #[error(transparent)]
    SourceTarget(#[from] SourceTargetError),
}
