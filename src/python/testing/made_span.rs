//! `make_event` for spans: derives the span from made events, with the same code as a run.

use std::{ops::ControlFlow, sync::Arc};

use perf_prof_events::{
    derive::{Action, Span, SpanError, SpanRule, source::strings_of},
    event::{EventType, Format, SPAN_SYSTEM, Sample, SpanCounts, SpanPart, reader::KeptFacts},
};
use perf_prof_format::spec::{
    EventKind, EventSpec, OpenAtEnd, Probe, ProbeArgument, SpanEvents, SpanSpec, SpecError, glob_matches, parse_events,
};
use perf_prof_session::selectors;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use super::{
    formats::STRINGS,
    made_event::{event_of_format, make_event},
    members::whole_number,
};
use crate::{
    library::named,
    script::{kept_event, made, made_context},
};

/// Returns the selector and the span if `name` selects a span.
pub fn span_of(name: &str) -> Result<Option<(EventSpec, SpanSpec)>, SpecError> {
    let specs = match parse_events(name) {
        Ok(specs) => specs,
        Err(error) if name.split_once(':').is_some_and(|(system, _)| system == SPAN_SYSTEM) => return Err(error),
        Err(_) => return Ok(None),
    };
    let Ok([spec]) = <[EventSpec; 1]>::try_from(specs) else { return Ok(None) };
    let EventKind::Span(span) = &spec.kind else { return Ok(None) };
    let span = (**span).clone();
    Ok(Some((spec, span)))
}

/// One of the events that a span is made of.
struct Part {
    event: EventType,
    record: Vec<u8>,
    facts: KeptFacts,
    /// The indices of those rules of the span that apply to the event.
    rules: Vec<usize>,
}

/// The arguments that the caller of `make_event` gave.
#[derive(Default)]
struct Given<'py> {
    begin: Option<Bound<'py, PyAny>>,
    end: Option<Bound<'py, PyAny>>,
    between: Vec<Bound<'py, PyAny>>,
    duration: Option<u64>,
}

/// Makes a span. `fields` are the keywords of `make_event`.
pub fn make_span(
    py: Python<'_>,
    (spec, span): (&EventSpec, &SpanSpec),
    formats: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let name = &match &span.events {
        SpanEvents::Selected { .. } => format!("{SPAN_SYSTEM}:{}", span.name),
        SpanEvents::Source { source, function: Some(_) } => format!("{source}:{}", span.name),
        SpanEvents::Source { function: None, .. } => span.name.clone(),
    };
    let given = Given::new(name, fields)?;
    let rules = SpanRule::all(span).map_err(|error| named(py, "SelectorError", &error.to_string()))?;
    let make = Make { py, name, span, rules: &rules, formats };
    let missing = || PyTypeError::new_err(format!("{name} needs the event that begins it: begin=dict(...)"));
    let begin = make.part(&given.begin.ok_or_else(missing)?, "begin", Action::begins, None)?;
    let mut parts = vec![begin];
    for event in given.between {
        let part = make.part(&event, "between", |action| matches!(action, Action::Note(_)), Some(&parts[0]))?;
        parts.push(part);
    }
    let end_time = given.duration.map(|duration| parts[0].sample().time().saturating_add(duration));
    let has_end = given.end.is_some();
    match (given.end, end_time) {
        (Some(end), time) => {
            let end = make.end(&end, time)?;
            let part =
                make.part(&end, "end", |action| matches!(action, Action::End | Action::EndFirst), Some(&parts[0]))?;
            if time.is_some_and(|time| part.sample().time() != time) {
                return Err(PyValueError::new_err(format!(
                    "{name}: duration= differs from the time between begin and end; leave it out"
                )));
            }
            parts.push(part);
        }
        (None, Some(_)) => {
            return Err(PyTypeError::new_err(format!(
                "{name}: duration= needs an end: give end=, or leave duration= out for an open span"
            )));
        }
        (None, None) => {}
    }
    let derived =
        derive(spec, span, &parts, has_end).map_err(|error| PyValueError::new_err(format!("{name}: {error}")))?;
    let Some((event, record)) = derived else {
        let keys = |rules: &[usize]| {
            let keys: Vec<String> = rules.iter().filter_map(|&rule| make.rules.get(rule)).map(key_text).collect();
            keys.join(" or ")
        };
        let of = [Some(&parts[0]), parts.last().filter(|_| has_end)];
        let of: Vec<String> = of.into_iter().flatten().map(|part| keys(&part.rules)).collect();
        let key = of.join(" in begin and ");
        let end = if has_end { " in end" } else { "" };
        let text =
            format!("these events make no span of {name}: its key is {key}{end}, and end must not be before begin");
        return Err(PyValueError::new_err(text));
    };
    let facts = facts(&event, &record, &parts, has_end);
    made(py, &event, &record, facts)
}

