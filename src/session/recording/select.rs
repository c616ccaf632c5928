//! Resolves selectors to events of a recording. Does not know the running kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
    sync::Arc,
};

use anyhow::{Result, anyhow, bail};
use perf_prof_events::{
    derive::{
        self, Derived, Presence, Span, SpanRule,
        source::{Coverage, Scope, check_coverage, scope},
    },
    event::{EventType, Format, OtherFormat, RawData, Sides},
};
use perf_prof_format::{
    abi::{
        PERF_COUNT_SW_DUMMY, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_RAW, PERF_SAMPLE_READ, PERF_SAMPLE_REGS_USER,
        PERF_SAMPLE_STACK_USER, PERF_TYPE_SOFTWARE,
    },
    spec::{
        EventKind, EventSpec, NamedEvent, SpanSpec, SpanStack, Stack, attribute_meant_by, named_event, similar_names,
    },
    tracefs::Filter,
};
use perf_prof_recordings::{Gaps, RecordedEvent, Recording};

use super::{event_name::event_name, lacking::Lacking};
use crate::{
    engine::{
        pump::{MOVES, MoveEvent, TaskCgroups},
        sample_routes::{Route, SampleLimits},
    },
    plan::{Callchain, Switch},
    selectors::{self, BuiltIn, devices},
};

/// The events that were selected in a recording.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// The selected events, in the order of their selectors.
    pub types: Vec<EventType>,
    /// For each attr, the selected events that get its samples.
    pub routes: Vec<Vec<Route>>,
    /// The selected derived events. Their types are the last ones of `types`.
    pub derived: Vec<Derived>,
    /// The attr of the event about moves of tasks between cgroups, if it was recorded.
    pub moves: Option<usize>,
    /// The names of events that the script's first line selects and that were not recorded.
    pub missing_events: Vec<String>,
    /// What the recording lacks for the selected events.
    pub lacking: Lacking,
}

/// The attrs of the events that a span is made of, each with the indices of its rules.
type SpanInputs = Vec<(usize, Vec<usize>)>;

/// Resolves the selectors. Without selectors, selects all events that can have samples. The first `own` selectors come
/// from the script. If the events of these selectors were not recorded, this is not an error here:
/// [`Selected::missing_events`] lists them.
pub fn select(specs: &[EventSpec], own: usize, recording: &Recording) -> Result<Selected> {
    let formats: Vec<Format> = recording.events.iter().map(format).collect();
    let are_moves =
        |format: &Format| format.tracepoint().is_some_and(|format| (&*format.system, &*format.name) == MOVES);
    let moves = formats.iter().position(are_moves);
    let mut selected = Selected { routes: vec![Vec::new(); formats.len()], moves, ..Selected::default() };
    if specs.is_empty() {
        for (attr, event) in recording.events.iter().enumerate().filter(|(_, event)| !is_dummy(event)) {
            selected.lacking.are_sampled |= event.attr.sampled_tracepoints().is_some();
            selected.add(attr, event_type(event, &formats[attr], None), None);
        }
        if selected.types.is_empty() {
            bail!("{} has no events with samples", recording.name);
        }
    }
    for spec in specs {
        if let EventKind::Probe(probe) = &spec.kind
            && probe.file.ends_with('/')
        {
            let (selector, file) = (&spec.selector, &probe.file);
            bail!("{selector}: {file} is not a program or library; put the path in quotes if a filter follows");
        }
    }
    let (spans, specs): (Vec<_>, Vec<_>) =
        specs.iter().enumerate().partition(|(_, spec)| matches!(spec.kind, EventKind::Span(_)));
    let own_spans = spans.iter().filter(|(at, _)| *at < own).count();
    let own = own - own_spans;
    let specs: Vec<&EventSpec> = specs.into_iter().map(|(_, spec)| spec).collect();
    let mut matching = specs.iter().map(|spec| matching(spec, recording, &formats)).collect::<Vec<_>>();
    for (spec, found) in specs.iter().zip(&mut matching).take(own).filter(|(_, found)| found.is_err()) {
        selected.missing_events.push(name(spec));
        *found = Ok(Vec::new());
    }
    let matching = matching.into_iter().collect::<Result<Vec<_>>>()?;
    for (&spec, attrs) in specs.iter().zip(pair_with_selectors(matching, &formats)) {
        if let EventKind::Probe(probe) = &spec.kind
            && !attrs.is_empty()
            && !probe.file.is_empty()
        {
            selected.lacking.with_files.push(spec.selector.clone());
        }
        for attr in attrs {
            let filter = filter(spec, &formats[attr])?;
            let event = event_type(&recording.events[attr], &formats[attr], Some(spec));
            let asked = spec.attrs.stack == Stack::On || spec.attrs.max_stack.is_some();
            if asked && !has_chains(&event) {
                selected.lacking.without_chains.push(event.real_name());
            }
            selected.lacking.are_sampled |= recording.events[attr].attr.sampled_tracepoints().is_some();
            selected.add(attr, event, Some((spec, filter)));
        }
    }
    let mut of_spans = Vec::new();
    for (at, (_, spec)) in spans.into_iter().enumerate() {
        let EventKind::Span(span) = &spec.kind else { continue };
        match span_inputs(spec, span, recording, &formats) {
            Err(_) if at < own_spans => selected.missing_events.push(span.to_string()),
            inputs => of_spans.push((spec, span, inputs?)),
        }
    }
    let mut inputs: Vec<_> = of_spans.iter_mut().map(|(_, span, inputs)| (&***span, inputs)).collect();
    take_each_event_once(&mut inputs, recording, &formats);
    for (spec, span, inputs) in of_spans {
        refuse_some_cpus(spec, &inputs, recording)?;
        selected.add_span(spec, span, inputs, recording, &formats)?;
    }
    selected.types = derive::with_derived(std::mem::take(&mut selected.types), &selected.derived)?;
    Ok(selected)
}

