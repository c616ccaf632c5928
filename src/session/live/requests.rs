//! Turns a plan into the inputs of a capture: the target, a request for each event, and the options.

use std::path::PathBuf;

use anyhow::{Result, bail};
use perf_prof_capture::{
    Callchain, Capture, CaptureError, ChildEvents, CommonMembers, Contexts, EventRequest, EventStart, Frames,
    IdleRounds, Mappings, Options, OwnThreads, Owner, Presence, RecordOrder, Samples, SideBand, SideBandRecords,
    Switching, Target, Writer,
};
use perf_prof_format::{
    abi::{
        ALL_REGISTERS, PERF_SAMPLE_CGROUP, PERF_SAMPLE_IP, PERF_SAMPLE_REGS_INTR, PERF_SAMPLE_REGS_USER,
        PERF_SAMPLE_STACK_USER, PERF_TYPE_TRACEPOINT,
    },
    spec::{CallGraph, CpuSet, Grouping, Stack},
    tracefs::EventFormat,
};
use perf_prof_symbols::unwind;
use perf_prof_system::{
    budget::Budget,
    cgroup::{self, CgroupError},
    clock::Clock,
    memory,
    mmap::page_size,
    output, procfs,
};

use super::{
    select::{EventLocation, Selected},
    sharing,
};
use crate::{
    engine::pump::MOVES,
    plan::{self, CgroupsOfEvents, Switch, Verbosity},
};

/// The maximum default memory of all rings together, in bytes.
const ALL_RINGS: usize = 256 << 20;
/// The smallest and the largest usual size of a ring, in bytes. Machines with many CPUs use the smallest size, even if
/// all rings together then need more than [`ALL_RINGS`]. Large samples need larger rings.
const RING: std::ops::RangeInclusive<usize> = 512 << 10..=2 << 20;

/// The smallest default size of a ring, in bytes, on machines with little memory.
const SMALLEST_RING: usize = 64 << 10;
/// The number of samples that fit into a ring. A program that samples its own stack at full speed fills a ring faster
/// than the reader can empty it.
const BURST: usize = 1024;

/// Returns the target of the capture. `workload` is the pid of the command, if the command is the target.
pub fn target(plan: &plan::Capture, workload: Option<u32>) -> Result<Target> {
    let tasks = |target: &plan::Target| match (workload, target) {
        (Some(pid), _) => Some(Target::Workload { pid }),
        (None, plan::Target::Processes(pids)) => Some(Target::Processes(pids.clone())),
        (None, plan::Target::Threads(tids)) => Some(Target::Threads(tids.clone())),
        _ => None,
    };
    if let Some(selected) = &plan.selected_tasks {
        return Ok(tasks(selected).map_or(Target::SystemWide { cpus: None }, |tasks| Target::UntilExit(tasks.into())));
    }
    if workload.is_some()
        && let Some(target) = tasks(&plan.target)
    {
        return Ok(target);
    }
    Ok(match &plan.target {
        plan::Target::AllCpus | plan::Target::Workload(_) => Target::SystemWide { cpus: None },
        plan::Target::Cpus(cpus) => Target::SystemWide { cpus: Some(cpus.clone()) },
        plan::Target::Processes(pids) => Target::Processes(pids.clone()),
        plan::Target::Threads(tids) => Target::Threads(tids.clone()),
        plan::Target::Cgroups { cgroups, .. } => Target::Cgroups(match plan.cgroups_of_events {
            CgroupsOfEvents::All => outermost(self::cgroups(cgroups)?),
            CgroupsOfEvents::Each => self::cgroups(cgroups)?,
            CgroupsOfEvents::OneEach => cgroups.iter().map(|name| only_cgroup(name)).collect::<Result<_>>()?,
        }),
    })
}

/// Returns the folders of the cgroups with these names.
pub fn cgroups(names: &[String]) -> Result<Vec<PathBuf>, CgroupError> {
    names.iter().map(|name| cgroup::resolve(name)).collect::<Result<Vec<_>, _>>().map(|found| found.concat())
}

