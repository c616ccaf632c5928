#!/usr/bin/env -S perf-prof python -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how many, which errors by name, how long they took.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS...
With -i MS a table of each interval is printed, else one at the end.
"""
import argparse
from collections import Counter, defaultdict

from perf_prof import errno_name, syscall_name

SORTS = {
    "calls": lambda row: row.calls,
    "time": lambda row: row.time,
    "errors": lambda row: sum(row.errors.values()),
    "max": lambda row: row.longest,
}

parser = argparse.ArgumentParser(
    description="Count and time system calls.", usage="syscalls.py [--top N] [--sort BY] [--by-pid]"
)
parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="time", help="what the rows are sorted by (default: time)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and call")
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


def key(event, number):
    return (event._pid if args.by_pid else None, number)


def raw_syscalls__sys_enter(event):
    number = event.id
    entered[event._tid] = (number, event._time)
    rows[key(event, number)].calls += 1


def raw_syscalls__sys_exit(event):
    number = event.id
    row = rows[key(event, number)]
    began = entered.pop(event._tid, None)
    if began is None or began[0] != number:
        # It was entered before the start, so it has not been counted.
        if began is None:
            row.calls += 1
    else:
        took = event._time - began[1]
        row.time += took
        row.timed += 1
        row.longest = max(row.longest, took)
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
    print(f"{calls} calls of {len({number for _, number in rows})} kinds\n")
    rows.clear()


def __interval__():
    show()


def __exit__():
    if rows:
        show()
