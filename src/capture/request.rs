//! What to capture, and how. Contains only data.

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
    /// All tasks on all CPUs. The capture ends when the tasks of the inner target have exited.
    UntilExit(Box<Target>),
    /// All threads of these processes, and all threads and processes that they create from now on. The capture ends
    /// when these processes have exited.
    Processes(Vec<u32>),
    /// These threads and no others. The capture ends when they have exited.
    Threads(Vec<u32>),
    /// The tasks of these cgroups. The paths are those of the cgroups' directories.
    Cgroups(Vec<PathBuf>),
    /// A child that has not called exec yet, and the tasks that it creates. The events start when the child calls exec.
    /// The capture ends when the child exits.
    Workload {
        /// The process id of the child.
        pid: u32,
    },
}

impl Target {
    /// Returns whether the capture ends when single threads have exited, and not when whole processes have exited.
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

/// Says whether callchains contain the frames of the kernel, or the frames of user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// Callchains contain these frames.
    Sampled,
    /// Callchains do not contain these frames.
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

/// What happens if the kernel refuses to open an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The capture fails, because the user selected exactly this event.
    #[default]
    Required,
    /// The capture goes on without the event. Used for an event that is only one of many that match a pattern. The
    /// kernel lets nobody sample some events, because sampling such an event would trigger it again
    /// (`TRACE_EVENT_PERF_PERM`).
    IfAllowed,
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// One sample for every N occurrences, or for every N units of what the event counts, such as cycles.
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

/// The fields of an attr that identify an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfEvent {
    /// `type`: one of PERF_TYPE_*, or the number of a PMU.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`. For a breakpoint: its address.
    pub config1: Config,
    /// `config2`. For a breakpoint: its length in bytes.
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
    /// In idle tasks. Only the kernel's software clocks respect this setting.
    pub idle: bool,
}

/// Says whether the kernel may swap the contexts of tasks that inherit an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    /// The kernel may swap the contexts.
    #[default]
    Any,
    /// Each task keeps its own context, because the event is a uprobe. The uprobe may have been defined outside of
    /// perf-prof.
    Own,
}

/// Says whether the capture gets all events of the tasks that are created during the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildEvents {
    /// The capture gets all of these events.
    #[default]
    Complete,
    /// Some of these events may be missing, because perf-prof cannot prevent this kernel from swapping the contexts of
    /// tasks.
    MayBeMissing,
}

/// The task that an event belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The task that was running. An event in an interrupt belongs to no task.
    #[default]
    Task,
    /// The thread whose id is at this offset in the tracepoint's data, for example the thread that is woken up.
    Field(usize),
    /// No single task, for example because the event is a switch from one task to another.
    NoTask,
}

/// Who writes the samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// The kernel, when the event happens.
    #[default]
    Kernel,
    /// A BPF program that the kernel runs when the event happens. The program writes to the event of its CPU. So the
    /// event is opened on CPUs, whatever the target is. The program has to select the tasks and to apply the filter. In
    /// a recording, the samples look like samples of the event.
    Program,
    /// Nobody, because the samples of another event contain the same information.
    Nobody,
}

/// Says whether the samples of perf-prof's own threads are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnThreads {
    /// The samples are delivered.
    #[default]
    Included,
    /// The samples of all threads of this process are removed and counted.
    LeftOut,
    /// Only the samples of the threads that perf-prof starts are removed and counted. Used in a program that imports
    /// perf-prof as a library.
    StartedLeftOut,
}

/// Says whether the kernel's count of an event is compared with the samples of the event at the end of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// The count is not used, because the event happens in tasks alone, or counts something else than its occurrences.
    #[default]
    Ignored,
    /// The event may happen in an interrupt of an idle CPU. Events that were counted and have no sample are lost.
    Compared,
}

