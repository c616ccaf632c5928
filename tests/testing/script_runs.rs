//! `run_script` follows the rules of `perf-prof python`, in the interpreter of the caller.

use expect_test::expect;

use super::{prints, program};
use crate::harness::script::{Run, check};

/// A script that prints each call of its functions.
const SCRIPT: &str = r#"
import sys, perf_prof
from perf_prof import PerfEvent, is_recording, lost_cpu, process_of, realtime, stats
print(sys.argv, __name__, is_recording(), stats()["delivered"])
kept = []
def __init__(): print("init")
def sched__sched_switch(event):
    kept.append(event)
    print("switch", event._time, event._cpu, event.next_pid, event._comm, process_of(event._tid))
def __sample__(event): print("sample", event._event, event._time)
def __interval__(): print("interval", realtime())
def __lost__(start, end): print("lost", start, end, lost_cpu())
def __exit__():
    print("exit", realtime(), stats())
    print("done", file=sys.stderr)
"#;

/// Functions that make events for a test.
const EVENTS: &str = r#"
def switch(time, pid=0, cpu=0, **more):
    return make_event("sched:sched_switch", formats="shipped", _time=time, _cpu=cpu, next_pid=pid, **more)
def show(out):
    print(out.stdout, end="")
    for line in out.stderr.splitlines():
        print("ERR", line)
    print("status", out.status, out.module)
"#;

fn with_script(code: &str, script: &str) -> Run {
    program(&format!("{EVENTS}\n{code}")).file("t.py", script)
}

