#!/usr/bin/env -S perf-prof python -q -e runqueue
"""Waits for a CPU, and who is to blame: percentiles per task, who ran meanwhile, and who took the CPU away.

usage: schedblame.py [OPTION of perf-prof python]... [--comm NAME] [--top N]

    TASK             WAITS   p50 us   p99 us   max us  RAN MEANWHILE        PREEMPTED BY
    nginx             8121        9    12031    24310  backup 81%, gzip 9%  backup 401

A large p99 is time for which the task could have run. RAN MEANWHILE has the tasks that ran on its CPU just before it
came, by the time that it waited for them; PREEMPTED BY those that took the CPU from it, by number. If one task stands
there, give it a lower priority (nice, cpu.weight) or other CPUs. swapper is an idle CPU: the time that it takes to wake.

-p PID, -t TID and --exec COMMAND select the tasks that wait; the events of all tasks are traced for that. With -i 1000,
a table is printed every second, else one at the end.
"""
from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable

from perf_prof import Count, Hist, Sum, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows (default: 20)")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()

of_task = f'comm=="{args.comm}"' if args.comm else "duration>=0"
waits = Hist("duration", by="comm", unit="us", where=of_task)
meanwhile = Sum("duration", by=("comm", "prev_comm"), where=of_task)
takers = Count("comm", "preempted_by", where=f"{of_task} && preempted==1")
runqueue = (waits, meanwhile, takers)


def largest(rows: Iterable[tuple[tuple[str, str], int]]) -> dict[str, list[tuple[str, int]]]:
    """Returns for each task the others with their amounts, the largest first."""
    of_tasks = defaultdict(list)
    for (task, other), amount in rows:
        of_tasks[task].append((other, amount))
    return {task: sorted(others, key=lambda other: (-other[1], other[0]))[:2] for task, others in of_tasks.items()}


def show() -> None:
    print(f"{'TASK':<16} {'WAITS':>7} {'p50 us':>8} {'p99 us':>8} {'max us':>8}  {'RAN MEANWHILE':<34} PREEMPTED BY")
    ran, took = largest(meanwhile.items()), largest(takers.items())
    total = {task: sum(ns for (of, _), ns in meanwhile.items() if of == task) for task in ran}
    order = sorted(waits.items(), key=lambda row: (-row[1].sum, row[0]))
    for task, times in order[: args.top]:
        blamed = ", ".join(f"{other} {ns / max(total[task], 1):.0%}" for other, ns in ran[task])
        takes = ", ".join(f"{other} {count}" for other, count in took.get(task, []))
        numbers = f"{times.percentile(50):>8.0f} {times.percentile(99):>8.0f} {times.max:>8.0f}"
        print(f"{task:<16} {times.count:>7} {numbers}  {blamed:<34} {takes}")
    hidden = len(order) - args.top
    print(f"{waits.total.count} waits of {len(order)} tasks{f', {hidden} more with a larger --top' if hidden > 0 else ''}\n")


def __interval__() -> None:
    show()
    for table in runqueue:
        table.clear()


__exit__ = show
