# Calls the functions of Core, Util and EventClass, and prints the results. modules.rs compares the output with
# modules.expected, which contains the output under perf 6.1.
import os
import sys

sys.path.append(os.environ["PERF_EXEC_PATH"] + "/scripts/python/Perf-Trace-Util/lib/Perf/Trace")
from Core import *
from EventClass import *
from Util import *
import Core
import EventClass
import Util


def show(text):
    try:
        result = repr(eval(text, globals()))
    except Exception as error:
        result = "raises " + type(error).__name__
    # The addresses of objects differ between runs.
    print(text, "->", result.split(" at 0x")[0])


def run(text):
    try:
        exec(text, globals())
    except Exception as error:
        print(text, "raises", type(error).__name__)


def shapes(module, names):
    import inspect

    for name in names.split():
        signature = inspect.signature(getattr(module, name))
        # perf's functions have no annotations, and annotations do not change calls.
        parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        print(module.__name__, name, signature.replace(parameters=parameters, return_annotation=signature.empty))


print("# nested dicts")
run("d = autodict()")
show("type(d)")
run("d['a']['b']['c'] = 1")
show("d['a']['b']")
run("d['n'] += 1")
show("len(d['n']), 'n' in d, 'other' in d, d.get('other')")
run("d['n'] = 1\nd['n'] += 1")
show("d['n']")
show("isinstance(d, defaultdict), d.default_factory is autodict")

print("# flags")
show("flag_str('e', 'f', 3)")
show("sorted(flag_fields), sorted(flag_fields['e'])")
run("define_flag_field('e', 'f', '|')")
show("flag_str('e', 'f', 0), flag_str('e', 'f', 3)")
run("define_flag_value('e', 'f', 4, 'C')\ndefine_flag_value('e', 'f', 1, 'A')\ndefine_flag_value('e', 'f', 2, 'B')")
show("[flag_str('e', 'f', value) for value in range(-1, 20)]")
run("define_flag_value('e', 'f', 0, 'NONE')\ndefine_flag_value('e', 'f', 24, 'D')\ndefine_flag_value('e', 'f', 3, 'AB')")
show("[flag_str('e', 'f', value) for value in range(-1, 40)]")
show("flag_str('e', 'f', None)")
show("flag_str('e', 'f', 'x')")
show("flag_str('e', 'f', 1.0)")
run("define_flag_field('none', 'f', None)\ndefine_flag_value('none', 'f', 1, 'A')\ndefine_flag_value('none', 'f', 2, 'B')")
show("flag_str('none', 'f', 3)")
run("define_flag_field('empty', 'f', '')\ndefine_flag_value('empty', 'f', 1, 'A')\ndefine_flag_value('empty', 'f', 2, 'B')")
show("flag_str('empty', 'f', 3)")
run("define_flag_value('late', 'f', 1, 'A')\ndefine_flag_value('late', 'f', 2, 'B')")
show("flag_str('late', 'f', 3)")
run("define_flag_field('late', 'f', ', ')")
show("flag_str('late', 'f', 3)")
show("dict(flag_fields['late']['f']['values']), flag_fields['late']['f']['delim']")

print("# symbols")
show("symbol_str('e', 'f', 0), symbol_str('e', 'f', 1)")
show("sorted(symbolic_fields)")
run("define_symbolic_field('s', 'f')")
show("sorted(symbolic_fields)")
run("define_symbolic_value('s', 'f', 1, 'ONE')\ndefine_symbolic_value('s', 'f', 2, 'TWO')")
show("[symbol_str('s', 'f', value) for value in (0, 1, 2, 3, -1, 1.0, True, None, 'x', bytearray(b'x'))]")
run("define_symbolic_value('s', 'f', 0, 'NIL')\ndefine_symbolic_value('s', 'f', 1, 'EIN')")
show("[symbol_str('s', 'f', value) for value in (0, 1, 2, 3, None, False, bytearray())]")
show("symbol_str('s', 'g', 1), symbol_str('t', 'g', 1)")
show("dict(symbolic_fields['s']['f']['values'])")

print("# common_flags and task states")
show("trace_flags")
show("[trace_flag_str(value) for value in range(40)]")
show("trace_flag_str(255), trace_flag_str(256), trace_flag_str(-1), trace_flag_str(None)")
show("trace_flag_str('x')")
show("[taskState(state) for state in range(-1, 300)]")
show("taskState('R'), taskState(None), taskState(64.0)")

