//! Events of a recording that are the same tracepoint. A recording contains each event of the kernel once, so the
//! tracepoint is opened once, with everything that one of them requests.

use std::cmp::Reverse;

use anyhow::{Result, anyhow, bail};
use perf_prof_capture::{Callchain, Capture, EventRequest, Frames, Presence, Writer};
use perf_prof_events::derive::Derived;
use perf_prof_format::{
    abi::PERF_TYPE_TRACEPOINT,
    spec::{CpuSet, Grouping},
    tracefs::Filter,
};

use super::select::Selected;
use crate::engine::{
    pump::{SharedSamples, SharedTracepoint},
    sample_routes::Route,
};

/// The maximum length of a filter, in bytes. The kernel accepts one page (`perf_event_set_filter()` in
/// kernel/events/core.c).
const LONGEST_FILTER: usize = 4000;

/// Finds the events that are the same tracepoint, and decides which one of them is opened ([`Selected::samples_of`]).
/// Fails if no event can be opened for all of them.
pub fn share(events: &mut [Selected], derived: &[Derived]) -> Result<()> {
    for first in 0..events.len() {
        if events[first].samples_of.is_some() {
            continue;
        }
        let same: Vec<usize> = (first..events.len()).filter(|&at| is_same(&events[first], &events[at])).collect();
        if same.len() > 1 {
            share_tracepoint(events, &same, derived)?;
        }
    }
    Ok(())
}

fn is_same(one: &Selected, other: &Selected) -> bool {
    let (one, other) = (&one.request, &other.request);
    let is_tracepoint = one.event.kind == PERF_TYPE_TRACEPOINT || one.definition.is_some();
    is_tracepoint && one.event == other.event && one.definition == other.definition
}

fn share_tracepoint(events: &mut [Selected], same: &[usize], derived: &[Derived]) -> Result<()> {
    let fields = |at: usize| events[at].format.tracepoint().map_or(0, |format| format.fields().len());
    let Some(&opened) = same.iter().min_by_key(|&&at| Reverse(fields(at))) else { return Ok(()) };
    for &at in same.iter().filter(|&&at| at != opened) {
        let (one, other) = (&events[same[0]], &events[same[same.len() - 1]]);
        let name = &one.request.name;
        if same.iter().any(|&at| events[at].spec.grouping != Grouping::Alone) {
            let (one, other) = (&one.spec.selector, &other.spec.selector);
            bail!(
                "{one} and {other} need {name}, which a recording contains only once, and a group has it; select it \
                 outside of the group"
            );
        }
        if !has_fields_of(&events[opened], &events[at]) {
            let (one, other) = (&events[opened].spec.selector, &events[at].spec.selector);
            bail!(
                "{one} and {other} need {name}, which a recording contains only once, and their strings differ; select \
                 it once, with all strings"
            );
        }
    }
    let all = union_of_filters(same.iter().map(|&at| events[at].spec.filter.as_deref()));
    let is_input = |at: usize| derived.iter().any(|derived| derived.inputs.contains(&at));
    for &at in same {
        let Selected { spec, request, .. } = &events[at];
        if spec.filter.is_some() && spec.filter != all && !is_input(at) {
            let more = format!(
                "{}: the recording contains more events of {} than this filter selects, because another selector needs \
                 them; give the same selectors with --input",
                spec.selector, request.name
            );
            events[at].lacks.push(more);
        }
        events[at].samples_of = (at != opened).then_some(opened);
    }
    Ok(())
}

/// Returns whether the samples of `one` have all fields of `other`, at the same places.
fn has_fields_of(one: &Selected, other: &Selected) -> bool {
    let (Some(one), Some(other)) = (one.format.tracepoint(), other.format.tracepoint()) else { return false };
    let is_in_one = |name: &str, offset| one.field(name).is_some_and(|field| field.offset == offset);
    other.fields().iter().all(|field| is_in_one(&field.name, field.offset))
}

/// Returns a filter that passes what one of the filters passes. `None` passes everything.
fn union_of_filters<'a>(filters: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let mut all: Vec<&str> = filters.collect::<Option<_>>()?;
    let mut seen = std::collections::HashSet::new();
    all.retain(|filter| seen.insert(*filter));
    let union = match all.as_slice() {
        [only] => (*only).to_owned(),
        all => all.iter().map(|filter| format!("({filter})")).collect::<Vec<_>>().join(" || "),
    };
    (union.len() <= LONGEST_FILTER).then_some(union)
}