/// Returns the attrs of the events that a span is made of, each with the indices of its rules.
fn span_inputs(spec: &EventSpec, span: &SpanSpec, recording: &Recording, formats: &[Format]) -> Result<SpanInputs> {
    let rules = SpanRule::all(span).map_err(|error| anyhow!("{}: {error}", spec.selector))?;
    let mut inputs = vec![Vec::new(); formats.len()];
    let mut found: Vec<&SpanRule> = Vec::new();
    // Rules that only apply to recordings come last. Their events replace events that were not recorded.
    let mut in_order: Vec<(usize, &SpanRule)> = rules.iter().enumerate().collect();
    in_order.sort_by_key(|(_, rule)| rule.presence == Presence::OnlyRecorded);
    for (at, rule) in in_order {
        if rule.presence == Presence::OnlyRecorded && found.iter().any(|other| other.action == rule.action) {
            continue;
        }
        match matching(&EventSpec { kind: rule.event.clone(), ..spec.clone() }, recording, formats) {
            Ok(attrs) => {
                found.push(rule);
                attrs.into_iter().for_each(|attr| inputs[attr].push(at));
            }
            Err(_) if rule.presence != Presence::Needed => {}
            Err(error) => return Err(error.context(format!("{} is made of other events", spec.selector))),
        }
    }
    Ok(inputs.into_iter().enumerate().filter(|(_, rules)| !rules.is_empty()).collect())
}

/// Fails if a source needs the events of all CPUs, but the recording has the events of only some CPUs.
fn refuse_some_cpus(spec: &EventSpec, inputs: &SpanInputs, recording: &Recording) -> Result<()> {
    let is_in_parts = |(attr, _): &(usize, Vec<usize>)| recording.is_of_some_cpus(&recording.events[*attr]);
    if inputs.iter().any(is_in_parts) {
        let name = &recording.name;
        check_coverage(slice::from_ref(spec), Coverage::Parts)
            .map_err(|error| anyhow!("{name} has the events of only some CPUs: {error}"))?;
    }
    Ok(())
}

/// Returns whether a source needs the events of all tasks, but the recording has the events of only some tasks.
fn lacks_tasks(spec: &EventSpec, inputs: &SpanInputs, recording: &Recording) -> bool {
    let is_of_some_tasks = |(attr, _): &(usize, Vec<usize>)| recording.is_of_some_tasks(&recording.events[*attr]);
    scope(slice::from_ref(spec)) == Ok(Scope::Machine) && inputs.iter().any(is_of_some_tasks)
}

