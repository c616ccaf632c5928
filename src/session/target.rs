//! From plan to what is opened: the target, the events' requests, the capture's options.

use anyhow::{Result, bail};

use super::{
    events::Selected,
    plan::{self, Plan, Switch},
};
use crate::{
    capture::{Callchain, EventRequest, Frames, Mappings, Options, Order, Presence, Target, UserStack},
    spec::{CallGraph, CpuSet, Stack},
    sys::{cgroup, clock::Clock, mmap::page_size, procfs},
    unwind,
};

/// The most memory that rings take by default, all together.
const ALL_RINGS: usize = 256 << 20;
/// The default size of a ring, where that bound allows it.
const RING: std::ops::RangeInclusive<usize> = 512 << 10..=2 << 20;

/// What is traced. `workload` is the process of `--exec`.
pub fn target(plan: &Plan, workload: Option<u32>) -> Result<Target> {
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
fn target_cpus(plan: &Plan) -> Option<&CpuSet> {
    match &plan.target {
        plan::Target::Cpus(cpus) | plan::Target::Cgroups { cpus: Some(cpus), .. } => Some(cpus),
        _ => None,
    }
}

/// What is asked of the kernel for each selected event.
pub fn requests(plan: &Plan, selected: &[Selected]) -> Result<Vec<EventRequest>> {
    selected.iter().map(|event| request(plan, event)).collect()
}

fn request(plan: &Plan, event: &Selected) -> Result<EventRequest> {
    let name = format!("{}:{}", event.format.system, event.format.name);
    let attrs = &event.spec.attrs;
    // An event's own CPUs, of those that all events are limited to.
    let cpus = match (&attrs.cpus, target_cpus(plan)) {
        (Some(own), Some(all)) => {
            let both: CpuSet = own.iter().filter(|&cpu| all.contains(cpu)).collect();
            if both.iter().next().is_none() {
                bail!("{name}: cpus={own} and -C {all} have no CPU in common");
            }
            Some(both)
        }
        (own, all) => own.as_ref().or(all).cloned(),
    };
    let callchain = callchain(plan, attrs.stack, attrs.max_stack)?;
    let presence = if event.spec.is_pattern() { Presence::IfAllowed } else { Presence::Required };
    Ok(EventRequest { tracepoint: event.format.id, name, filter: event.spec.filter.clone(), callchain, cpus, presence })
}

fn callchain(plan: &Plan, stack: Stack, max_stack: Option<u16>) -> Result<Option<Callchain>> {
    // Whoever asks for the frames of one side asks for a call chain.
    let plan::Callchain { every_event, user, kernel, how } = plan.callchain;
    let asked = [Some(every_event), user, kernel].contains(&Some(Switch::On));
    if !asked && stack == Stack::Inherit && max_stack.is_none() {
        return Ok(None);
    }
    let frames = |switch: Option<Switch>, default| match switch.unwrap_or(default) {
        Switch::On => Frames::Sampled,
        Switch::Off => Frames::Excluded,
    };
    // Stacks are copied for nothing but user frames.
    let default = if how == CallGraph::FramePointer { Switch::Off } else { Switch::On };
    let (kernel, user) = (frames(kernel, Switch::On), frames(user, default));
    if kernel == Frames::Excluded && user == Frames::Excluded {
        bail!("call chains without kernel frames and without user frames are empty: add --user-callchain");
    }
    let user_stack = match how {
        CallGraph::Dwarf(size) if user == Frames::Sampled => match unwind::sample_regs_user() {
            0 => bail!("--call-graph dwarf: {}; use --call-graph fp", unwind::Ended::NotSupported),
            registers => Some(UserStack { registers, bytes: size.bytes() }),
        },
        CallGraph::LastBranches => {
            bail!("--call-graph lbr is not in this version; use --call-graph dwarf for programs without frame pointers")
        }
        CallGraph::FramePointer | CallGraph::Dwarf(_) => None,
    };
    Ok(Some(Callchain { kernel, user, max_stack, user_stack }))
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
pub fn sizes(plan: &Plan) -> Sizes {
    let cpus = procfs::online_cpus().map_or(1, |cpus| cpus.iter().count().max(1));
    let ring = plan.ring_size.map(|size| size.pages(page_size()) * page_size()).unwrap_or_else(|| {
        let share = (ALL_RINGS / cpus).clamp(*RING.start(), *RING.end());
        1 << share.ilog2()
    });
    // A quarter of what is available: the machine's own work comes first.
    let buffer = plan.buffer.unwrap_or_else(|| procfs::available_memory().map_or(256 << 20, |free| free / 4));
    Sizes { ring, buffer }
}

/// Whether what processes map has to be known: only where samples have addresses of theirs.
pub fn mappings(requests: &[EventRequest]) -> Mappings {
    let has_user_frames = |request: &EventRequest| request.callchain.is_some_and(|chain| chain.user == Frames::Sampled);
    if requests.iter().any(has_user_frames) { Mappings::Told } else { Mappings::Ignored }
}

/// How it is captured.
pub fn options(plan: &Plan, mappings: Mappings, wake: std::os::fd::RawFd) -> Options {
    let Sizes { ring, buffer } = sizes(plan);
    Options {
        ring_bytes: ring,
        buffer,
        watermark_percent: plan.watermark.unwrap_or(25),
        clock: clock(plan),
        order: (plan.order == plan::Order::Time).then(Order::default),
        mappings,
        sampling_limit: plan.sampling_limit,
        wake: Some(wake),
    }
}

/// The clock of `_time`.
pub fn clock(plan: &Plan) -> Clock {
    match plan.clock {
        plan::Clock::Perf => Clock::Perf,
        plan::Clock::Monotonic => Clock::Monotonic,
    }
}
