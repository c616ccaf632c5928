//! What to capture, and how: plain data.

use std::{ffi::CStr, os::fd::RawFd, path::PathBuf, sync::Arc, time::Duration};

pub use crate::sys::clock::Clock;
use crate::{
    abi::{PERF_SAMPLE_RAW, PERF_TYPE_TRACEPOINT},
    record::{MARGIN, SampleFormat},
    spec::{CpuSet, Grouping},
    sys::definition::Definition,
};

/// What is traced.
#[derive(Clone, Debug)]
pub enum Target {
    /// Everything on these CPUs, or on all that are online.
    SystemWide {
        /// `-C`.
        cpus: Option<CpuSet>,
    },
    /// All threads of these processes, and the threads and processes that they create from now on. Ends when these
    /// processes have exited.
    Processes(Vec<u32>),
    /// These threads and no others. Ends when they have exited.
    Threads(Vec<u32>),
    /// The tasks of these cgroups, given by their directories.
    Cgroups(Vec<PathBuf>),
    /// A child that has not called exec yet, and what it creates: events start when it does, and end with it.
    Workload {
        /// The child.
        pid: u32,
    },
}

impl Target {
    pub(super) fn cpus(&self) -> Option<&CpuSet> {
        match self {
            Target::SystemWide { cpus } => cpus.as_ref(),
            _ => None,
        }
    }
}

/// Whether a call chain has the frames of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// It has.
    Sampled,
    /// It has not.
    Excluded,
}

/// A call chain for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callchain {
    /// The kernel's frames.
    pub kernel: Frames,
    /// The program's frames.
    pub user: Frames,
    /// The most frames; `None` for `kernel.perf_event_max_stack`.
    pub max_stack: Option<u16>,
}

/// Whether a capture may go on without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// It was asked for by name: a refusal is an error.
    #[default]
    Required,
    /// It is one of many that a pattern matched. The kernel lets nobody sample some events, as sampling would make
    /// them happen (`TRACE_EVENT_PERF_PERM`); those are left out.
    IfAllowed,
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Each time that so many were counted.
    Period(u64),
    /// So many times a second; the kernel adapts the period.
    Frequency(u64),
}

/// A number of an attr that may also be the address of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Config {
    /// A number.
    Number(u64),
    /// A text that the kernel reads when the event is opened, as the name of a probed function or file.
    Text(Arc<CStr>),
}

impl Default for Config {
    fn default() -> Self {
        Config::Number(0)
    }
}

/// Which event it is, to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfEvent {
    /// `type`: one of PERF_TYPE_* or a PMU's number.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`; of a breakpoint its address.
    pub config1: Config,
    /// `config2`; of a breakpoint its length.
    pub config2: u64,
    /// `config3`.
    pub config3: u64,
    /// `bp_type`: the accesses that a breakpoint stops at, bits of HW_BREAKPOINT_*.
    pub breakpoint: u32,
}

/// Where an event does not count.
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
    /// In idle tasks; only the clocks of the kernel's software heed it.
    pub idle: bool,
}

/// Which contexts an event stands where tasks inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    /// Tasks may exchange theirs.
    #[default]
    Any,
    /// Each task has to keep its own: it is a probe of a program, though it was somebody else who defined it.
    Own,
}

/// What is known of the calls of tasks that were created meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfChildren {
    /// They are all there.
    #[default]
    Complete,
    /// Some may be missing: the kernel does not let tasks keep their own contexts.
    MayBeMissing,
}

/// An event to capture.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// Its name, for messages.
    pub name: String,
    /// Which one it is.
    pub event: PerfEvent,
    /// How tracefs defines it, if it is a probe: where tasks inherit it, that is what is opened.
    pub definition: Option<Definition>,
    /// How often it is sampled.
    pub sampling: Sampling,
    /// Where it does not count.
    pub excluded: Excluded,
    /// `precise_ip`: how far the address may be from the instruction, 0 for any distance to 3 for none.
    pub precise: u8,
    /// What its samples hold beside what all samples of a capture do.
    pub samples: SampleFormat,
    /// `sample_stack_user`: bytes of user stack, for PERF_SAMPLE_STACK_USER.
    pub stack_user: u32,
    /// A kernel trace filter.
    pub filter: Option<String>,
    /// Sample call chains.
    pub callchain: Option<Callchain>,
    /// Only on these CPUs; goes before the target's CPUs.
    pub cpus: Option<CpuSet>,
    /// Whether the capture may go on without it.
    pub presence: Presence,
    /// Its part in a group; a member's leader is the nearest one before it.
    pub grouping: Grouping,
    /// Which contexts it stands where tasks inherit it.
    pub contexts: Contexts,
}

