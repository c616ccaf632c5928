//! What a session is to do, whoever asked for it. Knows nothing of argv.

use std::{ffi::OsString, path::PathBuf, time::Duration};

pub use crate::script::OnError;
pub use crate::sys::clock::Clock;
use crate::{
    spec::{CallGraph, CpuSet, EventSpec, Rate, RingSize, TimeRanges},
    symbol,
};

/// Everything that a session is told before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command line that asked for it, ready to be pasted into a shell; a template names it.
    pub command_line: String,
    /// Which events, of what, and how they are captured.
    pub capture: Capture,
    /// How many of the events, the first ones, the script itself names. A recording may lack some of them.
    pub own_events: usize,
    /// The recording that takes the place of live events.
    pub input: Option<Input>,
    /// The recording that is made of live events.
    pub record: Option<Recorded>,
    /// How often `__interval__` is called.
    pub interval: Option<Duration>,
    /// How addresses of processes get names.
    pub symbols: symbol::Options,
    /// End after this many delivered samples.
    pub exit_n: Option<u64>,
    /// The file that stdout and stderr are appended to.
    pub output: Option<PathBuf>,
    /// How often this process's own CPU and memory use is printed.
    pub usage_self: Option<Duration>,
    /// How much is said on stderr.
    pub verbosity: Verbosity,
    /// The user's interpreter or venv.
    pub python: Option<PathBuf>,
    /// What follows an exception in a callback.
    pub on_error: OnError,
    /// What is to be run.
    pub module: Module,
}

/// Events, what they are attached to, and how they are captured.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The events, in the order in which they were asked for.
    pub events: Vec<EventSpec>,
    /// What they are attached to.
    pub target: Target,
    /// Call chains of all events.
    pub callchain: Callchain,
    /// Whether the samples of all events hold the registers of where they were taken.
    pub registers: Switch,
    /// Whether it is told which task runs where, beside the events.
    pub switches: Switch,
    /// Whether it is told which namespaces tasks are in.
    pub namespaces: Switch,
    /// Whether it is told which cgroups there are, and of each sample in which one it was taken.
    pub cgroups: Switch,
    /// How often events that are no tracepoints are sampled, where they do not say themselves.
    pub rate: Option<Rate>,
    /// The size of each ring; `None` leaves it to the session.
    pub ring_size: Option<RingSize>,
    /// The bound of the memory that recorded and undelivered events take, in bytes.
    pub buffer: Option<usize>,
    /// How full a ring is, in percent, before its reader is woken.
    pub watermark: Option<u8>,
    /// The clock of `_time`.
    pub clock: Clock,
    /// Whether CPUs are merged by time.
    pub order: Order,
    /// Samples per second and instance, at most.
    pub sampling_limit: Option<u32>,
}

/// A recording that is made while a script runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// The command line, word by word; the recording keeps it.
    pub command_line: Vec<String>,
}

/// A recording, and what is wanted of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// A file, a directory, or `-` for stdin.
    pub path: PathBuf,
    /// Only samples of these CPUs.
    pub cpus: Option<CpuSet>,
    /// Only samples of these processes.
    pub pids: Option<Vec<u32>>,
    /// Only samples of these threads.
    pub tids: Option<Vec<u32>>,
    /// Only samples of these times.
    pub times: Option<TimeRanges>,
    /// By how many processes it is replayed; `None` by this one.
    pub jobs: Option<Jobs>,
}

/// A replay by several processes, each with a part of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// How many.
    pub count: usize,
    /// How the recording is divided.
    pub split: SplitBy,
}

/// How a recording is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// One part after the other.
    #[default]
    Time,
    /// By the CPUs of its samples.
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
    /// perf_event cgroups.
    Cgroups {
        /// Paths or globs, as typed.
        cgroups: Vec<String>,
        /// The CPUs on which they are watched; `None` for all.
        cpus: Option<CpuSet>,
    },
    /// This command: forked first, and the session ends with it. Not empty.
    Workload(Vec<OsString>),
}

/// Call chains of all events; an event's own attributes add to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callchain {
    /// Whether every event carries one.
    pub every_event: Switch,
    /// How user frames are found.
    pub how: CallGraph,
    /// Frames of user space; `None` where nothing was said.
    pub user: Option<Switch>,
    /// Frames of the kernel; `None` where nothing was said.
    pub kernel: Option<Switch>,
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// Switched off.
    #[default]
    Off,
    /// Switched on.
    On,
}

/// In which order events of several CPUs are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In order on each CPU, CPUs in blocks.
    #[default]
    PerCpu,
    /// In the order of their timestamps.
    Time,
}

/// How much is said on stderr; more is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and losses only.
    Quiet,
    /// What a user wants to know.
    #[default]
    Normal,
    /// `-v`: what is done and with what.
    Verbose,
    /// `-vv` and more: every step.
    Debug,
}

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// Nothing: `help` was asked for, a template for the events is printed.
    Template,
    /// A script, an extension module or a module's name.
    Script {
        /// As typed.
        module: OsString,
        /// `sys.argv[1..]`.
        args: Vec<OsString>,
    },
}
