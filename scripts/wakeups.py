#!/usr/bin/env -S perf-prof python -q -i 1000 -e sched:sched_wakeup,sched:sched_wakeup_new
"""Who is woken up how often: one table per interval (-i), one for the whole run at the end.

usage: wakeups.py [OPTION of perf-prof python]... [--top N] [--comm NAME]

A task that wakes up thousands of times a second keeps a CPU from sleeping; this finds it.

A wake-up is an event of the task that causes it: with -p, -t and --exec the table shows whom these tasks wake up. Who is
woken is chosen with --comm.

Of a recording (also perf's own: `perf record` for `perf-prof record`), by two processes side by side:

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new -- sleep 10
    wakeups.py --input perf.data --jobs 2
"""
import argparse
import time
from collections import defaultdict

from perf_prof import realtime, shard

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of a table (default: 10)")
parser.add_argument("--comm", help="only tasks of this name")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()


# What the result of a recording without this event lacks.
__without__ = {"sched:sched_wakeup_new": "the first wake-up of each new task is not counted"}


class Row:
    """One task's wake-ups."""

    __slots__ = ("count", "cpus")

    def __init__(self):
        self.count = 0
        self.cpus = set()

    def add(self, other):
        self.count += other.count
        self.cpus |= other.cpus


now = defaultdict(Row)
total = defaultdict(Row)
# Of a recording that several processes share (--jobs), each sees a part of it, and of the table of an interval.
intervals = []  # (when it ended, its rows)


def sched__sched_wakeup(event):
    comm = event.comm
    if args.comm is not None and comm != args.comm:
        return
    row = now[comm, event.pid]
    row.count += 1
    row.cpus.add(event.target_cpu)


# Not __sample__: a recording may have other events, too.
sched__sched_wakeup_new = sched__sched_wakeup


def add(rows, to):
    for task, row in rows.items():
        to[task].add(row)


def ranges(cpus):
    """{0, 1, 2, 5} -> '0-2,5'"""
    runs = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def table(rows, title):
    tasks = f"{len(rows)} task{'' if len(rows) == 1 else 's'}"
    print(f"{title}: {sum(row.count for row in rows.values())} wake-ups, {tasks}")
    if rows:
        print(f"{'COMM':<16} {'PID':>8} {'WAKEUPS':>10}  CPUS")
    for (comm, pid), row in sorted(rows.items(), key=lambda item: (-item[1].count, item[0]))[: args.top]:
        print(f"{comm:<16} {pid:>8} {row.count:>10}  {ranges(row.cpus)}")
    print()


def __interval__():
    if shard():
        intervals.append((realtime(), now.copy()))
    else:
        show(realtime())
    now.clear()


def show(end):
    """The table of an interval, whose rows then belong to the whole run."""
    table(now, time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    add(now, total)


def __partial__():
    return [*intervals, (None, now)]


def __merge__(partials):
    global now
    merged = {}  # when an interval ended, None for what comes after the last -> its rows
    for end, rows in (interval for partial in partials for interval in partial):
        add(rows, merged.setdefault(end, defaultdict(Row)))
    last = merged.pop(None)
    for end, now in merged.items():
        show(end)
    now = last


def __exit__():
    add(now, total)
    table(total, "whole run")
