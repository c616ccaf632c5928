//! What a recording lacks for the events that a run selects: the warnings before the run.

use std::env::consts::ARCH;

use perf_prof_events::{
    derive::source::{self, ProgramBits},
    event::{EventType, Format, Stats},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER},
    spec::{EventSpec, SpanSpec},
};
use perf_prof_recordings::{AttrFlag, RecordedEvent, Recording};

use super::select::{Selected, has_chains};
use crate::{
    plan::{Callchain, Face, RunPlan, Switch, Verbosity},
    selectors::covers,
};

/// What a recording lacks for the selected events. Each member lists the selectors or events that lack something.
#[derive(Clone, Debug, Default)]
pub struct Lacking {
    /// The selectors of probes in files. A recording has the names of probes, but not their files.
    pub with_files: Vec<String>,
    /// The names of events whose selectors request call chains that were not recorded.
    pub without_chains: Vec<String>,
    /// The selectors that request strings (`str=`) of events without strings in the recording.
    pub without_strings: Vec<String>,
    /// The sources that need the events of all tasks, of which the recording has only those of some.
    pub of_some_tasks: Vec<String>,
    /// The sources with fields that need an event that was not recorded.
    unknown_fields: Vec<UnknownFields>,
    /// Whether the recording has only a part of a tracepoint's events, because they were sampled.
    pub are_sampled: bool,
    /// The selectors of spans of which events are missing, because they did not pass a filter when they were recorded.
    filtered: Vec<Filtered>,
}

/// A span whose events were recorded with a filter.
#[derive(Clone, Debug)]
struct Filtered {
    selector: String,
    event: String,
    filter: String,
}

/// Fields of a source that are not known.
#[derive(Clone, Debug)]
struct UnknownFields {
    selector: String,
    /// The fields, as in a sentence.
    fields: &'static str,
    /// The event that was not recorded.
    event: &'static str,
}

impl Lacking {
    /// Notes in the counts of a run that an unknown number of events is missing.
    pub fn note(&self, stats: &Stats) {
        if !self.of_some_tasks.is_empty() {
            stats.note_of_some_tasks();
        }
        if !self.filtered.is_empty() || self.are_sampled {
            stats.note_filtered();
        }
    }

    /// Notes the events `attrs` of a span that were recorded with another filter than the span's options need. If different
    /// events have the same filter, of their own fields, it left out whole spans, which the user did not want. Where the span's
    /// options can say which events they need, this is known better.
    pub fn note_filters(
        &mut self,
        spec: &EventSpec,
        span: &SpanSpec,
        attrs: &[usize],
        (recording, formats): (&Recording, &[Format]),
    ) {
        let filters: Vec<_> = attrs.iter().map(|&attr| recording.filter_of(&recording.events[attr])).collect();
        let narrow = source::source_of(span).ok().flatten().and_then(|source| source.narrow);
        if narrow.is_none()
            && let [Some(first), others @ ..] = &filters[..]
            && !others.is_empty()
            && others.iter().all(|other| other.as_ref() == Some(first))
            && !first.contains("common_")
        {
            return;
        }
        // Without registers of user space, calls of 32-bit programs cannot be recognized, and nothing is known of them.
        let has_registers = |&attr: &usize| recording.events[attr].attr.format.sample_type & PERF_SAMPLE_REGS_USER != 0;
        let bits = if attrs.iter().all(has_registers) { ProgramBits::Any } else { ProgramBits::Only64 };
        let own = narrow.and_then(|narrow| narrow(&span.options, bits));
        // The numbers of system calls in this filter are those of this machine.
        let is_foreign = recording.features.arch.as_deref().is_some_and(|arch| arch != ARCH);
        for (&attr, filter) in attrs.iter().zip(filters) {
            let Some(filter) = filter else { continue };
            if own.as_ref().is_none_or(|own| !is_foreign && !covers(&filter, own)) {
                let (selector, event) = (spec.selector.clone(), formats[attr].name());
                self.filtered.push(Filtered { selector, event, filter: filter.into_owned() });
            }
        }
    }

    /// Notes the fields of a source that need an event that is not among the events `attrs` of the source's spans.
    pub fn note_unknown_fields(&mut self, spec: &EventSpec, span: &SpanSpec, attrs: &[usize], formats: &[Format]) {
        let source = source::source_of(span).ok().flatten();
        for dependent in source.into_iter().flat_map(|source| source.dependent) {
            let is_enough = |&attr: &usize| dependent.events.contains(&formats[attr].name().as_str());
            if let (false, Some(&event)) = (attrs.iter().any(is_enough), dependent.events.first()) {
                let (selector, fields) = (spec.selector.clone(), dependent.fields);
                self.unknown_fields.push(UnknownFields { selector, fields, event });
            }
        }
    }
}