/// Returns the key and the condition of a rule as text for messages.
fn key_text(rule: &SpanRule) -> String {
    let when = rule.when.map(|when| format!(" if {when}")).unwrap_or_default();
    format!("{}{when}", rule.key.join("+"))
}

impl<'py> Given<'py> {
    fn new(name: &str, fields: Option<&Bound<'py, PyDict>>) -> PyResult<Given<'py>> {
        let mut given = Given::default();
        for (keyword, value) in fields.into_iter().flatten() {
            let is_none = value.is_none();
            match keyword.extract::<&str>()? {
                "begin" => given.begin = Some(value),
                "end" => given.end = (!is_none).then_some(value),
                "between" => given.between = value.try_iter()?.collect::<PyResult<_>>()?,
                "duration" => given.duration = Some(whole_number("duration", &value)?),
                other => {
                    return Err(PyTypeError::new_err(format!(
                        "{name} has no keyword '{other}'; it has begin, end, between and duration, and its fields are \
                         worked out from these events"
                    )));
                }
            }
        }
        Ok(given)
    }
}

/// What is needed to make the events of a span.
struct Make<'a, 'py> {
    py: Python<'py>,
    name: &'a str,
    span: &'a SpanSpec,
    rules: &'a [SpanRule],
    formats: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Make<'_, 'py> {
    /// Returns the argument `end`. If it contains keywords without `_time`, adds `time` as `_time`.
    fn end(&self, end: &Bound<'py, PyAny>, time: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let (Ok(keywords), Some(time)) = (end.cast::<PyDict>(), time) else { return Ok(end.clone()) };
        let keywords = keywords.copy()?;
        if !keywords.contains("_time")? {
            keywords.set_item("_time", time)?;
        }
        Ok(keywords.into_any())
    }

    /// Makes an event of the span. A rule for the event must have an action that satisfies `does`. If `given` contains
    /// keywords, a missing task, CPU or time is taken from the event `before`.
    fn part(
        &self,
        given: &Bound<'py, PyAny>,
        keyword: &str,
        does: fn(Action) -> bool,
        before: Option<&Part>,
    ) -> PyResult<Part> {
        let Ok(keywords) = given.cast::<PyDict>() else { return self.of_event(given, keyword, does) };
        let mut events: Vec<(String, &SpanRule)> = Vec::new();
        for rule in self.rules.iter().filter(|rule| does(rule.action)) {
            let name = match &rule.event {
                EventKind::Tracepoint { system, name } => match strings_of(self.span, &rule.event).join("+") {
                    strings if strings.is_empty() => format!("{system}:{name}"),
                    strings => format!("{system}:{name}{STRINGS}{strings}/"),
                },
                EventKind::Probe(probe) => {
                    let (system, name) = probe.event_name();
                    format!("{system}:{name}")
                }
                _ => continue,
            };
            if events.iter().all(|(known, _)| *known != name) {
                events.push((name, rule));
            }
        }
        let [(event, rule)] = events.as_slice() else {
            let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
            let text = match names.as_slice() {
                [] => format!("{}: there are no events that can be its {keyword}", self.name),
                _ => format!("{}: {keyword} can be {}: give an event", self.name, names.join(" or ")),
            };
            return Err(PyTypeError::new_err(text));
        };
        let keywords = keywords.copy()?;
        if let Some(before) = before {
            let sample = before.sample();
            let has_task = keywords.contains("_tid")? || keywords.contains("_pid")?;
            let (pid, tid) = sample.pid_tid();
            let own = |name: &str, is_known: bool| -> PyResult<bool> { Ok(is_known && !keywords.contains(name)?) };
            if own("_time", true)? {
                keywords.set_item("_time", sample.time())?;
            }
            if own("_cpu", true)? {
                keywords.set_item("_cpu", sample.cpu())?;
            }
            if own("_comm", !has_task)? && before.facts.comm.is_some() {
                keywords.set_item("_comm", before.facts.comm.as_deref())?;
            }
            if !has_task {
                keywords.set_item("_pid", pid)?;
                keywords.set_item("_tid", tid)?;
            }
        }
        let made = match &rule.event {
            EventKind::Probe(probe) => {
                event_of_format(self.py, event, probe_format(probe, &rule.arguments)?, Some(&keywords))?
            }
            _ => make_event(self.py, event, self.formats, Some(&keywords))?,
        };
        self.of_event(made.bind(self.py), keyword, does)
    }

    fn of_event(&self, object: &Bound<'py, PyAny>, keyword: &str, does: fn(Action) -> bool) -> PyResult<Part> {
        let Some((event, record, facts)) = kept_event(object)? else {
            let kind = object.get_type().name()?;
            let text =
                format!("{}: {keyword} has a value of type {kind}; it needs an event or a dict of keywords", self.name);
            return Err(PyTypeError::new_err(text));
        };
        let is_of = |rule: &SpanRule| match (&rule.event, event.format.tracepoint()) {
            (EventKind::Tracepoint { system, name }, Some(format)) => {
                glob_matches(system, &format.system) && glob_matches(name, &format.name)
            }
            (EventKind::Probe(probe), Some(format)) => {
                let (system, name) = probe.event_name();
                *format.system == *system && *format.name == *name
            }
            _ => false,
        };
        let rules: Vec<usize> = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| does(rule.action) && is_of(rule))
            .map(|(at, _)| at)
            .collect();
        if rules.is_empty() {
            let text = format!("{}: {} cannot be its {keyword}", self.name, event.real_name());
            return Err(PyValueError::new_err(text));
        }
        Ok(Part { event, record, facts, rules })
    }
}

/// Returns the format of a probe with these arguments. Does not read the probed file.
fn probe_format(probe: &Probe, arguments: &[ProbeArgument]) -> PyResult<Format> {
    let format = selectors::made_format(probe, arguments).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Format::Tracepoint(Arc::new(format)))
}

