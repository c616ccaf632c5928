//! Selectors to the events of this kernel.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};

use super::plan::{Capture, Target};
use crate::{
    abi::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE},
    capture::{EventRequest, PerfEvent},
    event::{EventType, Format},
    profiler::{self, Machine, ProbeEvent, RunningMachine, SourceError, Stacks, Tasks},
    record::SampleLayout,
    spec::{Attrs, EventKind, EventSpec, Probe, handler_name, near},
    sys::tracefs::Tracefs,
    tracefs::EventFormat,
};

/// An event that was selected, with what its samples hold and what is asked of the kernel for it.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The selector that it came from.
    pub spec: EventSpec,
    /// What its samples hold.
    pub format: Format,
    /// What is asked of the kernel; what holds for all events (CPUs, call chains) is added when it is opened.
    pub request: EventRequest,
    /// What its own options say of call chains.
    pub stacks: Stacks,
    /// Where it happens, so what its call chains have to show if nobody says.
    pub place: Place,
    /// What `-v` shows of it.
    pub note: Option<String>,
}

/// Where an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the kernel: tracepoints and their like.
    Kernel,
    /// In programs, or in either.
    Anywhere,
}

impl Selected {
    /// The event type with this layout.
    pub fn event_type(&self, layout: SampleLayout) -> EventType {
        let Attrs { alias, max_stack, .. } = &self.spec.attrs;
        EventType { alias: alias.clone(), format: self.format.clone(), layout, max_stack: *max_stack }
    }

    fn tracepoint(spec: &EventSpec, format: Arc<EventFormat>, place: Place) -> Selected {
        let name = format!("{}:{}", format.system, format.name);
        let request = EventRequest::tracepoint(name, format.id);
        let (spec, format) = (spec.clone(), Format::Tracepoint(format));
        Selected { spec, format, request, stacks: Stacks::default(), place, note: None }
    }
}

/// Resolves the selectors on this machine, in the order in which they stand, for events that are sampled.
pub fn select(plan: &Capture, tracefs: &Tracefs) -> Result<Vec<Selected>> {
    let selected = resolve(plan, tracefs)?;
    all_differ(&selected)?;
    Ok(selected)
}

/// The same, for events that are only counted: whose samples are whose does not matter.
pub fn resolve(plan: &Capture, tracefs: &Tracefs) -> Result<Vec<Selected>> {
    let mut selected = Vec::new();
    for spec in &plan.events {
        let (system, name) = match &spec.kind {
            EventKind::Tracepoint { system, name } => (system, name),
            EventKind::Probe(probe) => {
                selected.push(self::probe(plan, spec, probe)?);
                continue;
            }
            EventKind::Source { .. } | EventKind::Breakpoint { .. } => {
                selected.push(source(plan, spec, tracefs)?);
                continue;
            }
        };
        if spec.is_pattern() {
            let all = tracefs.events()?;
            let matching: Vec<_> = all.iter().filter(|(system, name)| spec.matches(system, name)).collect();
            if matching.is_empty() {
                bail!("no event of this kernel matches {system}:{name}; `perf-prof list` shows them all");
            }
            let mut spec = spec.clone();
            for (system, name) in matching {
                match tracepoint(&spec, tracefs, system, name) {
                    // Somebody's probe that was in the list and has been removed since.
                    Err(_) if !tracefs.has_event(system, name) => continue,
                    found => selected.push(found?),
                }
                spec.grouping = spec.grouping.of_next();
            }
        } else {
            if !tracefs.has_event(system, name) {
                bail!("{}", unknown(system, name, &tracefs.events()?));
            }
            selected.push(tracepoint(spec, tracefs, system, name)?);
        }
    }
    Ok(selected)
}

/// Whether occurrences of the event are counted by the kernel's software. It then prepares one sample for all events that
/// count them, and the first one's id stays in it (`do_perf_sw_event()` and `perf_prepare_sample()` in
/// kernel/events/core.c): all come as one of them. Clocks are timers of their own.
fn is_counted(event: &Selected) -> bool {
    let PerfEvent { kind, config, .. } = event.request.event;
    kind == PERF_TYPE_SOFTWARE && ![PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].contains(&config)
}

fn all_differ(selected: &[Selected]) -> Result<()> {
    let mut seen: Vec<&Selected> = Vec::new();
    for event in selected.iter().filter(|event| is_counted(event)) {
        if let Some(other) = seen.iter().find(|other| other.request.event.config == event.request.event.config) {
            let (one, other) = (&event.spec.selector, &other.spec.selector);
            bail!(
                "{other} and {one} are the same software event, which the kernel hands to one of them only; select it once"
            );
        }
        seen.push(event);
    }
    Ok(())
}

/// Whether there may be samples with an id that is not ours: when another program counts the same software event, they have
/// the id of its event.
pub fn may_have_strays(selected: &[Selected]) -> bool {
    selected.iter().any(is_counted)
}