/// An event to capture.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// The event's name, for messages.
    pub name: String,
    /// The fields of the attr that identify the event.
    pub event: PerfEvent,
    /// The definition in tracefs, if the event is a probe. If tasks inherit the probe or the probe is recorded, the
    /// tracepoint of this definition is opened instead of `event`.
    pub definition: Option<ProbeDefinition>,
    /// How often the event is sampled.
    pub sampling: Sampling,
    /// The modes in which the event does not count.
    pub excluded: Excluded,
    /// `precise_ip`: how far the sampled address may be from the instruction that caused the event. 0 allows any
    /// distance, 3 allows none.
    pub precise: u8,
    /// The members of the event's samples, in addition to the common members of the capture.
    pub samples: SampleFormat,
    /// `sample_stack_user`: how many bytes of the user stack the kernel copies into each sample, for
    /// PERF_SAMPLE_STACK_USER.
    pub stack_user: u32,
    /// The trace filter of a tracepoint, which the kernel applies.
    pub filter: Option<String>,
    /// The callchain to sample, if any.
    pub callchain: Option<Callchain>,
    /// The CPUs to open the event on; `None` for the CPUs of the target.
    pub cpus: Option<CpuSet>,
    /// The cgroup to open the event on, by its index among the cgroups of the target; `None` for all of them.
    pub cgroup: Option<usize>,
    /// What happens if the kernel refuses to open the event.
    pub presence: Presence,
    /// The event's role in a group. The leader of a group member is the last request before the member that is not
    /// itself a group member.
    pub grouping: Grouping,
    /// Says whether the kernel may swap the contexts of tasks that inherit the event.
    pub contexts: Contexts,
    /// The task that the event belongs to.
    pub owner: Owner,
    /// Who writes the samples.
    pub writer: Writer,
    /// Says whether events without samples are looked for.
    pub counting: Counting,
}

impl EventRequest {
    /// Returns a request with default settings: each occurrence is sampled, in all modes. The samples contain only the
    /// common members.
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
            counting: Counting::Ignored,
        }
    }

    /// Returns a request for the tracepoint with this id. The samples contain its raw data.
    pub fn tracepoint(name: impl Into<String>, id: u32) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_TRACEPOINT, config: id.into(), ..PerfEvent::default() };
        let samples = SampleFormat { sample_type: PERF_SAMPLE_RAW, ..SampleFormat::default() };
        EventRequest { samples, ..Self::new(name, event) }
    }
}

/// The order in which records are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrder {
    /// Sorted by time, across all rings. Records that were read less than `margin` before a round are delivered later.
    Time {
        /// How long records are kept for sorting: see [`perf_prof_format::record::Sorter`].
        margin: Duration,
    },
}

impl Default for RecordOrder {
    fn default() -> Self {
        RecordOrder::Time { margin: MARGIN }
    }
}

/// How often the rings are read while nothing happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRounds {
    /// Four times a second.
    #[default]
    Rare,
    /// As often as while records arrive. Then the first record after a pause is read soon, because what it is about may be gone
    /// later: a process may end.
    Frequent,
}

/// For which memory mappings of processes the kernel writes records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mappings {
    /// For none, because no sample contains addresses in user space.
    #[default]
    Ignored,
    /// For each executable mapping (PERF_RECORD_MMAP2).
    Delivered,
    /// For each mapping in the scope. Since Linux 5.12, the record contains the build id of the file in place of its
    /// inode, if the kernel finds a build id.
    Identified(MappingScope),
}

/// The mappings for which the kernel writes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingScope {
    /// Executable mappings.
    Code,
    /// All mappings. perf needs them for unwinding, because the unwind tables are not in the part of the file that
    /// contains code.
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

/// Says whether side-band records of one kind are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideBandRecords {
    /// The records are not delivered.
    #[default]
    Ignored,
    /// The records are delivered.
    Delivered,
}

/// The side-band records to deliver, in addition to those of tasks and mappings.
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
    /// With [`super::Capture::enable`]. The events of a workload start when the workload calls exec.
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
    /// The samples are delivered.
    #[default]
    Delivered,
    /// The samples stay in rings that the kernel overwrites, until [`super::Capture::copy_overwritten`] copies them.
    /// Only side-band records are delivered.
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
    /// The memory for records that were read and are not consumed yet. Tables and open spans use the same budget, so
    /// less of it may be left for records. If records are sorted, a third of the memory is for the sorter's index. The
    /// memory is increased if two rounds of full rings would not fit into it.
    pub buffer: Budget,
    /// The kernel wakes the reader when this percentage of a ring is full.
    pub watermark_percent: u8,
    /// The clock of the timestamps.
    pub clock: Clock,
    /// The order in which records are delivered. With `None`, only the records of one ring are in order, and the chunks
    /// of different rings alternate.
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
    /// Says whether the samples of perf-prof's own threads are delivered.
    pub own_threads: OwnThreads,
    /// A process whose exit also ends the capture.
    pub ends_with: Option<u32>,
    /// The folders of cgroups. The removal of all of them also ends the capture.
    pub ends_with_cgroups: Vec<PathBuf>,
    /// How often the rings are read while nothing happens.
    pub idle: IdleRounds,
    /// An eventfd. When it becomes readable, perf-prof drains it, and `wait` returns
    /// [`perf_prof_format::record::Wait::Woken`] before any records that wait for delivery.
    pub wake: Option<RawFd>,
}
