//! Selectors to the events of a recording.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};

use super::{
    plan::{Callchain, Switch},
    replayed::Route,
};
use crate::{
    abi::{
        PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY, PERF_SAMPLE_CALLCHAIN,
        PERF_SAMPLE_READ, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
        PERF_TYPE_TRACEPOINT,
    },
    event::{EventType, Format, Sides},
    perfdata::{AttrFlag, RecordedEvent, Recording},
    spec::{EventKind, EventSpec, NamedEvent, Stack, named_event, near, perf_event_name},
    template,
    tracefs::Filter,
};

/// The events that were selected of a recording.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// In the order in which they were selected.
    pub types: Vec<EventType>,
    /// Of each attr, those that get its samples.
    pub routes: Vec<Vec<Route>>,
    /// The names of those that the script itself asks for and that were not recorded.
    pub lacking: Vec<String>,
    /// The names of those whose selectors ask for call chains that were not recorded.
    without_chains: Vec<String>,
}

/// Resolves the selectors; without any, all events that can have samples. The first `own` are the script's, which may
/// do without what was not recorded.
pub fn select(specs: &[EventSpec], own: usize, recording: &Recording) -> Result<Selected> {
    let formats: Vec<Format> = recording.events.iter().map(format).collect();
    let mut selected = Selected { routes: vec![Vec::new(); formats.len()], ..Selected::default() };
    if specs.is_empty() {
        for (attr, event) in recording.events.iter().enumerate().filter(|(_, event)| !is_dummy(event)) {
            selected.add(attr, event_type(event, &formats[attr], None), None);
        }
        if selected.types.is_empty() {
            bail!("{} has no events with samples", recording.name);
        }
    }
    let mut matching = specs.iter().map(|spec| matching(spec, recording, &formats)).collect::<Vec<_>>();
    for (spec, found) in specs.iter().zip(&mut matching).take(own).filter(|(_, found)| found.is_err()) {
        selected.lacking.push(name(spec));
        *found = Ok(Vec::new());
    }
    let matching = matching.into_iter().collect::<Result<Vec<_>>>()?;
    for (spec, attrs) in specs.iter().zip(paired(matching, &formats)) {
        for attr in attrs {
            let filter = filter(spec, &formats[attr])?;
            let event = event_type(&recording.events[attr], &formats[attr], Some(spec));
            let asked = spec.attrs.stack == Stack::On || spec.attrs.max_stack.is_some();
            if asked && !has_chains(&event) {
                selected.without_chains.push(event.real_name());
            }
            selected.add(attr, event, Some((spec, filter)));
        }
    }
    Ok(selected)
}

/// The attrs of the events that a selector names; at least one.
fn matching(spec: &EventSpec, recording: &Recording, formats: &[Format]) -> Result<Vec<usize>> {
    let mut matching: Vec<usize> = (0..formats.len()).filter(|&attr| matches(spec, &formats[attr])).collect();
    if matching.is_empty() && is_profile(spec) {
        let of = |wanted| (0..formats.len()).filter(|&attr| counts(&recording.events[attr], wanted)).collect();
        // Their periods do not add up.
        matching = [CYCLES, CLOCK].map(of).into_iter().find(|attrs: &Vec<usize>| !attrs.is_empty()).unwrap_or_default();
    }
    if matching.is_empty() {
        bail!("{}", unknown(spec, recording, formats));
    }
    Ok(matching)
}

/// Where as many selectors name an event as the recording has attrs of it, they are those that it was recorded by, in their
/// order, and each has its own. Otherwise each selector has all.
fn paired(matching: Vec<Vec<usize>>, formats: &[Format]) -> Vec<Vec<usize>> {
    let mut attrs_of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (attr, format) in formats.iter().enumerate() {
        attrs_of.entry(format.name()).or_default().push(attr);
    }
    let mut paired = matching.clone();
    for attrs in attrs_of.values().filter(|attrs| attrs.len() > 1) {
        let naming: Vec<usize> = (0..matching.len()).filter(|&spec| matching[spec].contains(&attrs[0])).collect();
        if naming.len() == attrs.len() {
            for (&spec, own) in naming.iter().zip(attrs) {
                paired[spec].retain(|attr| attr == own || !attrs.contains(attr));
            }
        }
    }
    paired
}

impl Selected {
    fn add(&mut self, attr: usize, event: EventType, limits: Option<(&EventSpec, Option<Filter>)>) {
        let (cpus, filter) = limits.map_or((None, None), |(spec, filter)| (spec.attrs.cpus.clone(), filter));
        self.routes[attr].push(Route { event: self.types.len(), cpus, filter });
        self.types.push(event);
    }