impl EventRequest {
    /// A request for an event that says nothing of how: each time it happens, everywhere, with no more than what all
    /// samples hold.
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
            presence: Presence::Required,
            grouping: Grouping::Alone,
            contexts: Contexts::Any,
        }
    }

    /// A request for the tracepoint with this id: its data is sampled.
    pub fn tracepoint(name: impl Into<String>, id: u32) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_TRACEPOINT, config: id.into(), ..PerfEvent::default() };
        let samples = SampleFormat { sample_type: PERF_SAMPLE_RAW, ..SampleFormat::default() };
        EventRequest { samples, ..Self::new(name, event) }
    }
}

/// In which order records are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of their time, across rings. What was seen less than `margin` before a round is held back.
    Time {
        /// See [`crate::record::Sorter`].
        margin: Duration,
    },
}

impl Default for Order {
    fn default() -> Self {
        Order::Time { margin: MARGIN }
    }
}

/// What is told of the code that processes map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mappings {
    /// Nothing: no sample has addresses of theirs.
    #[default]
    Ignored,
    /// Each executable mapping (PERF_RECORD_MMAP2).
    Told,
    /// The same, with the build id of the file in place of its inode, where the kernel (5.12) finds one.
    Identified(Mapped),
}

/// Which mappings are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Those that code can run in.
    Code,
    /// All: perf unwinds by what lies beside the code in the file.
    All,
}

/// What all records hold, beside what single events ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// No more than delivering them takes.
    #[default]
    Lean,
    /// What perf's tools look for in a recording: the address of each sample, and the id as the first member.
    Recorded,
}

/// Whether something is told beside the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Telling {
    /// It is not.
    #[default]
    Ignored,
    /// Each time that it happens.
    Told,
}

/// What is told beside the events, their tasks and mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideBand {
    /// That a CPU goes over to another task (PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE).
    pub switches: Telling,
    /// Which namespaces a new task is in, and those that a task goes over to (PERF_RECORD_NAMESPACES).
    pub namespaces: Telling,
    /// That there is a new cgroup (PERF_RECORD_CGROUP).
    pub cgroups: Telling,
}

/// When events begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// When they are enabled, a workload's at its exec.
    #[default]
    AtOnce,
    /// With the first [`super::Capture::enable_events`]. What happens to tasks is told from the start.
    Later,
}

/// How often events are turned on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switching {
    /// Once, with [`super::Capture::enable`] or a workload's exec.
    #[default]
    Once,
    /// Off and on again, or later than what tells of tasks.
    Repeated,
}

/// How to capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of each ring's data, a power of two pages.
    pub ring_bytes: usize,
    /// The most user memory for what waits. With an order the index by which it is sorted is in it, a third of it; but
    /// two rounds of full rings always have room.
    pub buffer: usize,
    /// How full a ring wakes the reader.
    pub watermark_percent: u8,
    /// Which clock.
    pub clock: Clock,
    /// `None`: each ring's records in their order, rings in blocks.
    pub order: Option<Order>,
    /// Whether processes' mappings are told.
    pub mappings: Mappings,
    /// What else is told.
    pub side_band: SideBand,
    /// What all records hold.
    pub members: Members,
    /// When events begin.
    pub begin: Begin,
    /// How often they are turned on.
    pub switching: Switching,
    /// At most this many samples per second and ring.
    pub sampling_limit: Option<u32>,
    /// An eventfd: when it becomes readable, it is drained and [`crate::record::Wait::Woken`] is given, before any backlog.
    pub wake: Option<RawFd>,
}