/// Adds to the request of each opened event what the events that share its samples request.
pub fn merge(requests: &mut [EventRequest], selected: &[Selected]) {
    for opened in 0..selected.len() {
        let sharing: Vec<usize> = sharing(selected, opened).collect();
        if sharing.len() < 2 {
            continue;
        }
        let filter = union_of_filters(sharing.iter().map(|&at| requests[at].filter.as_deref()));
        let cpus = sharing.iter().map(|&at| requests[at].cpus.clone()).collect::<Option<Vec<CpuSet>>>();
        let mut merged = requests[opened].clone();
        for &at in &sharing {
            let EventRequest { callchain, samples, stack_user, presence, .. } = &requests[at];
            merged.callchain = union_of_chains(merged.callchain, *callchain);
            merged.samples.sample_type |= samples.sample_type;
            merged.samples.regs_user |= samples.regs_user;
            merged.samples.regs_intr |= samples.regs_intr;
            merged.stack_user = merged.stack_user.max(*stack_user);
            if *presence == Presence::Required {
                merged.presence = Presence::Required;
            }
        }
        merged.filter = filter;
        merged.cpus = cpus.map(|cpus| cpus.iter().flat_map(CpuSet::iter).collect());
        for &at in sharing.iter().filter(|&&at| at != opened) {
            requests[at] = EventRequest { writer: Writer::Nobody, ..merged.clone() };
        }
        requests[opened] = merged;
    }
}

/// Returns the indices of the events that get the samples of an opened event, if it is one.
fn sharing(selected: &[Selected], opened: usize) -> impl Iterator<Item = usize> {
    let gets = move |(at, event): (usize, &Selected)| (event.opened_at(at) == opened).then_some(at);
    selected.iter().enumerate().filter_map(gets)
}

fn union_of_chains(one: Option<Callchain>, other: Option<Callchain>) -> Option<Callchain> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    let either = |a, b| if [a, b].contains(&Frames::Sampled) { Frames::Sampled } else { Frames::Excluded };
    let max_stack = a.max_stack.zip(b.max_stack).map(|(a, b)| a.max(b));
    Some(Callchain { kernel: either(a.kernel, b.kernel), user: either(a.user, b.user), max_stack })
}

/// Returns which events get the samples of each opened event, for a run that delivers them while they are recorded.
/// Returns `None` if no events share samples.
pub fn shared_samples(selected: &[Selected], capture: &Capture) -> Result<Option<SharedSamples>> {
    if selected.iter().all(|event| event.samples_of.is_none()) {
        return Ok(None);
    }
    let tracepoint = |opened: usize| {
        let sharing: Vec<usize> = sharing(selected, opened).collect();
        if sharing.len() < 2 {
            return Ok(None);
        }
        let routes = sharing.into_iter().map(|at| route(selected, at)).collect::<Result<_>>()?;
        Ok(Some(SharedTracepoint { layout: capture.layout(opened), routes }))
    };
    Ok(Some(SharedSamples::new((0..selected.len()).map(tracepoint).collect::<Result<_>>()?)))
}

fn route(selected: &[Selected], event: usize) -> Result<Route> {
    let Selected { spec, format, .. } = &selected[event];
    let parse = |text: &String| {
        let format = format.tracepoint().ok_or_else(|| anyhow!("{}: it is no tracepoint", spec.selector))?;
        Filter::parse(text, format).map_err(|error| anyhow!("{}: the filter `{text}`: {error}", spec.selector))
    };
    Ok(Route { event, cpus: spec.attrs.cpus.clone(), filter: spec.filter.as_ref().map(parse).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_passes_what_each_filter_passes() {
        let union = |filters: &[Option<&str>]| union_of_filters(filters.iter().copied());
        assert_eq!(union(&[Some("a == 1"), Some("b == 2 && c")]).unwrap(), "(a == 1) || (b == 2 && c)");
        assert_eq!(union(&[Some("a == 1"), Some("b"), Some("a == 1")]).unwrap(), "(a == 1) || (b)");
        assert_eq!(union(&[Some("a == 1"), Some("a == 1")]).unwrap(), "a == 1");
        assert_eq!(union(&[Some("a == 1"), None]), None);
        let long = format!("a == 1{}", " || a == 1".repeat(300));
        assert_eq!(union(&[Some(&long), Some("b"), Some(&format!("{long} || c"))]), None, "the kernel refuses it");
    }

    #[test]
    fn a_union_of_call_chains_has_the_frames_of_each() {
        let chain = |kernel, user, max_stack| Some(Callchain { kernel, user, max_stack });
        let (yes, no) = (Frames::Sampled, Frames::Excluded);
        assert_eq!(union_of_chains(None, chain(yes, no, Some(3))), chain(yes, no, Some(3)));
        assert_eq!(union_of_chains(chain(no, yes, Some(5)), chain(yes, no, Some(3))), chain(yes, yes, Some(5)));
        assert_eq!(union_of_chains(chain(yes, no, None), chain(yes, no, Some(3))), chain(yes, no, None));
    }
}