/// Returns the indices of the attrs with an event that `spec` selects. Fails if there is none.
fn matching(spec: &EventSpec, recording: &Recording, formats: &[Format]) -> Result<Vec<usize>> {
    let of = |attr: usize| matches(spec, &formats[attr]) || is_code_of(spec, &recording.events[attr]);
    let mut matching: Vec<usize> = (0..formats.len()).filter(|&attr| of(attr)).collect();
    if let (true, Some(source)) = (matching.is_empty(), built_in(spec)) {
        let of =
            |&wanted| (0..formats.len()).filter(|&attr| has_type_and_config(&recording.events[attr], wanted)).collect();
        // The periods of different events cannot be added up. So only the first event that was recorded is selected.
        let mut recorded = source.recorded_as.iter().map(of);
        matching = recorded.find(|attrs: &Vec<usize>| !attrs.is_empty()).unwrap_or_default();
    }
    if matching.is_empty() {
        bail!("{}", unknown(spec, recording, formats));
    }
    Ok(matching)
}

/// Assigns attrs to selectors. If an event was recorded several times and has as many selectors as attrs, each selector
/// gets its own attr: the recording was probably made with the same selectors in the same order. Otherwise each
/// selector gets all attrs of the event.
fn pair_with_selectors(matching: Vec<Vec<usize>>, formats: &[Format]) -> Vec<Vec<usize>> {
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

/// Keeps one attr for each event that a span is made of. Each span opens its own events, so a recording of several
/// spans may contain several attrs of the same event. A span that used all of them would begin once for each attr.
///
/// If an event has as many attrs as spans that use it, the recording was probably made with the same spans in the same
/// order. Otherwise a span gets the first attr, or, if the span shows call chains, the first attr with call chains.
fn take_each_event_once(spans: &mut [(&SpanSpec, &mut SpanInputs)], recording: &Recording, formats: &[Format]) {
    // A static probe becomes several events of the same name if its arguments have different types at its places. So
    // this name includes the types.
    let name = |attr: usize| {
        let fields = formats[attr].tracepoint().map(|format| format.fields()).unwrap_or_default();
        fields.iter().fold(formats[attr].name(), |name, field| name + " " + &field.c_type())
    };
    // Returns the events that perf-prof opens to record the span.
    let opened = |span: &SpanSpec, inputs: &[(usize, Vec<usize>)]| -> BTreeSet<String> {
        let rules = SpanRule::all(span).unwrap_or_default();
        let is_opened = |rule: &usize| rules.get(*rule).is_some_and(|rule| rule.presence != Presence::OnlyRecorded);
        let opened = inputs.iter().filter(|(_, rules)| rules.iter().any(is_opened));
        opened.map(|(attr, _)| name(*attr)).collect()
    };
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for (span, inputs) in &*spans {
        opened(span, inputs).into_iter().for_each(|name| *users.entry(name).or_default() += 1);
    }
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for (span, inputs) in spans {
        let opened = opened(span, inputs);
        let mut attrs_of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        inputs.iter().for_each(|(attr, _)| attrs_of.entry(name(*attr)).or_default().push(*attr));
        for (name, attrs) in attrs_of {
            let at = used.entry(name.clone()).or_default();
            let own = *at;
            let is_opened = opened.contains(&name);
            *at += usize::from(is_opened);
            let with_chains =
                |attr: &&usize| has_chains(&event_type(&recording.events[**attr], &formats[**attr], None));
            let kept = match attrs.get(own) {
                Some(attr) if is_opened && users.get(&name) == Some(&attrs.len()) => *attr,
                _ if span.stack == SpanStack::Inherit => attrs[0],
                _ => *attrs.iter().find(with_chains).unwrap_or(&attrs[0]),
            };
            inputs.retain(|(attr, _)| *attr == kept || !attrs.contains(attr));
        }
    }
}

/// Refuses a span of tracepoints of which the recording has only a part: begins would be paired with ends of others.
fn refuse_sampled(spec: &EventSpec, inputs: &SpanInputs, recording: &Recording, formats: &[Format]) -> Result<()> {
    for (attr, _) in inputs {
        if let Some(how) = recording.events[*attr].attr.sampled_tracepoints() {
            bail!(
                "{}: {} has only a part of all {} ({how}), and a span needs each of them; record without -F, or with \
                 `-c 1` (perf applies -F to tracepoints too, perf-prof does not)",
                spec.selector,
                recording.name,
                formats[*attr].name(),
            );
        }
    }
    Ok(())
}

impl Selected {
    fn add(&mut self, attr: usize, event: EventType, limits: Option<(&EventSpec, Option<Filter>)>) {
        let (cpus, filter) = limits.map_or((None, None), |(spec, filter)| (spec.attrs.cpus.clone(), filter));
        self.routes[attr].push(Route { event: self.types.len(), cpus, filter });
        self.types.push(event);
    }

    /// Adds the inputs of a span, and the span.
    fn add_span(
        &mut self,
        spec: &EventSpec,
        span: &SpanSpec,
        inputs: SpanInputs,
        recording: &Recording,
        formats: &[Format],
    ) -> Result<()> {
        let wrong = |error| anyhow!("{}: {error}", spec.selector);
        devices::refuse_names(span)?;
        refuse_sampled(spec, &inputs, recording, formats)?;
        if lacks_tasks(spec, &inputs, recording) {
            self.lacking.of_some_tasks.push(spec.selector.clone());
        }
        let rules = SpanRule::all(span).map_err(wrong)?;
        let of_inputs: Vec<_> = inputs.iter().map(|(attr, own)| (formats[*attr].clone(), own.clone())).collect();
        let made = Span::new(span, spec.filter.as_deref(), spec.attrs.alias.clone(), &of_inputs).map_err(wrong)?;
        let attrs: Vec<usize> = inputs.iter().map(|(attr, _)| *attr).collect();
        self.lacking.note_unknown_fields(spec, span, &attrs, formats);
        self.lacking.note_filters(spec, span, &attrs, (recording, formats));
        if made.lacks_strings() {
            self.lacking.without_strings.push(spec.selector.clone());
        }
        let first = self.types.len();
        for (attr, own) in inputs {
            let event = event_type(&recording.events[attr], &formats[attr], None);
            if own.iter().any(|&rule| rules[rule].action.has_chain(span.stack)) && !has_chains(&event) {
                self.lacking.without_chains.push(event.real_name());
            }
            let cpus = spec.attrs.cpus.clone();
            self.routes[attr].push(Route { event: self.types.len(), cpus, filter: None });
            self.types.push(event);
        }
        self.derived.push(Derived { span: Arc::new(made), inputs: (first..self.types.len()).collect() });
        Ok(())
    }

    /// Returns, for each selected event, the index of its attr among all events of the recording.
    pub fn attr_of_each_type(&self) -> Vec<usize> {
        let mut attrs = vec![0; self.types.len() - self.derived.len()];
        for (attr, routes) in self.routes.iter().enumerate() {
            routes.iter().for_each(|route| attrs[route.event] = attr);
        }
        attrs
    }

    /// Returns for each attr whether a selected event gets its samples. Returns `None` if all samples have to be read.
    pub fn attrs(&self, recording: &Recording) -> Option<Vec<bool>> {
        let is_wanted = |(attr, routes): (usize, &Vec<Route>)| !routes.is_empty() || self.moves == Some(attr);
        let wanted: Vec<bool> = self.routes.iter().enumerate().map(is_wanted).collect();
        let mut unwanted = recording.events.iter().zip(&wanted).filter(|(_, wanted)| !**wanted);
        let needed = unwanted.any(|(event, _)| !is_dummy(event)) && !recording.events.iter().any(holds_counters);
        needed.then_some(wanted)
    }

    /// Fails if a tracepoint was recorded on only some CPUs, and its selector asks for all. A script that needs all CPUs would
    /// miss what happened on the others: a task that goes to one of them would look as if it waited. Events of hardware may exist
    /// on some CPUs only.
    pub fn require_all_cpus(&self, recording: &Recording) -> Result<()> {
        let is_of_all = |routes: &[Route]| routes.iter().any(|route| route.cpus.is_none());
        let lacks_cpus = |(routes, event): (&Vec<Route>, &RecordedEvent)| {
            event.format.is_some() && is_of_all(routes) && recording.is_of_some_cpus(event)
        };
        if self.routes.iter().zip(&recording.events).any(lacks_cpus) {
            bail!(
                "{} has the events of only some CPUs, but --all-cpus asks for those of all; record them with \
                 `perf-prof record -a`",
                recording.name
            );
        }
        Ok(())
    }

    /// Returns the object that follows in which cgroup each task is, if the samples have cgroups.
    pub fn task_cgroups(&self, recording: &Recording) -> Option<TaskCgroups> {
        let format = |attr: usize| Some((attr, recording.events[attr].format.clone()?));
        let moves = self.moves.and_then(format).map(|(index, format)| {
            let layout = recording.events[index].layout();
            MoveEvent { index, format, layout, hierarchy: None }
        });
        let has_cgroups = self.types.iter().any(|event| event.layout.has_cgroup());
        has_cgroups.then(|| TaskCgroups { types: self.types.clone(), moves })
    }

    /// Returns which gaps are marked: derived events need the start times of losses, and all receivers are told where records
    /// cannot be read.
    pub fn gaps(&self) -> Gaps {
        if self.derived.is_empty() { Gaps::Unread } else { Gaps::Marked }
    }

    /// Like [`Selected::attrs`], but only for the attrs of samples that derived events are made of.
    pub fn attrs_of_inputs(&self, recording: &Recording) -> Option<Vec<bool>> {
        // If records have no times, a loss is reported at the next selected sample of its ring. Then all selected
        // samples are needed.
        let has_times = recording.events.iter().all(|event| event.trailer().is_some());
        if !has_times || recording.events.iter().any(holds_counters) {
            return self.attrs(recording);
        }
        let is_input = |route: &Route| self.derived.iter().any(|derived| derived.inputs.contains(&route.event));
        let attrs = self.routes.iter().enumerate();
        Some(attrs.map(|(attr, routes)| routes.iter().any(is_input) || self.moves == Some(attr)).collect())
    }
}

/// Returns which frames of recorded call chains are shown: kernel frames, user frames or both.
pub fn sides(asked: &Callchain) -> Result<Sides> {
    Ok(match (asked.kernel, asked.user) {
        (Some(Switch::Off), Some(Switch::Off)) => {
            bail!("call chains without kernel frames and without user frames are empty; leave out only one of the two")
        }
        (Some(Switch::Off), _) => Sides::User,
        (_, Some(Switch::Off)) => Sides::Kernel,
        _ => Sides::Both,
    })
}

/// Returns whether the samples of an event have call chains, or the registers and the stack to unwind them from.
pub(super) fn has_chains(event: &EventType) -> bool {
    const STACK: u64 = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let sample_type = event.layout.format.sample_type;
    sample_type & PERF_SAMPLE_CALLCHAIN != 0 || sample_type & STACK == STACK
}

/// Returns whether the samples of the event contain counter values. Such a sample is also a sample of the other events
/// in its group.
fn holds_counters(event: &RecordedEvent) -> bool {
    event.attr.format.sample_type & PERF_SAMPLE_READ != 0
}

/// Returns whether the event is a dummy event, which was recorded only for its side-band records. perf adds a dummy
/// event to every system-wide recording.
fn is_dummy(event: &RecordedEvent) -> bool {
    (event.attr.kind, event.attr.config) == (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY.into())
}

/// Returns the type of an event. If the selector does not limit the length of call chains, uses the limit in the
/// recording.
fn event_type(event: &RecordedEvent, format: &Format, spec: Option<&EventSpec>) -> EventType {
    let asked = spec.and_then(|spec| spec.attrs.max_stack);
    let max_stack = asked.or((event.attr.sample_max_stack != 0).then_some(event.attr.sample_max_stack));
    let alias = spec.and_then(|spec| spec.attrs.alias.clone());
    let source = spec.and_then(built_in).map(|source| other_format(event, source.name.to_owned()));
    let format = source.unwrap_or_else(|| format.clone());
    EventType { alias, format, layout: event.layout().for_counter_readings(), max_stack }
}

/// Returns the format of an event's samples. A tracepoint without a recorded format is an event with raw data.
pub fn format(event: &RecordedEvent) -> Format {
    if let Some(format) = &event.format {
        return Format::Tracepoint(format.clone());
    }
    other_format(event, event.name.clone().unwrap_or_else(|| event_name(&event.attr)))
}

fn other_format(event: &RecordedEvent, name: String) -> Format {
    let raw = if event.has_interpreter_frames { RawData::InterpreterFrames } else { RawData::OfEvent };
    Format::Other(Arc::new(OtherFormat { name, raw }))
}

/// Parses the filter of a selector, for samples of this event. Only tracepoints can have filters.
fn filter(spec: &EventSpec, format: &Format) -> Result<Option<Filter>> {
    let (Some(text), Format::Tracepoint(format)) = (&spec.filter, format) else { return Ok(None) };
    let name = format!("{}:{}", format.system, format.name);
    let filter = Filter::parse(text, format).map_err(|error| {
        let fields = format.fields().iter().chain(format.common_fields());
        let fields: Vec<String> = fields.map(|field| format!("{} ({})", field.name, field.c_type())).collect();
        match attribute_meant_by(text) {
            Some(attribute) => anyhow!(
                "the filter `{text}` of {name}: {error}\nthe first section is the filter; attributes come after it: \
                 {name}//{attribute}/"
            ),
            None => anyhow!("the filter `{text}` of {name}: {error}\nits fields: {}", fields.join(", ")),
        }
    })?;
    Ok(Some(filter))
}

/// Returns the built-in event source that a selector selects. A recording does not contain the source itself, but the
/// event that the source opened.
fn built_in(spec: &EventSpec) -> Option<&'static BuiltIn> {
    match &spec.kind {
        EventKind::Source { name, .. } => selectors::built_in(name),
        _ => None,
    }
}

