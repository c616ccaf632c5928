//! Aggregators: `Count`, `Sum`, `Hist`, `Stacks` and `Top`, as handlers and as plain objects.

use std::process::Command;

use expect_test::expect;

use crate::harness::{
    awake::Awake,
    calls::WORKLOAD,
    run::tested_program,
    script::{CALL, RENAME, Run, prints},
};

/// Runs a script on a workload of 40 calls, whose `pid` counts from 1.
fn counting(text: &str) -> Run {
    Run::script(&format!("from perf_prof import *\n{text}")).call_event().workload("calls 40")
}

#[test]
fn aggregators_count_the_same_as_python() {
    let text = "
from collections import Counter
import copy, io, pickle
counts, sums, hist = Count('_comm', 'pid'), Sum('pid', by='_tid'), Hist('pid', by=('_cpu', '_comm'), linear=(0, 42, 7))
few, total, top = Count('pid', where='pid < 3 || pid == 39'), Sum('pid'), Top(3, 'pid', where='pid < 39')
plain = {name: Counter() for name in ('counts', 'sums', 'hist', 'few', 'total')}
kept = []

def seen(event):
    plain['counts'][event._comm, event.pid] += 1
    plain['sums'][event._tid] += event.pid
    plain['hist'][event._cpu, event._comm, event.pid // 7 * 7] += 1
    plain['few'][event.pid] += event.pid < 3 or event.pid == 39
    plain['total'][()] += event.pid
    kept.append(event)

syscalls__sys_enter_getpgid = counts, sums, hist, few, total, top, seen

def same(name, found):
    expected = {key: n for key, n in plain[name].items() if n}
    if found != expected: print('DIFFERENT', name, found, expected)

def tables(counts, sums, hist, few, total):
    same('counts', counts.to_dict())
    same('sums', {key: n for key, n in sums.items() if n})
    same('hist', {(cpu, comm, low): n for (cpu, comm), of in hist.items() for low, n in of.to_dict()['rows'].items()})
    same('few', few.to_dict())
    same('total', total.to_dict())

def __exit__():
    everything = counts, sums, hist, few, total
    tables(*everything)
    tables(*pickle.loads(pickle.dumps(everything)))
    tables(*map(copy.copy, everything))
    print(len(kept), counts.total, sums.total, hist.total.sum, total[()], few.most_common(1), list(few))
    print([event.pid for event in top], [event == kept[event.pid - 1] for event in top], list(pickle.loads(pickle.dumps(top))) == list(top))
    comm = kept[0]._comm
    print(counts[comm, 5], counts[comm, 50], (comm, 5) in counts, (comm, 50) in counts, counts.most_common()[0][1])
    # As plain objects.
    again, new = Count('_comm', 'pid'), Top(2, 'pid')
    for event in kept: again.add(event), new(event)
    print(again.to_dict() == counts.to_dict(), [event.pid for event in new])
    again.update(counts); again.update(again)
    print(again.total, again[comm, 5], len(again))
    again.clear()
    print(len(again), again.total, bool(again))
    few.print(top=2)
    pids = Top(2, 'pid', keep='pid')
    for event in kept: pids(event)
    pids.print(top=1)
";
    prints(
        counting(text),
        expect![[r#"
            40 40 820 820 820 [(1, 1)] [1, 2, 39]
            [38, 37, 36] [True, True, True] True
            1 0 True False 1
            True [40, 39]
            160 4 40
            0 0 False
            pid  count  share
              1      1  33.3%
              2      1  33.3%
            (1 more key, 1 together)
            pid  pid
             40   40
        "#]],
    );
}

#[test]
fn a_distribution_has_percentiles() {
    let text = "
hist, short = Hist('pid'), Hist('pid', unit='us', where='pid > 1')
syscalls__sys_enter_getpgid = [hist, short]
def __exit__():
    of = hist.total
    print(of.count, of.sum, of.min, of.max, of.mean, [of.percentile(p) for p in (0, 10, 50, 100)], len(of))
    print(of.to_dict()['rows'], hist[()].count, len(hist))
    hist.print()
    of = short.total
    print(of.count, of.sum, of.max, Hist('pid').total.percentile(50))
";
    prints(
        counting(text),
        expect![[r#"
            40 820 1 40 20.5 [1, 4, 20, 40] 40
            {0: 1, 2: 2, 4: 4, 8: 8, 16: 16, 32: 9} 40 1
                 pid                 : count     distribution
                     0 -> 1          : 1        |**                                      |
                     2 -> 3          : 2        |*****                                   |
                     4 -> 7          : 4        |**********                              |
                     8 -> 15         : 8        |********************                    |
                    16 -> 31         : 16       |****************************************|
                    32 -> 63         : 9        |**********************                  |
            39 819 40 None
        "#]],
    );
}

#[test]
fn a_full_table_folds_the_smallest_keys() {
    let text = "
count = __sample__ = Count('pid', limit=10)
def __exit__():
    print(len(count) <= 10, count.total, sum(count.values()) + count.others, count.times_folded == count.others > 0)
    print(str(count).splitlines()[-1].split(' (')[1])
";
    prints(
        counting(text),
        expect![[r#"
            True 40 40 True
            there were more than limit=10 keys, so the smallest were added to others 30 times; a key that came back may show too little)
        "#]],
    );
}

#[test]
fn an_interval_prints_and_clears_its_table() {
    let text = "
count = syscalls__sys_enter_getpgid = Count('pid')
seen = []
def __interval__():
    seen.append(count.total)
    count.clear()
def __exit__():
    __interval__()
    print(sum(seen), len(seen) > 1)
";
    let run = Run::script(&format!("from perf_prof import *\n{text}")).call_event();
    prints(
        run.options(["-i", "20ms"]).workload(&"calls 40 sleep-ms 40 ".repeat(10)),
        expect![[r#"
        400 True
    "#]],
    );
}

#[test]
fn a_thread_of_the_script_may_read_while_events_are_added() {
    let text = "
import threading
count = syscalls__sys_enter_getpgid = Count('pid')
ended, most = threading.Event(), [0]
def read():
    while not ended.is_set():
        most[0] = max(most[0], sum(count.to_dict().values()), count.total, len(count.most_common(5)))
thread = threading.Thread(target=read)
def __init__(): thread.start()
def __exit__():
    ended.set()
    thread.join()
    print(count.total, len(count), most[0] <= 4000)
";
    let run = Run::script(&format!("from perf_prof import *\n{text}")).call_event();
    prints(
        run.workload(&"calls 400 ".repeat(10)),
        expect![[r#"
            4000 4000 True
        "#]],
    );
}

#[test]
fn events_are_added_while_a_thread_has_the_interpreters_lock() {
    let text = "
import ctypes, sys, threading, time
count, totals = Count('pid'), []
syscalls__sys_enter_getpgid = count
def wait():
    # From here on, the main thread needs the lock only for events with functions.
    while not count.total: time.sleep(0.001)
    sys.setswitchinterval(1000)
    sleep, end = ctypes.PyDLL(None).usleep, time.monotonic() + 60
    # Neither this loop nor a function of PyDLL releases the lock.
    while count.total < 400 and time.monotonic() < end: sleep(1000)
    totals.append(count.total)
    sys.setswitchinterval(0.005)
thread = threading.Thread(target=wait)
def __init__(): thread.start()
def __exit__():
    thread.join()
    print(count.total, totals)
";
    let run = Run::script(&format!("from perf_prof import *\n{text}")).call_event();
    prints(
        run.env("PYTHONUNBUFFERED", "1").workload("calls 1 sleep-ms 300 calls 399"),
        expect![[r#"
            400 [400]
        "#]],
    );
}

#[test]
fn a_child_of_a_thread_can_use_a_table_that_is_fed() {
    let text = "
import os, threading
count = syscalls__sys_enter_getpgid = Count('pid')
statuses = []
def fork():
    for _ in range(30):
        child = os.fork()
        if not child:
            os._exit(0 if count.total >= 0 and len(count.to_dict()) <= 20000 else 1)
        statuses.append(os.waitpid(child, 0)[1])
thread = threading.Thread(target=fork)
def __init__(): thread.start()
def __exit__():
    thread.join()
    print(count.total, set(statuses), len(statuses))
";
    let run = Run::script(&format!("from perf_prof import *\n{text}")).call_event();
    prints(
        run.workload(&"calls 400 sleep-ms 1 ".repeat(50)),
        expect![[r#"
            20000 {0} 30
        "#]],
    );
}

#[test]
fn stacks_are_those_of_a_flame_graph() {
    let text = "
stacks, graph, counted = Stacks(), FlameGraph(), Count('_comm', '_stack')
__sample__ = stacks, counted, graph.add
def __exit__():
    print(stacks.folded() == graph.folded(), stacks.flame_graph().folded() == graph.folded(), stacks.total, graph.total)
    print(stacks.to_dict() == counted.to_dict(), '__set_task_comm_[k]' in stacks.folded())
    stacks.save('s.svg')
    print(open('s.svg').read().startswith('<?xml'))
";
    let run = Run::script(&format!("from perf_prof import *\n{text}")).event(format!("{RENAME}stack/"));
    prints(
        run.workload("comm first renames 10"),
        expect![[r#"
            True True 10 10
            True True
            True
        "#]],
    );
}

#[test]
fn stacks_of_any_time_of_a_span_have_its_unit_in_pictures_and_profiles() {
    let text = "
import gzip, re
from perf_prof import *
blocked, states = Stacks('_comm', 'blocked'), Stacks('_comm', 'pid')
offcpu = blocked, states
def __exit__():
    for stacks in blocked, states:
        subtitle = re.search(r'id=\"subtitle\"[^>]*>([^<]*)<', stacks.flame_graph()._repr_svg_())[1]
        print(bool(re.match('[0-9.,]+ (ns|us|ms|s) in ', subtitle)), b'nanoseconds' in gzip.decompress(stacks.pprof()))
";
    // The kernel may not deliver a switch of an idle CPU, so no CPU is idle.
    let _awake = Awake::new();
    let outcome = Run::script(text)
        .event("offcpu/stack/")
        .workload("sleep-ms 2 sleep-ms 2 sleep-ms 2 sleep-ms 2 sleep-ms 2")
        .run();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "True True\nFalse False\n"), "{}", outcome.stderr);
}

#[track_caller]
fn refused(script: &str, expected: expect_test::Expect) {
    let run = Run::script(&format!("from perf_prof import *\n{script}")).options(["-q"]).call_event();
    let outcome = run.workload("calls 1").run();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (1, ""), "{}", outcome.stderr);
    expected.assert_eq(&outcome.stderr);
}

#[test]
fn names_that_an_event_does_not_have_are_found_at_the_start() {
    let handler = |text: &str| format!("syscalls__sys_enter_getpgid = {text}");
    refused(
        &handler("Count('_com', 'pid')"),
        expect![[r#"
        perf-prof: DIR/s.py: syscalls__sys_enter_getpgid: syscalls:sys_enter_getpgid has no field or member `_com`; did you mean `_comm`?
    "#]],
    );
    refused(
        &handler("[Count('_comm'), Sum('_comm')]"),
        expect![[r#"
        perf-prof: DIR/s.py: syscalls__sys_enter_getpgid: `_comm` of syscalls:sys_enter_getpgid cannot be added up: it is text, not a number
    "#]],
    );
    refused(
        &handler("Count('pid', where='common_pidd > 1')"),
        expect![[r#"
        perf-prof: DIR/s.py: syscalls__sys_enter_getpgid: where="common_pidd > 1": the event has no field `common_pidd`; did you mean `common_pid`?
    "#]],
    );
    refused(
        &handler("Stacks()"),
        expect![[r#"
        perf-prof: DIR/s.py: syscalls__sys_enter_getpgid: syscalls:sys_enter_getpgid has no call chains for `_stack`: use -g, or write syscalls:sys_enter_getpgid//stack/; a recording must be made with one of them
    "#]],
    );
    refused(
        &handler("Count('_comm'), 5"),
        expect![[r#"
        perf-prof: syscalls__sys_enter_getpgid[1] has to be a function or an aggregator, and it is int
    "#]],
    );
}

#[test]
fn wrong_arguments_are_errors() {
    let text = "
def error(make):
    try: make()
    except Exception as error: print(type(error).__name__, error)
def __sample__(event):
    if event.pid != 1: return
    error(lambda: Count('a', limit=0))
    error(lambda: Count(*'abcdefghi'))
    error(lambda: Hist('a', linear=(5, 5, 1)))
    error(lambda: Hist('a', linear=(0, 10**9, 1)))
    error(lambda: Sum('a', by=5))
    error(lambda: Stacks(by='_stack'))
    error(lambda: Top(0, 'a'))
    error(lambda: Count('pid').add(5))
    error(lambda: Count('nothing').add(event))
    error(lambda: Count('pid', '_comm')['a'])
    error(lambda: Count('pid').update(Count('_comm')))
    error(lambda: Count().update(Sum('pid')))
    error(lambda: Aggregator())
";
    prints(
        counting(text),
        expect![[r#"
        ValueError limit=0: give a number of keys from 1 to 1073741824
        ValueError there are 9 keys; at most 8 are possible
        ValueError linear=(low, high, step): low has to be less than high, and step more than 0
        ValueError linear=(low, high, step): there are 1000000000 ranges, more than 100000; give a larger step
        TypeError by is the name of a field, or a tuple or list of names
        TypeError Stacks adds _stack to the keys itself; leave _stack out of by
        ValueError Top(0, ...) would keep no event
        TypeError only events can be added, not 'int'
        ValueError syscalls:sys_enter_getpgid has no field or member `nothing`; its fields are pid
        KeyError 'a key of this table is a tuple with one item for each of (pid, _comm)'
        ValueError only tables with the same class and the same names can be added: this one has events by pid, the other one events by _comm
        ValueError only tables with the same class and the same names can be added: this one has events, the other one the sum of pid
        TypeError cannot create 'perf_prof.Aggregator' instances
    "#]],
    );
}

#[test]
fn aggregators_of_several_processes_are_merged() {
    let text = "
from perf_prof import *
count, by, hist = Count('_comm', 'pid'), {'sum': Sum('pid', by='_comm')}, Hist('pid', by='_pid')
syscalls__sys_enter_getpgid = count, by['sum'], hist, Top(5, 'pid')
def __exit__():
    for table in count, by['sum'], hist:
        print(sorted(table.to_dict().items()))
    print([event.pid for event in syscalls__sys_enter_getpgid[3]])
";
    let run = Run::script(text);
    let bursts = "calls 37 fork fork sleep-ms 11 ".repeat(6);
    let mut command = Command::new(tested_program());
    command.args(["record", "-q", "-e", CALL, "-o", "perf.data", "--"]);
    command.arg(std::env::current_exe().unwrap()).arg(WORKLOAD).args(bursts.split_whitespace());
    let output = command.current_dir(run.dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recording = std::fs::read(run.path("perf.data")).unwrap();
    let replay = |options: &[&str]| {
        let run = Run::script(text).file("perf.data", &recording);
        let outcome = run.options(["-q", "--input", "perf.data"]).options(options).run();
        assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{options:?}");
        outcome.stdout
    };
    let serial = replay(&[]);
    assert!(serial.contains("36), "), "{serial}");
    for options in [&["--jobs", "2"][..], &["--jobs", "5"], &["--jobs", "2", "--split", "cpu"]] {
        assert_eq!(replay(options), serial, "{options:?}");
    }
    let intervals = "
from perf_prof import *
count = __sample__ = Count('pid')
def __interval__():
    print(realtime(), count.to_dict())
    count.clear()
def __exit__(): print('rest', count.to_dict())
";
    let replay = |options: &[&str]| {
        let run = Run::script(intervals).file("perf.data", &recording);
        let outcome = run.options(["-q", "--input", "perf.data", "-i", "7ms"]).options(options).run();
        assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{options:?}");
        outcome.stdout
    };
    let serial = replay(&[]);
    assert!(serial.lines().count() > 5, "{serial}");
    assert_eq!(replay(&["--jobs", "3"]), serial);
    let with_function = text.replace("Top(5, 'pid')", "print");
    let run = Run::script(&with_function).file("perf.data", &recording);
    let outcome = run.options(["-q", "--input", "perf.data", "--jobs", "2"]).run();
    assert!(
        outcome.status == 1 && outcome.stderr.contains("map_reduce() run the script in several"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_largest_spans_are_short_rows_with_units_in_notebooks() {
    let text = "
import re
from perf_prof import Top
syscall = Top(3, 'duration')
kept = Top(3, 'duration', keep=('name', 'duration'))
def __exit__():
    for event in syscall: kept.add(event)
    for top in syscall, kept:
        html = top._repr_html_()
        print(re.findall('<th(?:>| [^>]*>)([^<]*)<', html))
        cells = re.findall('<td[^>]*>([^<]*)<', html)
        print(len(cells), max(map(len, cells)) <= 161, any(word in html for word in ('begin', 'b&#', '{')))
        print(all(re.fullmatch('[0-9]+[.][0-9]{3}', cell) for cell in cells[len(cells) // 3 - 1 :: len(cells) // 3]))
    print('name=getpgid' in syscall._repr_html_(), f'{syscall.most_common(1)[0][1] / 1e6:.3f}' in kept._repr_html_())
";
    prints(
        Run::script(text).event("syscall/name=getpgid,stack/").workload("calls 5"),
        expect![[r#"
            ['event', 'comm', 'tid', 'fields', 'duration ms']
            15 True False
            True
            ['name', 'duration ms']
            6 True False
            True
            True True
        "#]],
    );
}
