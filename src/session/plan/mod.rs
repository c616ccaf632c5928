//! The plan of a run: what it captures or reads, and how.

mod draft;
mod error;
mod run;
mod selection;

use std::{ffi::OsString, path::PathBuf, str::FromStr};

pub use perf_prof_capture::OwnThreads;
use perf_prof_events::derive::source::{Coverage, Scope, SourceTargetError, check_coverage, scope};
pub use perf_prof_events::event::{InterpreterFrameUse, Names, SpansOf};
use perf_prof_format::spec::{CallGraph, CpuSet, EventKind, EventSpec, Rate, RingSize, TimeRanges};
pub use perf_prof_recordings::{Owner, ReadLimits};
pub use perf_prof_system::clock::Clock;

pub use draft::{Draft, rate};
pub use error::{PlanError, RunOption};
pub use run::{Face, LivePlan, Naming, Origin, RecordingOutput, RunPlan};
pub use selection::{AllCpus, Selection};

/// The events to capture, what they are attached to, and how they are captured.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The events, in the order in which they were requested.
    pub events: Vec<EventSpec>,
    /// What the events are attached to.
    pub target: Target,
    /// The tasks that the user selected, if `target` contains more than these. This happens with `-a` or `--all-cpus`,
    /// and for sources that need the events of all tasks. The run ends when these tasks have exited, unless they were
    /// selected by cgroups.
    pub selected_tasks: Option<Target>,
    /// Whether only the spans of `selected_tasks` are delivered.
    pub spans_of: SpansOf,
    /// The call chains of all events.
    pub callchain: Callchain,
    /// On if each sample holds the registers at the time of the sample. This applies to all events.
    pub registers: Switch,
    /// On if the kernel also reports context switches. They show which task runs on which CPU.
    pub switches: Switch,
    /// On if the kernel also reports the namespaces of tasks.
    pub namespaces: Switch,
    /// Which of the target's cgroups each event belongs to.
    pub cgroups_of_events: CgroupsOfEvents,
    /// On if the kernel also reports cgroups, and each sample holds the cgroup in which it was taken.
    pub cgroups: Switch,
    /// The sampling rate of events other than tracepoints. It is not used for events that have their own rate.
    pub rate: Option<Rate>,
    /// The size of each ring. If it is `None`, perf-prof chooses the size.
    pub ring_size: Option<RingSize>,
    /// The maximum memory, in bytes, for events that have been read from the rings and have not been delivered yet.
    pub buffer: Option<usize>,
    /// How full a ring has to be, in percent, before its reader is woken.
    pub watermark: Option<u8>,
    /// The clock that gives the events' times (`_time` in scripts).
    pub clock: Clock,
    /// The order in which the events of several CPUs are delivered.
    pub order: DeliveryOrder,
    /// The maximum number of samples per second and ring.
    pub sampling_limit: Option<u32>,
    /// Says if the events of perf-prof's own threads are delivered. This applies only if the user names no tasks.
    pub own_threads: OwnThreads,
    /// Where live events are added up, if the receiver needs only sums.
    pub in_kernel: InKernel,
}

impl Capture {
    /// Returns whether the moves of tasks between cgroups have to be traced. They show the cgroup of a task that does
    /// not run. Spans of the whole machine need this, and so does the selection of tasks for such spans.
    pub fn needs_moves(&self) -> bool {
        let selects = matches!(self.selected_tasks, Some(Target::Cgroups { .. }));
        selects || self.cgroups == Switch::On && matches!(scope(&self.events), Ok(Scope::Machine) | Err(_))
    }

    /// Returns the order in which events are delivered. Spans need the order of time, because a span may begin on one
    /// CPU and end on another.
    pub fn delivery_order(&self) -> DeliveryOrder {
        let has_span = self.events.iter().any(|event| matches!(event.kind, EventKind::Span(_)));
        if has_span { DeliveryOrder::Time } else { self.order }
    }
}

