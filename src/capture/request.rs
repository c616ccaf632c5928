//! What to capture, and how: plain data.

use std::{ffi::CStr, os::fd::RawFd, path::PathBuf, sync::Arc, time::Duration};

use perf_prof_format::{
    abi::{PERF_SAMPLE_RAW, PERF_TYPE_TRACEPOINT},
    record::{MARGIN, SampleFormat},
    spec::{CpuSet, Grouping},
};
pub use perf_prof_system::clock::Clock;
use perf_prof_system::{budget::Budget, probe_definition::ProbeDefinition};

/// The target of a capture.
#[derive(Clone, Debug)]
pub enum Target {
    /// All tasks on some CPUs.
    SystemWide {
        /// The CPUs of `-C`; `None` for all online CPUs.
        cpus: Option<CpuSet>,
    },
    /// All tasks on all CPUs, until the tasks of this target have exited.
    UntilExit(Box<Target>),
    /// All threads of these processes, and the threads and processes that they create from now on. The capture ends
    /// when these processes have exited.
    Processes(Vec<u32>),
    /// These threads and no others. The capture ends when they have exited.
    Threads(Vec<u32>),
    /// The tasks of these cgroups, given by the paths of their directories.
    Cgroups(Vec<PathBuf>),
    /// A child that has not called exec yet, and the tasks that it creates. The events start when it calls exec. The
    /// capture ends when it exits.
    Workload {
        /// The process id of the child.
        pid: u32,
    },
}

impl Target {
    /// Returns whether the capture ends when threads have exited, and not when whole processes have exited.
    pub(super) fn ends_with_threads(&self) -> bool {
        match self {
            Target::UntilExit(tasks) => tasks.ends_with_threads(),
            target => matches!(target, Target::Threads(_)),
        }
    }

    pub(super) fn cpus(&self) -> Option<&CpuSet> {
        match self {
            Target::SystemWide { cpus } => cpus.as_ref(),
            _ => None,
        }
    }
}

/// Says if callchains include the frames of the kernel, or the frames of user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// The frames are included.
    Sampled,
    /// The frames are left out.
    Excluded,
}

/// What the callchain of each sample contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callchain {
    /// The frames in the kernel.
    pub kernel: Frames,
    /// The frames in user space.
    pub user: Frames,
    /// The maximum number of frames; `None` for the limit `kernel.perf_event_max_stack`.
    pub max_stack: Option<u16>,
}

/// What happens if the kernel refuses an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The capture fails, because the user selected exactly this event.
    #[default]
    Required,
    /// The capture goes on without the event, because the event is only one of many that match a pattern. The kernel
    /// lets nobody sample some events, because sampling such an event would trigger it again (`TRACE_EVENT_PERF_PERM`).
    IfAllowed,
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// One sample for every N occurrences, or for every N units of a count such as cycles.
    Period(u64),
    /// N samples per second; the kernel adapts the period.
    Frequency(u64),
}

/// A field of an attr that is a number or the address of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Config {
    /// A number.
    Number(u64),
    /// A text that the kernel reads when the event is opened, such as the name of a probed function or file.
    Text(Arc<CStr>),
}

impl Default for Config {
    fn default() -> Self {
        Config::Number(0)
    }
}

/// What identifies an event to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfEvent {
    /// `type`: one of PERF_TYPE_*, or the number of a PMU.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`. For a breakpoint, this is its address.
    pub config1: Config,
    /// `config2`. For a breakpoint, this is its length in bytes.
    pub config2: u64,
    /// `config3`.
    pub config3: u64,
    /// `bp_type`: the accesses that trigger a breakpoint, as HW_BREAKPOINT_* bits.
    pub breakpoint: u32,
}

/// The modes in which an event does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// In user space.
    pub user: bool,
    /// In the kernel.
    pub kernel: bool,
    /// In the hypervisor.
    pub hv: bool,
    /// Outside of guests.
    pub host: bool,
    /// In guests.
    pub guest: bool,
    /// In idle tasks. Only the kernel's software clocks respect it.
    pub idle: bool,
}

/// Says if tasks that inherit an event may exchange their contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    /// The tasks may exchange their contexts.
    #[default]
    Any,
    /// Each task keeps its own context, because the event is a probe of a program. The probe may have been defined
    /// outside of perf-prof.
    Own,
}

