#!/usr/bin/env -S perf-prof python -q --order -e dummy
"""Latency of functions of programs and libraries: how long each call took, as a histogram of powers of two per function.

usage: uprobe_latency.py [OPTION of perf-prof python]... [--ns] [--min US]

Select entry and return of each function with -e, and whose calls: those of all processes, of some (-p PID, -t TID), of a
command (--exec CMD). With -i 1000 histograms of each second are printed, else one set at the end.

    uprobe_latency.py -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' -i 1s

A call's time has in it what the functions take that it calls, what it waits, and about a microsecond or two that the probes
take. Needs --order (its first line has it): a thread may return on another CPU. The event `dummy` there never happens; it
stands for those that are to be given.
"""
import argparse
import time
from collections import defaultdict

from perf_prof import Log2Hist

parser = argparse.ArgumentParser(
    description="Latency of functions, selected as -e 'uprobe:FUNC@FILE,uretprobe:FUNC@FILE'.", add_help=False
)
parser.add_argument("--ns", action="store_true", help="histograms of nanoseconds, not of microseconds")
parser.add_argument("--min", type=float, default=0, metavar="US", help="only calls of at least so many microseconds")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()

unit, per_unit = ("nsecs", 1) if args.ns else ("usecs", 1000)


class Calls:
    """The calls of one function."""

    def __init__(self):
        self.histogram = Log2Hist(unit)
        self.total = 0
        self.longest = 0

    def add(self, ns):
        self.histogram.add(ns / per_unit)
        self.total += ns
        self.longest = max(self.longest, ns)


open_calls = defaultdict(list)  # (tid, address of the function) -> times of the entries that it has not returned from
functions = defaultdict(Calls)
unpaired = 0
tables = 0


def __sample__(event):
    global unpaired
    entered = event.get("__probe_ip")
    if entered is not None:
        open_calls[event._tid, entered].append(event._time)
        return
    call = event._tid, event["__probe_func"]
    entries = open_calls.get(call)
    if not entries:
        unpaired += 1
        return
    # A function that calls itself returns from the last call first.
    ns = event._time - entries.pop()
    if not entries:
        del open_calls[call]
    if ns >= args.min * 1000:
        functions[event._event.partition(":")[2]].add(ns)


def __lost__(lost_start, lost_end):
    # What was entered before may have returned and been entered again in the gap.
    open_calls.clear()


def duration(ns):
    """1234567 -> '1234.567 us'"""
    return f"{ns / 1000:.3f} us"


def show():
    global tables
    tables += 1
    for name, calls in sorted(functions.items(), key=lambda item: -item[1].total):
        count = len(calls.histogram)
        print(f"{name}: {count} calls, mean {duration(calls.total / count)}, longest {duration(calls.longest)}")
        calls.histogram.print()
        print()
    if not functions:
        print("no calls seen (of functions that -e selects with entry and return: uprobe:FUNC@FILE,uretprobe:FUNC@FILE)")
    functions.clear()


def __interval__():
    print(time.strftime("%H:%M:%S"))
    show()


def __exit__():
    if functions or not tables:
        show()
    if unpaired:
        print(f"({unpaired} returns whose entry was not seen are not counted)")
