#!/usr/bin/env -S perf-prof python -q -e dummy
"""Function latency: how long calls of functions in programs and libraries take, with a histogram for each function.

usage: uprobe_latency.py [OPTION of perf-prof python]... [--ns] [--min US]

Select each function with -e. Select processes with -p PID, -t TID or --exec CMD; without these, the calls of all
processes are timed. With -i 1000, histograms are printed every second, else once at the end.

    uprobe_latency.py -e function:getaddrinfo@libc -i 1s

Functions with the same name in several files have one histogram each. The script finds the file of a function in
/proc/PID/maps, as long as the process exists.

The time of a call includes the functions that it calls, its waits, and about one or two microseconds for the probes. The
kernel reports no return of a call that ends by an exception or longjmp(), nor of one that is made while its thread is in 64
calls of probed functions. Such a call is counted in the last line when another one takes its place on the stack.

The first line has the event `dummy`, which never occurs. It is only a placeholder for the functions that are given with
-e. To replay a recording in two processes, select the functions with -e again:

    perf-prof record -e function:getaddrinfo@libc -a -- sleep 10
    uprobe_latency.py --input perf.data -e function:getaddrinfo@libc --jobs 2

A recording of the probes alone: -e 'span:getaddrinfo=uprobe:getaddrinfo..uretprobe:getaddrinfo//key=_tid/nested/'
"""
from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from perf_prof import at_least, is_recording, print, stats
from perf_prof.script import Options, Report, TimesHist, mapped_file

options = Options(__doc__)
options.add_argument("--ns", action="store_true", help="histograms of nanoseconds, not of microseconds")
options.add_argument("--min", type=at_least(0.0), default=0, metavar="US", help="only calls of at least US microseconds")
args = options.parse()
__without__ = {"dummy": None}

# A function's name, and its file. If the file is not known: the offset of the function in its page, which is the same
# in all processes.
Function = tuple[str, str | int]
files: dict[Function, str] = {}


def show(table: defaultdict[Function, TimesHist]) -> None:
    for function in files.keys() & table.keys():
        # These calls were counted before the file was known.
        table[function[0], files[function]].update(table.pop(function))
    names = [name for name, _ in table]
    for (name, file), times in sorted(table.items(), key=lambda row: (-row[1].total, row[0][0], str(row[0][1]))):
        if names.count(name) > 1:
            # The last three digits of the function's address are the same in all processes.
            unknown = f"at ...{file:03x}" if is_recording() else "in processes that have exited"
            name += f" ({unknown if isinstance(file, int) else file})"
        times.print(name)
    if not table:
        print("no calls seen (select a function: -e function:FUNC@FILE)")


report = Report(partial(defaultdict, partial(TimesHist, "nsecs" if args.ns else "usecs")), show)
__interval__, __partial__, __merge__, _ = report.callbacks


def selected(*kinds: str) -> dict[str, Any]:
    events = stats().get("events", {})
    return {name: counts for name, counts in events.items() if name.partition(":")[0] in kinds}


def __init__() -> None:
    if selected("function", "span"):
        return
    for name in selected("uprobe", "uretprobe"):
        function = name.partition(":")[2]
        options.error(f"{name} is selected, but not its calls; to time them, select function:{function}@FILE")
    if is_recording():
        options.error("select the recorded functions with -e function:FUNC@FILE")


def __sample__(event: Any) -> None:
    # Events of other selected probes have no duration.
    if event.get("duration", -1) < args.min * 1000:
        return
    address = event.begin["__probe_ip"]
    name, offset = event._event.partition(":")[2], address % 4096
    if file := mapped_file(event._pid, address):
        files[name, offset] = file
    report.table[name, file or files.get((name, offset), offset)].add(event.duration)


def __exit__() -> None:
    report.exit()
    spans = selected("function", "span").values()
    if unpaired := sum(counts.get("without_begin", 0) for counts in spans):
        print(f"(returns that are not counted, because their entry was not seen: {unpaired})")
    if dropped := sum(counts.get("dropped", 0) for counts in spans):
        print(f"(calls that are not timed, because their return was not reported or events were lost: {dropped})")