/// Returns whether an event has this type and config. Ignores the upper half of the config: on machines with several
/// kinds of CPUs, it contains the kind of CPU (PERF_PMU_TYPE_SHIFT in include/uapi/linux/perf_event.h).
fn has_type_and_config(event: &RecordedEvent, wanted: NamedEvent) -> bool {
    (event.attr.kind, event.attr.config & u64::from(u32::MAX)) == (wanted.kind, wanted.config)
}

fn matches(spec: &EventSpec, format: &Format) -> bool {
    let name = match format {
        Format::Tracepoint(format) => return spec.matches(&format.system, &format.name),
        Format::Other(format) => &format.name,
        Format::Span(_) => return false,
    };
    // The recording contains the name that was typed for `perf record`, possibly with modifiers that perf added.
    let plain = EventSpec { attrs: Default::default(), filter: None, ..spec.clone() }.to_string();
    *name == plain
        || match &spec.kind {
            // The options of a built-in source only say how to sample. The samples were already taken, so the options
            // are ignored.
            EventKind::Source { name: wanted, .. } if selectors::built_in(wanted).is_some() => name == wanted,
            EventKind::Source { name: wanted, option: None, modifiers } if modifiers.is_empty() => {
                let name = name.split_once([':', '/']).map_or(name.as_str(), |(name, _)| name);
                name == wanted || named_event(name).is_some_and(|event| named_event(wanted) == Some(event))
            }
            EventKind::Tracepoint { system, name: event } => *name == format!("{system}:{event}"),
            _ => false,
        }
}