/// A recording, and which part of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// A file, a directory, or `-` for stdin.
    pub path: PathBuf,
    /// The owners of recordings that may be read, and how much memory reading may take.
    pub limits: ReadLimits,
    /// If set, only the samples that were taken on these CPUs are read.
    pub cpus: Option<CpuSet>,
    /// If set, only the samples of these processes are delivered.
    pub pids: Option<Vec<u32>>,
    /// If set, only the samples of these threads are read.
    pub tids: Option<Vec<u32>>,
    /// The cgroups whose samples are read, including the cgroups below them: paths or glob patterns; empty for all.
    pub cgroups: Vec<String>,
    /// What `pids`, `tids` and `cgroups` select.
    pub tasks: TaskSelection,
    /// Only samples with these names of tasks, functions and files are delivered.
    pub names: Names,
    /// If set, call chains are cut after this number of recorded or unwound frames.
    pub max_stack: Option<u16>,
    /// If set, only the samples in these time ranges are read.
    pub times: Option<TimeRanges>,
    /// On if the samples of virtual machines are read too.
    pub guests: Switch,
    /// The number of processes that replay the recording. If it is `None`, this process replays the whole recording.
    pub jobs: Option<Jobs>,
    /// If set, this process replays only the part of this number of the recording that `jobs` divides. The numbers begin
    /// with 0.
    pub part: Option<usize>,
    /// If another process has started this process: the number of processes that read recordings on this machine at the
    /// same time. They share the allowed memory.
    pub processes: Option<usize>,
}

/// How the selected processes, threads and cgroups limit which samples are read and delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSelection {
    /// Only the samples of the named tasks are delivered, as in perf report and perf script.
    #[default]
    Named,
    /// Only the samples of these tasks are delivered, and those of the processes that the selected processes create
    /// during the recording. Live events have the same tasks: child processes inherit them, and those of a thread (`-t`)
    /// are not inherited.
    WithChildren,
    /// The samples of all tasks are read, but only the spans of the selected tasks are delivered.
    OfSpans,
    /// The samples of all tasks are read, and the spans of all tasks are delivered. The script can check which tasks
    /// are selected. It asks for all events (`--all-cpus`), so those of some CPUs are not enough.
    ForScript,
}

impl TaskSelection {
    /// Returns whether samples of other tasks are left out.
    pub fn is_of_samples(self) -> bool {
        matches!(self, TaskSelection::Named | TaskSelection::WithChildren)
    }
}

impl Input {
    /// Selects the tasks that a live run has. Lets them limit only the spans that are delivered, if one of the events is
    /// a source that needs the samples of all tasks. Fails if a source needs more CPUs or tasks than are selected.
    pub fn selecting(self, events: &[EventSpec]) -> Result<Input, SourceTargetError> {
        check_coverage(events, Coverage::of(&self.cpus))?;
        let has_tasks = self.pids.is_some() || self.tids.is_some() || !self.cgroups.is_empty();
        let is_of_spans = has_tasks && scope(events)? == Scope::Machine;
        let tasks = if is_of_spans { TaskSelection::OfSpans } else { TaskSelection::WithChildren };
        Ok(Input { tasks, ..self })
    }

    /// Returns the processes and the threads whose samples are read; `None` for all. With children, the samples of all
    /// processes are read, because the fork records before a sample tell whether it is of a child.
    pub fn tasks_of_samples(&self) -> (Option<Vec<u32>>, Option<Vec<u32>>) {
        match self.tasks {
            TaskSelection::Named => (self.pids.clone(), self.tids.clone()),
            TaskSelection::WithChildren => (None, self.tids.clone()),
            TaskSelection::OfSpans | TaskSelection::ForScript => (None, None),
        }
    }

    /// Returns the processes that are selected together with their children; `None` if the samples of all processes that
    /// are read are delivered.
    pub fn processes_with_children(&self) -> Option<&[u32]> {
        self.pids.as_deref().filter(|_| self.tasks == TaskSelection::WithChildren)
    }

    /// Returns the cgroups whose samples are delivered; empty for all.
    pub fn cgroups_of_samples(&self) -> &[String] {
        if self.tasks.is_of_samples() { &self.cgroups } else { &[] }
    }
}

/// A replay by several processes, each of which replays a part of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// The number of processes.
    pub count: usize,
    /// How the recording is divided.
    pub split: SplitBy,
}

/// How a recording is divided into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// Into consecutive ranges of time.
    #[default]
    Time,
    /// By the CPUs on which its samples were taken.
    Cpu,
}

/// What events are attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// All CPUs that are online.
    #[default]
    AllCpus,
    /// These CPUs.
    Cpus(CpuSet),
    /// All threads of these processes.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
    /// The tasks in these perf_event cgroups.
    Cgroups {
        /// The cgroups as the user typed them: paths or glob patterns.
        cgroups: Vec<String>,
        /// The CPUs on which events are opened; `None` for all.
        cpus: Option<CpuSet>,
    },
    /// A command that perf-prof starts: the program and its arguments, not empty. It is forked before the events are
    /// opened, and the run ends when the command exits.
    Workload(Vec<OsString>),
}

/// Which of the target's cgroups each event is attached to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupsOfEvents {
    /// All cgroups together. A cgroup inside another cgroup is not counted twice.
    #[default]
    All,
    /// Each cgroup separately.
    Each,
    /// The first event to the first cgroup, the second event to the second cgroup, and so on (`-G` of perf).
    OneEach,
}

