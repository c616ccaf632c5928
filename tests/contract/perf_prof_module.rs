//! The module `perf_prof` that scripts import.

use expect_test::expect;

use crate::harness::script::{CALL, Run, prints};

#[test]
fn it_imports_without_being_installed() {
    let text = "
import perf_prof, sys
from perf_prof import PerfEvent
print(isinstance(perf_prof.PerfEvent, type), 'perf_prof._native' in sys.modules, bool(perf_prof.__doc__), bool(PerfEvent.__doc__))
print(sorted(name for name in dir(perf_prof) if not name.startswith('_')))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            True True True True
            ['AccessError', 'Aggregator', 'Batch', 'Batches', 'Branch', 'CallChains', 'ClosedError', 'Column', 'Count', 'Counts', 'Distribution', 'Error', 'EventCount', 'EventFormat', 'FailedRecording', 'FieldError', 'FieldFormat', 'FlameGraph', 'Flight', 'HandlerError', 'Heatmap', 'Hist', 'KernelError', 'Log2Hist', 'Losses', 'MapReduceResult', 'OptionError', 'Parts', 'PerfEvent', 'Recording', 'RecordingAccessError', 'RecordingError', 'RecordingFileError', 'RecordingNotFoundError', 'RunResult', 'SelectorError', 'Stacks', 'States', 'Sum', 'Table', 'Timeline', 'Top', 'Trace', 'Track', 'Warning', 'at_least', 'build_id', 'errno_name', 'event', 'events', 'flight', 'is_recording', 'is_target', 'ksym', 'lost_cpu', 'map_reduce', 'missing', 'print', 'process_of', 'realtime', 'record', 'recording', 'replay', 'run', 'shard', 'snapshot', 'srcline', 'stat', 'stats', 'syscall_name', 'syscall_nr', 'trace', 'usym']
        "#]],
    );
}

#[test]
fn names_of_system_calls_and_errors() {
    let text = "
from perf_prof import errno_name, syscall_name, syscall_nr
print(syscall_name(syscall_nr('getpgid')), syscall_name(syscall_nr('openat')), syscall_name(99999), syscall_name(-1))
try: syscall_nr('nosuchcall')
except KeyError as error: print('KeyError', error)
print(errno_name(2), errno_name(-2), errno_name(-11), errno_name(-512), errno_name(0), errno_name(-99999))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        getpgid openat sys_99999 sys_-1
        KeyError "no system call 'nosuchcall'"
        ENOENT ENOENT EAGAIN ERESTARTSYS errno_0 errno_99999
    "#]],
    );
}

