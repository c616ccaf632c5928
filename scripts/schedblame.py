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

from collections import Counter, defaultdict
from typing import Any

from perf_prof import Count, Hist, Parts, PerfEvent, Sum, print
from perf_prof.script import Options, first_rows

args = Options(__doc__, top=20, rows="rows", comm=True).parse()


def new_table() -> dict[str, Any]:
    takers = Count("comm", "preempted_by", where="preempted==1")
    waits = Hist("duration", by="comm", unit="us")
    return {"waits": waits, "waited": Sum("duration", by="comm"), "takers": takers, "ran": Counter()}


def runqueue(event: PerfEvent) -> None:
    if args.comm in (None, event.comm):
        table = parts.table
        for name in "waits", "waited", "takers":
            table[name].add(event)
        for other in filter(None, event.ran.split(", ")):
            name, _, ns = other.rpartition(" ")
            table["ran"][event.comm, name] += int(ns)


def largest(rows: Any) -> dict[str, list[tuple[str, int]]]:
    """Returns for each task the others with their amounts, the largest first."""
    of_tasks = defaultdict(list)
    for (task, other), amount in rows:
        of_tasks[task].append((other, amount))
    return {task: sorted(others, key=lambda other: (-other[1], other[0]))[:2] for task, others in of_tasks.items()}


def show(table: dict[str, Any], end: int | None) -> None:
    print(f"{'TASK':<16} {'WAITS':>7} {'p50 us':>8} {'p99 us':>8} {'max us':>8}  {'RAN MEANWHILE':<34} PREEMPTED BY")
    waits, ran, took = table["waits"], largest(table["ran"].items()), largest(table["takers"].items())
    rows, more = first_rows(waits.items(), args.top, lambda row: (-row[1].sum, row[0]))
    for task, times in rows:
        blamed = ", ".join(f"{other} {ns / max(table['waited'][task], 1):.0%}" for other, ns in ran.get(task, []))
        takes = ", ".join(f"{other} {count}" for other, count in took.get(task, []))
        numbers = " ".join(f"{ns / 1000:>8.0f}" for ns in (times.percentile(50), times.percentile(99), times.max))
        print(f"{task:<16} {times.count:>7} {numbers}  {blamed:<34} {takes}")
    print(f"{waits.total.count} waits of {len(waits)} tasks{more}\n")


parts = Parts(new_table, show)
__interval__, __partial__, __merge__, __exit__ = parts.interval, parts.partial, parts.merge, parts.exit