print("# the head of an event")
run("h = EventHeaders(1, 12345, 678999, 4, 'sh', [5])")
show("vars(h)")
show("h.ts(), h.ts_format()")
for secs, nsecs in (2, 3), (-5, 999999999), (5, 999), (5, 1000), (5.5, 1999999999):
    run(f"h = EventHeaders(1, {secs}, {nsecs}, 4, 'sh', None)")
    show("h.ts(), h.ts_format()")
show("EventHeaders(1, 2, 3, 4, 'sh')")
run("h = EventHeaders(1, '5', 19, 4, 'sh', None)")
show("h.ts()")
show("h.ts_format()")

print("# times")
show("NSECS_PER_SEC")
show("[nsecs(*time) for time in ((1, 2), (0, 0), (-1, 5), (1.5, 2), (10**12, 999999999))]")
show("[nsecs_secs(time) for time in (0, 1, 1999999999, -1, 5.5, 2.5e9, 10**19 + 1)]")
show("[nsecs_nsecs(time) for time in (0, 1, 1999999999, -1, 5.5, 2.5e9, 10**19 + 1)]")
show("[nsecs_str(time) for time in (0, 1, 1999999999, -1, -1999999999, 5.5, 2.5e9, 10**19 + 1)]")
show("nsecs('1', 2)")
show("nsecs_str(None)")

print("# statistics")
show("[avg(*of) for of in ((7, 2), (-7, 2), (1, 3), (0, 5), (7.5, 2), (10**20, 3))]")
show("avg(7, 0)")
run("stats = {}")
for value in 5, 3, 9, 9, -2, 7.5, 0:
    run(f"add_stats(stats, 'k', {value})")
    show("stats")
show("add_stats(stats, 'j', 4), stats['j']")
run("add_stats(stats, 'k', 'x')")
run("add_stats([], 0, 1)")

print("# errors, futexes, the terminal")
show("[strerror(number) for number in (0, 1, -1, 2, -2, 11, -11, 22, -38, 35, 999, -999, 512, -512, 1.0, True)]")
show("strerror('x')")
show("strerror(None)")
show("FUTEX_WAIT, FUTEX_WAKE, FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK")
show("[operation & FUTEX_CMD_MASK for operation in (0, 1, 128, 129, 137, 265, 393)]")
show("clear_term()")

print("# samples of the PMU")
show("EVTYPE_GENERIC, EVTYPE_PEBS, EVTYPE_PEBS_LL, EVTYPE_IBS")
raw = bytes((i * 7 + 3) & 255 for i in range(400))
show("[type(create_event('n', 'c', 'd', 's', raw[:size])).__name__ for size in (0, 80, 143, 144, 145, 175, 176, 177, 208)]")
show("PerfEvent.event_num, PebsEvent.pebs_num, PebsNHM.pebs_nhm_num")
for size in 8, 144, 176:
    run(f"event = create_event('cycles', 'sh', '/bin/sh', 'main', raw[:{size}])")
    show("{name: value for name, value in sorted(vars(event).items()) if name != 'raw_buf'}")
    show("event.raw_buf == raw[:%d]" % size)
    run("event.show()")
show("PerfEvent.event_num, PebsEvent.pebs_num, PebsNHM.pebs_nhm_num")
show("PebsEvent('n', 'c', 'd', 's', raw[:79])")
show("PebsNHM('n', 'c', 'd', 's', raw[:144])")
show("PebsEvent('n', 'c', 'd', 's', raw[:80]).ev_type, PerfEvent('n', 'c', 'd', 's', b'', 7).ev_type")
show("PerfEvent.event_num, PebsEvent.pebs_num, PebsNHM.pebs_nhm_num")
show("create_event('n', 'c', 'd', 's', bytearray(raw[:144])).ip == PebsNHM('n', 'c', 'd', 's', raw[:176]).ip")
show("create_event('n', 'c', 'd', 's', None)")
show("issubclass(PebsNHM, PebsEvent), issubclass(PebsEvent, PerfEvent)")
run("PerfEvent(1, None, 3, 'a symbol that is longer than its column', b'').show()")

print("# names and parameters")
shapes(Core, "autodict define_flag_field define_flag_value define_symbolic_field define_symbolic_value flag_str")
shapes(Core, "symbol_str taskState trace_flag_str EventHeaders")
shapes(Util, "add_stats avg clear_term nsecs nsecs_nsecs nsecs_secs nsecs_str strerror syscall_name")
shapes(EventClass, "PebsEvent PebsNHM PerfEvent create_event")
show("[module.__name__ for module in (errno, os, struct)]")