/// Returns the folder of the cgroup with this name. Fails if the name is a pattern that matches several cgroups.
fn only_cgroup(name: &str) -> Result<PathBuf> {
    let mut found = cgroup::resolve(name)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        many => bail!("-G: `{name}` matches {many} cgroups; give one cgroup for each event"),
    }
}

/// Leaves out folders that are inside other folders of the list. A cgroup also gets the events of the cgroups below it,
/// so these events would come twice.
fn outermost(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for (at, folder) in folders.iter().enumerate() {
        let is_inside =
            |(other, outer): (usize, &PathBuf)| folder.starts_with(outer) && (folder != outer || other < at);
        if !folders.iter().enumerate().any(is_inside) {
            kept.push(folder.clone());
        }
    }
    kept
}

/// Returns the CPUs that all events are limited to, or `None` if there is no such limit.
fn target_cpus(plan: &plan::Capture) -> Option<&CpuSet> {
    match &plan.target {
        plan::Target::Cpus(cpus) | plan::Target::Cgroups { cpus: Some(cpus), .. } => Some(cpus),
        _ => None,
    }
}

/// Reports the selected CPUs that do not exist or are offline. The events are opened on the other CPUs.
pub fn report_missing_cpus(plan: &plan::Capture, selected: &[Selected]) -> Result<()> {
    let online = procfs::online_cpus()?;
    let of_events = selected.iter().filter_map(|event| event.spec.attrs.cpus.as_ref());
    let wanted = of_events.chain(target_cpus(plan)).flat_map(CpuSet::iter);
    let missing: CpuSet = wanted.filter(|&cpu| !online.contains(cpu)).collect();
    if !missing.is_empty() {
        output::say(format_args!(
            "warning: CPU {missing} does not exist or is offline; the events of the other selected CPUs are delivered"
        ));
    }
    Ok(())
}

/// Returns the request to the kernel for each selected event.
pub fn requests(plan: &plan::Capture, selected: &[Selected]) -> Result<Vec<EventRequest>> {
    let mut requests = selected.iter().map(|event| request(plan, event)).collect::<Result<Vec<_>>>()?;
    sharing::merge(&mut requests, selected);
    if let (CgroupsOfEvents::OneEach, plan::Target::Cgroups { cgroups, .. }) = (plan.cgroups_of_events, &plan.target) {
        if cgroups.len() != requests.len() {
            bail!(
                "-G has {} cgroups for {} events: give one cgroup for all events, or one for each event; --cgroups and \
                 --for-each-cgroup take any number",
                cgroups.len(),
                requests.len()
            );
        }
        requests.iter_mut().enumerate().for_each(|(index, request)| request.cgroup = Some(index));
    }
    Ok(requests)
}

fn request(plan: &plan::Capture, event: &Selected) -> Result<EventRequest> {
    let EventRequest { name, cpus, .. } = &event.request;
    let attrs = &event.spec.attrs;
    // An event is opened on the CPUs that are in all three sets: the CPUs in its `cpus=` attribute, the CPUs of its PMU
    // or of its own options, and the CPUs that all events are limited to.
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
            bail!("--call-graph lbr is not supported; use --call-graph dwarf for programs without frame pointers")
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
    // Tracepoints happen in the kernel, except for probes in programs.
    let is_of_program = event.request.event.kind == PERF_TYPE_TRACEPOINT && event.place == EventLocation::Anywhere;
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
        owner: owner(event),
        writer: writer(event)?,
        ..event.request.clone()
    })
}