/// Returns whether a selector without modifiers is the code of an event without a recorded name, such as `r1a8`.
fn is_code_of(spec: &EventSpec, event: &RecordedEvent) -> bool {
    let typed = match &spec.kind {
        EventKind::Source { name, option: None, modifiers } if modifiers.is_empty() => named_event(name),
        _ => None,
    };
    event.name.is_none()
        && typed.is_some_and(|typed| (typed.kind, typed.config) == (event.attr.kind, event.attr.config))
}

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
    if let EventKind::Source { name, option, .. } = &spec.kind
        && let Some(error) = selectors::call_with_options(name, option.as_deref())
    {
        return error.to_string();
    }
    let shown = match &spec.kind {
        EventKind::Source { modifiers, .. } if !modifiers.is_empty() => format!("{asked}:{modifiers}"),
        _ => asked.clone(),
    };
    let mut names_there = names.clone();
    names_there.dedup();
    let has_calls = names.iter().any(|name| name.starts_with("raw_syscalls:"));
    let calls = selectors::system_call_names().filter(|_| has_calls);
    match similar_names(&asked, names.into_iter().chain(calls.map(str::to_owned)))[..] {
        [] => {
            const SHOWN: usize = 8;
            let more = names_there.len().saturating_sub(SHOWN);
            names_there.truncate(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{shown} is not in {recorded}; the recording contains {}{more}", names_there.join(", "))
        }
        ref near => format!("{shown} is not in {recorded}; did you mean {}?", near.join(" or ")),
    }
}

/// Returns what samples of the recording have to fulfill.
pub fn sample_limits(recording: &Recording) -> SampleLimits {
    let size = |event: &RecordedEvent| match &event.format {
        Some(format) if event.layout().format.sample_type & PERF_SAMPLE_RAW != 0 => format.size(),
        _ => 0,
    };
    let raw_sizes = recording.events.iter().map(size).collect();
    SampleLimits { raw_sizes, last: recording.last_possible_time().unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::parse_events;

    use super::*;

    #[test]
    fn an_event_of_two_names_is_found_by_either() {
        let selects = |typed: &str, recorded: &str| {
            let specs = parse_events(typed).unwrap();
            specs.iter().any(|spec| matches(spec, &Format::other(recorded)))
        };
        assert!(selects("context-switches", "cs") && selects("cs", "context-switches"));
        assert!(selects("cpu-cycles", "cycles:P") && selects("faults", "page-faults"));
        assert!(!selects("faults", "minor-faults") && !selects("cpu-clock:u", "cpu-clock"));
    }
}
