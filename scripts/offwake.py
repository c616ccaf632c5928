#!/usr/bin/env -S perf-prof python -q -g -e offcpu/stack=both/
"""Time off CPU with its cause: the stack where a task waits, and the stack of the task that woke it.

usage: offwake.py [OPTION of perf-prof python]... [--comm NAME] [--min US] [--top N] [--flame FILE]

        2.031 s  71.2%  worker
                            __schedule
                            futex_wait
                            pthread_mutex_lock
                            step
                        woken by holder
                            futex_wake
                            pthread_mutex_unlock
                            write_log

The first stack is the wait: the function that called into the kernel is where the code waits. The second is why it went
on: with a lock, the holder that gave it back; with a pipe, the writer; (interrupt) is a timer or a device. The flame
graph (FILE.svg, or FILE.folded for text) has the waiter's stack, and on top of it the waker's from the inside out.

-p PID, -t TID and --exec COMMAND select the tasks that wait; the events of all tasks are traced for that. Waits that a
task ends by itself (it was only preempted) are left out. With -i 1000, a table is printed every second, else one at
the end.
"""
from __future__ import annotations

import argparse
from collections import Counter

from perf_prof import CallChains, FlameGraph, PerfEvent, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--min", type=at_least(0), default=0, metavar="US", help="only waits of at least US microseconds")
parser.add_argument("--top", type=at_least(1), default=10, metavar="N", help="number of stacks in a table (default: 10)")
parser.add_argument("--flame", metavar="FILE", help="write a flame graph: FILE.svg, or FILE.folded as text")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()
if args.flame:
    # Checked before the run: after it, the collected stacks would be lost.
    try:
        FlameGraph.check(args.flame)
    except (OSError, ValueError) as error:
        parser.error(f"--flame {error}")

Stack = tuple[str, ...]
# The task, its stack, the waker and its stack, both from the inside out.
waits: Counter[tuple[str, Stack, str, Stack]] = Counter()
chains = CallChains()
whole = FlameGraph(colors="offcpu", count_name="us") if args.flame else None


def names(event: PerfEvent) -> Stack:
    return tuple(frame["symbol"] or f"[{frame['dso']}]" for frame in event._callchain)


def offcpu(event: PerfEvent) -> None:
    us = event.duration // 1000
    if event.state == "preempted" or us < args.min or args.comm not in (None, event.comm):
        return
    chains.note(event._callchain)
    waker = names(event.between[0]) if event.between else ()
    key = (event.comm, names(event), event.waker_comm or "?", waker)
    waits[key] += us
    if whole is not None:
        whole.add([event.comm, *reversed(key[1]), "--", *waker, key[2]], us)


def show() -> None:
    chains.say()
    total = sum(waits.values())
    for (task, stack, waker, of_waker), us in waits.most_common(args.top):
        print(f"{us / 10**6:>10.3f} s {us / max(total, 1):>6.1%}  {task}")
        for frame in stack:
            print(f"{'':>28}{frame}")
        print(f"{'':>24}woken by {waker}")
        for frame in of_waker:
            print(f"{'':>28}{frame}")
    hidden = len(waits) - args.top
    print(f"{total / 10**6:.3f} s off CPU in {len(waits)} stacks{f', {hidden} more with a larger --top' if hidden > 0 else ''}\n")


def __interval__() -> None:
    show()
    waits.clear()


def __exit__() -> None:
    show()
    if whole:
        whole.save(args.flame)
        print(f"{args.flame}: {whole.total / 10**6:.3f} s in {len(whole)} stacks")
    elif args.flame:
        print(f"{args.flame}: not written, no task waited")