fn callchain(plan: &plan::Capture, event: &Selected) -> Result<Option<Callchain>> {
    let attrs = &event.spec.attrs;
    let plan::Callchain { every_event, user, kernel, how, .. } = plan.callchain;
    let frames = |switch: Switch| match switch {
        Switch::On => Frames::Sampled,
        Switch::Off => Frames::Excluded,
    };
    // If the user requests kernel frames or user frames, a call chain is requested.
    let asked = [Some(every_event), user, kernel].contains(&Some(Switch::On)) || event.stacks.asked;
    if !asked && attrs.stack == Stack::Inherit && attrs.max_stack.is_none() {
        return Ok(None);
    }
    // By default, events in the kernel have no user frames. With `--call-graph dwarf` they have user frames, because
    // user stacks are sampled only to unwind user frames.
    let of_user = match (event.place, how) {
        (EventLocation::Kernel, CallGraph::FramePointer) => Frames::Excluded,
        _ => Frames::Sampled,
    };
    let user = event.stacks.user.or(user.map(frames)).unwrap_or(of_user);
    let kernel = event.stacks.kernel.or(kernel.map(frames)).unwrap_or(Frames::Sampled);
    Ok(Some(Callchain { kernel, user, max_stack: attrs.max_stack }))
}

/// How much memory a capture may use.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The size of a ring, in bytes.
    pub ring: usize,
    /// The user-space memory for events that wait for delivery, and for derived events.
    pub buffer: Budget,
}

/// Returns the sizes in the plan. If the plan does not set a size, the size depends on the machine and on the events.
pub fn sizes(plan: &plan::Capture, requests: &[EventRequest]) -> Sizes {
    let available = memory::available();
    let ring = plan.ring_size.map(|size| size.pages(page_size()) * page_size()).unwrap_or_else(|| {
        let cpus = procfs::online_cpus().map_or(1, |cpus| cpus.iter().count());
        let rings = match &plan.target {
            plan::Target::Threads(tids) if requests.iter().all(|request| request.cpus.is_none()) => tids.len(),
            _ => cpus,
        };
        let largest = requests.iter().map(EventRequest::largest_sample).max().unwrap_or(0);
        default_ring(rings.max(1), largest, available.unwrap_or(usize::MAX))
    });
    Sizes { ring, buffer: buffer(plan, available) }
}

/// Returns the user-space memory in the plan. If the plan does not set it, it depends on the `available` memory.
pub fn buffer(plan: &plan::Capture, available: Option<usize>) -> Budget {
    Budget::new(plan.buffer.unwrap_or_else(|| memory::share_for_buffer(available)))
}

/// Returns the default size of a ring. `largest` is the size of the largest sample, and `available` the memory that can
/// be used, in bytes. [`BURST`] of these samples fit into a ring, if all rings together then need at most
/// [`ALL_RINGS`]. On machines with little memory, rings are smaller: rings are locked in memory, and the buffer has to
/// hold their contents twice.
fn default_ring(rings: usize, largest: usize, available: usize) -> usize {
    let share = ALL_RINGS / rings;
    let usual = share.clamp(*RING.start(), *RING.end());
    let burst = (BURST * largest).next_power_of_two();
    let ring = usual.max(burst.min(share)).min(available / 8 / rings).max(SMALLEST_RING);
    1 << ring.ilog2()
}

/// Reports what is missing in the opened events, and with `-v` what was opened. `done` is the word for what happens to
/// samples: `delivered` or `recorded`.
pub fn report_opened(planned: &Sizes, selected: &[Selected], capture: &Capture, verbosity: Verbosity, done: &str) {
    report_missing_calls_of_children(capture.of_children());
    report_smaller_rings(planned, capture, verbosity);
    let is_opened = |event: usize| {
        selected.get(event).is_some_and(|event| event.request.writer != Writer::Nobody && event.samples_of.is_none())
    };
    let attrs = capture.attrs().iter().enumerate().filter(|(index, _)| *index >= selected.len() || is_opened(*index));
    for (_, event) in attrs.filter(|(_, event)| event.ids.is_empty()) {
        output::say(format_args!("{} is not {done}: the kernel does not allow sampling of this event", event.name));
    }
    selected.iter().flat_map(|event| &event.lacks).for_each(output::say);
    if verbosity >= Verbosity::Verbose {
        report_capture(planned, selected, capture);
    }
}

