//! Live events of `perf.evlist`, counts of `perf.evsel`, and `perf_live`.

use std::path::Path;

use super::printed;
use crate::harness::{
    machine::{Need, needs},
    recording::Folder,
};

#[test]
fn counts_are_those_of_the_program_that_makes_them() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os
import perf
threads = perf.thread_map(tid=os.getpid())
events = perf.parse_events('raw_syscalls:sys_enter/id==39/,task-clock,dummy', threads=threads)
print(events, [str(of) for of in events], len(events), list(events.all_cpus()))
for of in events:
    of.read_format = perf.FORMAT_TOTAL_TIME_ENABLED | perf.FORMAT_TOTAL_TIME_RUNNING | perf.FORMAT_ID
events.open()
events.disable()
def calls(count):
    for _ in range(count):
        os.getppid() if perf.syscall_id('getpid') != 39 else os.getpid()
def read():
    return [of.read(cpu, thread) for of in events for cpu in of.cpus() for thread in of.threads()]
before = read()
calls(7)
off = read()
events.enable()
calls(1000)
events.disable()
on = read()
print([of.val for of in off], off[0].ena, on[0].val, on[0].run == on[0].ena > 0, on[1].val > 0, on[2].val)
print(on[0].id in events[0].ids, on[0].values[0] == on[0].val, on[0].lost, [of.val for of in read()])
for wrong in (lambda: events[0].read(77, os.getpid()), lambda: events[0].read(-1, 1)):
    try:
        wrong()
    except TypeError as error:
        print(error)
events.close()
try:
    events[0].read(-1, os.getpid())
except ValueError as error:
    print(error)
";
    let printed = printed(&Folder::new(), script, &[]);
    let lines: Vec<&str> = printed.lines().collect();
    let names = "raw_syscalls:sys_enter,task-clock,dummy";
    let shown = "['evsel(raw_syscalls:sys_enter)', 'evsel(task-clock)', 'evsel(dummy)']";
    assert_eq!(lines[0], format!("evlist([{names}]) {shown} 3 [-1]"));
    assert!(lines[1].starts_with("[0, 0, 0] 0 1000 True True 0"), "{printed}");
    assert_eq!(lines[2], "True True 0 [0, 0, 0]", "{printed}");
    assert_eq!(lines[3], "CPU 77 is not part of evsel's CPUs");
    assert_eq!(lines[4], "Thread 1 is not part of evsel's threads");
    assert_eq!(lines[5], "evsel(raw_syscalls:sys_enter) is not open");
}

/// The samples have the same values as the events that perf-prof delivers for the same calls.
#[test]
fn samples_are_those_that_a_trace_has() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os
import perf
import perf_prof

threads = perf.thread_map(os.getpid())
events = perf.parse_events('raw_syscalls:sys_enter,cpu-clock', perf.cpu_map(), threads)
events.config()
events.open()
events.mmap()
selectors = 'raw_syscalls:sys_enter/id==999/', 'raw_syscalls:sys_enter'
with perf_prof.trace('raw_syscalls:sys_enter', tid=os.getpid(), order=True) as trace:
    events.enable()
    for number in range(1000):
        os.getpgid(0)
        os.getpgid(1)
    events.disable()
    trace.stop()
    theirs = [(event.id, event.args[0], event._cpu, event._tid) for event in trace if event.id == 121]
ours = []
kinds = set()
assert events.poll(0) >= 1
for cpu in perf.cpu_map():
    while (event := events.read_on_cpu(cpu)) is not None:
        kinds.add(type(event).__name__)
        if isinstance(event, perf.sample_event) and event.evsel is events[0]:
            assert event.type == perf.RECORD_SAMPLE and event.sample_id in events[0].ids
            assert event.sample_pid == os.getpid() and event.sample_ip and event._comm
            if event.id == 121:
                ours.append((event.sample_time, (event.id, event.args[0], event.sample_cpu, event.sample_tid)))
ours = [value for _, value in sorted(ours)]
print(len(ours), ours == theirs, sorted(kinds))
try:
    events.read_on_cpu(4000)
except TypeError as error:
    print(error)
print(all(fd > 2 for fd in events.get_pollfd()), len(events.get_pollfd()) == len(perf.cpu_map()))
";
    let printed = printed(&Folder::new(), script, &[]);
    assert!(printed.starts_with("2000 True ["), "{printed}");
    assert!(printed.contains("sample_event") && printed.contains("\nUnknown CPU '4000'\nTrue True\n"), "{printed}");
}

#[test]
fn samples_of_equal_events_have_their_own_evsels() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import collections, os
import perf
enter = 'raw_syscalls:sys_enter'
events = perf.parse_events(f'{enter}/id==121/,{enter}/id==124/,{enter}/id==121/', threads=perf.thread_map(tid=os.getpid()))
events.config()
events.open()
events.mmap()
events.enable()
for _ in range(10):
    os.getpgid(0)
os.getsid(0)
events.disable()
seen = collections.Counter()
while (event := events.read_on_cpu(-1)) is not None:
    if isinstance(event, perf.sample_event):
        assert event.sample_id in event.evsel.ids
        seen[list(events).index(event.evsel), event.id] += 1
print(sorted(seen.items()))
";
    assert_eq!(printed(&Folder::new(), script, &[]), "[((0, 121), 10), ((1, 124), 1), ((2, 121), 10)]\n");
}