impl Selected {
    /// Returns the warnings about what the recording lacks for the selected events.
    pub fn warnings(&self, plan: &RunPlan, recording: &Recording) -> Vec<String> {
        let Lacking { without_strings, of_some_tasks, unknown_fields, filtered, .. } = &self.lacking;
        let name = &recording.name;
        // This warning is printed even with -q: the samples may come from other probes than the user selected.
        let mut warnings: Vec<String> = self.unknown_files(name).into_iter().collect();
        warnings.extend(of_some_tasks.iter().map(|source| {
            format!(
                "{source} needs the events of all tasks, and {name} has only those of the tasks that were selected for it, \
                 so spans are missing; record with -a, and select the tasks when you read the recording"
            )
        }));
        warnings.extend(filtered.iter().map(|Filtered { selector, event, filter }| {
            format!(
                "{selector}: {name} has only those {event} that pass the filter `{filter}`, so spans are missing or too long; \
                 record without it, and filter the spans"
            )
        }));
        if plan.verbosity > Verbosity::Quiet {
            warnings.extend(unknown_fields.iter().map(|UnknownFields { selector, fields, event }| {
                format!("{selector}: {name} has no {event}, so {fields} are not known; record this event too")
            }));
        }
        let is_said = match plan.face {
            Face::Script => plan.verbosity > Verbosity::Quiet,
            Face::Program => true,
            Face::Command => false,
        };
        if is_said {
            warnings.extend(self.missing_chains(&plan.capture.callchain, recording));
            warnings.extend(without_strings.iter().map(|selector| {
                format!(
                    "{selector}: {name} has no strings of system calls, so they are None; record with -e {selector}"
                )
            }));
        }
        warnings
    }

    /// Returns a warning for each kind of call chains or frames that was requested, but not recorded.
    fn missing_chains(&self, asked: &Callchain, recording: &Recording) -> Vec<String> {
        let Callchain { every_event, user, kernel, .. } = *asked;
        let is_asked = [Some(every_event), user, kernel].contains(&Some(Switch::On));
        let of_all = self.types.iter().filter(|event| !has_chains(event)).map(EventType::real_name);
        let names: Vec<String> = if is_asked { of_all.collect() } else { self.lacking.without_chains.clone() };
        let mut missing = vec![("call chains", names)];
        let routes = recording.events.iter().zip(&self.routes);
        let events: Vec<_> = routes
            .flat_map(|(event, routes)| routes.iter().map(move |route| (event, &self.types[route.event])))
            .collect();
        for (what, asked, excluded, instead) in [
            ("user frames", user, AttrFlag::ExcludeCallchainUser, PERF_SAMPLE_STACK_USER),
            ("kernel frames", kernel, AttrFlag::ExcludeCallchainKernel, 0),
        ] {
            // A copy of the stack in the samples is unwound. It gives user frames even if the kernel left them out of
            // the call chain.
            let lacks = |recorded: &RecordedEvent, event: &EventType| {
                has_chains(event) && recorded.attr.has(excluded) && event.layout.format.sample_type & instead == 0
            };
            let missing_events =
                events.iter().filter(|(recorded, event)| asked == Some(Switch::On) && lacks(recorded, event));
            missing.push((what, missing_events.map(|(_, event)| event.real_name()).collect()));
        }
        missing.iter_mut().for_each(|(_, names)| names.dedup());
        let of_some = missing.iter().filter(|(_, names)| !names.is_empty());
        let text = |(what, names): &(&str, Vec<String>)| {
            format!(
                "{what} of {} were not recorded and cannot be shown; `perf record -g` records them",
                names.join(", ")
            )
        };
        of_some.map(text).collect()
    }

    /// Returns a warning if the user selected probes by their files, because a recording does not contain these files.
    fn unknown_files(&self, recording: &str) -> Option<String> {
        let selectors: Vec<&str> = self.lacking.with_files.iter().map(String::as_str).collect();
        (!selectors.is_empty()).then(|| {
            format!(
                "{recording} contains the names of probes, but not their files; {} selects by the name of the probe only",
                selectors.join(", ")
            )
        })
    }
}
