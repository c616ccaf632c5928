#!/usr/bin/env -S perf-prof python -q -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how many, which errors by name, how long they took.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS...
With -i 1000 a table of each second is printed, else one at the end. What was entered before the start is not counted.

Of a recording (also perf's own: `perf record` for `perf-prof record`), by two processes side by side:

    perf-prof record -a -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -- sleep 10
    syscalls.py --input perf.data --jobs 2

A thread may leave a call on another CPU than it entered it on: of recordings all is in the order of time, live with --order.
"""
import argparse
import heapq
import time
from collections import Counter, defaultdict

from perf_prof import errno_name, realtime, shard, syscall_name

SORTS = {
    "calls": lambda row: row.calls,
    "time": lambda row: row.time,
    "errors": lambda row: sum(row.errors.values()),
    "max": lambda row: row.longest,
}

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="time", help="what the rows are sorted by (default: time)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and call")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()


# What the result of a recording without this event lacks.
__without__ = {"raw_syscalls:sys_exit": "calls are counted, but neither their times nor their errors are known"}


class Row:
    """One system call's counts."""

    __slots__ = ("calls", "errors", "time", "timed", "longest")

    def __init__(self):
        self.calls = 0
        self.errors = Counter()
        self.time = 0
        self.timed = 0
        self.longest = 0

    def add(self, other):
        self.calls += other.calls
        self.errors.update(other.errors)
        self.time += other.time
        self.timed += other.timed
        self.longest = max(self.longest, other.longest)


rows = defaultdict(Row)
entered = {}  # tid -> (number, time)
tables = 0

# Of a recording that several processes share (--jobs), each sees a part. What a thread has entered before the part begins is
# known to another process: until it is clear whether it is in a call, its steps are put off until __merge__ has all parts.
# Where each process has its own CPUs that is never clear.
part = shard()
known = set()  # threads of which it is clear
put_off = []  # (time, interval, name of the step, its arguments...)
intervals = []  # (when it ended, its rows)


class Everything:
    def __contains__(self, _):
        return True


def step(function):
    """A step of a thread, which depends on the one before it."""
    if part is None:
        return function

    def now_or_later(now, tid, *more):
        if tid not in known:
            put_off.append((now, len(intervals), function.__name__, tid, *more))
            if part["split"] == "cpu":
                return
            known.add(tid)
            if function.__name__ == "leaves":
                return
        function(now, tid, *more)

    return now_or_later


@step
def enters(now, tid, number):
    entered[tid] = (number, now)


@step
def leaves(now, tid, process, number, result):
    # An exit without its entry: entered before the start, or a new task that comes out of its parent's clone.
    began = entered.pop(tid, None)
    if began is None or began[0] != number:
        return
    row = rows[process, number]
    took = now - began[1]
    row.time += took
    row.timed += 1
    if took > row.longest:
        row.longest = took
    # The kernel gives errors as -4095 to -1 (include/linux/err.h, MAX_ERRNO).
    if -4095 <= result < 0:
        row.errors[-result] += 1


def raw_syscalls__sys_enter(event):
    number = event.id
    rows[event._pid if args.by_pid else None, number].calls += 1
    enters(event._time, event._tid, number)


def raw_syscalls__sys_exit(event):
    leaves(event._time, event._tid, event._pid if args.by_pid else None, event.id, event.ret)


def __lost__(lost_start, lost_end):
    global known
    entered.clear()
    if part:
        put_off.append((lost_end, len(intervals), "lost"))
        if part["split"] == "time":
            known = Everything()


def duration(ns):
    """1234567 -> '1.235 ms'"""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"


def show(end=None):
    global tables
    tables += 1
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
    rows.clear()


def __interval__():
    if part:
        intervals.append((realtime(), rows.copy()))
        rows.clear()
    else:
        show(realtime())


def __partial__():
    # Where the threads are at the end, of which that is clear.
    threads = entered if isinstance(known, Everything) else known
    put_off.extend((put_off[-1][0], len(intervals), "stands", tid, entered.get(tid)) for tid in threads)
    return put_off, [*intervals, (None, rows)]


def __merge__(partials):
    global rows
    merged = {}  # when an interval ended, None for what comes after the last -> its rows
    steps = []
    for put_off, intervals in partials:
        for end, part_of_it in intervals:
            interval = merged.setdefault(end, defaultdict(Row))
            for key, row in part_of_it.items():
                interval[key].add(row)
        steps.append([(now, intervals[interval][0], *rest) for now, interval, *rest in put_off])
    for now, end, name, *rest in heapq.merge(*steps, key=lambda step: step[0]):
        rows = merged[end]
        STEPS[name](now, *rest)
    last = merged.pop(None)
    for end, rows in merged.items():
        show(end)
    rows = last


def stands(now, tid, in_call):
    if in_call is None:
        entered.pop(tid, None)
    else:
        entered[tid] = in_call


STEPS = {"enters": enters, "leaves": leaves, "lost": lambda now: entered.clear(), "stands": stands}


def __exit__():
    if rows or not tables:
        show()
