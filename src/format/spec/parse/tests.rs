//! Tests that selectors are parsed to the right events, and that wrong ones are reported.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::spec::{Sampled, Stack, handler_name};

#[track_caller]
fn check(list: &str, expected: Expect) {
    let actual = match parse_events(list) {
        Ok(events) => events.iter().map(show).collect::<Vec<_>>().join("\n"),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&actual);
}

fn show(event: &EventSpec) -> String {
    let mut line = match &event.kind {
        EventKind::Tracepoint { system, name } => format!("tracepoint {system} {name}"),
        EventKind::Source { name, option, modifiers } => format!("source {name} option={option:?} [{modifiers}]"),
        EventKind::Breakpoint { breakpoint, option, modifiers } => {
            format!("{breakpoint} option={option:?} [{modifiers}]")
        }
        EventKind::Probe(probe) => probe.to_string(),
        EventKind::Span(span) => span.to_string(),
    };
    if event.is_pattern() {
        line += " pattern";
    }
    if let Some(filter) = &event.filter {
        line += &format!(" filter=[{filter}]");
    }
    if event.attrs.stack == Stack::On {
        line += " stack";
    }
    if let Some(frames) = event.attrs.max_stack {
        line += &format!(" max-stack={frames}");
    }
    if let Some(alias) = &event.attrs.alias {
        line += &format!(" alias=[{alias}]");
    }
    if let Some(cpus) = &event.attrs.cpus {
        line += &format!(" cpus={cpus}");
    }
    if let Some(rate) = event.attrs.rate {
        line += &format!(" {rate:?}");
    }
    if !event.attrs.sample.is_empty() {
        line += &format!(" sample={:?}", event.attrs.sample);
    }
    if event.grouping != Grouping::Alone {
        line += &format!(" {:?}", event.grouping);
    }
    line
}

/// Returns a list that requests these events.
fn list(events: &[EventSpec]) -> String {
    let mut list = String::new();
    let mut of_group = None;
    let close = |list: &mut String, of_group: &mut Option<Sampled>| match of_group.take() {
        Some(Sampled::Each) => list.push('}'),
        Some(Sampled::Leader) => list.push_str("}:S"),
        None => {}
    };
    for event in events {
        if !event.grouping.is_member() {
            close(&mut list, &mut of_group);
        }
        list += if list.is_empty() { "" } else { "," };
        if let Grouping::Leader(sampled) = event.grouping {
            list.push('{');
            of_group = Some(sampled);
        }
        list += &event.to_string();
    }
    close(&mut list, &mut of_group);
    list
}

