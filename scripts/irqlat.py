#!/usr/bin/env -S perf-prof python -q -e irq,softirq
"""Interrupts: how often the handler of each hard and soft interrupt runs, how long in total, and its longest run.

usage: irqlat.py [OPTION of perf-prof python]... [--top N]

    INTERRUPT                           COUNT   TOTAL us  LONGEST us  CPU
    soft NET_RX                         81044   512331.4      1902.3  3
    hard 27 eth0-rx-3                   80112   100240.9        44.1  3

While a handler runs, no task runs on this CPU. If a task runs too late and TOTAL or LONGEST is large, move the interrupt or
the task to another CPU (/proc/irq/NUMBER/smp_affinity). CPU is the CPU of the longest run. A hard interrupt may
interrupt a soft one; its time is then a part of both times.

-e hrtimer,workqueue adds rows for the functions of high-resolution timers, which run in hard and soft interrupts, and
for those of work queues, which run in threads of the kernel:

    timer tick_nohz_handler            250112   611209.0        31.8  2
    work wb_workfn                         42     8112.4      2101.2  0

With -i 1000, a table is printed every second, else one at the end. With -p, -t or --exec, only the interrupts are seen
that come while these tasks run, and the timers and the work that they started.
"""
from __future__ import annotations

from collections import defaultdict
from typing import Any

from perf_prof import print
from perf_prof.script import Options, Report, Times, counted, first_rows

args = Options(__doc__, top=20).parse()


def show(table: defaultdict[str, Times]) -> None:
    print(f"{'INTERRUPT':<32} {'COUNT':>8} {'TOTAL us':>10} {'LONGEST us':>11}  CPU")
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1].total, row[0]))
    for name, times in rows:
        longest = f"{times.longest / 1000:>11.1f}  {times.place}"
        print(f"{name:<32} {times.count:>8} {times.total / 1000:>10.1f} {longest}")
    print(f"{sum(times.count for times in table.values())} runs in {counted(len(table), 'row')}{more}\n")


report = Report(lambda: defaultdict(Times), show)
__interval__, __partial__, __merge__, __exit__ = report.callbacks


def irq(span: Any) -> None:
    report.table[f"hard {span.irq} {span.name}"].add(span.duration, span._cpu)


def softirq(span: Any) -> None:
    report.table[f"soft {span.name}"].add(span.duration, span._cpu)


# Called only with -e hrtimer,workqueue.
def hrtimer(span: Any) -> None:
    report.table[f"timer {span.function}"].add(span.duration, span._cpu)


def workqueue(span: Any) -> None:
    report.table[f"work {span.function}"].add(span.duration, span._cpu)