/// The event of such samples. `None` where more than one of ours may be meant.
pub fn stray(selected: &[Selected]) -> Option<usize> {
    let mut counted = selected.iter().enumerate().filter(|(_, event)| is_counted(event));
    match (counted.next(), counted.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// Resolves a dynamic probe. A file is what it is for the processes that are traced.
fn probe(plan: &Capture, spec: &EventSpec, probe: &Probe) -> Result<Selected> {
    let processes = match &plan.target {
        Target::Processes(ids) | Target::Threads(ids) => ids.as_slice(),
        _ => &[],
    };
    let found = profiler::probe(probe, processes, &RunningMachine);
    let ProbeEvent { request, format, note } = found.map_err(|error| anyhow!("{}: {error}", spec.selector))?;
    let (spec, format) = (spec.clone(), Format::Tracepoint(Arc::new(format)));
    let place = if probe.kind.is_user() { Place::Anywhere } else { Place::Kernel };
    Ok(Selected { spec, format, request, stacks: Stacks::default(), place, note })
}

/// Resolves what is neither a tracepoint nor a probe.
fn source(plan: &Capture, spec: &EventSpec, tracefs: &Tracefs) -> Result<Selected> {
    let machine = RunningMachine;
    let source = match profiler::source(spec, plan.rate, &machine) {
        Ok(source) => source,
        Err(SourceError::Unknown { name }) => bail!("{}", unknown_source(&name, &machine, tracefs)),
        Err(error) => return Err(error.into()),
    };
    // All events of a run share their rings, which belong to CPUs or threads.
    let name = &source.request.name;
    match (&source.tasks, &plan.target) {
        (Tasks::Inherit, _) => {}
        (Tasks::Processes(own), Target::Processes(all)) if own == all => {}
        (Tasks::Threads(own), Target::Threads(all)) if own == all => {}
        (Tasks::Processes(_), _) => {
            bail!("{name}: -p holds for all events of a run: give it to perf-prof, as `-p PID`")
        }
        (Tasks::Threads(_), _) => bail!("{name}: -t holds for all events of a run: give it to perf-prof, as `-t TID`"),
    }
    let format = source.format();
    let (spec, place) = (spec.clone(), Place::Anywhere);
    Ok(Selected { spec, format, request: source.request, stacks: source.stacks, place, note: source.note })
}

fn unknown_source(name: &str, machine: &dyn Machine, tracefs: &Tracefs) -> String {
    // Without tracefs there are still the others.
    let tracepoints = tracefs.events().unwrap_or_default();
    let mut names: Vec<String> = tracepoints.iter().map(|(system, name)| format!("{system}:{name}")).collect();
    names.extend(profiler::names(machine).into_iter().map(|(name, _)| name));
    match near(name, names.iter().map(String::as_str))[..] {
        [] => format!(
            "unknown event {name}: neither a built-in source ({}) nor an event that perf has a name for, and a tracepoint is \
             written system:name; `perf-prof list` shows them all",
            profiler::BUILT_IN.map(|(name, _)| name).join(", ")
        ),
        ref near => format!("unknown event {name}; did you mean {}?", near.join(" or ")),
    }
}

fn tracepoint(spec: &EventSpec, tracefs: &Tracefs, system: &str, name: &str) -> Result<Selected> {
    let text = tracefs.format(system, name)?;
    let format =
        EventFormat::parse(system, &text).map_err(|error| anyhow!("the format of {system}:{name}: {error}"))?;
    // Probes that somebody has defined look alike, whether they are in the kernel or in a program.
    let is_probe = ["__probe_ip", "__probe_func"].iter().any(|field| format.field(field).is_some());
    let place = if is_probe && tracefs.is_uprobe(system, name) { Place::Anywhere } else { Place::Kernel };
    Ok(Selected::tracepoint(spec, Arc::new(format), place))
}

fn unknown(system: &str, name: &str, all: &[(String, String)]) -> String {
    let typed = format!("{system}:{name}");
    let mut names: Vec<String> = all.iter().map(|(system, name)| format!("{system}:{name}")).collect();
    // The system may be the wrong one, and the name right.
    let elsewhere = all.iter().filter(|(_, n)| n == name).map(|(system, name)| format!("{system}:{name}"));
    let mut guesses: Vec<String> = elsewhere.collect();
    if guesses.is_empty() {
        names.extend(profiler::names(&RunningMachine).into_iter().map(|(name, _)| name));
        guesses = near(&typed, names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
    }
    match guesses.as_slice() {
        [] => format!("unknown event {typed}; `perf-prof list '{system}:*'` shows what there is"),
        guesses => format!("unknown event {typed}; did you mean {}?", guesses.join(" or ")),
    }
}

/// Of functions that look like handlers, those that no selected event calls though one of `all` events is called like
/// that, each with the reason.
pub fn unused_handlers(
    names: &[String],
    selected: &[EventType],
    all: &dyn Fn() -> Vec<(String, String)>,
) -> Vec<(String, String)> {
    let open: Vec<&String> = names.iter().filter(|name| !selected.iter().any(|e| e.handler_name() == **name)).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let events = all();
    let event_of = |name: &str| events.iter().find(|(system, event)| handler_name(system, event) == *name);
    let why = |(system, name): &(String, String)| {
        let aliased = selected.iter().find(|e| e.real_name() == format!("{system}:{name}"));
        match aliased {
            Some(event) => format!("with its alias, {system}:{name} calls {}()", event.handler_name()),
            None => format!("{system}:{name} is not selected (-e {system}:{name})"),
        }
    };
    open.into_iter().filter_map(|name| event_of(name).map(|event| (name.clone(), why(event)))).collect()
}
