//! From plan to what is opened: the target, the events' requests, the capture's options.

use anyhow::{Result, bail};

use super::{
    events::{Place, Selected},
    plan::{self, Switch, Verbosity},
};
use crate::{
    abi::{
        ALL_REGISTERS, PERF_SAMPLE_CGROUP, PERF_SAMPLE_IP, PERF_SAMPLE_REGS_INTR, PERF_SAMPLE_REGS_USER,
        PERF_SAMPLE_STACK_USER, PERF_TYPE_TRACEPOINT,
    },
    capture::{
        Begin, Callchain, Capture, CaptureError, Contexts, EventRequest, Frames, Mappings, Members, OfChildren,
        Options, Order, Presence, SideBand, Switching, Target, Telling,
    },
    spec::{CallGraph, CpuSet, Stack},
    sys::{cgroup, clock::Clock, mmap::page_size, output, procfs},
    unwind,
};

/// The most memory that rings take by default, all together.
const ALL_RINGS: usize = 256 << 20;
/// The default size of a ring, where that bound allows it.
const RING: std::ops::RangeInclusive<usize> = 512 << 10..=2 << 20;

/// What is traced. `workload` is the process of `--exec`.
pub fn target(plan: &plan::Capture, workload: Option<u32>) -> Result<Target> {
    if let Some(pid) = workload {
        return Ok(Target::Workload { pid });
    }
    Ok(match &plan.target {
        plan::Target::AllCpus | plan::Target::Workload(_) => Target::SystemWide { cpus: None },
        plan::Target::Cpus(cpus) => Target::SystemWide { cpus: Some(cpus.clone()) },
        plan::Target::Processes(pids) => Target::Processes(pids.clone()),
        plan::Target::Threads(tids) => Target::Threads(tids.clone()),
        plan::Target::Cgroups { cgroups, .. } => {
            let mut dirs = Vec::new();
            for name in cgroups {
                dirs.extend(cgroup::resolve(name)?);
            }
            Target::Cgroups(dirs)
        }
    })
}

/// The CPUs that all events are limited to.
fn target_cpus(plan: &plan::Capture) -> Option<&CpuSet> {
    match &plan.target {
        plan::Target::Cpus(cpus) | plan::Target::Cgroups { cpus: Some(cpus), .. } => Some(cpus),
        _ => None,
    }
}

/// What is asked of the kernel for each selected event.
pub fn requests(plan: &plan::Capture, selected: &[Selected]) -> Result<Vec<EventRequest>> {
    selected.iter().map(|event| request(plan, event)).collect()
}

fn request(plan: &plan::Capture, event: &Selected) -> Result<EventRequest> {
    let EventRequest { name, cpus, .. } = &event.request;
    let attrs = &event.spec.attrs;
    // An event's own CPUs, of those that it can be opened on, of those that all events are limited to.
    let limits = [("cpus=", attrs.cpus.as_ref()), ("its own CPUs ", cpus.as_ref()), ("-C ", target_cpus(plan))];
    let limits: Vec<(&str, &CpuSet)> = limits.into_iter().filter_map(|(what, set)| Some((what, set?))).collect();
    let mut cpus: Option<CpuSet> = None;
    for (_, limit) in &limits {
        cpus = Some(match cpus {
            Some(cpus) => cpus.iter().filter(|&cpu| limit.contains(cpu)).collect(),
            None => (*limit).clone(),
        });
    }
    if cpus.as_ref().is_some_and(CpuSet::is_empty) {
        let limits: Vec<String> = limits.iter().map(|(what, set)| format!("{what}{set}")).collect();
        bail!("{name}: {} have no CPU in common", limits.join(" and "));
    }
    let callchain = callchain(plan, event)?;
    let (mut samples, mut stack_user) = (event.request.samples, event.request.stack_user);
    match plan.callchain.how {
        CallGraph::Dwarf(size) if callchain.is_some_and(|chain| chain.user == Frames::Sampled) => {
            let registers = unwind::sample_regs_user();
            if registers == 0 {
                bail!("--call-graph dwarf: {}", unwind::Ended::NotSupported);
            }
            samples.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
            samples.regs_user |= registers;
            stack_user = size.bytes();
        }
        CallGraph::LastBranches => {
            bail!("--call-graph lbr is not in this version; use --call-graph dwarf for programs without frame pointers")
        }
        CallGraph::FramePointer | CallGraph::Dwarf(_) => {}
    }
    if plan.cgroups == Switch::On {
        samples.sample_type |= PERF_SAMPLE_CGROUP;
    }
    if plan.registers == Switch::On {
        samples.sample_type |= PERF_SAMPLE_REGS_INTR;
        samples.regs_intr |= ALL_REGISTERS;
    }
    // Of the tracepoints it is probes of programs alone that happen elsewhere than in the kernel.
    let is_of_program = event.request.event.kind == PERF_TYPE_TRACEPOINT && event.place == Place::Anywhere;
    let presence = if event.spec.is_pattern() { Presence::IfAllowed } else { Presence::Required };
    Ok(EventRequest {
        filter: event.spec.filter.clone(),
        callchain,
        cpus,
        presence,
        samples,
        stack_user,
        grouping: event.spec.grouping,
        contexts: if is_of_program { Contexts::Own } else { Contexts::Any },
        ..event.request.clone()
    })
}

