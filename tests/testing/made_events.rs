//! `make_event`: every field of every tracepoint is read back, and values that do not fit are refused with the reason.

use expect_test::expect;

use super::prints;

/// A script that sets each field of each shipped tracepoint to its highest and its lowest value, and reads it back.
const EVERY_FIELD: &str = r#"
def values(field):
    if field.python_type is bool:
        return [True, False]
    if field.python_type is int:
        bits = 8 * field.size
        return [(1 << bits - 1) - 1, -(1 << bits - 1)] if field.signed else [(1 << bits) - 1, 1]
    # Text in the field itself has room for a NUL.
    room = field.size - (field.python_type is str) if "__data_loc" not in field.type and "__rel_loc" not in field.type and field.size else 9
    return ["x" * room, ""] if field.python_type is str else [bytes(range(1, room + 1))[:250], b""]

checked, refused, wrong = 0, 0, []
for event in perf_prof.events(formats="shipped"):
    name = f"{event.system}:{event.name}"
    fields = [field for field in event.fields]
    for nth in 0, 1:
        chosen = {}
        for field in fields:
            chosen[field.name] = values(field)[nth]
        while True:
            try:
                made = make_event(name, formats="shipped", **chosen)
                break
            except ValueError as error:
                # The arguments of system calls have narrower types than their size says.
                at = str(error).removeprefix(name + ": ").split(" is ")[0]
                if "has values from" not in str(error) or at not in chosen:
                    raise
                low, _, high = str(error).split("has values from ")[1].partition(" to ")
                chosen[at] = int(high) if nth == 0 else int(low)
                refused += 1
        for field in fields:
            expected, found = chosen[field.name], made[field.name]
            if isinstance(expected, bytes):
                expected = expected.ljust(field.size if "_loc" not in field.type else 0, b"\0")
                # An array that extends to the end of the record has its padding too.
                if not field.size and not found[len(expected):].strip(b"\0"):
                    found = found[:len(expected)]
            if found != expected:
                wrong.append((name, field.name, field.type, expected, found))
            checked += 1
        assert made._event == name and made.common_type == event.id, name
        assert len(made.to_dict()) >= len(fields)
        made.text(fields[0].name) if fields else None
print(wrong[:5], len(wrong), checked > 20000, 0 < refused < 3000)
"#;

