#!/usr/bin/env -S perf-prof python -q -e irq,softirq
"""Interrupts: how often the handler of each hard and soft interrupt runs, how long in total, and its longest run.

usage: irqlat.py [OPTION of perf-prof python]... [--top N]

    INTERRUPT                           COUNT   TOTAL us  LONGEST us  CPU
    soft NET_RX                         81044   512331.4      1902.3  3
    hard 27 eth0-rx-3                   80112   100240.9        44.1  3

No task runs on the CPU meanwhile. If a task misses its time and TOTAL or LONGEST is large, move the interrupt to another
CPU (/proc/irq/NUMBER/smp_affinity) or the task away from it. CPU is the one of the longest run. A soft interrupt
may be interrupted by a hard one, so its time has the time of the other in it.

-e hrtimer,workqueue adds rows for the functions of high-resolution timers, which run in hard and soft interrupts, and
for those of work queues, which run in threads of the kernel:

    timer tick_nohz_handler            250112   611209.0        31.8  2
    work wb_workfn                         42     8112.4      2101.2  0

With -i 1000, a table is printed every second, else one at the end. With -p, -t or --exec, only the interrupts are seen
that come while these tasks run, and the timers and the work that they started.
"""
from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Any

from perf_prof import Parts, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows in a table (default: 20)")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()


class Row:
    """The runs of one handler."""

    def __init__(self) -> None:
        self.count = self.total = 0
        self.longest = (0, 0)  # ns, CPU

    def add(self, ns: int, cpu: int) -> None:
        self.count += 1
        self.total += ns
        self.longest = max(self.longest, (ns, cpu))

    def update(self, other: Row) -> None:
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)


def show(table: defaultdict[str, Row], end: int | None) -> None:
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    print(f"{'INTERRUPT':<32} {'COUNT':>8} {'TOTAL us':>10} {'LONGEST us':>11}  CPU")
    order = sorted(table.items(), key=lambda row: (-row[1].total, row[0]))
    for name, row in order[: args.top]:
        longest, cpu = row.longest
        print(f"{name:<32} {row.count:>8} {row.total / 1000:>10.1f} {longest / 1000:>11.1f}  {cpu}")
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    rows = f"{len(order)} row{'' if len(order) == 1 else 's'}"
    print(f"{sum(row.count for row in table.values())} runs in {rows}{more}\n")


parts = Parts(lambda: defaultdict(Row), show)


def irq(span: Any) -> None:
    parts.table[f"hard {span.irq} {span.name}"].add(span.duration, span._cpu)


def softirq(span: Any) -> None:
    parts.table[f"soft {span.name}"].add(span.duration, span._cpu)


# With -e hrtimer,workqueue
def hrtimer(span: Any) -> None:
    parts.table[f"timer {span.function}"].add(span.duration, span._cpu)


def workqueue(span: Any) -> None:
    parts.table[f"work {span.function}"].add(span.duration, span._cpu)


__interval__ = parts.interval
__exit__ = parts.exit