/// Says if the capture gets all events of the tasks that are created during the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildEvents {
    /// The capture gets all of these events.
    #[default]
    Complete,
    /// Some of these events may be missing, because the kernel cannot prevent tasks from exchanging their contexts.
    MayBeMissing,
}

/// The task that an event belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The task that was running. An event in an interrupt belongs to no task.
    #[default]
    Task,
    /// The thread with the id at this offset of the tracepoint's data, for example the thread that is woken up.
    Field(usize),
    /// No single task, for example because it is a switch from one task to another.
    NoTask,
}

/// Who writes the samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// The kernel, when the event happens.
    #[default]
    Kernel,
    /// A BPF program that the kernel runs when the event happens. The program writes to the event of its CPU, so the
    /// event is opened on CPUs, whatever the target is. The program has to select the tasks and to apply the filter. In
    /// a recording, its samples are those of the tracepoint.
    Program,
    /// Nobody. The samples of another event contain the same information.
    Nobody,
}

/// Says if the samples of perf-prof's own threads are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnThreads {
    /// They are delivered.
    #[default]
    Included,
    /// The samples of this process are left out and counted.
    LeftOut,
    /// Only the samples of the threads that perf-prof starts are left out and counted: the process belongs to a program
    /// that uses perf-prof as a library.
    StartedLeftOut,
}

/// An event to capture.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// The event's name, for messages.
    pub name: String,
    /// What identifies the event to the kernel.
    pub event: PerfEvent,
    /// The definition in tracefs, if the event is a probe. If tasks inherit the probe or the probe is recorded, the
    /// tracepoint of the definition is opened instead of `event`.
    pub definition: Option<ProbeDefinition>,
    /// How often the event is sampled.
    pub sampling: Sampling,
    /// The modes in which the event does not count.
    pub excluded: Excluded,
    /// `precise_ip`: the allowed distance between the sampled address and the instruction that caused the event. 0
    /// allows any distance, 3 allows none.
    pub precise: u8,
    /// The members of the event's samples, in addition to the common members of the capture.
    pub samples: SampleFormat,
    /// `sample_stack_user`: how many bytes of the user stack each sample copies, for PERF_SAMPLE_STACK_USER.
    pub stack_user: u32,
    /// The filter of a tracepoint. The kernel applies it.
    pub filter: Option<String>,
    /// The callchain to sample, if any.
    pub callchain: Option<Callchain>,
    /// The CPUs to open the event on; `None` for the CPUs of the target.
    pub cpus: Option<CpuSet>,
    /// The cgroup to open the event on, by its index among the cgroups of the target; `None` for all of them.
    pub cgroup: Option<usize>,
    /// What happens if the kernel refuses the event.
    pub presence: Presence,
    /// The event's role in a group. The leader of a group member is the last request before it that is not a group
    /// member.
    pub grouping: Grouping,
    /// Says if tasks that inherit the event may exchange their contexts.
    pub contexts: Contexts,
    /// The task that the event belongs to.
    pub owner: Owner,
    /// Who writes the samples.
    pub writer: Writer,
}

impl EventRequest {
    /// Returns a request with default settings: each occurrence is sampled, in all modes, with only the common members.
    pub fn new(name: impl Into<String>, event: PerfEvent) -> EventRequest {
        EventRequest {
            name: name.into(),
            event,
            definition: None,
            sampling: Sampling::Period(1),
            excluded: Excluded::default(),
            precise: 0,
            samples: SampleFormat::default(),
            stack_user: 0,
            filter: None,
            callchain: None,
            cpus: None,
            cgroup: None,
            presence: Presence::Required,
            grouping: Grouping::Alone,
            contexts: Contexts::Any,
            owner: Owner::Task,
            writer: Writer::Kernel,
        }
    }

    /// Returns a request for the tracepoint with this id. Its raw data is sampled.
    pub fn tracepoint(name: impl Into<String>, id: u32) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_TRACEPOINT, config: id.into(), ..PerfEvent::default() };
        let samples = SampleFormat { sample_type: PERF_SAMPLE_RAW, ..SampleFormat::default() };
        EventRequest { samples, ..Self::new(name, event) }
    }
}

