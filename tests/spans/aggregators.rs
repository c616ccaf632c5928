//! Aggregators as handlers of spans.

use expect_test::expect;

use super::{PAIR, getsid, live_and_recorded};

/// Returns the operations for three spans. The second span lasts at least 20 ms. A fourth span is open at the end.
fn operations() -> String {
    format!("comm tables call 1 {} call 2 sleep-ms 20 {} call 3 {} call 4", getsid(1), getsid(2), getsid(3))
}

#[test]
fn keys_values_and_filters_are_those_of_the_span_and_of_both_events() {
    let script = "
from perf_prof import Count, Hist, Sum

tables = {
    'keys': Count('begin.pid', 'end.pid', 'comm'),
    'slow': Count('pid', where='duration >= 20000000'),
    'begin': Count('pid', where='begin.pid > 2'),
    'end': Count('pid', where='end.pid < 3 || open == 1'),
    'sum': Sum('begin.pid', by='open'),
    'end sum': Sum('end.pid'),
    'hist': Hist('duration', by='comm', unit='ms'),
}
span__pair = tuple(tables.values())

def __exit__():
    for name, table in tables.items():
        if name == 'hist':
            print(name, [(key, of.count, of.max >= 20_000_000) for key, of in table.items()])
        else:
            print(name, table.to_dict())
";
    live_and_recorded(
        script,
        &format!("{PAIR}//key=pid/open/"),
        &operations(),
        expect![[r#"
            keys {(1, 1, 'tables'): 1, (2, 2, 'tables'): 1, (3, 3, 'tables'): 1, (4, None, 'tables'): 1}
            slow {2: 1}
            begin {3: 1, 4: 1}
            end {1: 1, 2: 1, 4: 1}
            sum {0: 6, 1: 4}
            end sum {(): 6}
            hist [('tables', 4, True)]
        "#]],
    );
}

/// After the aggregators, a Python function receives the same spans.
#[test]
fn a_table_is_equal_to_that_of_a_function() {
    let script = "
from collections import Counter
from perf_prof import Count, Sum, Top

counts = Count('begin._tid', 'begin._time', 'end.ret', 'end._cpu', 'comm', '_comm')
times = Sum('duration', by='begin.pid')
longest = Top(2, 'duration')
kept = Top(3, 'end._time', where='begin.pid != 0')
values = Top(3, 'end._time', where='begin.pid != 0', keep=('begin.pid', 'end.ret'))
seen, spent, spans = Counter(), Counter(), []
added = Count('begin.pid', 'end.ret')

def see(e):
    seen[e.begin._tid, e.begin._time, e.end.ret, e.end._cpu, e.comm, e._comm] += 1
    spent[e.begin.pid] += e.duration
    spans.append((e.duration, -e._time))
    added.add(e)

span__call = counts, times, longest, kept, values, see

def __exit__():
    print(len(spans), dict(seen) == counts.to_dict(), dict(spent) == times.to_dict())
    largest = sorted(spans, reverse=True)[:2]
    print(str(times).split()[:5], '>sum of duration, ns<' in times._repr_html_())
    print([(e.duration, -e._time) for e in longest] == largest, [e.begin.pid for e in kept], list(values))
    print(added.to_dict())
    again = Count('begin.pid', 'duration')
    for e in longest:
        again.add(e)
    print(again.total)
";
    live_and_recorded(
        script,
        "span:call=syscalls:sys_enter_getpgid..syscalls:sys_exit_getpgid",
        "comm equal call -1 call -3 call -1 call -2",
        expect![[r#"
            4 True True
            ['begin.pid', 'sum', 'of', 'duration,', 'ns'] True
            True [-2, -1, -3] [(-2, -3), (-1, -3), (-3, -3)]
            {(-1, -3): 2, (-3, -3): 1, (-2, -3): 1}
            2
        "#]],
    );
}

#[test]
fn call_chains_are_those_of_the_span() {
    let script = "
from perf_prof import Count, Stacks

stacks = Stacks(by='comm')
own, begin, end = Count('_stack'), Count('begin._stack'), Count('end._tid')
span__rename = stacks, own, begin, end

def __exit__():
    print(stacks.total, own.total, own.to_dict() == begin.to_dict(), end.total)
    print(all(stack.count(';') > 1 for stack in own))
";
    live_and_recorded(
        script,
        "span:rename=task:task_rename..syscalls:sys_exit_prctl//key=_tid/stack/",
        "renames 2",
        expect![[r#"
            2 2 True 2
            True
        "#]],
    );
}