#[test]
fn names_of_kernel_addresses() {
    let text = "
import perf_prof
def kmem__kmalloc(event):
    global name
    name = perf_prof.ksym(event.call_site)
def __exit__(): print('+0x' in name, perf_prof.ksym(0), perf_prof.ksym(5))
";
    prints(
        Run::script(text).event("kmem:kmalloc").workload("fork open /proc/self/status"),
        expect![[r#"
            True 0x0 0x5
        "#]],
    );
}

#[test]
fn counts_add_up_by_event_and_by_cpu() {
    let text = "
import perf_prof
print(perf_prof.stats())
def syscalls__a(event): pass
def __exit__():
    stats = perf_prof.stats()
    print(stats['delivered'], stats['lost'], stats['events'])
    print(sum(cpu['delivered'] for cpu in stats['cpus'].values()), all(isinstance(cpu, int) for cpu in stats['cpus']))
";
    let events = format!("{CALL}//alias=a/,{CALL}/pid<4/");
    prints(
        Run::script(text).event(events).workload("calls 10"),
        expect![[r#"
        {}
        13 0 {'syscalls:a': {'delivered': 10, 'lost': 0, 'where': 'perf-prof'}, 'syscalls:sys_enter_getpgid': {'delivered': 3, 'lost': 0, 'where': 'perf-prof'}}
        13 True
    "#]],
    );
}

/// A script can do what programs do with the package.
#[test]
fn scripts_trace_record_replay_and_count_by_themselves() {
    let text = r#"
import os, perf_prof as pp
from perf_prof.testing import make_event
def __init__():
    with pp.trace("syscalls:sys_enter_getppid", pid=os.getpid()) as events:
        for _ in range(3): os.getppid()
        events.stop()
        print("traced", sum(1 for _ in events))
    recording = pp.record("page-faults:u", output="r.data", exec=["true"], count=1)
    with recording.replay() as events: kept = list(events)
    seen = []
    result = pp.run(input="r.data", handlers=seen.append)
    print("replayed", len(kept) > 10, result.delivered == len(seen) == len(kept))
    print("counted", pp.stat("page-faults:u", exec=["true"])["page-faults:u"].value > 10)
    print("made", make_event("sched:sched_switch", next_pid=8).next_pid)
    try: pp.trace("no-such-event")
    except pp.SelectorError as error: print("refused", isinstance(error, ValueError))
calls = 0
def __sample__(event):
    global calls
    calls += 1
def __exit__(): print("called", calls)
"#;
    prints(
        Run::script(text).call_event().workload("calls 4"),
        expect![[r#"
            traced 3
            replayed True True
            counted True
            made 8
            refused True
            called 4
        "#]],
    );
}

/// Calls each function with each of its keywords alone. A keyword without an option would raise OptionError.
#[test]
fn every_keyword_is_an_option_of_its_function() {
    let text = "
import perf_prof as pp
from perf_prof import _options
from perf_prof._options import Divided, FlightOptions, Interval, RecordOptions, ReplayOptions, RunOptions, StatOptions, TraceOptions
VALUES = {
    'Switch': True, 'OnOff': False, 'Integer': 1, 'Quantity': 1 << 20, 'Numbers': [1], 'Names': ['a'], 'Words': ['true'],
    'Time': 0.5, 'TimeRange': (1, 2), 'CallGraph': 'fp', 'Threads': 'core', 'Level': 3, 'Split': 'cpu', 'Where': 'auto', 'Function': print,
}
live, recorded = {'handlers': print}, {'handlers': print, 'input': '/no/such'}
CALLS = [
    (pp.trace, ['no:such'], {}, [TraceOptions]), (pp.run, ['no:such'], live, [TraceOptions, Interval]),
    (pp.replay, ['/no/such'], {}, [ReplayOptions]), (pp.run, [], recorded, [ReplayOptions, Interval, Divided]),
    (pp.record, ['no:such'], {}, [RecordOptions]), (pp.flight, ['no:such'], {}, [FlightOptions]),
    (pp.stat, ['no:such'], {'duration': 1}, [StatOptions]),
]
calls = 0
for function, words, given, tables in CALLS:
    for keyword, form in _options.forms(*tables).items():
        calls += 1
        # --split alone has no meaning.
        more = {'jobs': 2} if keyword == 'split' else {}
        value = '0' if keyword == 'cpus' else VALUES[form]
        try: function(*words, **{**given, **more, keyword: value})
        except (pp.SelectorError, pp.RecordingNotFoundError): continue
        except Exception as error: print(error)
        print('wrong:', function.__name__, keyword)
print(calls, _options.forms(RunOptions).keys() == _options.forms(TraceOptions, ReplayOptions, Interval, Divided).keys())
for call in (lambda: pp.trace('a', cpu=1), lambda: pp.replay(), lambda: pp.run('a', handlers=print, time='1%'),
             lambda: pp.run(handlers=print, input='a', freq=1), lambda: pp.stat('a', output='b')):
    try: call()
    except Exception as error: print(type(error).__name__, error)
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            120 True
            TypeError trace() got an unexpected keyword argument 'cpu'. Did you mean 'cpus'?
            TypeError replay() missing 1 required positional argument: 'path'
            OptionError run(): time is not possible here
            OptionError run(): freq is not possible here
            TypeError stat() got an unexpected keyword argument 'output'
        "#]],
    );
}

#[test]
fn signatures_have_the_keywords() {
    let text = "
import inspect, perf_prof
for function in (perf_prof.stat, perf_prof.replay):
    for parameter in inspect.signature(function).parameters.values():
        print(parameter)
print(perf_prof.trace.__name__, perf_prof.trace.__module__, perf_prof.trace.__doc__.splitlines()[0])
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            *selectors: 'str'
            cpus: 'Numbers' = None
            pid: 'Numbers' = None
            tid: 'Numbers' = None
            cgroup: 'Names' = None
            exec: 'Words' = None
            duration: 'Time' = None
            path: 'str | PathLike[str]'
            *selectors: 'str'
            progress: 'bool' = False
            cpus: 'Numbers' = None
            pid: 'Numbers' = None
            tid: 'Numbers' = None
            cgroup: 'Names' = None
            buffer: 'Quantity' = None
            user_callchain: 'OnOff' = None
            kernel_callchain: 'OnOff' = None
            limit: 'Integer' = None
            inline: 'Switch' = None
            srcline: 'Switch' = None
            symbol_cache: 'Quantity' = None
            on_lost: 'Function' = None
            time: 'TimeRange' = None
            guest: 'Switch' = None
            force: 'Switch' = None
            trace perf_prof Opens events and starts to trace them. Returns a Trace, which is a context manager and an iterator of PerfEvent.
        "#]],
    );
}
