#!/usr/bin/env -S perf-prof python -q -e runqueue
"""Waits for a CPU, and who is to blame: percentiles per task, who ran meanwhile, and who took the CPU away.

usage: schedblame.py [OPTION of perf-prof python]... [--comm NAME] [--top N]

    TASK             WAITS   p50 us   p99 us   max us  RAN MEANWHILE        PREEMPTED BY
    nginx             8121        9    12031    24310  backup 81%, gzip 9%  backup 401

A large p99 is time for which the task could have run. RAN MEANWHILE has the tasks that ran on its CPU while it waited,
with their parts of that time; PREEMPTED BY those that took the CPU from it, by number. If one task stands there, give it a lower priority (nice, cpu.weight) or other CPUs. swapper is an idle CPU: the time that it takes to wake.

-p PID, -t TID and --exec COMMAND select the tasks that wait; the events of all tasks are traced for that. With -i 1000,
a table is printed every second, else one at the end.
"""
from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from typing import Any

from perf_prof import Count, Hist, Parts, PerfEvent, Sum, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows (default: 20)")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()


def new_table() -> dict[str, Any]:
    waits = Hist("duration", by="comm", unit="us")
    takers = Count("comm", "preempted_by", where="preempted==1")
    ran: Counter[tuple[str, str]] = Counter()
    return {"waits": waits, "waited": Sum("duration", by="comm"), "takers": takers, "ran": ran}


def runqueue(event: PerfEvent) -> None:
    comm = event.comm
    if args.comm and comm != args.comm:
        return
    table = parts.table
    table["waits"].add(event)
    table["waited"].add(event)
    table["takers"].add(event)
    for other in filter(None, event.ran.split(", ")):
        name, _, ns = other.rpartition(" ")
        table["ran"][comm, name] += int(ns)


def largest(rows: Any) -> dict[str, list[tuple[str, int]]]:
    """Returns for each task the others with their amounts, the largest first."""
    of_tasks = defaultdict(list)
    for (task, other), amount in rows:
        of_tasks[task].append((other, amount))
    return {task: sorted(others, key=lambda other: (-other[1], other[0]))[:2] for task, others in of_tasks.items()}


def show(table: dict[str, Any], end: int | None) -> None:
    print(f"{'TASK':<16} {'WAITS':>7} {'p50 us':>8} {'p99 us':>8} {'max us':>8}  {'RAN MEANWHILE':<34} PREEMPTED BY")
    waits, ran, took = table["waits"], largest(table["ran"].items()), largest(table["takers"].items())
    order = sorted(waits.items(), key=lambda row: (-row[1].sum, row[0]))
    for task, times in order[: args.top]:
        blamed = ", ".join(f"{other} {ns / max(table['waited'][task], 1):.0%}" for other, ns in ran.get(task, []))
        takes = ", ".join(f"{other} {count}" for other, count in took.get(task, []))
        numbers = f"{times.percentile(50):>8.0f} {times.percentile(99):>8.0f} {times.max:>8.0f}"
        print(f"{task:<16} {times.count:>7} {numbers}  {blamed:<34} {takes}")
    hidden = len(order) - args.top
    print(f"{waits.total.count} waits of {len(order)} tasks{f', {hidden} more with a larger --top' if hidden > 0 else ''}\n")


parts = Parts(new_table, show)
__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge
__exit__ = parts.exit