    /// What is to be said of call chains that are asked for and were not recorded, or without the frames that are asked for.
    pub fn missing_chains(&self, asked: &Callchain, recording: &Recording) -> Vec<String> {
        let Callchain { every_event, user, kernel, .. } = *asked;
        let is_asked = [Some(every_event), user, kernel].contains(&Some(Switch::On));
        let of_all = self.types.iter().filter(|event| !has_chains(event)).map(EventType::real_name);
        let names: Vec<String> = if is_asked { of_all.collect() } else { self.without_chains.clone() };
        let mut missing = vec![("call chains", names)];
        let routes = recording.events.iter().zip(&self.routes);
        let events: Vec<_> = routes
            .flat_map(|(event, routes)| routes.iter().map(move |route| (event, &self.types[route.event])))
            .collect();
        for (what, asked, excluded, instead) in [
            ("user frames", user, AttrFlag::ExcludeCallchainUser, PERF_SAMPLE_STACK_USER),
            ("kernel frames", kernel, AttrFlag::ExcludeCallchainKernel, 0),
        ] {
            // What was copied of a stack is unwound, whatever the kernel has left out.
            let lacks = |recorded: &RecordedEvent, event: &EventType| {
                has_chains(event) && recorded.attr.has(excluded) && event.layout.format.sample_type & instead == 0
            };
            let lacking = events.iter().filter(|(recorded, event)| asked == Some(Switch::On) && lacks(recorded, event));
            missing.push((what, lacking.map(|(_, event)| event.real_name()).collect()));
        }
        missing.iter_mut().for_each(|(_, names)| names.dedup());
        let of_some = missing.iter().filter(|(_, names)| !names.is_empty());
        let text = |(what, names): &(&str, Vec<String>)| {
            format!(
                "{what} of {} were not recorded, so there are none: `perf record -g` records them",
                names.join(", ")
            )
        };
        of_some.map(text).collect()
    }

    /// Of each attr, whether somebody gets its samples; `None` where no sample has to be left out.
    pub fn attrs(&self, recording: &Recording) -> Option<Vec<bool>> {
        let wanted: Vec<bool> = self.routes.iter().map(|routes| !routes.is_empty()).collect();
        let mut unwanted = recording.events.iter().zip(&wanted).filter(|(_, wanted)| !**wanted);
        // A sample that holds counters is one of other events too, those of its group.
        let holds_counters = |event: &RecordedEvent| event.attr.format.sample_type & PERF_SAMPLE_READ != 0;
        let needed = unwanted.any(|(event, _)| !is_dummy(event)) && !recording.events.iter().any(holds_counters);
        needed.then_some(wanted)
    }
}

/// The sides of recorded call chains that are shown.
pub fn sides(asked: &Callchain) -> Result<Sides> {
    Ok(match (asked.kernel, asked.user) {
        (Some(Switch::Off), Some(Switch::Off)) => {
            bail!("call chains without kernel frames and without user frames are empty")
        }
        (Some(Switch::Off), _) => Sides::User,
        (_, Some(Switch::Off)) => Sides::Kernel,
        _ => Sides::Both,
    })
}

/// Whether its samples have call chains, or what they are unwound from.
fn has_chains(event: &EventType) -> bool {
    const STACK: u64 = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let sample_type = event.layout.format.sample_type;
    sample_type & PERF_SAMPLE_CALLCHAIN != 0 || sample_type & STACK == STACK
}

/// Whether it is there for its side-band only: perf adds it to every recording of a whole machine.
fn is_dummy(event: &RecordedEvent) -> bool {
    (event.attr.kind, event.attr.config) == (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY.into())
}

/// The type of an event; what the selector does not say of call chains stands in the recording.
fn event_type(event: &RecordedEvent, format: &Format, spec: Option<&EventSpec>) -> EventType {
    let asked = spec.and_then(|spec| spec.attrs.max_stack);
    let max_stack = asked.or((event.attr.sample_max_stack != 0).then_some(event.attr.sample_max_stack));
    let alias = spec.and_then(|spec| spec.attrs.alias.clone());
    let profile = spec.is_some_and(is_profile).then(|| Format::source(PROFILE.to_owned()));
    let format = profile.unwrap_or_else(|| format.clone());
    EventType { alias, format, layout: event.layout().of_readings(), max_stack }
}

