//! Why a capture could not be opened. Each message says what failed, why it failed, and what to do.

use std::{io, path::PathBuf};

use perf_prof_format::{abi::*, spec::CpuSet};
use perf_prof_system::{
    CallError,
    limits::{self, FileLimit},
    procfs,
};

use super::{EventRequest, Excluded, PerfEvent, Refusal, Sampling, attach::AttachTo, refusal::Purpose};

/// Why a capture could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The kernel denies permission to trace the event.
    #[error("no permission to trace {event}: {refusal}")]
    Permission {
        /// The event's name.
        event: String,
        /// Why the kernel denies permission, and what to do.
        refusal: Refusal,
    },
    /// More descriptors are needed than the limit on open files allows.
    #[error(
        "too many open files: {needed} event descriptors are needed, {others} other files are open, and the limit is \
         {limit}; select fewer events or CPUs, or raise the {}",
        if limit < hard { "limit (`ulimit -n`, or in Python `resource.setrlimit`)" } else { "hard limit (`ulimit -Hn`)" }
    )]
    TooManyFiles {
        /// The number of event descriptors that the capture needs.
        needed: usize,
        /// The number of other files that are open.
        others: u64,
        /// The limit on open files.
        limit: u64,
        /// The value to which this process can raise the limit. perf-prof raises the limit itself, except in a program
        /// that uses perf-prof as a library. So only there `hard` is above `limit`.
        hard: u64,
    },
    /// The whole machine has too many open files.
    #[error(
        "the machine has too many open files ({needed} event descriptors are needed here); select fewer events or CPUs, or \
         raise the limit with `sysctl fs.file-max`"
    )]
    TooManyFilesOfAll {
        /// The number of event descriptors that the capture needs.
        needed: usize,
    },
    /// The kernel refused the memory of a ring.
    #[error(
        "cannot map a ring of {kib} KiB for {place}: {source}; {}give a smaller -m", mlock(source, *.mlock_kb)
    )]
    Mmap {
        /// The size of the ring in KiB.
        kib: usize,
        /// The ring's CPU or thread, as text.
        place: String,
        /// The value of `kernel.perf_event_mlock_kb`.
        mlock_kb: Option<i32>,
        /// The error of mmap.
        source: io::Error,
    },
    /// A probe could not be defined in tracefs.
    #[error(
        "cannot define {event} in tracefs: {source}; probes of processes and their children need a definition there; run as \
         root{}",
        otherwise(source)
    )]
    Definition {
        /// The event's name.
        event: String,
        /// The error of tracefs.
        source: io::Error,
    },
    /// The events of one group are on different CPUs.
    #[error(
        "{event} and {leader}, which leads its group, are not on the same CPUs; give all events of a group the same cpus="
    )]
    GroupCpus {
        /// The event's name.
        event: String,
        /// The name of the group's leader.
        leader: String,
    },
    /// The kernel refused a tracepoint's filter.
    #[error("the kernel refuses the filter `{filter}` of {event}: {source}")]
    Filter {
        /// The event's name.
        event: String,
        /// The filter's text.
        filter: String,
        /// The error of the ioctl.
        source: io::Error,
    },
    /// None of the selected CPUs is online.
    #[error("CPU {cpus} does not exist or is offline; the online CPUs are {online}")]
    NoSuchCpu {
        /// The selected CPUs.
        cpus: CpuSet,
        /// The CPUs that are online.
        online: CpuSet,
    },
    /// Some of the tasks to attach to do not exist.
    #[error("there is no {kind} {}", list(.ids))]
    NoSuchTask {
        /// `process` or `thread`.
        kind: &'static str,
        /// The process or thread ids that do not exist.
        ids: Vec<u32>,
    },
    /// A cgroup directory could not be opened.
    #[error("cannot open the cgroup {}: {source}", .path.display())]
    Cgroup {
        /// The path of the directory.
        path: PathBuf,
        /// The error of opening it.
        source: io::Error,
    },
    /// The requested callchain is longer than the kernel allows.
    #[error(
        "{event}: max-stack={asked} is more than kernel.perf_event_max_stack={max}; give a smaller max-stack, or raise \
         the limit with `sysctl kernel.perf_event_max_stack={asked}` while nothing records callchains"
    )]
    MaxStack {
        /// The event's name.
        event: String,
        /// The requested number of frames.
        asked: u16,
        /// The value of `kernel.perf_event_max_stack`.
        max: i32,
    },
    /// The requested sample rate is above the kernel's limit.
    #[error(
        "{event}: {asked} samples per second are more than kernel.perf_event_max_sample_rate={max}; give a lower rate \
         (`-F max` selects the highest one), or raise the limit with `sysctl kernel.perf_event_max_sample_rate={asked}`"
    )]
    SampleRate {
        /// The event's name.
        event: String,
        /// The requested samples per second.
        asked: u64,
        /// The value of `kernel.perf_event_max_sample_rate`.
        max: u64,
    },
    /// All breakpoint registers of a CPU are in use.
    #[error(
        "cannot open {event}: all breakpoint registers of a CPU are in use (most CPUs have 4, and debuggers use them \
         too); select fewer mem: events"
    )]
    BreakpointSlots {
        /// The event's name.
        event: String,
    },
    /// The machine or its kernel does not support the event, or does not support it in the requested form.
    #[error("cannot open {event}: {cause} ({source})")]
    Unsupported {
        /// The event's name.
        event: String,
        /// What the errno means for this event, and what may help.
        cause: &'static str,
        /// The system call and its error.
        source: CallError,
    },
    /// The event could not be opened for another reason.
    #[error("cannot open {event}: {source}")]
    Open {
        /// The event's name.
        event: String,
        /// The system call and its error.
        source: CallError,
    },
    /// Another system call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl CaptureError {
    /// Returns the errno of the call that failed. If perf-prof found the error itself, returns the errno that the
    /// kernel would return. `None` if no errno belongs to the error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            CaptureError::Permission { .. } => Some(libc::EACCES),
            CaptureError::TooManyFiles { .. } => Some(libc::EMFILE),
            CaptureError::TooManyFilesOfAll { .. } => Some(libc::ENFILE),
            CaptureError::GroupCpus { .. } | CaptureError::SampleRate { .. } => Some(libc::EINVAL),
            CaptureError::NoSuchCpu { .. } => Some(libc::ENODEV),
            CaptureError::NoSuchTask { .. } => Some(libc::ESRCH),
            CaptureError::MaxStack { .. } => Some(libc::EOVERFLOW),
            CaptureError::BreakpointSlots { .. } => Some(libc::ENOSPC),
            CaptureError::Mmap { source, .. }
            | CaptureError::Definition { source, .. }
            | CaptureError::Filter { source, .. }
            | CaptureError::Cgroup { source, .. } => source.raw_os_error(),
            CaptureError::Unsupported { source, .. }
            | CaptureError::Open { source, .. }
            | CaptureError::Call(source) => Some(source.errno()),
        }
    }

    /// Returns the error for an event that perf_event_open refused. `to` is what perf-prof tried to attach the event
    /// to, and `source` contains the errno.
    pub(super) fn open(request: &EventRequest, purpose: Purpose, to: Option<AttachTo<'_>>, source: CallError) -> Self {
        let event = request.name.clone();
        let max_stack = request.callchain.and_then(|callchain| callchain.max_stack);
        let rate = procfs::perf_event_max_sample_rate();
        match (source.errno(), max_stack, request.sampling, rate) {
            (libc::EACCES | libc::EPERM, ..) => {
                CaptureError::Permission { event, refusal: Refusal::explain(request, purpose, to) }
            }
            // perf_event_open fails with EOVERFLOW if sample_max_stack is above the sysctl (get_callchain_buffers).
            (libc::EOVERFLOW, Some(asked), ..) => {
                CaptureError::MaxStack { event, asked, max: procfs::perf_event_max_stack().unwrap_or(127) }
            }
            // perf_event_open fails with EINVAL if the frequency is above the sysctl.
            (libc::EINVAL, _, Sampling::Frequency(asked), Some(max)) if asked > max => {
                CaptureError::SampleRate { event, asked, max }
            }
            (libc::ENOSPC, ..) if request.event.kind == PERF_TYPE_BREAKPOINT => CaptureError::BreakpointSlots { event },
            (libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL, ..)
                if request.event.kind != PERF_TYPE_TRACEPOINT =>
            {
                let cause = cause(request, source.errno());
                CaptureError::Unsupported { event, cause, source }
            }
            _ => CaptureError::Open { event, source },
        }
    }

    /// Returns the name of the event in this error; `None` if the error names no single event.
    pub fn event_mut(&mut self) -> Option<&mut String> {
        match self {
            CaptureError::Permission { event, .. }
            | CaptureError::Definition { event, .. }
            | CaptureError::GroupCpus { event, .. }
            | CaptureError::Filter { event, .. }
            | CaptureError::MaxStack { event, .. }
            | CaptureError::SampleRate { event, .. }
            | CaptureError::BreakpointSlots { event }
            | CaptureError::Unsupported { event, .. }
            | CaptureError::Open { event, .. } => Some(event),
            CaptureError::TooManyFiles { .. }
            | CaptureError::TooManyFilesOfAll { .. }
            | CaptureError::Mmap { .. }
            | CaptureError::NoSuchCpu { .. }
            | CaptureError::NoSuchTask { .. }
            | CaptureError::Cgroup { .. }
            | CaptureError::Call(_) => None,
        }
    }

    /// Returns the error for a dummy event that the kernel refused because of cgroup records.
    pub(super) fn no_cgroups(source: CallError) -> Self {
        let cause = "only Linux 5.7 and later with CONFIG_CGROUP_PERF reports cgroups; leave the option out";
        CaptureError::Unsupported { event: "--all-cgroups".to_owned(), cause, source }
    }

    /// Returns the error if descriptors ran out although the soft limit was raised. `needed` is the number of event
    /// descriptors that the capture needs; `open` of them are open already.
    pub(super) fn too_many_files(error: &CallError, needed: usize, open: usize) -> Self {
        if error.errno() == libc::ENFILE {
            return CaptureError::TooManyFilesOfAll { needed };
        }
        let FileLimit { soft: limit, hard } = limits::file_limit();
        CaptureError::TooManyFiles { needed, others: limit.saturating_sub(open as u64), limit, hard }
    }

    /// Returns the error if the kernel refused the event that reads the clock of events. This event counts nothing, so
    /// it needs no rights.
    pub fn of_clock(error: CallError) -> Self {
        if error.call != "perf_event_open" {
            return error.into();
        }
        let event = PerfEvent { kind: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_DUMMY.into(), ..PerfEvent::default() };
        let excluded = Excluded { kernel: true, hv: true, ..Excluded::default() };
        let request = EventRequest { excluded, ..EventRequest::new("the clock of events", event) };
        CaptureError::open(&request, Purpose::Sampled, None, error)
    }
}

