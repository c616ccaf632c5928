#!/usr/bin/env -S perf-prof python -q --order -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how often each one was called, how long the calls took, and which errors they returned.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS...
With -i 1000, a table is printed every second, else one at the end. Calls that were entered before the script started
are not counted.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -- sleep 10
    syscalls.py --input perf.data --jobs 2

Needs --order, which the script's first line has: a thread may enter a call on one CPU and leave the call on another
CPU. Calls during which events of their CPU were lost are not timed, nor are calls whose exit does not match the last
entry of their thread. The last lines say how many there were.
"""
from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from perf_prof import Losses, Parts, PerfEvent, States, at_least, errno_name, print, syscall_name

# System calls that do not return to the caller.
RESTORING = ("rt_sigreturn", "sigreturn")

SORTS: dict[str, Callable[[Any], int]] = {
    "calls": lambda row: row.calls,
    "time": lambda row: row.time,
    "errors": lambda row: sum(row.errors.values()),
    "max": lambda row: row.longest,
}

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows in a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="time", help="what the rows are sorted by (default: time)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and call")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()


# What is missing in the result if the recording does not have this event.
__without__ = {"raw_syscalls:sys_exit": "calls are counted, but neither their times nor their errors are known"}


class Row:
    """The counts and times of one system call."""

    __slots__ = ("calls", "errors", "time", "timed", "longest")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: Counter[int] = Counter()
        self.time = 0
        self.timed = 0
        self.longest = 0

    def update(self, other: Row) -> None:
        self.calls += other.calls
        self.errors.update(other.errors)
        self.time += other.time
        self.timed += other.timed
        self.longest = max(self.longest, other.longest)


Rows = defaultdict[tuple[int | None, int], Row]  # from the process and the number of the call


def duration(ns: int) -> str:
    """1234567 -> '1.235 ms'"""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"


def show(rows: Rows, end: int | None) -> None:
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    pid = f"{'PID':>8} " if args.by_pid else ""
    print(f"{pid}{'SYSCALL':<24} {'CALLS':>9} {'TOTAL':>11} {'AVERAGE':>11} {'MAX':>11}  ERRORS")
    order = sorted(rows.items(), key=lambda item: (-SORTS[args.sort](item[1]), -item[1].calls, item[0][1], item[0][0]))
    for (process, number), row in order[: args.top]:
        total, average, longest = "-", "-", "-"
        if row.timed:
            total, average, longest = duration(row.time), duration(row.time // row.timed), duration(row.longest)
        errors = " ".join(f"{errno_name(n)}:{count}" for n, count in sorted(row.errors.items(), key=lambda error: (-error[1], error[0])))
        pid = f"{process:>8} " if args.by_pid else ""
        print(
            f"{pid}{syscall_name(number):<24} {row.calls:>9} {total:>11} {average:>11} {longest:>11}  {errors}".rstrip()
        )
    calls = sum(row.calls for row in rows.values())
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    print(f"{calls} calls of {len({number for _, number in rows})} kinds{more}\n")


counts: Counter[str] = Counter()  # for the whole run, with the keys "unpaired" and "untold"
parts = Parts(lambda: defaultdict(Row), show, counts)
entered = States(parts)  # tid -> (number of the system call, time of its entry, CPU of its entry)
losses = Losses(parts)


@entered.sets
def enters(now: int, tid: int, number: int, cpu: int) -> None:
    entered[tid] = (number, now, cpu)


@entered.ends
def leaves(now: int, tid: int, process: int | None, number: int, result: int) -> None:
    # There is an exit without an entry if the call was entered before the script started, or if a new task returns from
    # the clone call of its parent.
    began = entered.pop(tid, None)
    if began is None:
        return
    if losses.since(*began[1:]):
        # The exit and the entry of the next call may be among the lost events.
        counts["untold"] += 1
        return
    took = now - began[1]
    if began[0] != number or took < 0:
        # rt_sigreturn restores the registers of the interrupted code, so its exit has another number, often -1.
        counts["unpaired"] += syscall_name(began[0]) not in RESTORING
        return
    row = parts.table[process, number]
    row.time += took
    row.timed += 1
    if took > row.longest:
        row.longest = took
    # The kernel returns errors as -4095 to -1 (include/linux/err.h, MAX_ERRNO).
    if -4095 <= result < 0:
        row.errors[-result] += 1


def raw_syscalls__sys_enter(event: PerfEvent) -> None:
    number = event.id
    parts.table[event._pid if args.by_pid else None, number].calls += 1
    enters(event._time, event._tid, number, event._cpu)


def raw_syscalls__sys_exit(event: PerfEvent) -> None:
    leaves(event._time, event._tid, event._pid if args.by_pid else None, event.id, event.ret)


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge


def __exit__() -> None:
    parts.exit()
    if untold := counts["untold"]:
        print(f"(calls that are not timed, because events of their CPU were lost meanwhile: {untold})")
    if unpaired := counts["unpaired"]:
        print(f"(calls that are not timed, because their entry or exit was not seen or came in the wrong order: {unpaired})")