/// The order in which records are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrder {
    /// Sorted by time, across all rings. Records that were read less than `margin` before a round are held back.
    Time {
        /// How long records are held back: see [`perf_prof_format::record::Sorter`].
        margin: Duration,
    },
}

impl Default for RecordOrder {
    fn default() -> Self {
        RecordOrder::Time { margin: MARGIN }
    }
}

/// Which records the kernel writes for the memory mappings of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mappings {
    /// No records, because no sample has addresses in user space.
    #[default]
    Ignored,
    /// A record for each executable mapping (PERF_RECORD_MMAP2).
    Delivered,
    /// A record for each mapping in the scope. Since Linux 5.12, it contains the build id of the file in place of its
    /// inode, if the kernel finds a build id.
    Identified(MappingScope),
}

/// The mappings that records are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingScope {
    /// Executable mappings.
    Code,
    /// All mappings. perf needs them for unwinding, because the unwind data is not in the part of the file that
    /// contains the code.
    All,
}

/// The members that all records of a capture have. Single events may request more members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommonMembers {
    /// Only the members that are needed to deliver the records.
    #[default]
    Lean,
    /// The members that perf's tools need in a recording: the address of each sample, and the id as the first member.
    Recording,
}

/// Says if side-band records of one kind are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideBandRecords {
    /// The records are not delivered.
    #[default]
    Ignored,
    /// The records are delivered.
    Delivered,
}

/// The side-band records to deliver, besides those of tasks and mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideBand {
    /// Written when a CPU switches to another task (PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE).
    pub switches: SideBandRecords,
    /// Written for a new task, and when a task changes its namespaces (PERF_RECORD_NAMESPACES).
    pub namespaces: SideBandRecords,
    /// Written when a cgroup is created (PERF_RECORD_CGROUP).
    pub cgroups: SideBandRecords,
}

/// When the events start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventStart {
    /// With [`super::Capture::enable`]. The events of a workload start at its exec.
    #[default]
    AtOnce,
    /// With the first [`super::Capture::enable_events`]. The side-band records of tasks start at once.
    Later,
}

/// How often the events are turned on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switching {
    /// Once, with [`super::Capture::enable`] or a workload's exec.
    #[default]
    Once,
    /// Several times: the events are turned off and on again, or they are turned on later than the side-band records of
    /// tasks.
    Repeated,
}

/// What happens to the samples of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Samples {
    /// They are delivered.
    #[default]
    Delivered,
    /// They stay in rings that the kernel overwrites, until [`super::Capture::copy_overwritten`] copies them. Only side-band
    /// records are delivered.
    Kept {
        /// The size of each of these rings in bytes, a power of two pages.
        ring_bytes: usize,
    },
}

/// How to capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// The size of each ring's data in bytes, a power of two pages.
    pub ring_bytes: usize,
    /// What happens to samples.
    pub samples: Samples,
    /// The memory for records that were read and are not consumed yet. Tables and open spans use a part of this budget, which
    /// is then not free for records. If the records are sorted, a third of this memory is for the sorter's index. The memory
    /// is increased if two rounds of full rings would not fit into it.
    pub buffer: Budget,
    /// The kernel wakes the reader when this percentage of a ring is full.
    pub watermark_percent: u8,
    /// The clock of the timestamps.
    pub clock: Clock,
    /// The order in which records are delivered. With `None`, only the records of the same ring are in order, and the
    /// chunks of different rings alternate.
    pub order: Option<RecordOrder>,
    /// Which records the kernel writes for the memory mappings of processes.
    pub mappings: Mappings,
    /// The other side-band records to deliver.
    pub side_band: SideBand,
    /// The members that all records have.
    pub members: CommonMembers,
    /// When the events start.
    pub begin: EventStart,
    /// How often the events are turned on.
    pub switching: Switching,
    /// The maximum number of samples per second in each ring. Further samples are dropped. `None` for no limit.
    pub sampling_limit: Option<u32>,
    /// Says if the samples of perf-prof's own threads are delivered.
    pub own_threads: OwnThreads,
    /// A process whose exit ends the capture, as the exit of all tasks of the target does.
    pub ends_with: Option<u32>,
    /// An eventfd. When it becomes readable, it is drained and [`perf_prof_format::record::Wait::Woken`] is returned, before any
    /// waiting records.
    pub wake: Option<RawFd>,
}