/// What an event's samples hold. A tracepoint without a format is an event with raw data.
pub(super) fn format(event: &RecordedEvent) -> Format {
    if let Some(format) = &event.format {
        return Format::Tracepoint(format.clone());
    }
    let (kind, config) = (event.attr.kind, event.attr.config);
    let named = || perf_event_name(NamedEvent { kind, config });
    let unnamed = || match kind {
        PERF_TYPE_TRACEPOINT => format!("tracepoint-{config}"),
        _ => format!("event-{kind}-{config:x}"),
    };
    Format::source(event.name.clone().or_else(named).unwrap_or_else(unnamed))
}

/// The filter of a selector, for samples of this event.
fn filter(spec: &EventSpec, format: &Format) -> Result<Option<Filter>> {
    let (Some(text), Format::Tracepoint(format)) = (&spec.filter, format) else { return Ok(None) };
    let name = format!("{}:{}", format.system, format.name);
    let filter = Filter::parse(text, format).map_err(|error| {
        let fields = format.fields().iter().chain(format.common_fields());
        let fields: Vec<String> = fields.map(|field| format!("{} ({})", field.name, template::c_type(field))).collect();
        anyhow!("the filter `{text}` of {name}: {error}\nits fields: {}", fields.join(", "))
    })?;
    Ok(Some(filter))
}

/// The built-in event source. What it attaches live is of a recording what that was sampled by.
const PROFILE: &str = "profile";

fn is_profile(spec: &EventSpec) -> bool {
    matches!(&spec.kind, EventKind::Source { name, .. } if name == PROFILE)
}

/// What CPUs' time is sampled by, as type and config.
const CYCLES: (u32, u64) = (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
const CLOCK: (u32, u64) = (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);

/// Whether it is this event. Where CPUs are of several kinds, the upper half of the config says of which
/// (PERF_PMU_TYPE_SHIFT in include/uapi/linux/perf_event.h).
fn counts(event: &RecordedEvent, (kind, config): (u32, u64)) -> bool {
    (event.attr.kind, event.attr.config & u64::from(u32::MAX)) == (kind, config)
}

fn matches(spec: &EventSpec, format: &Format) -> bool {
    let name = match format {
        Format::Tracepoint(format) => return spec.matches(&format.system, &format.name),
        Format::Source(format) => &format.name,
    };
    // As it was typed for `perf record`, or without the letters that perf added.
    let plain = EventSpec { attrs: Default::default(), filter: None, ..spec.clone() }.to_string();
    *name == plain
        || match &spec.kind {
            // Options of `profile` say how to sample.
            EventKind::Source { name: wanted, .. } if wanted == PROFILE => name == PROFILE,
            EventKind::Source { name: wanted, option: None, modifiers } if modifiers.is_empty() => {
                let name = name.split_once([':', '/']).map_or(name.as_str(), |(name, _)| name);
                name == wanted || named_event(name).is_some_and(|event| named_event(wanted) == Some(event))
            }
            EventKind::Tracepoint { system, name: event } => *name == format!("{system}:{event}"),
            _ => false,
        }
}

/// What the event is called that a selector asks for.
fn name(spec: &EventSpec) -> String {
    match &spec.kind {
        EventKind::Tracepoint { system, name } => format!("{system}:{name}"),
        EventKind::Source { name, .. } => name.clone(),
        _ => spec.selector.clone(),
    }
}

fn unknown(spec: &EventSpec, recording: &Recording, formats: &[Format]) -> String {
    let names: Vec<String> = formats.iter().map(Format::name).collect();
    let recorded = &recording.name;
    let asked = name(spec);
    let shown = match &spec.kind {
        EventKind::Source { modifiers, .. } if !modifiers.is_empty() => format!("{asked}:{modifiers}"),
        _ => asked.clone(),
    };
    let mut names_there = names.clone();
    names_there.dedup();
    match near(&asked, names.iter().map(String::as_str))[..] {
        [] => {
            const SHOWN: usize = 8;
            let more = names_there.len().saturating_sub(SHOWN);
            names_there.truncate(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{shown} is not in {recorded}, which has {}{more}", names_there.join(", "))
        }
        ref near => format!("{shown} is not in {recorded}; did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parse_events;

    #[test]
    fn an_event_of_two_names_is_found_by_either() {
        let selects = |typed: &str, recorded: &str| {
            let specs = parse_events(typed).unwrap();
            specs.iter().any(|spec| matches(spec, &Format::source(recorded)))
        };
        assert!(selects("context-switches", "cs") && selects("cs", "context-switches"));
        assert!(selects("cpu-cycles", "cycles:P") && selects("faults", "page-faults"));
        assert!(!selects("faults", "minor-faults") && !selects("cpu-clock:u", "cpu-clock"));
    }
}