#[test]
fn functions_are_called_in_the_order_of_time() {
    let code = r#"
events = [switch(3000, 3, cpu=1), switch(1000, 1, _comm="make", _pid=5, _tid=6), make_event("page-faults", _time=2000), switch(5000, 5, cpu=1)]
out = run_script("t.py", [*events, Lost(time=4000, cpu=1, events=7)], args=["--x", "y"], interval=1e-6)
show(out)
print(out.module.kept[0] is events[1], out.module.kept[1] is events[0])
"#;
    let run = with_script(code, SCRIPT);
    check(
        run,
        expect![[r#"
            ['t.py', '--x', 'y'] t True 0
            init
            switch 1000 0 1 make 5
            interval 2000
            sample page-faults 2000
            interval 3000
            switch 3000 1 3 <...> 0
            interval 4000
            interval 5000
            lost 3000 5000 1
            switch 5000 1 5 <...> 0
            exit 5000 {'delivered': 4, 'lost': 7, 'own': 0, 'partial': True, 'events': {'sched:sched_switch': {'delivered': 3, 'lost': None, 'where': 'perf-prof'}, 'page-faults': {'delivered': 1, 'lost': None, 'where': 'perf-prof'}}, 'cpus': {0: {'delivered': 2, 'lost': 0}, 1: {'delivered': 2, 'lost': 7}}}
            ERR done
            status 0 <module 't' from 'DIR/t.py'>
            True True
            --- status 0
        "#]],
    );
}

#[test]
fn an_interval_is_a_number_of_seconds_or_a_text() {
    let code = r#"
for interval in [None, 1, 0.5, "1s", "500ms", 0, -1, float("nan"), "soon", []]:
    try:
        out = run_script("t.py", [switch(at * 500_000_000) for at in range(1, 6)], interval=interval)
        print(interval, out.stdout)
    except (ValueError, TypeError) as error:
        print(interval, type(error).__name__, error)
"#;
    let script = "
count = 0
def __sample__(event): pass
def __interval__():
    global count
    count += 1
def __exit__(): print(count, end='')
";
    check(
        with_script(code, script),
        expect![[r#"
        None 0
        1 2
        0.5 4
        1s 2
        500ms 4
        0 ValueError interval: 0 is not a positive number of seconds
        -1 ValueError interval: -1 is not a positive number of seconds
        nan ValueError interval: NaN is not a positive number of seconds
        soon ValueError interval: `soon` is not a time; write a number of milliseconds, for example `500`, or a number with a unit, for example `1s`, `500ms` or `100us`
        [] TypeError must be real number, not list
        --- status 0
    "#]],
    );
}

#[test]
fn exceptions_are_printed_and_the_run_goes_on() {
    let script = r#"
def sched__sched_switch(event):
    if event.next_pid == 2: raise ValueError("two")
    print("seen", event.next_pid)
def __exit__(): print("exit")
"#;
    let code = r#"
show(run_script("t.py", [switch(at, at) for at in (1, 2, 3)]))
out = run_script("t.py", [switch(at, 2) for at in range(15)])
print(out.status, out.stderr.count("Traceback"), *out.stderr.splitlines()[-2:], sep="\n")
"#;
    check(
        with_script(code, script),
        expect![[r#"
        seen 1
        seen 3
        exit
        ERR Traceback (most recent call last):
        ERR   File "DIR/t.py", line 3, in sched__sched_switch
        ERR     if event.next_pid == 2: raise ValueError("two")
        ERR                             ^^^^^^^^^^^^^^^^^^^^^^^
        ERR ValueError: two
        status 1 <module 't' from 'DIR/t.py'>
        1
        1
        perf-prof: sched__sched_switch: ValueError at DIR/t.py:3 again; from now on, this exception is only counted
        perf-prof: ValueError at DIR/t.py:3: 15 times in total
        --- status 0
    "#]],
    );
}

#[test]
fn the_status_is_that_of_the_host() {
    let code = r#"
import os
def run(script, *args):
    with open("t.py", "w") as file:
        file.write(script)
    out = run_script("t.py", [switch(1), switch(2)], args)
    print(out.status, out.module is not None, out.stdout.split(), out.stderr.splitlines()[-1:])

run("import sys; sys.exit(3)")
run("import sys\ndef __init__(): sys.exit(4)\ndef __sample__(event): print('never')")
run("import sys\ndef __sample__(event): print(event._time); sys.exit(5)\ndef __exit__(): print('exit')")
run("import sys\ndef __sample__(event): sys.exit('reason')")
run("import sys\ndef __sample__(event): pass\ndef __exit__(): sys.exit(6)")
run("def __sample__(event): pass\ndef __exit__(): 1/0")
run("1/0")
run("def x(:")
run("import no_such_module_here")
run("def __init__(): 1/0\ndef __sample__(event): pass")
run("x = 1")
run("def sched__sched_switch(event): yield")
run("import argparse\nargparse.ArgumentParser(prog='t').parse_args()\ndef __sample__(event): pass", "--wrong")
run("import sys\ndef __sample__(event): sys.stdout.close()")
run("import sys\ndef __sample__(event): sys.stdout.buffer.write(b'raw\\n')")
print(run_script("t.py", []).status)
open("handlers.py", "w").write("def sched__sched_switch(event): pass")
print(run_script("handlers.py", []).status)
for wrong in ["none.py", ".", "no_such_module_here"]:
    try:
        print("NO ERROR", run_script(wrong, []))
    except FileNotFoundError as error:
        print(error)
for wrong in [[5], ["event"], [None], 5, [(1, 2)], [(1, -2, 3)]]:
    try:
        print("NO ERROR", run_script("t.py", wrong))
    except (TypeError, OverflowError) as error:
        print(type(error).__name__, error)
"#;
    check(
        with_script(code, ""),
        expect![[r#"
        3 False [] []
        4 True [] []
        5 True ['1', 'exit'] []
        1 True [] ['reason']
        6 True [] []
        1 True [] ['ZeroDivisionError: division by zero']
        1 False [] ["perf-prof: cannot load 't.py': it raised ZeroDivisionError (see above)"]
        1 False [] ["perf-prof: cannot load 't.py': it raised SyntaxError (see above)"]
        1 False [] ["perf-prof: cannot load 't.py': it raised ModuleNotFoundError (see above); for the packages of a venv, use --python VENV"]
        1 True [] ['perf-prof: __init__() failed']
        1 True [] ['perf-prof: DIR/t.py: no callback for the selected events: define sched__sched_switch(event) or __sample__(event) (`perf-prof python -e ... help` prints a template)']
        1 True [] ['perf-prof: DIR/t.py:1: sched__sched_switch() is a generator, so a call would not run its body; make it a plain function']
        2 False [] ['t: error: unrecognized arguments: --wrong']
        0 True [] []
        0 True ['raw', 'raw'] []
        0
        0
        cannot load 'none.py': no such file
        cannot load '.': no such file, and no module '.' in the current directory or sys.path (for the packages of a venv, use --python VENV)
        cannot load 'no_such_module_here': no such file, and no module 'no_such_module_here' in the current directory or sys.path (for the packages of a venv, use --python VENV)
        TypeError events[0] is a int; it has to be a PerfEvent or a Lost
        TypeError events[0] is a str; it has to be a PerfEvent or a Lost
        TypeError events[0] is a NoneType; it has to be a PerfEvent or a Lost
        TypeError 'int' object is not iterable
        TypeError events[0] is a tuple; it has to be a PerfEvent or a Lost
        TypeError events[0] is a tuple; it has to be a PerfEvent or a Lost
        --- status 0
    "#]],
    );
}

#[test]
fn the_program_is_as_before_afterwards() {
    let code = r#"
import os
sys.modules["t"] = marker = object()
before = sys.argv, sys.path, sys.stdout, sys.stderr, list(sys.path), perf_prof.is_recording(), os.getcwd(), set(os.listdir("/proc/self/fd"))
run_script("t.py", [switch(1)])
open("bad.py", "w").write("import sys\nsys.argv = sys.path = sys.stdout = None\n1/0")
try:
    run_script("bad.py", [switch(1)])
finally:
    after = sys.argv, sys.path, sys.stdout, sys.stderr, list(sys.path), perf_prof.is_recording(), os.getcwd(), set(os.listdir("/proc/self/fd"))
print(before == after, sys.modules["t"] is marker, "bad" in sys.modules)
# A module of the standard library stays in place, and each run imports the script anew.
import json
open("json.py", "w").write("count = 0\ndef __sample__(event):\n    global count\n    count += 1\n    print(count)")
for _ in range(2):
    print(run_script("json.py", [switch(1)]).stdout.strip(), sys.modules["json"] is json)
open("named.py", "w").write("print('imported')\ndef __sample__(event): pass")
sys.path.insert(0, os.getcwd())
for _ in range(2):
    print(run_script("named", [switch(1)]).stdout.strip(), "named" in sys.modules)
# A script can test another script.
open("outer.py", "w").write("from perf_prof.testing import run_script\nfrom perf_prof import stats\ndef __sample__(event):\n    out = run_script('t.py', [event, event])\n    print('inner', out.stdout.count('switch'), 'outer', stats()['delivered'])")
print(run_script("outer.py", [switch(1)]).stdout, end="")
"#;
    check(
        with_script(code, SCRIPT),
        expect![[r#"
        True True False
        1 True
        1 True
        imported False
        imported False
        inner 3 outer 1
        --- status 0
    "#]],
    );
}

#[test]
fn threads_run_scripts_one_after_the_other() {
    let code = r#"
import threading
outs = {}
def run(pid):
    for _ in range(20):
        outs.setdefault(pid, set()).add(run_script("t.py", [switch(1, pid), switch(2, pid)], [str(pid)]).stdout)
threads = [threading.Thread(target=run, args=(pid,)) for pid in (1, 2, 3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(outs.items()), sys.argv)
"#;
    let script = "import sys, time\ndef __sample__(event):\n    time.sleep(0.001)\n    print(sys.argv[1], event.next_pid, end=' ')\n";
    check(
        with_script(code, script),
        expect![[r#"
        [(1, {'1 1 1 1 '}), (2, {'2 2 2 2 '}), (3, {'3 3 3 3 '})] ['program.py']
        --- status 0
    "#]],
    );
}

#[test]
fn ctrl_c_ends_the_run_and_the_program_gets_it() {
    let code = r#"
import os, signal
before = sys.stdout
try:
    run_script("t.py", [switch(1), switch(2)])
except KeyboardInterrupt:
    print("interrupted", sys.stdout is before)
"#;
    let script = "import os, signal\ndef __sample__(event): os.kill(os.getpid(), signal.SIGINT); event._time\n";
    let code = format!("import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{code}");
    check(
        with_script(&code, script),
        expect![[r#"
            interrupted True
            --- status 0
        "#]],
    );
}

/// A script prints the same for the same events, whether perf-prof replays a recording or a program passes made events.
#[test]
fn a_run_on_replayed_events_prints_what_the_host_prints() {
    let code = r#"
import os, subprocess
scripts = sys.argv[1]
with perf_prof.record("sched:sched_wakeup", "sched:sched_switch", "raw_syscalls:*", output="perf.data"):
    for _ in range(5):
        subprocess.run(["true"], check=True)
cases = [("wakeups.py", "sched:sched_wakeup", []), ("runqlat.py", "sched:*", ["--all"]), ("syscalls.py", "raw_syscalls:*", [])]
for name, selector, args in cases:
    path = os.path.join(scripts, name)
    command = [sys.argv[2], "python", "-q", "--input", "perf.data", "-e", selector, path, *args]
    host = subprocess.run(command, capture_output=True, text=True)
    with perf_prof.replay("perf.data", selector) as events:
        out = run_script(path, list(events), args)
    print(name, out.status == host.returncode, out.stdout == host.stdout, len(out.stdout) > 100)
    if out.stdout != host.stdout:
        print(out.stdout, host.stdout, host.stderr, sep="\n-----\n")
"#;
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    let run = program(code).args([scripts, crate::harness::run::tested_program()]);
    check(
        run,
        expect![[r#"
            wakeups.py True True True
            runqlat.py True True True
            syscalls.py True True True
            --- status 0
        "#]],
    );
}

#[test]
fn handlers_of_events_with_modifiers_are_found() {
    let code = r#"show(run_script("t.py", [make_event("cycles:u", ip=5), make_event("page-faults", addr=6)]))"#;
    let script = "def cycles(event): print(event.ip)\ndef page_faults(event): print(event.addr)\n";
    prints(
        &format!("open('t.py', 'w').write('''{script}''')\n{EVENTS}\n{code}"),
        expect![[r#"
        5
        6
        status 0 <module 't' from 'DIR/t.py'>
        --- status 0
    "#]],
    );
}

#[test]
fn aggregators_get_made_events() {
    let code = r#"
events = [switch(1000 * at, pid=at % 3, _comm="make" if at % 2 else "cc1", _pid=7) for at in range(10)]
show(run_script("t.py", events, interval=5e-6))
"#;
    let script = "
from perf_prof import Count, Sum, Top
count, total, top = Count('_comm', 'next_pid'), Sum('next_pid'), Top(2, '_time')
sched__sched_switch = count, total, top
def __interval__(): print('interval', total.total)
def __exit__():
    count.print()
    print(total.total, [event._time for event in top], top.most_common()[0][0]._comm)
";
    check(
        with_script(code, script),
        expect![[r#"
        interval 4
        _comm  next_pid  count  share
        cc1           0      2  20.0%
        make          1      2  20.0%
        cc1           2      2  20.0%
        make          0      2  20.0%
        cc1           1      1  10.0%
        make          2      1  10.0%
        9 [9000, 8000] make
        status 0 <module 't' from 'DIR/t.py'>
        --- status 0
    "#]],
    );
    check(
        with_script(code, "from perf_prof import Count\n__sample__ = Count('next_pidd')"),
        expect![[r#"
        ERR perf-prof: DIR/t.py: __sample__: sched:sched_switch has no field or member `next_pidd`; did you mean `next_pid`?
        status 1 <module 't' from 'DIR/t.py'>
        --- status 0
    "#]],
    );
}
