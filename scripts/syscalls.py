#!/usr/bin/env -S perf-prof python -q -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how many, which errors by name, how long they took.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS...
With -i 1000 a table of each second is printed, else one at the end. What was entered before the start is not counted.
"""
import argparse
import time
from collections import Counter, defaultdict

from perf_prof import errno_name, syscall_name

SORTS = {
    "calls": lambda row: row.calls,
    "time": lambda row: row.time,
    "errors": lambda row: sum(row.errors.values()),
    "max": lambda row: row.longest,
}

parser = argparse.ArgumentParser(description="Count and time system calls.", add_help=False)
parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="time", help="what the rows are sorted by (default: time)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and call")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()


class Row:
    """One system call's counts."""

    __slots__ = ("calls", "errors", "time", "timed", "longest")

    def __init__(self):
        self.calls = 0
        self.errors = Counter()
        self.time = 0
        self.timed = 0
        self.longest = 0


rows = defaultdict(Row)
entered = {}  # tid -> (number, time)
tables = 0


def raw_syscalls__sys_enter(event):
    number = event.id
    row = rows[event._pid if args.by_pid else None, number]
    row.calls += 1
    entered[event._tid] = (number, event._time)


def raw_syscalls__sys_exit(event):
    # An exit without its entry: entered before the start, or a new task that comes out of its parent's clone.
    number = event.id
    began = entered.pop(event._tid, None)
    if began is None or began[0] != number:
        return
    row = rows[event._pid if args.by_pid else None, number]
    took = event._time - began[1]
    row.time += took
    row.timed += 1
    if took > row.longest:
        row.longest = took
    result = event.ret
    # The kernel gives errors as -4095 to -1 (include/linux/err.h, MAX_ERRNO).
    if -4095 <= result < 0:
        row.errors[-result] += 1


def __lost__(lost_start, lost_end):
    entered.clear()


def duration(ns):
    """1234567 -> '1.235 ms'"""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"


def show():
    global tables
    tables += 1
    pid = f"{'PID':>8} " if args.by_pid else ""
    print(f"{pid}{'SYSCALL':<24} {'CALLS':>9} {'TOTAL':>11} {'AVERAGE':>11} {'MAX':>11}  ERRORS")
    order = sorted(rows.items(), key=lambda item: SORTS[args.sort](item[1]), reverse=True)
    for (process, number), row in order[: args.top]:
        average = duration(row.time // row.timed) if row.timed else "-"
        errors = " ".join(f"{errno_name(n)}:{count}" for n, count in row.errors.most_common())
        pid = f"{process:>8} " if args.by_pid else ""
        print(
            f"{pid}{syscall_name(number):<24} {row.calls:>9} {duration(row.time):>11} {average:>11} "
            f"{duration(row.longest):>11}  {errors}".rstrip()
        )
    calls = sum(row.calls for row in rows.values())
    hidden = len(order) - args.top
    more = f", {hidden} rows more with a larger --top" if hidden > 0 else ""
    print(f"{calls} calls of {len({number for _, number in rows})} kinds{more}\n")
    rows.clear()


def __interval__():
    print(time.strftime("%H:%M:%S"))
    show()


def __exit__():
    if rows or not tables:
        show()
