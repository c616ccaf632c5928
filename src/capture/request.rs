//! What to capture, and how: plain data.

use std::{os::fd::RawFd, path::PathBuf, time::Duration};

pub use crate::sys::clock::Clock;
use crate::{record::MARGIN, spec::CpuSet};

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

/// What is copied of user space with each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStack {
    /// Which registers, by their numbers in perf (`sample_regs_user`).
    pub registers: u64,
    /// Bytes of the stack (`sample_stack_user`).
    pub bytes: u32,
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
    /// Copy registers and so many bytes of the stack, to find the program's frames by unwind information.
    pub user_stack: Option<UserStack>,
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

/// A tracepoint to capture.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// Its id, the perf attr's config.
    pub tracepoint: u32,
    /// `sys:name`, for messages.
    pub name: String,
    /// A kernel trace filter.
    pub filter: Option<String>,
    /// Sample call chains.
    pub callchain: Option<Callchain>,
    /// Only on these CPUs; goes before the target's CPUs.
    pub cpus: Option<CpuSet>,
    /// Whether the capture may go on without it.
    pub presence: Presence,
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
    /// At most this many samples per second and ring.
    pub sampling_limit: Option<u32>,
    /// An eventfd: when it becomes readable, it is drained and [`crate::record::Wait::Woken`] is given, before any backlog.
    pub wake: Option<RawFd>,
}