impl Part {
    fn sample(&self) -> Sample<'_> {
        Sample { event: &self.event, record: &self.record }
    }
}

/// Applies the span's rules to the events. Returns the event type and the record of the span; `None` if the events make
/// no span.
fn derive(
    spec: &EventSpec,
    span: &SpanSpec,
    parts: &[Part],
    has_end: bool,
) -> Result<Option<(EventType, Vec<u8>)>, SpanError> {
    // The filters of the span are removed, because a test must always get its span.
    let span = SpanSpec { min: 0, options: Vec::new(), at_end: OpenAtEnd::Delivered, ..span.clone() };
    let inputs: Vec<(Format, Vec<usize>)> =
        parts.iter().map(|part| (part.event.format.clone(), part.rules.clone())).collect();
    let types: Vec<EventType> = parts.iter().map(|part| part.event.clone()).collect();
    // A request that begins and ends needs no event of its issue.
    let made = Span::new(&span, None, spec.attrs.alias.clone(), &inputs)?.of_one_span();
    let event = made.event_type(&types)?;
    let context = made_context();
    for part in parts {
        let (sample, comm) = (part.sample(), part.facts.comm.as_deref());
        if let Some(comm) = comm {
            context.with_tasks(|tasks| tasks.named(sample.task(), sample.time(), comm));
        }
    }
    let mut found = None;
    let mut emit = |record: &[u8]| {
        found = Some(record.to_vec());
        ControlFlow::Continue(())
    };
    if let Some(mut derivation) = made.start(&event, Arc::new(SpanCounts::default()), Arc::new(context)) {
        for (at, part) in parts.iter().enumerate() {
            let _ = derivation.sample(at, &part.record, &mut emit);
        }
        if !has_end {
            let _ = derivation.finish(&mut emit);
        }
    }
    Ok(found.map(|record| (event, record)))
}

/// Returns the facts about a made span that its record does not contain. The facts of `parts` become the facts of the
/// span's events.
fn facts(event: &EventType, record: &[u8], parts: &[Part], has_end: bool) -> KeptFacts {
    let Format::Span(span) = &event.format else { return KeptFacts::default() };
    let raw = Sample { event, record }.raw();
    let of_input = |input: usize| parts.get(input).map(|part| part.facts.clone()).unwrap_or_default();
    let of_part = |part| span.part(part, raw).map(|(input, _)| of_input(input)).unwrap_or_default();
    let [begin, end] = [SpanPart::Begin, SpanPart::End].map(of_part);
    let last = if has_end { &end } else { &begin };
    let sample = Sample { event, record };
    // The comm belongs to the span's task. The span may have ended in another task.
    let task = parts.iter().rev().find(|part| part.sample().task() == sample.task());
    let comm = task.and_then(|part| part.facts.comm.clone());
    let cgroup = task.and_then(|part| part.facts.cgroup.clone());
    let frames = if span.chain == SpanPart::End { end.frames.clone() } else { begin.frames.clone() };
    let realtime = last.realtime;
    let between = span.between(raw).map(|(input, _)| of_input(input));
    let between: Vec<KeptFacts> = between.collect();
    KeptFacts { comm, realtime, cgroup, frames, parts: [begin, end].into_iter().chain(between).collect() }
}
