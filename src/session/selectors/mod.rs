//! Resolves selectors of events other than tracepoints to requests. There are built-in sources (one file each), events
//! with a name in perf, PMU events, breakpoints and dynamic probes.

mod breakpoint;
pub mod devices;
mod error;
mod filters;
mod machine;
mod options;
mod perf_event;
mod pmu;
mod probe;
mod profile;
mod samples;
mod system_calls;

use perf_prof_capture::{EventRequest, Excluded, Frames, PerfEvent, Sampling};
use perf_prof_format::{
    abi::*,
    spec::{EventGroup, EventKind, EventSpec, Modifiers, NamedEvent, Precise, Rate, named_event, perf_event_names},
};

pub use self::{
    error::SourceError,
    filters::{covers, union_of_filters},
    machine::{Machine, RunningMachine},
    probe::{
        FileError, FoundProbe, LocationError, Place, ProbeError, ResolvedProbe, StaticField, functions, made_format,
        probe, probe_format, static_probes, with_name,
    },
    system_calls::{SYSTEM_CALLS, call_with_options, is_system_call, parse, system_call_names, with_system_calls},
};

/// A built-in event source.
pub struct BuiltIn {
    /// The name of the source in selectors.
    pub name: &'static str,
    /// The events that stand for the source in a recording without an event of the source's name. The first of these
    /// events that was recorded is used.
    pub recorded_as: &'static [NamedEvent],
    /// Returns the source for these options.
    source: fn(options: &str, machine: &dyn Machine) -> Result<Source, SourceError>,
}

/// The built-in event sources.
pub const BUILT_IN: &[BuiltIn] = &[profile::BUILT_IN];

/// Returns the built-in source of this name.
pub fn built_in(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|source| source.name == name)
}

/// An event other than a tracepoint, ready to be captured.
#[derive(Clone, Debug)]
pub struct Source {
    /// The request to the kernel. Settings for all events of a run (CPUs, call chains) are added to it later.
    pub request: EventRequest,
    /// The callchain settings in the source's own options.
    pub stacks: Stacks,
    /// The tasks to which the source's own options limit it.
    pub tasks: Tasks,
    /// A note for `-v` that says which event was chosen.
    pub note: Option<String>,
    /// The rate in the source's own options.
    rate: Option<Rate>,
    /// The number of samples after which the run ends (`-N` in the source's own options).
    pub limit: Option<u64>,
}

/// The callchain settings in a source's own options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// True if the options request callchains.
    pub asked: bool,
    /// Says if callchains have frames of user space; `None` if the options do not say.
    pub user: Option<Frames>,
    /// Says if callchains have frames of the kernel; `None` if the options do not say.
    pub kernel: Option<Frames>,
}

/// The tasks in a source's own options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tasks {
    /// The options give no tasks: the source has the same target as the other events.
    #[default]
    Inherit,
    /// The processes of `-p`.
    Processes(Vec<u32>),
    /// The threads of `-t`.
    Threads(Vec<u32>),
}

/// The default rate of clocks and hardware events, in samples per second. A round number could run in step with work
/// that a program does every millisecond.
const FREQUENCY: Sampling = Sampling::Frequency(997);

/// Resolves the selector of an event other than a tracepoint or a probe. `rate` is used if the selector has no rate of
/// its own.
pub fn source(spec: &EventSpec, rate: Option<Rate>, machine: &dyn Machine) -> Result<Source, SourceError> {
    let terms = |option: &Option<String>| option.clone().unwrap_or_default();
    let mut source = match &spec.kind {
        EventKind::Source { name, option, modifiers } => {
            let built_in = built_in(name);
            let mut source = match built_in {
                Some(built_in) => (built_in.source)(&terms(option), machine)?,
                None if name == breakpoint::NAME => breakpoint::with_options(&terms(option), machine)?,
                None => perf_event::source(name, option.as_deref(), machine)?,
            };
            modify(&mut source.request, *modifiers, machine);
            if built_in.is_none() && !modifiers.is_empty() {
                source.request.name += &format!(":{modifiers}");
            }
            source
        }
        EventKind::Breakpoint { breakpoint, option, modifiers } => {
            let mut source = breakpoint::source(*breakpoint, &terms(option), machine)?;
            modify(&mut source.request, *modifiers, machine);
            source
        }
        EventKind::Tracepoint { .. } | EventKind::Probe(_) | EventKind::Span(_) => {
            return Err(SourceError::Unknown { name: spec.selector.clone() });
        }
    };
    let Source { request, stacks, rate: own, .. } = &mut source;
    request.samples.sample_type |= PERF_SAMPLE_IP;
    for name in &spec.attrs.sample {
        samples::add(name, request, stacks)?;
    }
    request.sampling = match (own.or(spec.attrs.rate).or(rate), request.sampling) {
        (Some(rate), _) => sampling(rate, machine)?,
        // The maximum may be lower than the default: the kernel lowers it if taking samples needs too much time.
        (None, Sampling::Frequency(default)) => {
            Sampling::Frequency(machine.max_sample_rate().map_or(default, |max| default.min(max)))
        }
        (None, default) => default,
    };
    Ok(source)
}

