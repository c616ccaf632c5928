//! Events that are no tracepoints, from what was asked for to what is opened: built-in sources, one file each, perf's named
//! events, PMUs, breakpoints and dynamic probes. Knows nothing of Python.

mod breakpoint;
mod error;
mod machine;
mod perf_event;
mod pmu;
mod probe;
mod profile;
mod samples;

pub use self::{
    error::SourceError,
    machine::{Machine, RunningMachine},
    probe::{FileError, PlaceError, ProbeError, ProbeEvent, format_text, functions, probe},
};
use crate::{
    abi::*,
    capture::{EventRequest, Excluded, Frames, PerfEvent, Sampling},
    event::Format,
    spec::{EventKind, EventSpec, Group, Modifiers, NamedEvent, Precise, Rate, named_event, perf_event_names},
};

/// The built-in event sources: name and what it does.
pub const BUILT_IN: [(&str, &str); 1] = [("profile", "samples what the CPUs execute")];

/// An event that is no tracepoint, ready to be captured.
#[derive(Clone, Debug)]
pub struct Source {
    /// What is asked of the kernel. What holds for all events of a run (their CPUs, call chains) is added to it.
    pub request: EventRequest,
    /// Call chains.
    pub stacks: Stacks,
    /// The tasks that it is limited to by its own options.
    pub tasks: Tasks,
    /// What `-v` shows: which event was chosen.
    pub note: Option<String>,
    /// How often its own options ask it to be sampled.
    rate: Option<Rate>,
}

/// What a source's own options say of call chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// They are asked for.
    pub asked: bool,
    /// With frames of user space; `None` where nothing was said.
    pub user: Option<Frames>,
    /// With frames of the kernel; `None` where nothing was said.
    pub kernel: Option<Frames>,
}

/// Tasks that a source's own options name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tasks {
    /// None: as all events.
    #[default]
    Inherit,
    /// `-p`.
    Processes(Vec<u32>),
    /// `-t`.
    Threads(Vec<u32>),
}

/// How often the clocks and the hardware's counters are sampled when nobody says: 997 times a second. Unlike a round
/// number, that does not run in step with what a program does every millisecond.
const FREQUENCY: Sampling = Sampling::Frequency(997);

/// Resolves a selector that is neither a tracepoint's nor a probe's. `rate` is what all such events are asked to be
/// sampled at, where they do not say themselves.
pub fn source(spec: &EventSpec, rate: Option<Rate>, machine: &dyn Machine) -> Result<Source, SourceError> {
    let terms = |option: &Option<String>| option.clone().unwrap_or_default();
    let mut source = match &spec.kind {
        EventKind::Source { name, option, modifiers } if name == "profile" => {
            let mut source = profile::source(&terms(option), machine)?;
            modify(&mut source.request, *modifiers, machine);
            source
        }
        EventKind::Source { name, option, modifiers } => {
            let mut source = perf_event::source(name, option.as_deref(), machine)?;
            modify(&mut source.request, *modifiers, machine);
            if !modifiers.is_empty() {
                source.request.name += &format!(":{modifiers}");
            }
            source
        }
        EventKind::Breakpoint { breakpoint, option, modifiers } => {
            let mut source = breakpoint::source(*breakpoint, &terms(option))?;
            modify(&mut source.request, *modifiers, machine);
            source
        }
        EventKind::Tracepoint { .. } | EventKind::Probe(_) => {
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
        // The kernel lowers the limit by itself where samples cost it too much.
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
        Source { request, stacks: Stacks::default(), tasks: Tasks::Inherit, note: None, rate: None }
    }

    /// What its samples are called.
    pub fn format(&self) -> Format {
        Format::source(self.request.name.clone())
    }
}

fn sampling(rate: Rate, machine: &dyn Machine) -> Result<Sampling, SourceError> {
    Ok(match rate {
        Rate::Period(period) => Sampling::Period(period),
        Rate::Frequency(frequency) => Sampling::Frequency(frequency),
        Rate::MaxFrequency => Sampling::Frequency(machine.max_sample_rate().ok_or(SourceError::MaxSampleRate)?),
    })
}

/// What the letters behind the name say. As perf: whoever names a place excludes the others; and the hardware's counters
/// leave guests out, unless they are named.
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

/// The names of all events that are no tracepoints and that this machine may have, each with what it is.
pub fn names(machine: &dyn Machine) -> Vec<(String, &'static str)> {
    let built_in = BUILT_IN.iter().map(|&(name, _)| (name.to_owned(), "built-in source"));
    let named = perf_event_names().map(|(name, group)| match group {
        Group::Software => (name, "software event"),
        Group::Hardware => (name, "hardware event"),
        Group::Cache => (name, "hardware cache event"),
    });
    let pmus = machine.pmus().into_iter().flat_map(|name| match probe::names(&name) {
        [] => vec![(name + "//", "PMU")],
        probes => probes.iter().map(|&(name, what)| (name.to_owned(), what)).collect(),
    });
    built_in.chain(named).chain(pmus).collect()
}

/// The events that are no tracepoints and that this machine has, each with what it is: hardware events only where its
/// hardware can be sampled, and the events that its PMUs name.
pub fn there_are(machine: &dyn Machine) -> Vec<(String, &'static str)> {
    let mut events = names(machine);
    events.retain(|(name, _)| match named_event(name) {
        Some(NamedEvent { kind: PERF_TYPE_SOFTWARE, .. }) | None => true,
        Some(NamedEvent { kind, config }) => machine.samples(kind, config),
    });
    for pmu in machine.pmus() {
        let named = machine.pmu(&pmu).ok().flatten().map(|pmu| pmu.events).unwrap_or_default();
        events.extend(named.into_iter().map(|(event, _)| (format!("{pmu}/{event}/"), "PMU event")));
    }
    events
}

#[cfg(test)]
mod tests;
