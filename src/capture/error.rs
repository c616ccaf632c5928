//! Why a capture could not be opened: each message names the thing, the cause and the way out.

use std::{io, path::PathBuf};

use super::{EventRequest, Refusal, Sampling, attach::To, refusal::Use};
use crate::{
    abi::*,
    spec::CpuSet,
    sys::{CallError, limits, procfs},
};

/// Why a capture could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The kernel does not let us trace this.
    #[error("no permission to trace {event}: {refusal}")]
    Permission {
        /// Which event.
        event: String,
        /// Why not, and what would help.
        refusal: Refusal,
    },
    /// More descriptors than the hard limit allows.
    #[error(
        "too many open files: {needed} event descriptors are needed and the limit is {limit}; select fewer events or \
         CPUs, or raise the hard limit (`ulimit -Hn`)"
    )]
    TooManyFiles {
        /// Event descriptors needed.
        needed: usize,
        /// The limit of open files.
        limit: u64,
    },
    /// The ring's memory was refused.
    #[error(
        "cannot map a ring of {kib} KiB for {place}: {source}; {}give a smaller -m", mlock(source, *.mlock_kb)
    )]
    Mmap {
        /// Its size.
        kib: usize,
        /// CPU or thread.
        place: String,
        /// `kernel.perf_event_mlock_kb`.
        mlock_kb: Option<i32>,
        /// The mmap's error.
        source: io::Error,
    },
    /// A probe could not be defined in tracefs.
    #[error(
        "cannot define {event} in tracefs: {source}; probes of processes and their children need that: run as root{}",
        otherwise(source)
    )]
    Definition {
        /// Which event.
        event: String,
        /// Why.
        source: io::Error,
    },
    /// Events of one group on different CPUs.
    #[error(
        "{event} and {leader}, which leads its group, are not on the same CPUs; give all events of a group the same cpus="
    )]
    GroupCpus {
        /// Which event.
        event: String,
        /// The group's leader.
        leader: String,
    },
    /// The kernel refused a trace filter.
    #[error("the kernel refuses the filter `{filter}` of {event}: {source}")]
    Filter {
        /// Which event.
        event: String,
        /// Its filter.
        filter: String,
        /// The ioctl's error.
        source: io::Error,
    },
    /// A CPU that does not exist or is offline.
    #[error("there is no CPU {cpu}, or it is offline; online are {online}")]
    NoSuchCpu {
        /// Which CPU.
        cpu: u32,
        /// Those that are there.
        online: CpuSet,
    },
    /// None of the tasks to attach to exists.
    #[error("there is no {kind} {}", list(.ids))]
    NoSuchTask {
        /// `process` or `thread`.
        kind: &'static str,
        /// Their ids.
        ids: Vec<u32>,
    },
    /// A cgroup directory could not be opened.
    #[error("cannot open the cgroup {}: {source}", .path.display())]
    Cgroup {
        /// Its directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// More frames were asked for than the kernel gives.
    #[error(
        "{event}: max-stack={asked} is more than kernel.perf_event_max_stack={max}; lower it, or raise that with \
         `sysctl kernel.perf_event_max_stack={asked}` while nothing records stacks"
    )]
    MaxStack {
        /// Which event.
        event: String,
        /// Frames asked for.
        asked: u16,
        /// The limit.
        max: i32,
    },
    /// More samples per second than the kernel gives.
    #[error(
        "{event}: {asked} samples per second are more than kernel.perf_event_max_sample_rate={max}; lower it (`-F max` takes \
         that), or raise that with `sysctl kernel.perf_event_max_sample_rate={asked}`"
    )]
    SampleRate {
        /// Which event.
        event: String,
        /// Samples per second asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// A CPU watches a few addresses only.
    #[error(
        "cannot open {event}: the breakpoint slots of a CPU are used up (x86 and most others have 4, shared with all \
         debuggers); select fewer mem: events"
    )]
    BreakpointSlots {
        /// Which event.
        event: String,
    },
    /// The machine or its kernel does not have the event, or not in the form that was asked for.
    #[error("cannot open {event}: {cause} ({source})")]
    Unsupported {
        /// Which event.
        event: String,
        /// What that means, and what may help.
        cause: &'static str,
        /// The system call and its error.
        source: CallError,
    },
    /// An event could not be opened for another reason.
    #[error("cannot open {event}: {source}")]
    Open {
        /// Which event.
        event: String,
        /// The system call and its error.
        source: CallError,
    },
    /// Another system call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl CaptureError {
    /// What perf_event_open's errno means for an event that was to be attached to this.
    pub(super) fn open(request: &EventRequest, of_use: Use, to: Option<To<'_>>, source: CallError) -> Self {
        let event = request.name.clone();
        let max_stack = request.callchain.and_then(|callchain| callchain.max_stack);
        let rate = procfs::perf_event_max_sample_rate();
        match (source.errno(), max_stack, request.sampling, rate) {
            (libc::EACCES | libc::EPERM, ..) => {
                CaptureError::Permission { event, refusal: Refusal::of(request, of_use, to) }
            }
            // perf_event_open refuses a sample_max_stack above the sysctl with EOVERFLOW (get_callchain_buffers).
            (libc::EOVERFLOW, Some(asked), ..) => {
                CaptureError::MaxStack { event, asked, max: procfs::perf_event_max_stack().unwrap_or(127) }
            }
            // It refuses a frequency above the sysctl with EINVAL.
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

    /// What the event is called that could not be had, if it was one.
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
            | CaptureError::Mmap { .. }
            | CaptureError::NoSuchCpu { .. }
            | CaptureError::NoSuchTask { .. }
            | CaptureError::Cgroup { .. }
            | CaptureError::Call(_) => None,
        }
    }

    /// The dummy was refused, which is to tell of cgroups.
    pub(super) fn no_cgroups(source: CallError) -> Self {
        let cause = "cgroups are told by Linux 5.7 and later, with CONFIG_CGROUP_PERF; leave the option out";
        CaptureError::Unsupported { event: "--all-cgroups".to_owned(), cause, source }
    }

    /// Descriptors ran out, although the soft limit was raised.
    pub(super) fn too_many_files(needed: usize) -> Self {
        CaptureError::TooManyFiles { needed, limit: limits::file_limit().map_or(0, |limit| limit.soft) }
    }
}