impl Source {
    fn new(name: &str, event: PerfEvent, default: Sampling) -> Source {
        let request = EventRequest { sampling: default, ..EventRequest::new(name, event) };
        Source { request, stacks: Stacks::default(), tasks: Tasks::Inherit, note: None, rate: None, limit: None }
    }
}

fn sampling(rate: Rate, machine: &dyn Machine) -> Result<Sampling, SourceError> {
    Ok(match rate {
        Rate::Period(period) => Sampling::Period(period),
        Rate::Frequency(frequency) => Sampling::Frequency(frequency),
        Rate::MaxFrequency => Sampling::Frequency(machine.max_sample_rate().ok_or(SourceError::MaxSampleRate)?),
    })
}

/// Adds the registers that samples of `page-faults` and `breakpoint` have in the C implementation.
fn add_registers(source: &mut Source) -> Result<(), SourceError> {
    ["regs_user", "regs_intr"]
        .into_iter()
        .try_for_each(|name| samples::add(name, &mut source.request, &mut source.stacks))
}

/// Applies the modifiers (the letters after the event's name) as perf does. Selecting user space, the kernel or the
/// hypervisor excludes those that are not selected. Hardware events exclude guests unless guests are selected.
fn modify(request: &mut EventRequest, modifiers: Modifiers, machine: &dyn Machine) {
    let Modifiers { user, kernel, hv, guest, host, not_idle, precise } = modifiers;
    let places = user || kernel || hv;
    let hardware = [PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW].contains(&request.event.kind);
    let Excluded { user: no_user, kernel: no_kernel, hv: no_hv, idle, .. } = request.excluded;
    request.excluded = Excluded {
        user: no_user || places && !user,
        kernel: no_kernel || places && !kernel,
        hv: no_hv || places && !hv,
        host: guest && !host,
        guest: if guest || host { !guest } else { hardware },
        idle: idle || not_idle,
    };
    request.precise = match precise {
        Precise::Any => 0,
        Precise::Level(level) => level,
        Precise::Most => machine.max_precise(),
    };
}

/// Returns the names of all events other than tracepoints that this machine may have, each with its kind.
pub fn names(machine: &dyn Machine) -> Vec<(String, &'static str)> {
    let built_in = BUILT_IN.iter().map(|source| (source.name.to_owned(), "built-in source"));
    let named = perf_event_names().map(|(name, group)| match group {
        EventGroup::Software => (name, "software event"),
        EventGroup::Hardware => (name, "hardware event"),
        EventGroup::Cache => (name, "hardware cache event"),
    });
    let pmus = machine.pmus().into_iter().flat_map(|name| match probe::names(&name) {
        [] => vec![(name + "//", "PMU")],
        probes => probes.iter().map(|&(name, what)| (name.to_owned(), what)).collect(),
    });
    built_in.chain(named).chain(pmus).collect()
}

/// Returns the events other than tracepoints that this machine has, each with its kind. Hardware events are included
/// only if the hardware can sample them. The events in the lists of PMUs are included too.
pub fn available(machine: &dyn Machine) -> Vec<(String, &'static str)> {
    let mut events = names(machine);
    events.retain(|(name, _)| match named_event(name) {
        Some(NamedEvent { kind: PERF_TYPE_SOFTWARE, .. }) | None => true,
        Some(NamedEvent { kind, config }) => machine.can_sample(kind, config),
    });
    for pmu in machine.pmus() {
        let named = machine.pmu(&pmu).ok().flatten().map(|pmu| pmu.events).unwrap_or_default();
        events.extend(named.into_iter().map(|(event, _)| (format!("{pmu}/{event}/"), "PMU event")));
    }
    events
}

#[cfg(test)]
mod tests;