fn callchain(plan: &plan::Capture, event: &Selected) -> Result<Option<Callchain>> {
    let attrs = &event.spec.attrs;
    let plan::Callchain { every_event, user, kernel, how } = plan.callchain;
    let frames = |switch: Switch| match switch {
        Switch::On => Frames::Sampled,
        Switch::Off => Frames::Excluded,
    };
    // Whoever asks for the frames of one side asks for a call chain.
    let asked = [Some(every_event), user, kernel].contains(&Some(Switch::On)) || event.stacks.asked;
    if !asked && attrs.stack == Stack::Inherit && attrs.max_stack.is_none() {
        return Ok(None);
    }
    // Stacks are copied for nothing but user frames.
    let of_user = match (event.place, how) {
        (Place::Kernel, CallGraph::FramePointer) => Frames::Excluded,
        _ => Frames::Sampled,
    };
    let user = event.stacks.user.or(user.map(frames)).unwrap_or(of_user);
    let kernel = event.stacks.kernel.or(kernel.map(frames)).unwrap_or(Frames::Sampled);
    if kernel == Frames::Excluded && user == Frames::Excluded {
        bail!("call chains without kernel frames and without user frames are empty: add --user-callchain");
    }
    Ok(Some(Callchain { kernel, user, max_stack: attrs.max_stack }))
}

/// How much memory is used.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// A ring, in bytes.
    pub ring: usize,
    /// The bound of what waits in user memory, in bytes.
    pub buffer: usize,
}

/// The sizes that the plan asks for, or those that fit the machine.
pub fn sizes(plan: &plan::Capture) -> Sizes {
    let cpus = procfs::online_cpus().map_or(1, |cpus| cpus.iter().count().max(1));
    let ring = plan.ring_size.map(|size| size.pages(page_size()) * page_size()).unwrap_or_else(|| {
        let share = (ALL_RINGS / cpus).clamp(*RING.start(), *RING.end());
        1 << share.ilog2()
    });
    // A quarter of what is available: the machine's own work comes first.
    let buffer = plan.buffer.unwrap_or_else(|| procfs::available_memory().map_or(256 << 20, |free| free / 4));
    Sizes { ring, buffer }
}

/// Says that rings are smaller than planned: a busy CPU fills them sooner, and then loses events.
pub fn say_how_small_rings_are(plan: &plan::Capture, capture: &Capture, verbosity: Verbosity) {
    let (planned, ring) = (sizes(plan).ring, capture.ring_bytes());
    if ring < planned && verbosity > Verbosity::Quiet {
        output::say(format_args!(
            "rings of {} KiB instead of {} KiB, as no more memory may be locked: raise `ulimit -l` or \
             kernel.perf_event_mlock_kb if events are lost",
            ring >> 10,
            planned >> 10
        ));
    }
}

/// Says that calls may be missing, however quiet it is to be: nothing else tells.
pub fn say_what_may_be_missing(of_children: OfChildren) {
    if of_children == OfChildren::MayBeMissing {
        output::say("calls of children may be missing: Linux before 6.12 takes probes out of programs that run on");
    }
}

/// What `-v` says of a capture.
pub fn say_what_is_captured(plan: &plan::Capture, selected: &[Selected], capture: &Capture) {
    let (rings, ids) = (capture.ring_count(), capture.ids().len());
    let (ring, buffer) = (capture.ring_bytes() >> 10, sizes(plan).buffer >> 20);
    output::say(format_args!(
        "{} events, {ids} descriptors, {rings} rings of {ring} KiB, at most {buffer} MiB of backlog",
        selected.len()
    ));
    selected.iter().filter_map(|event| event.note.as_ref()).for_each(output::say);
}