/// What an errno says of an event that is no tracepoint.
fn cause(request: &EventRequest, errno: i32) -> &'static str {
    let EventRequest { event, samples, precise, .. } = request;
    let of_hardware = [PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW].contains(&event.kind);
    let asks = |bits: u64| samples.sample_type & bits != 0;
    match (errno, event.kind) {
        // With a larger register mask or stack than it takes, EINVAL says everything and nothing.
        (libc::EOPNOTSUPP | libc::EINVAL, _) if *precise > 0 => {
            "this machine cannot sample it so precisely; leave the modifier `p` out"
        }
        (libc::EOPNOTSUPP | libc::EINVAL, _) if asks(PERF_SAMPLE_BRANCH_STACK) => {
            "this machine records no branches for it; leave branch_stack out"
        }
        (libc::EOPNOTSUPP | libc::EINVAL, _) if asks(PERF_SAMPLE_AUX) => {
            "aux data comes from a PMU that traces, as intel_pt; leave aux out"
        }
        (libc::EINVAL, _) if request.grouping.is_member() => {
            "the kernel does not take it into this group: the events of a PMU have to fit its counters together, and two PMUs \
             of hardware cannot share a group; take it out of the braces"
        }
        (libc::EINVAL, _) if asks(PERF_SAMPLE_READ) => {
            "the counter cannot be read in each sample of inherited events; leave read out, or trace CPUs or threads (-C, -t)"
        }
        (libc::ENOENT, _) if of_hardware => {
            "this machine does not have the hardware event, as most virtual machines; cpu-clock samples by time everywhere"
        }
        (libc::ENOENT | libc::ENODEV, _) => "this kernel or CPU does not have the event",
        (libc::EOPNOTSUPP, _) if of_hardware => {
            "this machine's hardware cannot sample it; cpu-clock samples by time everywhere"
        }
        (libc::EOPNOTSUPP, _) => "it cannot be sampled, only be counted",
        (_, PERF_TYPE_BREAKPOINT) => {
            "no breakpoint can be there: the address has to be a multiple of the length (1, 2, 4 or 8), and few machines have \
             all of r, w and x"
        }
        _ if of_hardware => "the hardware does not take it in this form: event, modifiers, or what is sampled",
        _ => {
            "its PMU refuses it: a config, modifier, period or sample member that it does not have, or no samples at all \
             (PMUs outside of the cores only count)"
        }
    }
}

/// The probes' PMUs need no tracefs, but the same rights.
fn otherwise(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "",
        _ => ", or name a thread with -t, or trace all processes",
    }
}

fn mlock(source: &io::Error, mlock_kb: Option<i32>) -> String {
    match (source.raw_os_error(), mlock_kb) {
        // perf_mmap() gives EPERM when the user's locked memory is above the limit.
        (Some(libc::EPERM), Some(kb)) => format!(
            "without CAP_IPC_LOCK the rings of all CPUs may lock kernel.perf_event_mlock_kb={kb} KiB per CPU (and \
             `ulimit -l`): raise it, or "
        ),
        _ => "the kernel has no memory for it: ".to_owned(),
    }
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
