#!/usr/bin/env -S perf-prof python -q -i 1000 -e sched:sched_wakeup,sched:sched_wakeup_new
"""Wake-ups: how often each task is woken up, in one table per interval (-i) and one for the whole run at the end.

usage: wakeups.py [OPTION of perf-prof python]... [--top N] [--comm NAME]

A task that wakes up thousands of times a second keeps its CPU from sleeping. This script finds such tasks.

A wake-up is an event of the task that wakes the other task up. With -p, -t and --exec, the table shows the tasks that
the selected tasks wake up. Use --comm to select the tasks that are woken up.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new -- sleep 10
    wakeups.py --input perf.data --jobs 2
"""
from __future__ import annotations

import argparse
import time
from collections import defaultdict

from perf_prof import Parts, PerfEvent, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=at_least(1), default=10, metavar="N", help="number of rows in a table (default: 10)")
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()


# What is missing in the result if the recording does not have this event.
__without__ = {"sched:sched_wakeup_new": "the first wake-up of each new task is not counted"}


class Row:
    """The wake-ups of one task."""

    __slots__ = ("count", "cpus")

    def __init__(self) -> None:
        self.count = 0
        self.cpus: set[int] = set()

    def update(self, other: Row) -> None:
        self.count += other.count
        self.cpus |= other.cpus


Rows = defaultdict[tuple[str, int], Row]  # from the name of a task and its thread id
total: Rows = defaultdict(Row)
intervals = 0


def add_to_total(rows: Rows) -> None:
    for task, row in rows.items():
        total[task].update(row)


def ranges(cpus: set[int]) -> str:
    """{0, 1, 2, 5} -> '0-2,5'"""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def table(rows: Rows, title: str) -> None:
    tasks = f"{len(rows)} task{'' if len(rows) == 1 else 's'}"
    print(f"{title}: {sum(row.count for row in rows.values())} wake-ups, {tasks}")
    if rows:
        print(f"{'COMM':<16} {'PID':>8} {'WAKEUPS':>10}  CPUS")
    for (comm, pid), row in sorted(rows.items(), key=lambda item: (-item[1].count, item[0]))[: args.top]:
        print(f"{comm:<16} {pid:>8} {row.count:>10}  {ranges(row.cpus)}")
    print()


def show(rows: Rows, end: int | None) -> None:
    """Prints the table of an interval, and adds its rows to the table of the whole run."""
    global intervals
    intervals += 1
    at = "after the last interval" if end is None else time.strftime("%H:%M:%S", time.localtime(end // 10**9))
    table(rows, at)
    add_to_total(rows)


parts = Parts(lambda: defaultdict(Row), show)


def sched__sched_wakeup(event: PerfEvent) -> None:
    comm = event.comm
    if args.comm is not None and comm != args.comm:
        return
    row = parts.table[comm, event.pid]
    row.count += 1
    row.cpus.add(event.target_cpu)


# Not __sample__, because a recording may have other events too.
sched__sched_wakeup_new = sched__sched_wakeup


__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge


def __exit__() -> None:
    if intervals and parts.table:
        show(parts.table, None)
    else:
        add_to_total(parts.table)
    table(total, "whole run")