/// Opens with rings of the default size, or of as much less as the kernel lets us lock: how much that is depends on what other
/// processes of the user have locked (`perf_mmap()` in kernel/events/core.c).
pub fn with_rings_that_fit<T>(
    plan: &plan::Capture,
    mut options: Options,
    open: impl Fn(&Options) -> Result<T, CaptureError>,
) -> Result<T, CaptureError> {
    loop {
        match open(&options) {
            Err(CaptureError::Mmap { source, .. })
                if plan.ring_size.is_none()
                    && source.raw_os_error() == Some(libc::EPERM)
                    && options.ring_bytes > page_size() =>
            {
                options.ring_bytes /= 2;
            }
            result => return result,
        }
    }
}

/// Whether what processes map has to be known: only where samples have addresses of theirs.
pub fn mappings(requests: &[EventRequest]) -> Mappings {
    let stack = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let has_user_frames = |request: &EventRequest| {
        let sample_type = request.samples.sample_type;
        // Of a tracepoint the instruction is not told, and its place in the kernel says nothing.
        let has_ip = sample_type & PERF_SAMPLE_IP != 0 && request.event.kind != PERF_TYPE_TRACEPOINT;
        request.callchain.is_some_and(|chain| chain.user == Frames::Sampled)
            || has_ip && !request.excluded.user
            || sample_type & stack == stack
    };
    if requests.iter().any(has_user_frames) { Mappings::Told } else { Mappings::Ignored }
}

/// How it is captured.
pub fn options(plan: &plan::Capture, mappings: Mappings, wake: std::os::fd::RawFd) -> Options {
    let Sizes { ring, buffer } = sizes(plan);
    Options {
        ring_bytes: ring,
        buffer,
        watermark_percent: plan.watermark.unwrap_or(25),
        clock: clock(plan),
        // What a process maps on one CPU has to be known before its samples on another one.
        order: (plan.order == plan::Order::Time || mappings == Mappings::Told).then(Order::default),
        mappings,
        members: Members::Lean,
        side_band: SideBand {
            switches: telling(plan.switches),
            namespaces: telling(plan.namespaces),
            cgroups: telling(plan.cgroups),
        },
        begin: Begin::AtOnce,
        switching: Switching::Once,
        sampling_limit: plan.sampling_limit,
        wake: Some(wake),
    }
}

fn telling(switch: Switch) -> Telling {
    match switch {
        Switch::On => Telling::Told,
        Switch::Off => Telling::Ignored,
    }
}

/// The clock of `_time`.
pub fn clock(plan: &plan::Capture) -> Clock {
    match plan.clock {
        plan::Clock::Perf => Clock::Perf,
        plan::Clock::Monotonic => Clock::Monotonic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Excluded, PerfEvent};

    fn clock(sample_type: u64, excluded: Excluded) -> EventRequest {
        let mut request = EventRequest::new("clock", PerfEvent { kind: 1, ..PerfEvent::default() });
        (request.samples.sample_type, request.excluded) = (sample_type, excluded);
        request
    }

    /// With little memory to lock, nobody could record without naming a size.
    #[test]
    fn rings_become_smaller_until_they_may_be_locked() {
        let refused = |kib| {
            let source = std::io::Error::from_raw_os_error(libc::EPERM);
            CaptureError::Mmap { kib, place: String::new(), mlock_kb: None, source }
        };
        let open = |plan: &plan::Capture, room: usize| {
            let options = options(plan, Mappings::Ignored, -1);
            with_rings_that_fit(plan, options, |options| match options.ring_bytes {
                bytes if bytes > room => Err(refused(bytes / 1024)),
                bytes => Ok(bytes),
            })
        };
        let plan = plan::Capture::default();
        assert_eq!(open(&plan, 100 << 10).unwrap(), 64 << 10);
        assert!(open(&plan, 0).is_err());
        let asked = plan::Capture { ring_size: Some(crate::spec::parse_pages("1M").unwrap()), ..plan };
        assert!(open(&asked, 100 << 10).is_err());
    }

    #[test]
    fn mappings_are_told_for_instructions_and_copied_stacks_of_user_space() {
        let tracepoint = EventRequest::tracepoint("sched:sched_switch", 300);
        let (all, kernel) = (Excluded::default(), Excluded { user: true, ..Excluded::default() });
        let told = |request: &EventRequest| mappings(&[tracepoint.clone(), request.clone()]);
        assert_eq!(told(&tracepoint), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_IP, all)), Mappings::Told);
        assert_eq!(told(&clock(PERF_SAMPLE_IP, kernel)), Mappings::Ignored);
        assert_eq!(told(&clock(0, all)), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_REGS_USER, kernel)), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER, kernel)), Mappings::Told);
        let callchain = Callchain { kernel: Frames::Sampled, user: Frames::Sampled, max_stack: None };
        assert_eq!(told(&EventRequest { callchain: Some(callchain), ..tracepoint.clone() }), Mappings::Told);
    }
}