/// Returns what an errno means for an event that is not a tracepoint, and what may help.
fn cause(request: &EventRequest, errno: i32) -> &'static str {
    let EventRequest { event, samples, precise, .. } = request;
    let of_hardware = [PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW].contains(&event.kind);
    let asks = |bits: u64| samples.sample_type & bits != 0;
    match (errno, event.kind) {
        // The kernel also returns EINVAL for a register mask or a stack size that it does not support. So EINVAL alone
        // does not tell the cause; the members of the request are checked one after the other.
        (libc::EOPNOTSUPP | libc::EINVAL, _) if *precise > 0 => {
            "this machine cannot sample the event so precisely; leave out the modifier `p`"
        }
        (libc::EOPNOTSUPP | libc::EINVAL, _) if asks(PERF_SAMPLE_BRANCH_STACK) => {
            "this machine does not record branches for the event; leave out branch_stack"
        }
        (libc::EOPNOTSUPP | libc::EINVAL, _) if asks(PERF_SAMPLE_AUX) => {
            "only tracing PMUs, such as intel_pt, write aux data; leave out aux"
        }
        (libc::EINVAL, _) if request.grouping.is_member() => {
            "the kernel does not accept the event in this group: all events of a group have to fit into the PMU's counters at \
             once, and events of two hardware PMUs cannot share a group; take the event out of the braces"
        }
        (libc::EINVAL, _) if asks(PERF_SAMPLE_READ) => {
            "samples of inherited events cannot contain counts; leave out read, or trace CPUs or threads (-C, -t)"
        }
        (libc::ENOENT, _) if of_hardware => {
            "this machine does not have the hardware event (few virtual machines have it); use cpu-clock instead, which \
             samples by time on every machine"
        }
        (libc::ENOENT | libc::ENODEV, _) => "this kernel or CPU does not have the event",
        (libc::EOPNOTSUPP, _) if of_hardware => {
            "this machine's hardware cannot sample it; use cpu-clock instead, which samples by time on every machine"
        }
        (libc::EOPNOTSUPP, _) => "the event cannot be sampled, only counted, for example by `perf-prof stat`",
        (_, PERF_TYPE_BREAKPOINT) => {
            "no breakpoint can be set there: the address has to be a multiple of the length (1, 2, 4 or 8), and few machines \
             support all of r, w and x"
        }
        _ if of_hardware => {
            "the hardware does not support the event in this form; check its modifiers and sample members"
        }
        _ => {
            "the PMU of the event does not support this config, modifier, period or sample member, or does not sample \
             at all (PMUs outside of the cores only count)"
        }
    }
}

/// Returns what the user can do instead of running as root. The PMUs `uprobe` and `kprobe` need no definition in
/// tracefs, and they can trace a thread or all CPUs. They need the same rights, so they do not help if permission was
/// denied.
fn otherwise(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "",
        _ => ", or select threads with -t, or trace all processes (-a)",
    }
}

fn mlock(source: &io::Error, mlock_kb: Option<i32>) -> String {
    match (source.raw_os_error(), mlock_kb) {
        // perf_mmap() returns EPERM if the user's locked memory is above the limit.
        (Some(libc::EPERM), Some(kb)) => format!(
            "without CAP_IPC_LOCK all rings together may lock kernel.perf_event_mlock_kb={kb} KiB per CPU, plus \
             `ulimit -l`: raise one of these limits, or "
        ),
        _ => "the kernel has no memory for it: ".to_owned(),
    }
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