/// Reports if rings are smaller than planned. A busy CPU fills smaller rings sooner, and then events are lost.
fn report_smaller_rings(planned: &Sizes, capture: &Capture, verbosity: Verbosity) {
    let (planned, ring) = (planned.ring, capture.ring_bytes());
    if ring < planned && verbosity > Verbosity::Quiet {
        output::say(format_args!(
            "rings have {} KiB instead of {} KiB, because no more memory may be locked; if events are lost, raise \
             `ulimit -l` or kernel.perf_event_mlock_kb",
            ring >> 10,
            planned >> 10
        ));
    }
}

/// Reports if calls in child processes may be missing. The message is printed even with `-q`, because nothing else
/// shows that calls are missing.
pub fn report_missing_calls_of_children(of_children: ChildEvents) {
    if of_children == ChildEvents::MayBeMissing {
        output::say(
            "calls in child processes may be missing: Linux before 6.12 removes probes from programs that still run",
        );
    }
}

/// Prints the number of events, descriptors and rings in a capture, its memory sizes, and the notes about its events
/// (`-v`).
fn report_capture(planned: &Sizes, selected: &[Selected], capture: &Capture) {
    let (rings, ids) = (capture.ring_count(), capture.ids().len());
    let (ring, buffer) = (capture.ring_bytes() >> 10, planned.buffer.bytes() >> 20);
    output::say(format_args!(
        "{} events, {ids} descriptors, {rings} rings of {ring} KiB, at most {buffer} MiB of backlog",
        selected.len()
    ));
    selected.iter().filter_map(|event| event.note.as_ref()).for_each(output::say);
}

/// Opens a capture with rings of the default size. If the kernel does not allow that much locked memory, tries half the
/// size again and again, down to one page. The allowed memory depends on how much memory other processes of the user
/// have locked (`perf_mmap()` in kernel/events/core.c). If the plan sets a ring size, tries no smaller size.
pub fn open_with_rings_that_fit<T>(
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
                if let Samples::Kept { ring_bytes } = &mut options.samples {
                    *ring_bytes = (*ring_bytes / 2).max(page_size());
                }
            }
            result => return result,
        }
    }
}

/// Returns whether the mappings of processes have to be reported. They are needed only if samples have user addresses, or
/// frames of interpreters, which are found in mapped files.
pub fn mappings(plan: &plan::Capture, requests: &[EventRequest]) -> Mappings {
    let stack = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let has_user_frames = |request: &EventRequest| {
        let sample_type = request.samples.sample_type;
        // The address in a tracepoint's sample is not shown: it is the address of the tracepoint in the kernel.
        let has_ip = sample_type & PERF_SAMPLE_IP != 0 && request.event.kind != PERF_TYPE_TRACEPOINT;
        request.callchain.is_some_and(|chain| chain.user == Frames::Sampled)
            || has_ip && !request.excluded.user
            || sample_type & stack == stack
    };
    let has_interpreters = plan.callchain.live_python() != plan::InterpreterFrameUse::No;
    if has_interpreters || requests.iter().any(has_user_frames) { Mappings::Delivered } else { Mappings::Ignored }
}

/// Returns the options of the capture. `wake` is an eventfd that wakes the reader of the capture.
pub fn options(plan: &plan::Capture, sizes: &Sizes, mappings: Mappings, wake: std::os::fd::RawFd) -> Options {
    Options {
        ring_bytes: sizes.ring,
        samples: Samples::Delivered,
        buffer: sizes.buffer.clone(),
        watermark_percent: plan.watermark.unwrap_or(25),
        clock: clock(plan),
        // A process may map code on one CPU and be sampled on another CPU. The mapping has to be delivered before the
        // sample.
        order: (plan.delivery_order() == plan::DeliveryOrder::Time || mappings == Mappings::Delivered)
            .then(RecordOrder::default),
        mappings,
        members: CommonMembers::Lean,
        side_band: SideBand {
            switches: side_band_records(plan.switches),
            namespaces: side_band_records(plan.namespaces),
            cgroups: side_band_records(plan.cgroups),
        },
        begin: EventStart::AtOnce,
        switching: Switching::Once,
        sampling_limit: plan.sampling_limit,
        own_threads: own_threads(plan),
        ends_with: None,
        ends_with_cgroups: cgroups(names_of_cgroups(plan)).unwrap_or_default(),
        idle: match plan.callchain.live_python() {
            plan::InterpreterFrameUse::No => IdleRounds::Rare,
            // Names are read from processes, which may end soon.
            plan::InterpreterFrameUse::Yes | plan::InterpreterFrameUse::Only => IdleRounds::Frequent,
        },
        wake: Some(wake),
    }
}

