//! Events of a recording that are the same tracepoint. A recording contains each event of the kernel once, so the
//! tracepoint is opened once, with everything that any of these events requests.

use std::{cmp::Reverse, collections::HashSet};

use anyhow::{Error, Result, anyhow, bail};
use perf_prof_capture::{Callchain, Capture, EventRequest, Frames, Presence, Writer};
use perf_prof_events::derive::Derived;
use perf_prof_format::{
    abi::PERF_TYPE_TRACEPOINT,
    spec::{CpuSet, Grouping},
    tracefs::Filter,
};

use super::select::Selected;
use crate::{
    engine::{
        pump::{SharedSamples, SharedTracepoint},
        sample_routes::Route,
    },
    selectors::union_of_filters,
};

/// Finds the events that are the same tracepoint, and decides which one of them is opened ([`Selected::samples_of`]).
/// Fails if no event can be opened for all of them.
pub fn share(events: &mut [Selected], derived: &[Derived]) -> Result<()> {
    let mut seen = HashSet::new();
    for first in 0..events.len() {
        if seen.contains(&first) {
            continue;
        }
        let same: Vec<usize> = (first..events.len()).filter(|&at| is_same(&events[first], &events[at])).collect();
        if same.len() > 1 {
            share_tracepoint(events, &same, derived)?;
        }
        seen.extend(same);
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
    check_groups_and_fields(events, same, opened)?;
    share_format(events, same, opened)?;
    let all = union_of_filters(same.iter().map(|&at| events[at].spec.filter.as_deref()));
    let is_input = |at: usize| derived.iter().any(|derived| derived.inputs.contains(&at));
    for &at in same {
        let own = own_filter(&events[at], all.as_deref()).map_err(|error| cannot_filter(events, same, at, &error))?;
        if own.is_some() && !is_input(at) {
            let Selected { spec, request, .. } = &events[at];
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

/// Fails if one of the events is in a group, or if the samples of `opened` lack fields of another event.
fn check_groups_and_fields(events: &[Selected], same: &[usize], opened: usize) -> Result<()> {
    let (one, other) = (&events[same[0]], &events[same[same.len() - 1]]);
    let name = &one.request.name;
    if same.iter().any(|&at| events[at].spec.grouping != Grouping::Alone) {
        let (one, other) = (&one.spec.selector, &other.spec.selector);
        bail!(
            "{one} and {other} need {name}, which a recording contains only once, and a group has it; select it outside \
             of the group"
        );
    }
    if let Some(&at) = same.iter().find(|&&at| at != opened && !has_fields_of(&events[opened], &events[at])) {
        let (one, other) = (&events[opened].spec.selector, &events[at].spec.selector);
        bail!(
            "{one} and {other} need {name}, which a recording contains only once, and their strings differ; select it \
             once, with all strings"
        );
    }
    Ok(())
}

/// Gives the events in `same` the format of `opened`, if a BPF program writes the samples of `opened`. Before that, `opened`
/// gets frames of Python functions if another of the events has them. The formats must be equal, because the frames come
/// after the strings in a sample, so their offset depends on the strings.
fn share_format(events: &mut [Selected], same: &[usize], opened: usize) -> Result<()> {
    let has_frames = |at: usize| events[at].format.has_interpreter_frames();
    if !has_frames(opened) && same.iter().any(|&at| has_frames(at)) {
        events[opened].add_interpreter_frames()?;
    }
    if events[opened].needs_program() {
        let format = events[opened].format.clone();
        same.iter().for_each(|&at| events[at].format = format.clone());
    }
    Ok(())
}

/// Returns the error that the filter of an event cannot be applied to recorded samples. The kernel cannot apply it,
/// because other events need more samples.
fn cannot_filter(events: &[Selected], same: &[usize], at: usize, error: &Error) -> Error {
    let Selected { spec, request, .. } = &events[at];
    let (one, name) = (&spec.selector, &request.name);
    let differs = |other: &&usize| events[**other].spec.filter != spec.filter;
    let other = same.iter().find(differs).map_or(one, |&other| &events[other].spec.selector);
    anyhow!(
        "{one} and {other} need {name}, which a recording contains only once, so the kernel cannot apply the filter of \
         {one}: {error}; record one of the two, or remove the filter"
    )
}

/// Returns the filter that selects an event's samples, if not all of them pass it. `all` is the filter with which the
/// kernel records the samples.
fn own_filter(event: &Selected, all: Option<&str>) -> Result<Option<Filter>> {
    let Some(text) = event.spec.filter.as_deref().filter(|text| Some(*text) != all) else { return Ok(None) };
    let format = event.format.tracepoint().ok_or_else(|| anyhow!("it is no tracepoint"))?;
    Ok(Some(Filter::parse(text, format)?))
}

/// Returns whether the samples of `one` have all fields of `other`, at the same places.
fn has_fields_of(one: &Selected, other: &Selected) -> bool {
    let (Some(one), Some(other)) = (one.format.tracepoint(), other.format.tracepoint()) else { return false };
    let is_in_one = |name: &str, offset| one.field(name).is_some_and(|field| field.offset == offset);
    other.fields().iter().all(|field| is_in_one(&field.name, field.offset))
}

/// Adds to the request of each opened event what the events that share the samples of this event request.
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

/// Returns the filter with which the kernel records the event `opened`. `None` if it records all of them, or if this event is
/// not opened.
pub fn recorded_filter(selected: &[Selected], opened: usize) -> Option<String> {
    let mut filters = sharing(selected, opened).map(|at| selected[at].spec.filter.as_deref()).peekable();
    filters.peek()?;
    union_of_filters(filters)
}

/// Returns the indices of the events that get the samples of the event `opened`. There are none if this event is not
/// opened.
fn sharing(selected: &[Selected], opened: usize) -> impl Iterator<Item = usize> {
    let gets = move |(at, event): (usize, &Selected)| (event.opened_at(at) == opened).then_some(at);
    selected.iter().enumerate().filter_map(gets)
}

pub(super) fn union_of_chains(one: Option<Callchain>, other: Option<Callchain>) -> Option<Callchain> {
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
        let all = union_of_filters(sharing.iter().map(|&at| selected[at].spec.filter.as_deref()));
        let routes = sharing.into_iter().map(|at| route(selected, at, all.as_deref())).collect::<Result<_>>()?;
        Ok(Some(SharedTracepoint { layout: capture.layout(opened), routes }))
    };
    Ok(Some(SharedSamples::new((0..selected.len()).map(tracepoint).collect::<Result<_>>()?)))
}

fn route(selected: &[Selected], event: usize, all: Option<&str>) -> Result<Route> {
    let filter = own_filter(&selected[event], all)?;
    Ok(Route { event, cpus: selected[event].spec.attrs.cpus.clone(), filter })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::{
        spec::{Attrs, EventKind, EventSpec},
        tracefs::EventFormat,
    };

    use super::*;
    use crate::live::select::EventLocation;

    const OPENAT: &str = "name: sys_enter_openat\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int dfd;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:16;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"%d %s\", REC->dfd, REC->filename\n";

    /// What the samples of an event have beyond the fields of the kernel.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Beyond {
        Nothing,
        Frames,
        Strings,
        StringsAndFrames,
    }

    impl Beyond {
        fn has_strings(self) -> bool {
            [Beyond::Strings, Beyond::StringsAndFrames].contains(&self)
        }

        fn has_frames(self) -> bool {
            [Beyond::Frames, Beyond::StringsAndFrames].contains(&self)
        }
    }

    fn selected(selector: &str, beyond: Beyond, filter: Option<&str>) -> Selected {
        let strings = if beyond.has_strings() { vec!["filename".to_owned()] } else { Vec::new() };
        let format = EventFormat::parse("syscalls", OPENAT).unwrap().with_strings(&strings).unwrap();
        let spec = EventSpec {
            selector: selector.to_owned(),
            kind: EventKind::Tracepoint { system: "syscalls".to_owned(), name: "sys_enter_openat".to_owned() },
            filter: filter.map(str::to_owned),
            attrs: Attrs::default(),
            grouping: Grouping::Alone,
        };
        let mut selected = Selected::tracepoint(&spec, Arc::new(format), EventLocation::Kernel);
        if beyond.has_frames() {
            selected.add_interpreter_frames().unwrap();
        }
        selected
    }

    fn orders<T: Copy>(one: T, other: T, third: T) -> [[T; 3]; 6] {
        [
            [one, other, third],
            [one, third, other],
            [other, one, third],
            [other, third, one],
            [third, one, other],
            [third, other, one],
        ]
    }

    #[test]
    fn all_events_read_the_strings_and_frames_that_one_of_them_requests() {
        use Beyond::{Frames, Nothing, Strings, StringsAndFrames};
        for (one, other, third) in [
            (Nothing, Nothing, Frames),
            (Nothing, Frames, Strings),
            (Nothing, Frames, StringsAndFrames),
            (Nothing, Nothing, Strings),
            (Nothing, Strings, StringsAndFrames),
        ] {
            let all = [one, other, third];
            for order in orders(one, other, third) {
                let mut events: Vec<_> = order.iter().map(|&beyond| selected("event", beyond, None)).collect();
                share(&mut events, &[]).unwrap();
                let opened: Vec<_> = events.iter().filter(|event| event.samples_of.is_none()).collect();
                assert_eq!(opened.len(), 1, "{order:?}");
                let expected = opened[0].format.tracepoint().unwrap();
                assert!(opened[0].needs_program(), "{order:?}");
                let (strings, frames) = (expected.strings().len(), expected.interpreter_frames_offset());
                assert_eq!(strings == 1, all.iter().any(|beyond| beyond.has_strings()), "{order:?}");
                assert_eq!(frames.is_some(), all.iter().any(|beyond| beyond.has_frames()), "{order:?}");
                for event in &events {
                    let format = event.format.tracepoint().unwrap();
                    assert_eq!(format.interpreter_frames_offset(), frames, "{order:?}");
                    assert_eq!(format.strings(), expected.strings(), "{order:?}");
                }
            }
        }
    }

    /// Returns the events after they were shared, or the message that they cannot be.
    fn shared(filters: &[(&str, Beyond, Option<&str>)]) -> Result<Vec<Selected>, String> {
        let mut events: Vec<_> = filters.iter().map(|&(name, beyond, filter)| selected(name, beyond, filter)).collect();
        share(&mut events, &[]).map_err(|error| error.to_string())?;
        Ok(events)
    }

    #[test]
    fn each_filter_that_selects_fewer_events_than_the_recording_has_is_told_once() {
        use Beyond::{Nothing, Strings};
        for (one, other, third) in
            [(Nothing, Strings, Nothing), (Nothing, Nothing, Strings), (Strings, Nothing, Nothing)]
        {
            let filters = [("a", one, Some("dfd == 1")), ("b", other, Some("dfd == 2")), ("c", third, None)];
            let events = shared(&filters).unwrap();
            let told: Vec<usize> = events.iter().map(|event| event.lacks.len()).collect();
            assert_eq!(told, [1, 1, 0], "{filters:?}");
        }
    }

    #[test]
    fn a_filter_that_samples_cannot_be_compared_with_is_refused_beside_a_selector_of_more_events() {
        use Beyond::{Nothing, Strings};
        for filter in ["comm == \"app\"", "filename == \"/etc\""] {
            for (of_one, of_other) in [(Nothing, Nothing), (Nothing, Strings), (Strings, Nothing)] {
                let why = shared(&[("one", of_one, Some(filter)), ("other", of_other, None)]).unwrap_err();
                let start = "one and other need syscalls:sys_enter_openat, which a recording contains only once, so the \
                             kernel cannot apply the filter of one: `";
                assert!(why.starts_with(start), "{why}");
                assert!(why.ends_with("; record one of the two, or remove the filter"), "{why}");
            }
            let both = shared(&[("one", Nothing, Some(filter)), ("other", Nothing, Some(filter))]).unwrap();
            assert!(both.iter().all(|event| event.lacks.is_empty()), "the kernel applies it");
            assert!(route(&both, 1, Some(filter)).unwrap().filter.is_none());
        }
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
