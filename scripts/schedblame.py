#!/usr/bin/env -S perf-prof python -q -e runqueue
"""Waits for a CPU, and who is to blame: percentiles per task, who ran meanwhile, and who took the CPU away.

usage: schedblame.py [OPTION of perf-prof python]... [--comm NAME] [--top N] [--culprits N] [--by-thread] [--json]

    TASK                  WAITS   TOTAL ms   p50 us   p99 us   max us  RAN MEANWHILE                            PREEMPTED BY
    nginx                  8121   3190.412        9    12031    24310  backup 81%, gzip 9%, sshd 1%             backup 401

The times are waits of a task that could have run. RAN MEANWHILE lists the tasks that ran on its CPU while it waited, with
their shares of this time. PREEMPTED BY lists the tasks that took the CPU from it, and how often. If one task has most of the
time, give it a lower priority (nice, cpu.weight) or other CPUs. `swapper` means that the CPU was idle and took this time to
wake up. --by-thread shows each thread by itself, with its id.

-p PID, -t TID and --exec COMMAND select the tasks that wait; the events of all tasks are traced for that. With -i 1000,
a table is printed every second, else one at the end.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from perf_prof import PerfEvent, at_least
from perf_prof.script import Columns, Options, Percentiles, Report, Times, counted, first_rows

options = Options(__doc__, top=20, rows="rows", comm=True, json=True)
options.add_argument("--culprits", type=at_least(1), default=3, metavar="N", help="number of others in a row (default: 3)")
options.add_argument("--by-thread", action="store_true", help="each thread by itself, with its id")
args = options.parse()


def new_row() -> dict[str, Any]:
    return {"waits": Percentiles(), "times": Times(), "ran": Counter(), "takers": Counter()}


def runqueue(event: PerfEvent) -> None:
    if args.comm not in (None, event.comm):
        return
    row = report.table[f"{event.comm} {event.pid}" if args.by_thread else event.comm]
    row["waits"].add(event.duration)
    row["times"].add(event.duration)
    for other in filter(None, (event.ran_threads if args.by_thread else event.ran).split(", ")):
        name, _, ns = other.rpartition(" ")
        row["ran"][name] += int(ns)
    if event.preempted:
        row["takers"][f"{event.preempted_by} {event.preempted_by_pid}" if args.by_thread else event.preempted_by] += 1


def us(ns: int) -> float:
    return ns / 1000


def show(table: dict[str, Any]) -> None:
    cells = []
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1]["times"].total, row[0]))
    for task, row in rows:
        waits, total = row["waits"], max(row["times"].total, 1)
        ran = {name: ns / total for name, ns in row["ran"].most_common(args.culprits)}
        takers = dict(row["takers"].most_common(args.culprits))
        cells.append((task, len(waits), row["times"].total, waits.percentile(50), waits.percentile(99), waits.longest, ran, takers))
    number = sum(len(row["waits"]) for row in table.values())
    total = sum(row["times"].total for row in table.values())
    columns.print(cells, f"{number} waits of {counted(len(table), 'task')}, {total / 10**6:.3f} ms{more}")


columns = Columns(
    args.json, task=("TASK", "<20"), waits=("WAITS", ">7"), total=("TOTAL ms", ">10.3f", lambda ns: ns / 10**6), p50=("p50 us", ">8.0f", us), p99=("p99 us", ">8.0f", us),
    max=("max us", ">8.0f", us), ran=("RAN MEANWHILE", "<40", lambda ran: ", ".join(f"{name} {part:.0%}" for name, part in ran.items())),
    takers=("PREEMPTED BY", "<1", lambda takers: ", ".join(f"{name} {count}" for name, count in takers.items())),
)  # fmt: skip
report = Report(lambda: defaultdict(new_row), show, columns=columns)
__interval__, __partial__, __merge__, __exit__ = report.callbacks