/// Returns the names of the selected cgroups, as the user typed them.
pub fn names_of_cgroups(plan: &plan::Capture) -> &[String] {
    match (&plan.target, &plan.selected_tasks) {
        (plan::Target::Cgroups { cgroups, .. }, _) | (_, Some(plan::Target::Cgroups { cgroups, .. })) => cgroups,
        _ => &[],
    }
}

/// Returns whether perf-prof's own threads are traced. If the user names tasks, these tasks are always traced.
pub fn own_threads(plan: &plan::Capture) -> OwnThreads {
    match plan.target {
        _ if plan.own_threads == OwnThreads::StartedLeftOut => plan.own_threads,
        plan::Target::Processes(_) | plan::Target::Threads(_) | plan::Target::Workload(_) => OwnThreads::Included,
        plan::Target::AllCpus | plan::Target::Cpus(_) | plan::Target::Cgroups { .. } => plan.own_threads,
    }
}

/// Returns who writes the samples of an event. A BPF program writes them if they contain strings that the kernel does
/// not record, or if the program pairs calls.
fn writer(event: &Selected) -> Result<Writer> {
    if event.request.writer != Writer::Kernel || !event.needs_program() {
        return Ok(event.request.writer);
    }
    if event.spec.grouping != Grouping::Alone {
        bail!("{}: an event with str= cannot be in a group, because a program writes its samples", event.spec.selector);
    }
    Ok(Writer::Program)
}

/// Returns the task that an event belongs to. An event of the scheduler belongs to the task in its field `pid`, because the
/// event happens while another task runs: for example, when the task is woken up. Interrupts and moves between cgroups
/// belong to no task. Otherwise interrupts of perf-prof and the moves that it makes would be left out.
fn owner(event: &Selected) -> Owner {
    let Some(format) = event.format.tracepoint() else { return Owner::Task };
    match &*format.system {
        "sched" if &*format.name == "sched_switch" => Owner::NoTask,
        "sched" => format.field("pid").map_or(Owner::Task, |field| Owner::Field(field.offset)),
        _ if is_move(format) || is_interrupt(format) => Owner::NoTask,
        _ => Owner::Task,
    }
}

/// Returns whether an event happens in interrupts only. Samples say whether they were taken in an interrupt, but some
/// kernels do not let BPF programs know it.
fn is_interrupt(format: &EventFormat) -> bool {
    const OF_TIMERS: [&str; 4] =
        ["hrtimer_expire_entry", "hrtimer_expire_exit", "timer_expire_entry", "timer_expire_exit"];
    match &*format.system {
        "irq" => &*format.name != "softirq_raise",
        "irq_vectors" => !format.name.starts_with("vector_"),
        "timer" => OF_TIMERS.contains(&&*format.name),
        _ => false,
    }
}

fn is_move(format: &EventFormat) -> bool {
    (&*format.system, &*format.name) == MOVES
}

fn side_band_records(switch: Switch) -> SideBandRecords {
    match switch {
        Switch::On => SideBandRecords::Delivered,
        Switch::Off => SideBandRecords::Ignored,
    }
}