#[test]
fn every_field_of_every_tracepoint_is_read_back() {
    prints(
        EVERY_FIELD,
        expect![[r#"
            [] 0 True True
            --- status 0
        "#]],
    );
}

#[test]
fn members_have_their_values_or_defaults() {
    let code = r#"
event = make_event("sched:sched_switch", formats="shipped", prev_comm="make", prev_pid=7, next_comm="cc1", next_pid=8,
    _time=1_000, _cpu=3, _tid=5, _comm="make", _period=2)
print(isinstance(event, perf_prof.PerfEvent), event.prev_comm, event.next_pid, event.prev_state)
print(event._time, event._cpu, event._pid, event._tid, event.common_pid, event._comm, event._period, event._realtime)
event.print(timestamp=False)
plain = make_event("sched:sched_switch", formats="shipped")
print(plain._time, plain._cpu, plain._pid, plain._tid, plain._comm, plain._period, plain._callchain)
fault = make_event("page-faults", ip=0x401000, addr=0x7F00, _pid=4)
print(fault._event, hex(fault.ip), hex(fault.addr), fault.period, fault._pid, fault.to_dict()["tid"])
print(make_event("cycles:u")._event, make_event("profile", period=9).period)
print(make_event("kretprobe:do_exit", __probe_func=16).to_dict()["__probe_func"])
odd = make_event("sched:sched_switch", formats="shipped", prev_comm="a\udcff", next_comm=b"\xfe", _comm=b"\xfd")
print(ascii([odd.prev_comm, odd.next_comm, odd._comm]))
import pickle
again = pickle.loads(pickle.dumps(event))
print(again.to_dict() == event.to_dict(), again._comm)
"#;
    prints(
        code,
        expect![[r#"
            True make 8 0
            1000 3 5 5 5 make 2 1000
                        make      5 .... [003] 0.000001: sched:sched_switch: prev_comm=make prev_pid=7 prev_prio=0 prev_state=R ==> next_comm=cc1 next_pid=8 next_prio=0
            0 0 0 0 <...> 1 []
            page-faults 0x401000 0x7f00 1 4 4
            cycles:u 9
            16
            ['a\udcff', '\udcfe', '\udcfd']
            True make
            --- status 0
        "#]],
    );
}

#[test]
fn a_made_event_has_a_cgroup_if_one_was_given() {
    let code = r#"
import copy
event = make_event("sched:sched_switch", formats="shipped", _cgroup="/system.slice/web")
print(event._cgroup, "_cgroup" in event, "_cgroup" in event.keys(), copy.copy(event)._cgroup)
plain = make_event("sched:sched_switch", formats="shipped")
print("_cgroup" in plain, hasattr(plain, "_cgroup"))
counts = perf_prof.Count("_cgroup")
counts.add(event)
print(dict(counts))
"#;
    prints(
        code,
        expect![[r#"
            /system.slice/web True False /system.slice/web
            False False
            {'/system.slice/web': 1}
            --- status 0
        "#]],
    );
}

#[test]
fn frames_have_the_symbols_that_were_given() {
    let code = r#"
chain = [(0xFFFFFFFF81000010, "schedule"), 0xFFFFFFFF81000020, (0x401000, "main", "/bin/app"), 0x402000,
    {"addr": 0x403000, "symbol": "start", "offset": 5, "dso": "/bin/app"}]
event = make_event("sched:sched_switch", formats="shipped", _pid=4, _callchain=chain)
for frame in event._callchain:
    print(hex(frame["addr"]), frame["symbol"], frame["offset"], frame["kernel"], frame["dso"], frame.get("pid"))
same = make_event("sched:sched_switch", formats="shipped", _pid=4, _callchain=event._callchain)
print(same._callchain == event._callchain)
print(hex(make_event("cpu-clock", _callchain=chain).ip))
"#;
    prints(
        code,
        expect![[r#"
            0xffffffff81000010 schedule 0 True [kernel.kallsyms] None
            0xffffffff81000020 Unknown 0 True [kernel.kallsyms] None
            0x401000 main 0 False /bin/app 4
            0x402000 Unknown 4202496 False [unknown] 4
            0x403000 start 5 False /bin/app 4
            True
            0xffffffff81000010
            --- status 0
        "#]],
    );
}

#[test]
fn frames_of_python_and_inlined_ones_are_what_they_were_in_the_event() {
    let code = r#"
chain = [
    {"addr": 0x401000, "symbol": "copy", "dso": "/bin/app", "inlined": True, "srcline": "copy.c:7"},
    {"addr": 0x402000, "symbol": "load_rows", "dso": "app.py", "python": True, "srcline": "/srv/app.py:42"},
    {"addr": 0x403000, "symbol": "main", "dso": "app.py", "python": True, "line": 57},
    {"addr": 0, "symbol": "[python: the process has ended]", "dso": "[python]", "python": True, "line": None}]
event = make_event("sched:sched_switch", formats="shipped", _pid=4, _callchain=chain)
for frame in event._callchain:
    print({key: value for key, value in frame.items() if key not in ("addr", "offset", "kernel", "pid")})
same = make_event("sched:sched_switch", formats="shipped", _pid=4, _callchain=event._callchain)
print(same._callchain == event._callchain)
"#;
    prints(
        code,
        expect![[r#"
            {'symbol': 'copy', 'dso': '/bin/app', 'inlined': True, 'srcline': 'copy.c:7'}
            {'symbol': 'load_rows', 'dso': 'app.py', 'python': True, 'line': 42, 'srcline': '/srv/app.py:42'}
            {'symbol': 'main', 'dso': 'app.py', 'python': True, 'line': 57, 'srcline': 'app.py:57'}
            {'symbol': '[python: the process has ended]', 'dso': '[python]', 'python': True, 'line': None}
            True
            --- status 0
        "#]],
    );
}

#[test]
fn what_does_not_fit_is_an_error_that_says_why() {
    let code = r#"
def error(*args, **fields):
    try:
        print("NO ERROR", make_event(*args, **fields))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

def switch(**fields):
    error("sched:sched_switch", formats="shipped", **fields)

error("sched:sched_swich", formats="shipped")
error("nothing:like_it", formats="shipped")
error("cycle", formats="shipped")
error("../..:format")
error("uprobe:")
error(5)
switch(prev_pdi=3)
switch(nothing=3)
error("page-faults", prev_pid=3)
switch(prev_pid=1 << 31)
switch(prev_pid=-1 << 4000)
switch(prev_pid=1.5)
switch(prev_pid="7")
switch(prev_pid=None)
switch(prev_comm="sixteen letters!")
switch(prev_comm="nul\0")
switch(prev_comm=7)
switch(prev_comm=["a"])
switch(_time=-1)
switch(_cpu=1 << 32)
switch(_comm="sixteen letters!")
switch(_callchain=[2**64 - 1])
switch(_callchain=[()])
switch(_callchain=["main"])
switch(_callchain=[{"symbol": "main"}])
switch(_callchain=[{"addr": 1, "srcline": "app.py"}])
switch(_callchain=[{"addr": 1, "python": True, "line": 42}])
switch(_callchain=[{"addr": 1, "python": True, "line": "42", "dso": "app.py"}])
switch(_callchain=[{"addr": 1, "python": True, "line": 42, "srcline": "app.py:7"}])
switch(_callchain=[{"addr": 1, "line": 42, "dso": "app.c"}])
switch(_callchain=[1] * 9000)
error("raw_syscalls:sys_enter", formats="shipped", args=[1, -2])
error("raw_syscalls:sys_enter", formats="shipped", args=[0] * 7)
error("sched:sched_process_exec", formats="shipped", filename="x" * 65_535)
error("sched:sched_switch", formats="/nonexistent")
error("sched:sched_switch", formats=3)
"#;
    prints(
        code,
        expect![[r#"
            SelectorError: unknown event sched:sched_swich: it is not in the formats that perf-prof brings (did you mean sched:sched_switch?)
            SelectorError: unknown event nothing:like_it: it is not in the formats that perf-prof brings
            SelectorError: unknown event cycle: it is not in the formats that perf-prof brings (did you mean cycles?)
            SelectorError: unknown event ../..:format: it is not in this kernel and not in the formats that perf-prof brings
            SelectorError: unknown event uprobe:: it is not in this kernel and not in the formats that perf-prof brings
            TypeError: 'int' object is not an instance of 'str'
            TypeError: sched:sched_switch has no field 'prev_pdi'; did you mean prev_pid?
            TypeError: sched:sched_switch has no field 'nothing'; it has _time, _cpu, _pid, _tid, _period, _realtime, _ip, _addr, _comm, _cgroup, _callchain, prev_comm, prev_pid, prev_prio, prev_state, next_comm, next_pid, next_prio
            TypeError: page-faults has no field 'prev_pid'; it has _time, _cpu, _pid, _tid, _period, _realtime, _ip, _addr, _comm, _cgroup, _callchain, ip, addr, period
            ValueError: sched:sched_switch: prev_pid is 2147483648, but pid_t has values from -2147483648 to 2147483647
            ValueError: sched:sched_switch: prev_pid is an int of 4001 bits, but pid_t has values from -2147483648 to 2147483647
            TypeError: sched:sched_switch: prev_pid has a value of type float; it needs an int, a str, bytes or a list of ints
            TypeError: sched:sched_switch: prev_pid (pid_t) needs an int, not a str
            TypeError: sched:sched_switch: prev_pid has a value of type NoneType; it needs an int, a str, bytes or a list of ints
            ValueError: sched:sched_switch: prev_comm has 17 bytes with the NUL at its end, but char[16] has room for 16
            ValueError: sched:sched_switch: prev_comm contains a NUL character, which would end the text
            TypeError: sched:sched_switch: prev_comm (char[16]) needs a str or bytes, not an int
            TypeError: sched:sched_switch: prev_comm[0] has a value of type str; it needs an int
            ValueError: sched:sched_switch: _time is -1, but must be from 0 to 18446744073709551615
            ValueError: sched:sched_switch: _cpu is 4294967296, but must be from 0 to 4294967295
            ValueError: sched:sched_switch: _comm has 16 bytes, but the name of a task has at most 15
            ValueError: sched:sched_switch: _callchain[0] is 0xffffffffffffffff, which is no address
            ValueError: sched:sched_switch: _callchain[0] has to be an address, (address, symbol) or (address, symbol, dso)
            TypeError: sched:sched_switch: _callchain[0] has a value of type str; it needs an int
            ValueError: sched:sched_switch: _callchain[0] has no 'addr'
            ValueError: sched:sched_switch: _callchain[0] has the srcline 'app.py', which has to be FILE:LINE, such as app.py:42
            ValueError: sched:sched_switch: _callchain[0] has the line 42, which needs a dso, such as app.py
            TypeError: sched:sched_switch: _callchain[0]['line'] has a value of type str; it needs an int
            ValueError: sched:sched_switch: _callchain[0] has the line 42, but its srcline 'app.py:7' has another one
            ValueError: sched:sched_switch: _callchain[0] has the line 42, but only frames with 'python': True have a line; others have a srcline
            ValueError: sched:sched_switch: the record of the event would have 72144 bytes, but a record has at most 65535
            ValueError: raw_syscalls:sys_enter: args[1] is -2, but unsigned long[6] has values from 0 to 18446744073709551615
            ValueError: raw_syscalls:sys_enter: args has 56 bytes, but unsigned long[6] has room for 48
            ValueError: sched:sched_process_exec: the values have 65556 bytes in total, but a record has at most 65535
            RecordingNotFoundError: [Errno 2] No such file or directory: '/nonexistent'
            TypeError: expected str, bytes or os.PathLike object, not int
            --- status 0
        "#]],
    );
}

#[test]
fn ten_thousand_events_of_one_kind_have_one_class_and_are_freed() {
    let code = r#"
import gc, os

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

def classes():
    return len(perf_prof.PerfEvent.__subclasses__())

with open("t.py", "w") as script:
    script.write("def __sample__(event): pass\n")

def work(times):
    for pid in range(times):
        event = make_event("sched:sched_switch", formats="shipped", prev_pid=pid, _callchain=[(0x401000, "main")])
        if pid % 10 == 0:
            run_script("t.py", [event])

work(1000)
gc.collect()
before = classes(), resident(), len(sys.modules), len(gc.get_objects()), len(os.listdir("/proc/self/fd"))
work(10_000)
gc.collect()
after = classes(), resident(), len(sys.modules), len(gc.get_objects()), len(os.listdir("/proc/self/fd"))
print(after[0] - before[0], after[1] - before[1] < 2 << 20, after[2] - before[2], abs(after[3] - before[3]) < 100, after[4] - before[4])
"#;
    prints(
        code,
        expect![[r#"
            0 True 0 True 0
            --- status 0
        "#]],
    );
}
