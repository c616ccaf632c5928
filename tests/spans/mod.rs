//! Spans of real events of a known workload, live and from a recording.

mod aggregators;
mod copies;
mod jobs;
mod losses;
mod unclear;

use expect_test::expect;

use crate::{
    harness::{
        machine::{Need, needs},
        run::perf_prof,
        script::{Run, prints},
    },
    sources::{live_and_recorded, replay},
};

/// The span from `getpgid` to `getsid`, which only tests call. Their argument is the key.
const PAIR: &str = "span:pair=syscalls:sys_enter_getpgid..syscalls:sys_enter_getsid";

/// A script that prints each span, and the counts at the end.
const SCRIPT: &str = "
import perf_prof

def span__pair(e):
    print(e._event, e.pid, e.begin.pid, e.end and e.end.pid, e.open, e.comm, e.duration >= 20_000_000)

def __exit__():
    counts = perf_prof.stats()['events']['span:pair']
    print({name: counts[name] for name in ('delivered', 'opened', 'ended', 'open', 'dropped', 'without_begin')})
";

/// Returns the operation that calls `getsid` with this argument.
fn getsid(number: u32) -> String {
    format!("syscall {} {number} 0 0", libc::SYS_getsid)
}

#[test]
fn a_span_has_its_key_both_events_and_its_duration() {
    let operations = format!("comm pairs call 7 sleep-ms 20 call 8 {} {}", getsid(8), getsid(7));
    live_and_recorded(
        SCRIPT,
        &format!("{PAIR}//key=pid/"),
        &operations,
        expect![[r#"
            span:pair 8 8 8 False pairs False
            span:pair 7 7 7 False pairs True
            {'delivered': 2, 'opened': 2, 'ended': 2, 'open': 0, 'dropped': 0, 'without_begin': 0}
        "#]],
    );
}

#[test]
fn spans_that_the_filter_refuses_are_counted_and_not_delivered() {
    let operations = format!("call 1 {} call 2 sleep-ms 20 {} call 3 {}", getsid(1), getsid(2), getsid(3));
    let rows = [
        ("/duration >= 20000000/key=pid/", "2"),
        ("//key=pid/min=20ms/", "2"),
        ("/begin.pid == 3 && pid > 2/key=pid/", "3"),
        ("/duration == 0/key=pid/", ""),
    ];
    needs([Need::Tracefs]);
    for (rest, expected) in rows {
        let script = "
import perf_prof
def span__pair(e): print(e.pid)
def __exit__():
    counts = perf_prof.stats()['events']['span:pair']
    print(counts['ended'], counts['without_begin'])
";
        let outcome = Run::script(script).event(format!("{PAIR}{rest}")).workload(&operations).run();
        let lines = outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            (lines.as_str(), outcome.status),
            (format!("{expected} 3 0").trim(), 0),
            "{rest}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn a_key_that_begins_again_drops_the_span_that_is_open() {
    let operations = format!("comm again call 4 sleep-ms 20 call 4 {} {} call 5", getsid(4), getsid(4));
    live_and_recorded(
        SCRIPT,
        &format!("{PAIR}//key=pid/open/"),
        &operations,
        expect![[r#"
            span:pair 4 4 4 False again False
            span:pair 5 5 None True again False
            {'delivered': 2, 'opened': 3, 'ended': 1, 'open': 1, 'dropped': 1, 'without_begin': 1}
        "#]],
    );
}

#[test]
fn of_nested_spans_the_last_one_ends_first() {
    let operations = format!("comm nested call 4 sleep-ms 20 call 4 {} {} {}", getsid(4), getsid(4), getsid(4));
    live_and_recorded(
        SCRIPT,
        &format!("{PAIR}//key=pid/nested/"),
        &operations,
        expect![[r#"
            span:pair 4 4 4 False nested False
            span:pair 4 4 4 False nested True
            {'delivered': 2, 'opened': 2, 'ended': 2, 'open': 0, 'dropped': 0, 'without_begin': 1}
        "#]],
    );
}

#[test]
fn a_full_table_drops_the_oldest_span() {
    let operations = format!("comm full call 1 call 2 call 3 {} {} {}", getsid(1), getsid(2), getsid(3));
    live_and_recorded(
        SCRIPT,
        &format!("{PAIR}//key=pid/max-open=2/"),
        &operations,
        expect![[r#"
            span:pair 2 2 2 False full False
            span:pair 3 3 3 False full False
            {'delivered': 2, 'opened': 3, 'ended': 2, 'open': 0, 'dropped': 1, 'without_begin': 1}
        "#]],
    );
}

#[test]
fn a_system_call_is_a_span_of_its_thread() {
    let script = "
import copy, pickle

kept = []

def span__call(e):
    kept.append(e)

def __exit__():
    for e in kept:
        print(e.begin.pid, e.end.ret > 0, e.duration == e.end._time - e.begin._time, e._time == e.end._time)
        print(e._tid == e.begin._tid == e.end._tid, copy.copy(e) == e, dict(pickle.loads(pickle.dumps(e)))['begin'] == e.begin)
    print(kept[0].keys()[-5:], type(kept[0].begin).__name__, kept[0]['end'] == kept[0].end)
";
    let selector = "span:call=syscalls:sys_enter_getpgid..syscalls:sys_exit_getpgid";
    live_and_recorded(
        script,
        selector,
        "call 0 call -1",
        expect![[r#"
            0 True True True
            True True True
            -1 False True True
            True True True
            ['open', 'begin', 'end', 'between', 'comm'] syscalls__sys_enter_getpgid True
        "#]],
    );
}

#[test]
fn the_call_chain_of_a_span_is_that_of_its_begin() {
    let script = "
def span__rename(e):
    names = [frame['symbol'] for frame in e._callchain]
    print(len(names) > 2, e._callchain == e.begin._callchain, e.end._callchain)
";
    let selector = "span:rename=task:task_rename..syscalls:sys_exit_prctl//key=_tid/stack/";
    live_and_recorded(
        script,
        selector,
        "renames 2",
        expect![[r#"
            True True []
            True True []
        "#]],
    );
}

#[test]
fn one_line_shows_the_span_and_both_events() {
    let script = "
def span__pair(e):
    e.print(timestamp=False)
";
    needs([Need::Tracefs]);
    let operations = format!("comm lines call 7 {}", getsid(7));
    let outcome = Run::script(script).event(format!("{PAIR}//key=pid/")).workload(&operations).run();
    let (_, line) = outcome.stdout.split_once(": ").unwrap();
    let (duration, rest) = line.strip_prefix("span:pair: ").unwrap().split_once(" ms").unwrap();
    assert!(duration.parse::<f64>().unwrap() > 0.0, "{line}");
    assert_eq!(rest, " pid=7 | sys_enter_getpgid: sys_getpgid(pid: 7) | sys_enter_getsid: sys_getsid(pid: 7)\n");
}

#[test]
fn a_limit_counts_spans_and_the_events_that_are_selected_beside_them() {
    let script = "
def span__pair(e): print('span', e.pid)
def syscalls__call(e): print('call', e.pid)
";
    let operations = format!("call 1 {} call 2 {} call 3 {}", getsid(1), getsid(2), getsid(3));
    let spans = || Run::script(script).event(format!("{PAIR}//key=pid/")).workload(&operations).options(["-N", "2"]);
    prints(
        spans(),
        expect![[r#"
            span 1
            span 2
        "#]],
    );
    prints(
        spans().event("syscalls:sys_enter_getpgid//alias=call/"),
        expect![[r#"
            call 1
            span 1
        "#]],
    );
}

#[test]
fn a_handler_that_exits_ends_the_run() {
    let script = "
import sys
def span__pair(e):
    print(e.pid)
    sys.exit(7)
";
    needs([Need::Tracefs]);
    let operations = format!("call 1 {} call 2 {} forever", getsid(1), getsid(2));
    let outcome = Run::script(script).event(format!("{PAIR}//key=pid/")).workload(&operations).run();
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("1\n", 7), "{}", outcome.stderr);
}

#[test]
fn spans_that_cannot_be_made_are_refused() {
    needs([Need::Tracefs]);
    let rows = [
        ("span:x=sched:sched_switch..sched:sched_wakeup", "the span has no key"),
        ("span:x=sched:sched_switch..sched:sched_wakeup//key=pid/", "sched:sched_switch has no field `pid`"),
        ("span:x=sched:no_such..sched:sched_wakeup//key=pid/", "unknown event sched:no_such"),
        ("span:x=sched:sched_wakeup..sched:sched_waking/pif==1/key=pid/", "the event has no field `pif`"),
        ("{span:x=sched:sched_wakeup..sched:sched_waking//key=pid/}", "a span cannot be in a group"),
    ];
    for (selector, message) in rows {
        let outcome = Run::script(SCRIPT).event(selector).workload("calls 1").run();
        assert!(outcome.status != 0 && outcome.stderr.contains(message), "{selector}: {}", outcome.stderr);
    }
}

#[test]
fn the_template_and_the_types_have_the_span_and_not_its_inputs() {
    needs([Need::Tracefs]);
    let selector = format!("{PAIR}//key=pid/");
    let template = Run::script("").module("help").event(&selector).run();
    let handlers: Vec<&str> =
        template.stdout.lines().filter(|line| line.starts_with("def ") && line.contains("(event)")).collect();
    assert_eq!(handlers, ["def span__pair(event) -> None:", "def __sample__(event) -> None:"], "{}", template.stderr);
    for line in
        ["duration : int    (C: u64)", "pid : int    (C: s64)", "begin : PerfEvent    (the event that began the span)"]
    {
        assert!(template.stdout.lines().any(|found| found.trim() == line), "{line}: {}", template.stdout);
    }
    let types = String::from_utf8(perf_prof(&["stubs", &selector]).output().unwrap().stdout).unwrap();
    let classes: Vec<&str> = types.lines().filter(|line| line.starts_with("class ")).collect();
    assert_eq!(classes, ["class Pair(_perf_prof.PerfEvent):", "class Handlers(_TypedDict, total=False):"]);
    for line in [
        "def begin(self) -> _perf_prof.PerfEvent:",
        "def end(self) -> _perf_prof.PerfEvent | None:",
        "def duration(self) -> _builtins.int:",
    ] {
        assert!(types.lines().any(|found| found.trim() == line), "{line}: {types}");
    }
}

#[test]
fn programs_iterate_over_spans() {
    needs([Need::Tracefs]);
    let selector = format!("{PAIR}//key=pid/");
    let live = Run::script(SCRIPT).event(&selector).options(["--record", "r.data"]);
    let live = live.workload(&format!("call 5 {} call 6 {}", getsid(5), getsid(6)));
    assert_eq!(live.run().status, 0);
    let recording = live.path("r.data");
    let script = format!(
        "import perf_prof
def __init__():
    with perf_prof.replay({recording:?}, {selector:?}) as spans:
        print([(e.pid, e.end.pid, e.duration > 0) for e in spans])
def __sample__(e): pass
"
    );
    let outcome = replay(&script, "syscalls:sys_enter_getsid", &recording, &[]);
    assert_eq!(outcome.stdout, "[(5, 5, True), (6, 6, True)]\n", "{}", outcome.stderr);
}

/// All spans of a batch are made before the first one is delivered.
#[test]
fn with_a_limit_the_counts_are_those_of_the_delivered_spans() {
    needs([Need::Tracefs]);
    let operations: Vec<String> = (1..=9).map(|number| format!("call {number} {}", getsid(number))).collect();
    let selector = format!("{PAIR}//key=pid/");
    let whole = Run::script(SCRIPT).event(&selector).options(["--record", "r.data"]).workload(&operations.join(" "));
    assert!(whole.run().stdout.contains("{'delivered': 9, 'opened': 9, "));
    let limited = Run::script(SCRIPT).event(&selector).options(["-N", "4"]).workload(&operations.join(" "));
    let replayed = replay(SCRIPT, &selector, &whole.path("r.data"), &["-N", "4"]);
    for outcome in [limited.run(), replayed] {
        let counts = "{'delivered': 4, 'opened': 4, 'ended': 4, 'open': 0, 'dropped': 0, 'without_begin': 0}";
        assert_eq!(outcome.stdout.lines().last(), Some(counts), "{}", outcome.stdout);
        assert_eq!(outcome.stdout.lines().count(), 5, "{}", outcome.stdout);
    }
}