/// Returns the clock that `_time` is read from.
pub fn clock(plan: &plan::Capture) -> Clock {
    match plan.clock {
        plan::Clock::Perf => Clock::Perf,
        plan::Clock::Monotonic => Clock::Monotonic,
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_capture::{Excluded, PerfEvent};

    use super::*;

    fn clock(sample_type: u64, excluded: Excluded) -> EventRequest {
        let mut request = EventRequest::new("clock", PerfEvent { kind: 1, ..PerfEvent::default() });
        (request.samples.sample_type, request.excluded) = (sample_type, excluded);
        request
    }

    #[test]
    fn a_cgroup_in_another_selected_one_is_not_traced_twice() {
        let folders = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let kept = |names: &[&str]| outermost(folders(names));
        assert_eq!(kept(&["/c/a/x", "/c/b", "/c/a", "/c/ab", "/c/b"]), folders(&["/c/b", "/c/a", "/c/ab"]));
        assert_eq!(kept(&["/c", "/c/a"]), folders(&["/c"]));
    }

    /// If rings did not become smaller, a user who may lock only little memory would have to specify a ring size for every
    /// recording.
    #[test]
    fn rings_become_smaller_until_they_may_be_locked() {
        let refused = |kib| {
            let source = std::io::Error::from_raw_os_error(libc::EPERM);
            CaptureError::Mmap { kib, place: String::new(), mlock_kb: None, source }
        };
        let open = |plan: &plan::Capture, room: usize| {
            let options = options(plan, &sizes(plan, &[]), Mappings::Ignored, -1);
            open_with_rings_that_fit(plan, options, |options| match options.ring_bytes {
                bytes if bytes > room => Err(refused(bytes / 1024)),
                bytes => Ok(bytes),
            })
        };
        let plan = plan::Capture::default();
        assert_eq!(open(&plan, 100 << 10).unwrap(), 64 << 10);
        assert!(open(&plan, 0).is_err());
        let asked = plan::Capture { ring_size: Some(perf_prof_format::spec::parse_pages("1M").unwrap()), ..plan };
        assert!(open(&asked, 100 << 10).is_err());
    }

    /// A sample with a copy of the stack has 9 KiB.
    #[test]
    fn rings_have_room_for_bursts_of_large_samples_and_stay_small_in_all() {
        let ring = |rings, largest, available| default_ring(rings, largest, available) >> 10;
        let (plenty, mib) = (usize::MAX, 1 << 20);
        assert_eq!([2, 256, 10_000].map(|rings| ring(rings, 200, plenty)), [2048, 1024, 512]);
        assert_eq!([2, 16, 32, 256].map(|rings| ring(rings, 9 << 10, plenty)), [16 << 10, 16 << 10, 8 << 10, 1024]);
        assert_eq!(ring(2, 65_535, plenty), 64 << 10);
        assert_eq!([100, 10, 0].map(|available| ring(2, 9 << 10, available * mib)), [4096, 512, 64]);
    }

    #[test]
    fn mappings_are_recorded_for_user_addresses_and_sampled_stacks() {
        let tracepoint = EventRequest::tracepoint("sched:sched_switch", 300);
        let (all, kernel) = (Excluded::default(), Excluded { user: true, ..Excluded::default() });
        let plan = plan::Capture::default();
        let told = |request: &EventRequest| mappings(&plan, &[tracepoint.clone(), request.clone()]);
        assert_eq!(told(&tracepoint), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_IP, all)), Mappings::Delivered);
        assert_eq!(told(&clock(PERF_SAMPLE_IP, kernel)), Mappings::Ignored);
        assert_eq!(told(&clock(0, all)), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_REGS_USER, kernel)), Mappings::Ignored);
        assert_eq!(told(&clock(PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER, kernel)), Mappings::Delivered);
        let callchain = Callchain { kernel: Frames::Sampled, user: Frames::Sampled, max_stack: None };
        assert_eq!(told(&EventRequest { callchain: Some(callchain), ..tracepoint.clone() }), Mappings::Delivered);
        let callchain = plan.callchain.with_python(Some(plan::InterpreterFrameUse::Yes));
        assert_eq!(mappings(&plan::Capture { callchain, ..plan }, &[tracepoint]), Mappings::Delivered);
    }
}
