#!/usr/bin/env -S perf-prof python -q -e runqueue
"""Length of the run queues: how many tasks wait for each CPU on average, and how long they wait.

usage: runqlen.py [OPTION of perf-prof python]...

    CPU    WAITS  LENGTH  p50 us  p99 us  max us
    0       8214    2.41     312    9012   24310
    1       1022    0.02       4      41     120
    all     9236    2.43     250    8800   24310

LENGTH is the time that all tasks waited for the CPU, divided by the time of the run. 2.41 means that on average, 2.41 tasks
waited at every moment. The task that runs is not in the queue. If one CPU has a long queue and another has none, look at the
affinity of tasks (taskset, cpuset). Queues on all CPUs mean that the machine is too small for its work.

A wait counts when it ends, for the CPU on which the task then runs. With -p, -t or --exec COMMAND, only the waits of these
tasks count. With -i 1000, a table is printed every second, else one at the end.
"""
from __future__ import annotations


from perf_prof import Distribution, Hist, PerfEvent, print
from perf_prof.script import Options, say_missing

Options(__doc__).parse()

waits = Hist("duration", by="_cpu")
span = [0, 0]  # the times of the first and the last wait


def note(event: PerfEvent) -> None:
    span[0] = span[0] or event.begin._time
    span[1] = event._time


runqueue = (waits, note)


def row(name: str, times: Distribution, elapsed: int) -> str:
    us = [f"{(ns or 0) / 1000:>7.0f}" for ns in (times.percentile(50), times.percentile(99), times.max)]
    return f"{name:<5} {times.count:>7} {times.sum / max(elapsed, 1):>7.2f} {' '.join(us)}"


def show() -> None:
    elapsed = span[1] - span[0]
    print(f"{'CPU':<5} {'WAITS':>7} {'LENGTH':>7} {'p50 us':>7} {'p99 us':>7} {'max us':>7}")
    for cpu, times in sorted(waits.items()):
        print(row(str(cpu), times, elapsed))
    if waits:
        print(row("all", waits.total, elapsed) + "\n")
    say_missing()


def __interval__() -> None:
    show()
    waits.clear()
    span[0] = span[1]


__exit__ = show
