//! Tests of all definitions: the grammar knows their names, and their examples work.

use perf_prof_format::{
    spec::{EventKind, SPAN_SOURCES, parse_events},
    tracefs::Filter,
};

use super::*;
use crate::{
    derive::span::Presence,
    event::{SpanField, SpanFieldKind},
};

#[test]
fn the_grammar_knows_the_names_of_all_sources() {
    let of_grammar: Vec<&str> = SOURCES.iter().map(|source| source.name).filter(|name| *name != "function").collect();
    assert_eq!(of_grammar, SPAN_SOURCES);
}

#[test]
fn the_example_of_a_source_selects_it() {
    for source in SOURCES {
        let specs = parse_events(source.example).unwrap_or_else(|error| panic!("{}: {error}", source.example));
        let EventKind::Span(span) = &specs[0].kind else { panic!("{}", source.example) };
        assert_eq!(source_of(span).unwrap().map(|source| source.name), Some(source.name));
        source
            .filter(span, specs[0].filter.as_deref(), &source.span_fields())
            .unwrap_or_else(|error| panic!("{}: {error}", source.example));
    }
}

#[test]
fn a_source_has_each_field_once() {
    for source in SOURCES {
        let mut names: Vec<&str> = source.fields.iter().map(|field| field.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{}", source.name);
        assert!(["duration", "open", "begin", "end", "between"].iter().all(|name| !names.contains(name)));
    }
}

#[test]
fn sources_work_without_the_events_of_dependent_fields() {
    for source in SOURCES {
        let rules: Vec<_> = source.rules.iter().map(|rule| rule.resolve(None)).collect();
        for event in source.dependent.iter().flat_map(|dependent| dependent.events) {
            let mut own = rules.iter().filter(|rule| {
                matches!(&rule.event, EventKind::Tracepoint { system, name } if format!("{system}:{name}") == *event)
            });
            assert!(own.clone().count() != 0 && own.all(|rule| rule.presence != Presence::Needed), "{event}");
        }
    }
}

#[test]
fn every_source_selects_tasks_by_their_names() {
    for source in SOURCES {
        let (name, _) = source.example.split_once('/').unwrap();
        let selector = format!("{name}/comm=make|cc*/");
        let spec = parse_events(&selector).unwrap().remove(0);
        let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
        let has_field = source.fields.iter().any(|field| field.name == "comm");
        assert_eq!(source.filter(span, None, &source.span_fields()).unwrap().is_some(), has_field, "{selector}");
        let names = if has_field { &[][..] } else { &["make", "cc*"] };
        assert_eq!(source.comms(span), names, "{selector}");
    }
}

#[test]
fn options_and_filters_that_a_source_does_not_have_are_reported() {
    let rows = [
        ("offcpu/blockd=5/", "offcpu has no option `blockd`; did you mean blocked?"),
        ("offcpu/pid=make/", "pid=make: `pid` of offcpu has to be a number"),
        ("offcpu/pdi > 3/", "the filter `pdi > 3`: the event has no field `pdi`"),
        ("syscall/failed=1/", "syscall has no option `failed`"),
        ("lock/comms=make/", "lock has no option `comms`; did you mean comm?"),
        ("lock/comms=make/", "comm=VALUE|VALUE"),
        ("lock/comm/", "lock has no option `comm`"),
        ("lock/comm==\"make\"/", "an option selects tasks by their names: comm=NAME"),
    ];
    for (selector, part) in rows {
        let error = filter_of(selector).unwrap_err().to_string();
        assert!(error.contains(part), "{selector}: {error}");
    }
}

#[test]
fn a_value_that_a_field_never_has_is_an_error() {
    let rows = [
        ("syscall/name=opnat/", "`name` of syscall is never `opnat`; did you mean openat"),
        ("syscall/name=read|opnat/", "`opnat`"),
        ("syscall/name==\"opnat\" && duration > 5/", "`name` of syscall is never `opnat`; did you mean openat"),
        ("syscall/!(name ~ \"opnat*\")/", "`name` of syscall is never `opnat*`"),
        ("syscall/errno=ENONET1/", "`errno` of syscall is never `ENONET1`; did you mean ENONET"),
        ("tcp/reset=rcvd/", "its values: received, sent"),
        ("offcpu/state=sleepng/", "did you mean sleeping?\nits values: preempted, sleeping, disk"),
        ("task-state/state=runable/", "did you mean runnable?"),
        ("signal/name=TERM/", "`name` of signal is never `TERM`"),
        ("block-io/op=wirte/", "did you mean write?"),
        ("offcpu/state==disk,comm=x/", "write `/` in its place, or only options: `state=disk,comm=x`"),
        ("syscall/ret > 0/name=*write*,str/", "write `/` in its place"),
    ];
    for (selector, part) in rows {
        let error = filter_of(selector).unwrap_err().to_string();
        assert!(error.contains(part), "{selector}: {error}");
    }
    // Numbers without a name, patterns, and fields without a list of texts.
    let accepted = [
        "syscall/name=open*|sys_467/",
        "syscall/errno=errno_600|ENOENT/",
        "syscall/errno==\"\"/",
        "signal/name=SIGRTMIN+3/",
        "process/signal=unknown|SIGKILL/",
        "softirq/name=12|NET_*/",
        "lock/kind=futex/",
        "offcpu/comm=nobody/",
    ];
    for selector in accepted {
        filter_of(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    }
}

/// Returns the filter that a selector of a source stands for.
fn filter_of(selector: &str) -> Result<Option<Filter>, SpanError> {
    let spec = parse_events(selector).unwrap().remove(0);
    let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
    let source = source_of(span)?.unwrap();
    source.filter(span, spec.filter.as_deref(), &source.span_fields())
}

/// In a filter, the arguments of a function's probe are fields too. They follow the fields of the source.
#[test]
fn a_filter_may_compare_the_text_of_an_argument() {
    let spec = parse_events("function:f@\"/bin/true\"/q ~ \"SELECT*\"/").unwrap().remove(0);
    let EventKind::Span(span) = &spec.kind else { panic!() };
    let source = source_of(span).unwrap().unwrap();
    let argument = SpanField { kind: SpanFieldKind::Text, ..SpanField::of_begin("q", Vec::new()) };
    let fields = [source.span_fields(), vec![argument]].concat();
    assert!(source.filter(span, spec.filter.as_deref(), &fields).unwrap().is_some());
}

/// The kernel's filter may select more calls than the option `name=`, but never fewer.
#[cfg(target_arch = "x86_64")]
#[test]
fn names_of_calls_narrow_what_the_kernel_delivers() {
    let narrowed = |selector: &str, bits| {
        let spec = parse_events(selector).unwrap().remove(0);
        let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
        source_of(span).unwrap().unwrap().narrow.unwrap()(&span.options, bits)
    };
    let rows = [
        ("syscall/name=openat/", ProgramBits::Only64, Some("id == 257")),
        ("syscall/name=openat/", ProgramBits::Any, Some("id == 257 || id == 295")),
        ("syscall/name=unlink*/", ProgramBits::Only64, Some("id == 87 || id == 263")),
        ("syscall/name=unlink*/", ProgramBits::Any, Some("id == 10 || id == 87 || id == 263 || id == 301")),
        // The return has another number than the entry.
        ("syscall/name=rt_sigreturn/", ProgramBits::Only64, Some("id == -1 || id == 15")),
        ("syscall/name=execveat/", ProgramBits::Any, Some("id == 11 || id == 59 || id == 322 || id == 358")),
        // A pattern may mean calls that have no name yet, such as `sys_4000`, or too many of them.
        ("syscall/name=sys*/", ProgramBits::Any, None),
        ("syscall/name=*get*/", ProgramBits::Any, None),
        ("syscall/failed/", ProgramBits::Any, None),
    ];
    for (selector, bits, filter) in rows {
        assert_eq!(narrowed(selector, bits).as_deref(), filter, "{selector}");
    }
}

#[test]
fn fields_of_the_option_str_are_options_with_it_and_an_error_names_it_without_it() {
    let filter = |selector: &str| {
        let spec = parse_events(selector).unwrap().remove(0);
        let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
        let source = source_of(span).unwrap().unwrap();
        let strings = source.string_fields().filter(|_| asks_for_strings(span));
        source.filter(
            span,
            spec.filter.as_deref(),
            &source.span_fields().into_iter().chain(strings).collect::<Vec<_>>(),
        )
    };
    for selector in ["syscall/str,path=*.so|*.a/", "syscall/str,mnt_ns=4026532345/", "syscall/path ~ \"/etc/*\"/str/"] {
        assert!(filter(selector).unwrap().is_some(), "{selector}");
    }
    let written = [
        ("syscall/path=*.so,failed/", "syscall/str, path=*.so/"),
        ("syscall/mnt_ns == 7/failed/", "syscall/mnt_ns == 7/str/"),
    ];
    for (selector, hint) in written {
        let error = filter(selector).unwrap_err().to_string();
        assert!(error.contains(&format!("only with the option `str`: write `{hint}`")), "{selector}: {error}");
    }
    assert!(filter("syscall/paths=*.so/").unwrap_err().to_string().contains("has no option `paths`"));
}