#[test]
fn records_of_tasks_are_events() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os, subprocess
import perf
cpus, threads = perf.cpu_map(), perf.thread_map()
event = perf.evsel(type=perf.TYPE_SOFTWARE, config=perf.COUNT_SW_DUMMY, task=1, comm=1, mmap=1, freq=0, wakeup_events=1,
                   watermark=1, sample_id_all=1, context_switch=1,
                   sample_type=perf.SAMPLE_PERIOD | perf.SAMPLE_TID | perf.SAMPLE_CPU | perf.SAMPLE_TIME)
event.open(cpus=cpus, threads=threads)
events = perf.evlist(cpus, threads)
events.add(event)
events.mmap()
child = subprocess.Popen(['/bin/true'])
child.wait()
events.poll(timeout=1000)
seen = {}
for cpu in cpus:
    while (record := events.read_on_cpu(cpu)):
        assert record.evsel is event and record.sample_cpu == cpu and record.sample_time > 0
        kind = type(record).__name__
        if isinstance(record, perf.task_event) and record.pid == child.pid:
            seen['fork' if record.type == perf.RECORD_FORK else 'exit'] = record.ppid
            assert record.type in (perf.RECORD_FORK, perf.RECORD_EXIT) and record.tid == record.pid
        elif isinstance(record, perf.comm_event) and record.pid == child.pid:
            seen['comm'] = record.comm
        elif isinstance(record, (perf.mmap_event, perf.mmap2_event)) and record.pid == child.pid and 'true' in record.filename:
            seen['mmap'] = record.start % 4096 == 0 and record.len > 0
        elif isinstance(record, perf.switch_event) and record.sample_pid == child.pid:
            seen['switch'] = record.type in (perf.RECORD_SWITCH, perf.RECORD_SWITCH_CPU_WIDE)
        assert kind.removesuffix('_event') in repr(record) or kind in ('task_event', 'switch_event')
print(seen['fork'] == os.getpid(), seen['comm'], seen['mmap'], seen['switch'], 'exit' in seen, event)
";
    assert_eq!(printed(&Folder::new(), script, &[]), "True true True True True evsel(dummy)\n");
}

#[test]
fn losses_are_records() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os
import perf
events = perf.parse_events('raw_syscalls:sys_enter', perf.cpu_map(), perf.thread_map(tid=os.getpid()))
events.config()
events.open()
events.mmap(pages=1)
events.enable()
for _ in range(3000):
    os.getppid()
events.disable()
def drained():
    for cpu in perf.cpu_map():
        while (event := events.read_on_cpu(cpu)) is not None:
            yield event
samples = sum(isinstance(event, perf.sample_event) for event in drained())
events.enable()
os.getppid()
events.disable()
lost = sum(event.lost for event in drained() if event.type == perf.RECORD_LOST)
print(samples > 0, samples + lost >= 3000)
";
    assert_eq!(printed(&Folder::new(), script, &[]), "True True\n");
}

#[test]
fn a_live_session_passes_samples_on_in_order() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os, signal, subprocess, sys, threading
import perf
from perf_live import LiveSession
seen = []
def sample(event):
    if event.sample_pid == busy.pid:
        seen.append((event.sample_time, event.sample_cpu, event.id))
        if len(seen) == 3000:
            os.kill(os.getpid(), signal.SIGINT)
order = sys.argv[1] == 'order'
session = LiveSession('raw_syscalls:sys_enter', sample, order=order) if order else LiveSession('raw_syscalls:sys_enter', sample)
busy = subprocess.Popen([sys.executable, '-c', 'import os\\nwhile True: os.getppid()'])
session.run()
busy.kill()
busy.wait()
times = [time for time, _, _ in seen]
print(len(seen) >= 3000, times == sorted(times) if order else 'any', perf.syscall_id('getppid') in {number for _, _, number in seen})
";
    let folder = Folder::new();
    assert_eq!(printed(&folder, script, &[Path::new("order")]), "True True True\n");
    assert_eq!(printed(&folder, script, &[Path::new("none")]), "True any True\n");
}

#[test]
fn unknown_events_and_modes_say_what_is_wrong() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import perf
def error(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
error(lambda: perf.parse_events('sched:sched_swich'))
error(lambda: perf.parse_events('task-clock').compute_metric('IPC', 0, 0))
error(lambda: perf.parse_events('task-clock').poll(0))
error(lambda: perf.evsel(sample_freq=10, sample_period=10))
error(lambda: perf.evsel(type=77).open())
print(perf.parse_events('task-clock').metrics())
";
    let printed = printed(&Folder::new(), script, &[]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("OSError [Errno 22]") && lines[0].contains("sched_switch"), "{printed}");
    assert_eq!(lines[1], "TypeError Unknown metric 'IPC' for CPU '0' and thread '0'");
    assert_eq!(lines[2], "ValueError the events have no rings: call open() and mmap() first");
    assert_eq!(lines[3], "ValueError give sample_freq or sample_period, not both");
    assert!(lines[4].starts_with("FileNotFoundError [Errno 2] evsel(raw 0x0): perf_event_open"), "{printed}");
    assert_eq!(lines[5], "[]");
}

#[test]
fn events_that_only_count_have_no_rate_until_they_are_configured() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import perf
events = perf.parse_events('task-clock,cpu-clock/freq=99/,software/page-faults/,sched:sched_switch')
print(events, [event.sample_period for event in events])
events.config()
print([event.sample_period for event in events])
";
    let expected = "evlist([task-clock,cpu-clock,page-faults,sched:sched_switch]) [0, 99, 0, 1]\n[4000, 99, 4000, 1]\n";
    assert_eq!(printed(&Folder::new(), script, &[]), expected);
}
