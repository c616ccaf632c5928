//! Why options do not fit together. An error contains options without their names, because command lines and keyword
//! arguments spell an option differently.

use std::ffi::OsString;

use perf_prof_events::derive::source::SourceTargetError;
use perf_prof_system::shell::shell_quote_all;

/// An option of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of a draft with this name")]
pub enum RunOption {
    AllCpus,
    Cpus,
    Pids,
    Tids,
    Cgroups,
    AllCgroups,
    Exec,
    Period,
    Frequency,
    RingSize,
    Watermark,
    SamplingLimit,
    Monotonic,
    Duration,
    Recording,
    Input,
    Times,
    Jobs,
    Split,
    Limit,
    InKernel,
}

/// Why [`Draft::checked`](super::Draft::checked) makes no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Two options that select different targets.
    TwoTargets(RunOption, RunOption),
    /// Some CPUs were selected, but the script asks for the events of all.
    SomeOfAllCpus,
    /// The id 0 of the idle tasks, for live events.
    IdleTaskId(RunOption),
    /// A command that is not the target needs all CPUs as the target, but another target was given.
    CommandBesideTarget,
    /// Both a sample period and a sample frequency.
    PeriodAndFrequency,
    /// An option for live events, together with a recording.
    LiveOptionWithInput(RunOption),
    /// A command, together with a recording.
    CommandWithInput(Vec<OsString>),
    /// A range of time of a recording, but no recording.
    TimeWithoutInput,
    /// A pipe cannot be divided between processes.
    JobsOfPipe,
    /// A limit on delivered events, for several processes. No process knows how many events the other processes have
    /// delivered.
    JobsWithLimit,
    /// A way to divide a recording, for only one process.
    SplitWithoutJobs,
    /// A selection of tasks that does not fit the events.
    SourceTarget(SourceTargetError),
}

impl From<SourceTargetError> for PlanError {
    fn from(error: SourceTargetError) -> Self {
        PlanError::SourceTarget(error)
    }
}

impl PlanError {
    /// Returns the message. `name` returns how the user writes an option.
    pub fn message(&self, name: impl Fn(RunOption) -> &'static str) -> String {
        let [all_cpus, cpus, pids, tids] =
            [RunOption::AllCpus, RunOption::Cpus, RunOption::Pids, RunOption::Tids].map(&name);
        let [cgroups, input, jobs] = [RunOption::Cgroups, RunOption::Input, RunOption::Jobs].map(&name);
        match self {
            PlanError::TwoTargets(first, second) => {
                let (first, second) = (name(*first), name(*second));
                format!("{first} and {second} cannot be combined: select only one target for the events")
            }
            PlanError::SomeOfAllCpus => {
                format!(
                    "{cpus} cannot be combined with --all-cpus, with which a script asks for the events of all CPUs"
                )
            }
            PlanError::IdleTaskId(option) => format!(
                "{} 0: events cannot be attached to the idle tasks, which have id 0; use {cpus} to trace all tasks on \
                 some CPUs, idle tasks included",
                name(*option)
            ),
            PlanError::CommandBesideTarget => format!(
                "a command and {cpus}, {pids}, {tids} or {cgroups} cannot be combined: select one target for the events, \
                 or all CPUs with {all_cpus} for as long as the command runs"
            ),
            PlanError::PeriodAndFrequency => {
                let (period, frequency) = (name(RunOption::Period), name(RunOption::Frequency));
                format!(
                    "{period} and {frequency} cannot be combined: use {period} for one sample every N events, or \
                     {frequency} for N samples a second"
                )
            }
            PlanError::LiveOptionWithInput(option) => {
                let option = name(*option);
                format!(
                    "{option} and {input} cannot be combined: {option} sets how live events are recorded, and {input} \
                     is a recording"
                )
            }
            PlanError::CommandWithInput(command) => {
                format!("`{}` is not run: the events come from the recording of {input}", shell_quote_all(command))
            }
            PlanError::TimeWithoutInput => {
                format!("{} selects a part of a recording; select the recording with {input}", name(RunOption::Times))
            }
            PlanError::JobsOfPipe | PlanError::JobsWithLimit => {
                let other = if *self == PlanError::JobsOfPipe { "a pipe" } else { name(RunOption::Limit) };
                format!("{jobs} and {other} cannot be combined: with {jobs}, each process reads its own part of a file")
            }
            PlanError::SplitWithoutJobs => {
                format!("{} says how {jobs} divides a recording; use it with {jobs}", name(RunOption::Split))
            }
            PlanError::SourceTarget(error) => error.to_string(),
        }
    }
}