#[test]
fn tracepoints() {
    check("sched:sched_wakeup", expect!["tracepoint sched sched_wakeup"]);
    check(
        "sched:sched_wakeup, sched:sched_switch",
        expect![[r#"
        tracepoint sched sched_wakeup
        tracepoint sched sched_switch"#]],
    );
    check(
        "sched:sched_*,*:*[ab]?",
        expect![[r#"
        tracepoint sched sched_* pattern
        tracepoint * *[ab]? pattern"#]],
    );
    check("sched:sched_wakeup/pid>1000/", expect!["tracepoint sched sched_wakeup filter=[pid>1000]"]);
    check("sched:sched_wakeup//", expect!["tracepoint sched sched_wakeup"]);
    check("sched:sched_wakeup//stack/", expect!["tracepoint sched sched_wakeup stack"]);
    check(
        "sched:sched_wakeup//alias=w1/,sched:sched_wakeup//alias=w2/",
        expect![[r#"
        tracepoint sched sched_wakeup alias=[w1]
        tracepoint sched sched_wakeup alias=[w2]"#]],
    );
    check(
        "a:b/x<1 && y==2 || !(z & 4)/max-stack=16/alias=\"my, alias/1\"/cpus=0-3/,c:d",
        expect![[r#"
        tracepoint a b filter=[x<1 && y==2 || !(z & 4)] stack max-stack=16 alias=[my, alias/1] cpus=0-3
        tracepoint c d"#]],
    );
}

#[test]
fn commas_and_slashes_in_quotes_and_parentheses_do_not_separate() {
    check(
        "a:b/comm ~ \"foo/b,ar*\"/,c:d",
        expect![[r#"
        tracepoint a b filter=[comm ~ "foo/b,ar*"]
        tracepoint c d"#]],
    );
    check(
        "a:b/comm == 'it/s' || comm != \"'\"/",
        expect![[r#"tracepoint a b filter=[comm == 'it/s' || comm != "'"]"#]],
    );
    check("a:b/(pid==1/2,3)/stack/", expect!["tracepoint a b filter=[(pid==1/2,3)] stack"]);
    check(
        "a:b/\"pid>1/2\"/,a:b/'comm ~ \"x/*\"'/",
        expect![[r#"
        tracepoint a b filter=[pid>1/2]
        tracepoint a b filter=[comm ~ "x/*"]"#]],
    );
    check("a:b//cpus='0,2'/", expect!["tracepoint a b cpus=0,2"]);
}

#[test]
fn a_comma_in_an_open_section_belongs_to_it() {
    check(
        "a:b//cpus=0,2/,c:d",
        expect![[r#"
        tracepoint a b cpus=0,2
        tracepoint c d"#]],
    );
    check(
        "a:b/target_cpu & CPUS{0,2}/stack/,c:d",
        expect![[r#"
        tracepoint a b filter=[target_cpu & CPUS{0,2}] stack
        tracepoint c d"#]],
    );
}

#[test]
fn other_sources() {
    check("profile", expect!["source profile option=None []"]);
    check(
        "profile/-F 997 -g/alias=p/,task-state",
        expect![[r#"
            source profile option=Some("-F 997 -g") [] alias=[p]
            task-state"#]],
    );
    check(
        "kprobe:vfs_read,kretprobe:vfs_read+0x10//stack/",
        expect!["error: kretprobe:vfs_read+0x10//stack/: a return probe takes no offset; leave out `+0x10`"],
    );
    check(
        "uprobe:malloc@\"/usr/lib/libc.so.6\"/pid>1/",
        expect![[r#"uprobe:malloc@"/usr/lib/libc.so.6" filter=[pid>1]"#]],
    );
}

#[test]
fn a_system_call_has_its_strings_by_an_option_of_its_source() {
    check(
        "openat//str/",
        expect![
            "error: openat//str/: str: has fields only for tracepoints; for the strings of this system call, write syscall/name=openat,str/"
        ],
    );
    check("a:b//str/", expect!["error: a:b//str/: str: needs a value; write str=FIELD+FIELD..."]);
}

#[test]
fn errors() {
    check(
        "",
        expect!["error: the list of events `` is empty or has an empty element: write system:name[,system:name...]"],
    );
    check(
        "a:b,,c:d",
        expect![
            "error: the list of events `a:b,,c:d` is empty or has an empty element: write system:name[,system:name...]"
        ],
    );
    check(
        "a:b,",
        expect![
            "error: the list of events `a:b,` is empty or has an empty element: write system:name[,system:name...]"
        ],
    );
    check(
        "/x/",
        expect!["error: the list of events `/x/` is empty or has an empty element: write system:name[,system:name...]"],
    );
    check("a:b/pid>1", expect!["error: a:b: the section `/pid>1` is not closed; end it with `/`"]);
    check("a:b/pid>1,c:d", expect!["error: a:b: the section `/pid>1,c:d` is not closed; end it with `/`"]);
    check("a:b/comm ~ \"x/", expect![[r#"error: a:b/comm ~ "x/: the " is never closed"#]]);
    check("a:b/comm ~ 'x/", expect!["error: a:b/comm ~ 'x/: the ' is never closed"]);
    check("a:b/(pid>1/", expect!["error: a:b/(pid>1/: the ( is never closed"]);
    check(
        "a:b//stak/",
        expect![
            "error: a:b//stak/: unknown attribute `stak` (did you mean stack?); the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH"
        ],
    );
    check(
        "a:b//key=pid/",
        expect![
            "error: a:b//key=pid/: perf-prof does not support the attribute `key` of the C implementation; remove it; the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH"
        ],
    );
    check("a:b//stack=1/", expect!["error: a:b//stack=1/: stack: takes no value, but `1` was given"]);
    check(
        "a:b//max-stack=0/",
        expect!["error: a:b//max-stack=0/: max-stack: `0` is not a number of frames between 1 and 65535"],
    );
    check("a:b//max-stack/", expect!["error: a:b//max-stack/: max-stack: needs a value; write max-stack=N"]);
    check("a:b//alias=/", expect!["error: a:b//alias=/: alias: needs a value; write alias=NAME"]);
    check("a:b//alias=x/alias=y/", expect!["error: a:b//alias=x/alias=y/: alias: was given twice"]);
    check(
        "a:b//cpus=x/",
        expect![
            "error: a:b//cpus=x/: cpus: `x` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"
        ],
    );
    check(
        "a:b:u",
        expect![
            "error: a:b:u: `a:b:u` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
    check(
        ":b",
        expect![
            "error: :b: `:b` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
    check(
        "a b:c",
        expect![
            "error: a b:c: `a b:c` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
    check(
        "sched_*",
        expect![
            "error: sched_*: wildcards match tracepoints only; write system:name, for example sched:* or *:*wakeup*, and syscall/name=open*/ for system calls"
        ],
    );
    check(
        "kprobe:",
        expect!["error: kprobe:: the function is missing; write kprobe:FUNCTION[+OFFSET] or kprobe:0xADDRESS"],
    );
    check(
        "a:b/file ~ /usr/*/",
        expect![
            "error: a:b/file ~ /usr/*/: unknown attribute `usr` (a filter that contains a `/` has to be in quotes); the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH"
        ],
    );
}

#[test]
fn attributes_with_commas_are_refused_with_the_right_form() {
    check(
        "syscall/path ~ \"/tmp/*\"/failed,str/",
        expect![[
            r#"error: syscall/path ~ "/tmp/*"/failed,str/: unknown attribute `failed,str` (a `/` separates attributes: failed/str/); the known attributes are stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH"#
        ]],
    );
}

#[test]
fn matching() {
    let spec = |list: &str| parse_events(list).unwrap().remove(0);
    assert!(spec("sched:sched_wakeup").matches("sched", "sched_wakeup"));
    assert!(!spec("sched:sched_wakeup").matches("sched", "sched_wakeup_new"));
    assert!(spec("s*:*wakeup*").matches("sched", "sched_wakeup_new"));
    assert!(!spec("profile").matches("profile", ""));
}

#[test]
fn handlers() {
    assert_eq!(handler_name("sched", "sched_wakeup"), "sched__sched_wakeup");
    assert_eq!(handler_name("a-b.c", "d:e-f"), "a_b_c__d_e_f");
    assert_eq!(handler_name("4x\n(\"", "größe²"), "_4x_____größe_");
}

#[test]
fn perf_events_by_their_names() {
    check(
        "cycles:u,cpu-clock,page-faults:k",
        expect![[r#"
        source cycles option=None [u]
        source cpu-clock option=None []
        source page-faults option=None [k]"#]],
    );
    check(
        "cycles:pp/period=1000/stack/,instructions//F=99/:u",
        expect![[r#"
        source cycles option=Some("period=1000") [pp] stack
        source instructions option=None [u] Frequency(99)"#]],
    );
    check(
        "cpu/event=0xc0,umask=1/u,cpu/cache-misses,name=x/:kp,r00c0:u",
        expect![[r#"
        source cpu option=Some("event=0xc0,umask=1") [u]
        source cpu option=Some("cache-misses,name=x") [kp]
        source r00c0 option=None [u]"#]],
    );
    check(
        "cpu-clock//c=1000000/sample=regs_user+read/,L1-dcache-load-misses//freq=max/",
        expect![[r#"
        source cpu-clock option=None [] Period(1000000) sample=["regs_user", "read"]
        source L1-dcache-load-misses option=None [] MaxFrequency"#]],
    );
    // A system is not an event's name, so text after its colon is never a modifier, even if it is short.
    check(
        "sched:u,cycles:sched_switch",
        expect![[r#"
        tracepoint sched u
        tracepoint cycles sched_switch"#]],
    );
}

#[test]
fn breakpoints() {
    check(
        "mem:0x601040,mem:0x601040/4,mem:4096:w,mem:0x10/8:rw:u",
        expect![[r#"
        mem:0x601040:rw option=None []
        mem:0x601040/4:rw option=None []
        mem:0x1000:w option=None []
        mem:0x10/8:rw option=None [u]"#]],
    );
    check(
        "mem:0x10/4//stack/,mem:0x10//alias=x/,mem:0x10/1:x/period=5/:k",
        expect![[r#"
        mem:0x10/4:rw option=None [] stack
        mem:0x10:rw option=None [] alias=[x]
        mem:0x10/1:x option=Some("period=5") [k]"#]],
    );
    for wrong in ["mem:", "mem:x", "mem:main", "mem:0x10/3", "mem:0x10:q", "mem:0x10:w:w:u", "mem:0x10/4/"] {
        assert!(parse_events(wrong).is_err(), "{wrong}");
    }
    check(
        "mem:0x10/3",
        expect![
            "error: mem:0x10/3: write a breakpoint as mem:ADDR[/LEN][:rwx], with an address such as 0x601040, a length of 1, 2, 4 or 8 and the accesses to watch"
        ],
    );
}

#[test]
fn groups() {
    check(
        "{a:b,cycles:u}",
        expect![[r#"
        tracepoint a b Leader(Each)
        source cycles option=None [u] Member(Each)"#]],
    );
    check(
        "x, { cpu-clock , page-faults:k } : Su , {a:b},c:d",
        expect![[r#"
        source x option=None []
        source cpu-clock option=None [u] Leader(Leader)
        source page-faults option=None [uk] Member(Leader)
        tracepoint a b Leader(Each)
        tracepoint c d"#]],
    );
    check(
        "{cycles:pp,instructions}:kP",
        expect![[r#"
        source cycles option=None [kpp] Leader(Each)
        source instructions option=None [kP] Member(Each)"#]],
    );
    check(
        "{a:b/cpu & CPUS{0,2}/stack/,mem:0x10/4:w,cpu-clock//cpus=0,1/}:S",
        expect![[r#"
        tracepoint a b filter=[cpu & CPUS{0,2}] stack Leader(Leader)
        mem:0x10/4:w option=None [] Member(Leader)
        source cpu-clock option=None [] cpus=0-1 Member(Leader)"#]],
    );
    check(
        "{a:b/comm ~ \"},\"/,k*:*}",
        expect![[r#"
        tracepoint a b filter=[comm ~ "},"] Leader(Each)
        tracepoint k* * pattern Member(Each)"#]],
    );
}

#[test]
fn errors_of_groups() {
    check("{}", expect!["error: {}: the group is empty; write {event,event...}"]);
    check("{ }:S", expect!["error: { }:S: the group is empty; write {event,event...}"]);
    check(
        "{a:b,}",
        expect![
            "error: the list of events `{a:b,}` is empty or has an empty element: write system:name[,system:name...]"
        ],
    );
    check("{a:b", expect!["error: {a:b: the { is never closed"]);
    check("{a:b,c:d/x", expect!["error: {a:b,c:d/x: the { is never closed"]);
    check("{a:b/x}", expect!["error: a:b: the section `/x` is not closed; end it with `/`"]);
    check(
        "{a:b,{c:d}}",
        expect!["error: {a:b,{c:d}}: a group cannot contain another group; remove the braces at `{c:d}`"],
    );
    check(
        "{a:b,{c:d},e:f}",
        expect!["error: {a:b,{c:d}: a group cannot contain another group; remove the braces at `{c:d`"],
    );
    check(
        "{a:b}}",
        expect![
            "error: a:b}: `a:b}` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
    check(
        "{a:b}x,c:d",
        expect![
            "error: {a:b}: `x,c:d` cannot follow a group; a group can be followed by `:S` (only the leader is sampled, and it reads all counters) and the modifiers ukhGHIpP, for example `{a,b}:Su`"
        ],
    );
    check(
        "{a:b}:",
        expect![
            "error: {a:b}: `:` cannot follow a group; a group can be followed by `:S` (only the leader is sampled, and it reads all counters) and the modifiers ukhGHIpP, for example `{a,b}:Su`"
        ],
    );
    check(
        "{a:b}:Q",
        expect![
            "error: {a:b}: `:Q` cannot follow a group; a group can be followed by `:S` (only the leader is sampled, and it reads all counters) and the modifiers ukhGHIpP, for example `{a,b}:Su`"
        ],
    );
    check(
        "{cycles,a:b}:Su",
        expect![
            "error: a:b: a tracepoint takes no modifiers, so `:u` cannot be used for its group; write `:u` after each event that is not a tracepoint, for example `{cycles:u,sched:sched_switch}`"
        ],
    );
    check(
        "a:b}",
        expect![
            "error: a:b}: `a:b}` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
    check(
        "n{a:b}",
        expect![
            "error: n{a:b}: `n{a:b}` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
        ],
    );
}

#[test]
fn errors_of_groups_whose_leader_is_sampled() {
    check(
        "{a:b,cycles//F=9/}:S",
        expect![
            "error: cycles//F=9/: in a group with `:S`, only the first event is sampled; remove freq, which says how an event is sampled, from this event"
        ],
    );
    check(
        "{a:b,c:d//stack/}:S",
        expect![
            "error: c:d//stack/: in a group with `:S`, only the first event is sampled; remove stack, which says how an event is sampled, from this event"
        ],
    );
}

#[test]
fn rates_and_members_are_not_for_tracepoints() {
    check(
        "a:b//period=3/",
        expect![
            "error: a:b//period=3/: a tracepoint cannot have the attribute period, because every hit of a tracepoint is an event; remove period"
        ],
    );
    check(
        "a:b//sample=addr/",
        expect![
            "error: a:b//sample=addr/: a tracepoint cannot have the attribute sample, because every hit of a tracepoint is an event; remove sample"
        ],
    );
    check(
        "cycles//F=0/",
        expect!["error: cycles//F=0/: freq: `0` is neither a number of samples per second nor `max`"],
    );
    check(
        "cycles//c=x/",
        expect!["error: cycles//c=x/: period: `x` is not a period; it must be a number of occurrences above 0"],
    );
    check("cycles//c=5/F=7/", expect!["error: cycles//c=5/F=7/: period or freq: was given twice"]);
}

proptest! {
    #[test]
    fn any_text_is_a_list_or_an_error(list in ".*|[a:/,'\"() =*{}S]{0,40}") {
        let _ = parse_events(&list);
    }

    #[test]
    fn display_parses_back(list in "(p|a:b|k*:[c]|uprobe:f@\"/x\"|uprobe:[f:+@\"/x0 ]{1,9}|k(ret)?probe:[f+:x0]{1,5}|cycles:u|r1f|mem:0x10(/4)?(:w)?(:k)?)(/[x'\",( )/=]{0,12}/(stack/|alias=['\"a/ ]{1,6}/|max-stack=7/|cpus=0,2-5/|c=[0-2]/|F=max/|sample=[ab+]{1,3}/){0,3}(:u|kpp)?)?|[{]((a:b|cpu-clock(:[uk])?|mem:0x10(/4)?)(/[x}]{0,3}/(alias=[ab]/)?)?,?){0,3}[}](:[Suk]{1,3})?(,[{]a:b[}])?") {
        if let Ok(events) = parse_events(&list) {
            let shown = self::list(&events);
            let again = parse_events(&shown).map_err(|error| TestCaseError::fail(format!("{shown:?}: {error}")))?;
            let meaning = |events: &[EventSpec]| {
                events.iter().map(|event| (event.kind.clone(), event.filter.clone(), event.attrs.clone(), event.grouping)).collect::<Vec<_>>()
            };
            prop_assert_eq!(meaning(&events), meaning(&again));
        }
    }
}