/// Returns the target of a live run, and the selected tasks. If sources need the events of all tasks, the target is the
/// whole machine.
pub fn live_target(events: &[EventSpec], target: Target) -> Result<(Target, Option<Target>), SourceTargetError> {
    let coverage = match &target {
        Target::Cpus(_) | Target::Cgroups { cpus: Some(_), .. } => Coverage::Parts,
        _ => Coverage::All,
    };
    check_coverage(events, coverage)?;
    match &target {
        Target::AllCpus | Target::Cpus(_) => Ok((target, None)),
        Target::Processes(_) | Target::Threads(_) | Target::Workload(_) | Target::Cgroups { .. } => {
            match scope(events)? {
                Scope::Machine => Ok((Target::AllCpus, Some(target))),
                Scope::Task => Ok((target, None)),
            }
        }
    }
}

impl Capture {
    /// Returns the command that perf-prof starts, if the user gave one.
    pub fn workload(&self) -> Option<&[OsString]> {
        [Some(&self.target), self.selected_tasks.as_ref()].into_iter().flatten().find_map(|target| match target {
            Target::Workload(command) => Some(command.as_slice()),
            _ => None,
        })
    }
}

/// The settings for the call chains of all events. The attributes of a single event can request more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callchain {
    /// On if the samples of every event have a call chain.
    pub every_event: Switch,
    /// How user frames are found.
    pub how: CallGraph,
    /// On if call chains include the frames of user space. `None` if the user did not specify this.
    pub user: Option<Switch>,
    /// On if call chains include the frames of the kernel. `None` if the user did not specify this.
    pub kernel: Option<Switch>,
    /// Whether call chains have the frames of Python functions. `None` if the user did not specify this.
    pub python: Option<InterpreterFrameUse>,
}

impl Callchain {
    /// Returns the settings for call chains of every event with kernel and user frames. If `how` is `None`, there are
    /// no chains.
    pub fn with_all_frames(how: Option<CallGraph>) -> Callchain {
        let frames = how.map(|_| Switch::On);
        Callchain::with_frames_of(how, frames, frames)
    }

    /// Returns the settings for the frames of all call chains. With `how`, every event has call chains. Without `how`,
    /// only the events that request call chains have them.
    pub fn with_frames_of(how: Option<CallGraph>, user: Option<Switch>, kernel: Option<Switch>) -> Callchain {
        Callchain { every_event: how.is_some().into(), how: how.unwrap_or_default(), user, kernel, python: None }
    }

    /// Sets whether call chains contain the frames of Python functions. If so, every event has a call chain.
    pub fn with_python(self, python: Option<InterpreterFrameUse>) -> Callchain {
        if let None | Some(InterpreterFrameUse::No) = python {
            return Callchain { python, ..self };
        }
        let all = Some(Switch::On);
        Callchain { every_event: Switch::On, user: self.user.or(all), kernel: self.kernel.or(all), python, ..self }
    }

    /// Returns whether call chains of running processes have native frames, frames of Python functions, or both.
    pub fn live_python(&self) -> InterpreterFrameUse {
        self.python.unwrap_or(InterpreterFrameUse::No)
    }
}

/// An option that is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// Switched off.
    #[default]
    Off,
    /// Switched on.
    On,
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Switch::On } else { Switch::Off }
    }
}

/// Where events are added up, if the receiver only needs sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InKernel {
    /// In the kernel where this is possible, otherwise in perf-prof.
    #[default]
    Auto,
    /// In perf-prof.
    Never,
    /// In the kernel. If this is not possible, the run does not start.
    Always,
}

impl InKernel {
    /// The values as users write them.
    pub const NAMES: [&str; 3] = ["auto", "never", "always"];
}

impl FromStr for InKernel {
    type Err = String;

    fn from_str(name: &str) -> Result<InKernel, String> {
        match name {
            "auto" => Ok(InKernel::Auto),
            "never" => Ok(InKernel::Never),
            "always" => Ok(InKernel::Always),
            _ => Err(format!("`{name}` is none of {}", InKernel::NAMES.join(", "))),
        }
    }
}

/// The order in which events of several CPUs are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// Ordered by time only within a CPU. Events of different CPUs come in blocks.
    #[default]
    PerCpu,
    /// Ordered by their timestamps across all CPUs.
    Time,
}

/// How much is printed to stderr: least with `Quiet`, most with `Debug`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and losses only.
    Quiet,
    /// What users normally want to know.
    #[default]
    Normal,
    /// `-v`: also the main steps, and the events, descriptors and rings that are used.
    Verbose,
    /// `-vv` and more: every step.
    Debug,
}
