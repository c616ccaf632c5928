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
from collections import Counter, defaultdict

from perf_prof import PerfEvent, print
from perf_prof.script import Options, WholeRun, counted, cpu_list, first_rows

args = Options(__doc__, top=10, comm=True).parse()
# What the result lacks if a recording does not contain the event.
__without__ = {"sched:sched_wakeup_new": "the first wake-up of each new task is not counted"}


def sched__sched_wakeup(event: PerfEvent) -> None:
    if args.comm in (None, event.comm):
        run.table[event.comm, event.pid][event.target_cpu] += 1


sched__sched_wakeup_new = sched__sched_wakeup


def show(tasks: dict[tuple[str, int], Counter[int]], title: str) -> None:
    print(f"{title}: {sum(cpus.total() for cpus in tasks.values())} wake-ups, {counted(len(tasks), 'task')}")
    if tasks:
        print(f"{'COMM':<16} {'PID':>8} {'WAKEUPS':>10}  CPUS")
    rows, _ = first_rows(tasks.items(), args.top, lambda row: (-row[1].total(), row[0]))
    for (comm, pid), cpus in rows:
        print(f"{comm:<16} {pid:>8} {cpus.total():>10}  {cpu_list(cpus)}")
    print()


run = WholeRun(lambda: defaultdict(Counter), show)
__interval__, __partial__, __merge__, __exit__ = run.callbacks
