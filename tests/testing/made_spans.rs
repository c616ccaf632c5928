//! `make_event` of spans, and `run_script` with them.

use expect_test::expect;

use super::{prints, program};
use crate::harness::script::check;

/// Functions that make spans for a test.
const MAKE: &str = r#"
PAIR = "span:pair=sched:sched_waking..sched:sched_switch//key=pid:next_pid/"
def pair(pid, time, duration, **more):
    begin = dict(pid=pid, prio=120, comm="woken", _time=time, _tid=3, _comm="waker", _cpu=1, **more)
    end = dict(next_pid=pid, next_prio=100, prev_comm="before")
    return make_event(PAIR, formats="shipped", begin=begin, end=end, duration=duration)
"#;

#[test]
fn a_span_is_made_of_its_events() {
    let code = format!(
        "{MAKE}{}",
        r#"
e = pair(7, 1000, 250, _callchain=[(0xffffffff81000000, "try_to_wake_up")])
print(e._event, e.pid, e.duration, e.open, e._time, e._tid, e._cpu, e.comm)
print(e.begin._event, e.begin._time, e.begin.prio, e.begin._comm, [f["symbol"] for f in e.begin._callchain])
print(e.end._event, e.end._time, e.end.next_prio, e.end.prev_comm, e.end._comm, e.between)
print([f["symbol"] for f in e._callchain], e._realtime, e.end._callchain)
e.print(timestamp=False)
given = make_event("sched:sched_switch", formats="shipped", next_pid=8, _time=70, _comm="other")
e = make_event(PAIR, formats="shipped", begin=dict(pid=8, _time=50), end=given)
print(e.duration, e.end == given, e.comm)
e = make_event(PAIR, formats="shipped", begin=dict(pid=8, _time=50))
print(e.open, e.end, e.duration, e._time)
"#
    );
    check(
        program(&code),
        expect![[r#"
            span:pair 7 250 False 1250 3 1 waker
            sched:sched_waking 1000 120 waker ['try_to_wake_up']
            sched:sched_switch 1250 100 before waker ()
            ['try_to_wake_up'] 1250 []
                       waker      3 .... [001] 0.000001: span:pair: 0.000250 ms pid=7 | sched_waking: comm=woken pid=7 prio=120 target_cpu=000 | sched_switch: prev_comm=before prev_pid=0 prev_prio=0 prev_state=R ==> next_comm= next_pid=7 next_prio=100
                ffffffff81000000 try_to_wake_up+0x0 ([kernel.kallsyms])
            20 True other
            True None 0 50
            --- status 0
        "#]],
    );
}

#[test]
fn fields_of_sources_are_worked_out() {
    let code = r#"
import pickle
e = make_event("syscall", formats="shipped", begin=dict(id=0, args=[3, 5, 7, 0, 0, 0], _tid=4, _comm="cat"), end=dict(id=0, ret=-9), duration=1500)
print(e._event, e.name, e.nr, e.ret, e.errno, e.duration, e.comm)
print(e.args, e["args"], e.array("args") == e.args, e.to_dict()["args"] == e.args, pickle.loads(pickle.dumps(e)).args == e.args)
print(type(e).args.__doc__, isinstance(e.begin.args, bytes))
e = make_event("syscall/failed, min=10ms/", formats="shipped", begin=dict(id=1), end=dict(id=1, ret=1))
print(e.ret, repr(e.errno), e.duration)
e = make_event(
    "offcpu", formats="shipped",
    begin=dict(prev_pid=9, prev_comm="nap", prev_state=1, _tid=9, _comm="nap"),
    between=[make_event("sched:sched_waking", formats="shipped", pid=9, _time=700, _tid=5, _comm="alarm")],
    end=dict(next_pid=9, next_comm="nap"), duration=1000)
print(e.pid, e.state, e.duration, e.blocked, e.waited, e.waker_comm, [(part._event, part._comm) for part in e.between])
"#;
    prints(
        code,
        expect![[r#"
            syscall read 0 -9 EBADF 1500 cat
            (3, 5, 7, 0, 0, 0) (3, 5, 7, 0, 0, 0) True True True
            args : tuple    (C: __data_loc unsigned long[]) True
            1 '' 0
            9 sleeping 1000 700 300 alarm [('sched:sched_waking', 'alarm')]
            --- status 0
        "#]],
    );
}

#[test]
fn calls_of_functions_are_made_without_their_file() {
    let code = r#"
SELECTOR = "function:parse@/no/such/file"
e = make_event(SELECTOR, begin=dict(_tid=4, _comm="app", _time=1_000, _callchain=[(0x401000, "parse")]), end=dict(ret=-7), duration=250)
print(e._event, e.name, e.ret, e.duration, e.comm, e._tid, e._time, [f["symbol"] for f in e._callchain])
print(e.begin._event, e.end._event, e.begin.frame, e.end.frame)
e.print(timestamp=False)
print(make_event(SELECTOR, begin=dict(frame=0x7f10, popped=8, _tid=4), end=dict(frame=0x7f18, ret=5)).ret)
print(make_event(SELECTOR, begin=dict(_tid=4)).open)
for keywords in dict(begin=dict(frame=1), end=dict(frame=2)), dict(begin=dict(reg=1)), dict(begin=make_event("uprobe:parse")):
    try:
        make_event(SELECTOR, **keywords)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"#;
    prints(
        code,
        expect![[r#"
        function:parse parse -7 250 app 4 1250 ['parse']
        uprobe:parse uretprobe:parse 0 0
                     app      4 .... [000] 0.000001: function:parse: 0.000250 ms name=parse ret=-7
            0000000000401000 parse+0x0 ([unknown])
        5
        True
        ValueError these events make no span of function:parse: its key is _pid+frame plus popped in begin and _pid+frame in end, and end must not be before begin
        TypeError uprobe:parse has no field 'reg'; it has _time, _cpu, _pid, _tid, _period, _realtime, _ip, _addr, _comm, _cgroup, _callchain, __probe_ip, frame, popped
        ValueError function:parse: uprobe:parse has no field `frame`, which is in the key of the span
        --- status 0
    "#]],
    );
}

#[test]
fn arguments_of_probes_are_made_without_their_files() {
    let code = r#"
call = make_event("function:exec@app//q=+0(%di):string/", begin=dict(q="select 1"), end=dict(ret=-1), duration=800)
print(call.q, call.begin.q, call.ret)
SELECTOR = "span:s=usdt:a:b@x..usdt:a:c@x//key=_tid/q=arg1:string/end.n=arg2/"
query = make_event(SELECTOR, begin=dict(q="select 2", arg2=-7, _tid=5), end=dict(n=3, arg12=4), duration=900)
print(query.q, query.begin.arg2, query.end.n, query.end.arg12, query.begin._event, query.end._event)
"#;
    prints(
        code,
        expect![[r#"
        select 1 select 1 -1
        select 2 -7 3 4 sdt_a:b sdt_a:c
        --- status 0
    "#]],
    );
}

#[test]
fn what_makes_no_span_is_refused_with_the_reason() {
    let code = format!(
        "{MAKE}{}",
        r#"
def refused(**keywords):
    try:
        make_event(PAIR, formats="shipped", **keywords)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
refused(end=dict(next_pid=1))
refused(begin=dict(pid=1), end=dict(next_pid=2))
refused(begin=dict(pid=1, _time=50), end=dict(next_pid=1, _time=40))
refused(begin=dict(pid=1), end=dict(next_pid=1, _time=40), duration=50)
refused(begin=dict(pid=1), duration=50)
refused(begin=7)
refused(begin=make_event("sched:sched_switch", formats="shipped", next_pid=1))
refused(begin=dict(pif=1))
refused(begin=dict(pid=1), pid=1)
refused(begin=dict(pid=1), between=[dict(pid=1)])
for selector in "span:x=sched:sched_wak*..sched:sched_switch//key=pid:next_pid/", "span:x=a:b", "span:x=sched:sched_waking..sched:no_such//key=pid/":
    try:
        make_event(selector, formats="shipped", begin=dict(pid=1), end=dict(pid=1))
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"#
    );
    check(
        program(&code),
        expect![[r#"
            TypeError span:pair needs the event that begins it: begin=dict(...)
            ValueError these events make no span of span:pair: its key is pid in begin and next_pid in end, and end must not be before begin
            ValueError these events make no span of span:pair: its key is pid in begin and next_pid in end, and end must not be before begin
            ValueError span:pair: duration= differs from the time between begin and end; leave it out
            TypeError span:pair: duration= needs an end: give end=, or leave duration= out for an open span
            TypeError span:pair: begin has a value of type int; it needs an event or a dict of keywords
            ValueError span:pair: sched:sched_switch cannot be its begin
            TypeError sched:sched_waking has no field 'pif'; it has _time, _cpu, _pid, _tid, _period, _realtime, _ip, _addr, _comm, _cgroup, _callchain, comm, pid, prio, target_cpu
            TypeError span:pair has no keyword 'pid'; it has begin, end, between and duration, and its fields are worked out from these events
            TypeError span:pair: there are no events that can be its between
            SelectorError unknown event sched:sched_wak*: it is not in the formats that perf-prof brings (did you mean sched:sched_wakeup or sched:sched_waking?)
            SelectorError span:x=a:b: write a span as span:NAME=BEGIN..END, for example span:fsync=syscalls:sys_enter_fsync..syscalls:sys_exit_fsync
            SelectorError unknown event sched:no_such: it is not in the formats that perf-prof brings
            --- status 0
        "#]],
    );
}

#[test]
fn scripts_and_aggregators_get_made_spans() {
    let script = r#"
from perf_prof import Count, Hist, PerfEvent, Top, stats
counts = Count("begin._comm", "end.next_prio", "pid", where="begin.prio == 120")
times = Hist("duration")
longest = Top(1, "duration")
def see(e: PerfEvent) -> None:
    print("handler", e.pid, e.duration, e.begin.comm)
span__pair = counts, times, longest, see
def __exit__() -> None:
    print(counts.to_dict(), times.total.sum, [(e.pid, e.begin._comm) for e in longest])
"#;
    let code = format!(
        "{MAKE}{}",
        r#"
out = run_script("t.py", [pair(8, 5000, 300), pair(7, 1000, 250)])
print(out.stdout, out.stderr, out.status)
"#
    );
    check(
        program(&code).file("t.py", script),
        expect![[r#"
            handler 7 250 woken
            handler 8 300 woken
            {('waker', 100, 7): 1, ('waker', 100, 8): 1} 550 [(8, 'waker')]
              0
            --- status 0
        "#]],
    );
}

#[test]
fn top_keeps_the_values_of_names() {
    let code = format!(
        "{MAKE}{}",
        r#"
import copy, pickle
from perf_prof import Top
spans = [pair(7, 1000, 250), pair(8, 5000, 300), pair(9, 100, 20), pair(10, 50, 300)]
longest = Top(3, "duration", keep=("pid", "begin._comm", "end.prev_comm"))
one = Top(2, "duration", keep="pid", where="pid < 9")
for span in spans:
    longest.add(span)
    one(span)
longest.print()
print(list(longest), one.most_common(), one.most_common(1), repr(one))
again = pickle.loads(pickle.dumps(longest))
print(list(again) == list(longest), again.most_common() == longest.most_common(), repr(again))
again.update(copy.copy(longest))
print(again.most_common())
whole = Top(1, "duration", keep=())
whole.add(spans[1])
print([e.end.next_pid for e in whole])
for wrong in (lambda: again.update(one), lambda: Top(1, "duration", keep=7), lambda: Top(1, "duration", keep=["a"] * 9),
              lambda: Top(1, "duration", keep="pif").add(spans[0])):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"#
    );
    check(
        program(&code),
        expect![[r#"
            pid  begin._comm  end.prev_comm  duration
             10  waker        before              300
              8  waker        before              300
              7  waker        before              250
            [(10, 'waker', 'before'), (8, 'waker', 'before'), (7, 'waker', 'before')] [(8, 300), (7, 250)] [(8, 300)] <perf_prof.Top of duration: 2 of 2 events>
            True True <perf_prof.Top of duration: 3 of 4 events>
            [((10, 'waker', 'before'), 300), ((10, 'waker', 'before'), 300), ((8, 'waker', 'before'), 300)]
            [8]
            ValueError only a Top with the same value and the same keep can be added
            TypeError keep is the name of a field, or a tuple or list of names
            ValueError keep has 9 names, but at most 8 are possible
            ValueError span:pair has no field or member `pif`; its fields are duration, open, pid, begin.NAME, end.NAME
            --- status 0
        "#]],
    );
}
