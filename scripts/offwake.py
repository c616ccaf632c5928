#!/usr/bin/env -S perf-prof python -q -g -e offcpu/stack=both,open/
"""Time off CPU with its cause: the stack where a task waits, and the stack of the task that woke it.

usage: offwake.py [OPTION of perf-prof python]... [--comm NAME] [--min US] [--top N] [--by-thread] [--flame FILE]

        2.031 s  71.2%  worker
                            futex_wait
                            pthread_mutex_lock
                        woken by holder
                            futex_wake
                            pthread_mutex_unlock
                        which waited for flusher

The first stack shows where a task waits, the second which task woke it: for a lock, the holder; for a pipe, the writer.
`(interrupt)` means a timer or a device, whose stack begins where the interrupt did. If the waker itself waited for most of that
time, the last lines show the tasks that it waited for. The flame graph (FILE.svg, or FILE.folded for text) has the waiter's
stack, and on top of it, above `--`, the waker's stack upside down.

-p PID, -t TID and --exec COMMAND select the tasks that wait; the events of all tasks are traced for that. A chain goes on
through selected tasks only. Preemptions are no waits. Waits that have not ended count too, and a line says how many. With -i 1000,
a table is printed every second, else one at the end.
"""
from __future__ import annotations

from collections import Counter
from typing import Any

from perf_prof import CallChains, FlameGraph, PerfEvent, at_least, print
from perf_prof.script import Options, Wakers, first_rows, save_flame, say_missing

options = Options(__doc__, top=10, rows="stacks in a table", comm=True, flame=True)
options.add_argument("--min", type=at_least(0), default=0, metavar="US", help="only waits of at least US microseconds")
options.add_argument("--by-thread", action="store_true", help="tasks by their thread ids, not only by their names")
args = options.parse()

Stack = tuple[str, ...]
# (task, its stack, the waker's stack, chain of wakers) -> time in us. Stacks are innermost first.
waits: Counter[tuple[str, Stack, Stack, Stack]] = Counter()
waiting: list[int] = []  # the threads that had not come back to a CPU at the end
chains, wakers = CallChains(), Wakers()
whole = FlameGraph("Off-CPU Time and Wakers: above -- is what woke the task", "offcpu", "us") if args.flame else None


def label(frame: Any) -> str:  # as FlameGraph.add(event) names it
    file = frame["dso"].strip("[]").rpartition("/")[2] or "unknown"
    name = f"[{file}]" if frame["symbol"] in ("", "Unknown") else str(frame["symbol"])
    return name + ("_[k]" if frame.get("kernel") else "_[python]" if "python" in frame and name[0] != "[" else "")


def names(frames: Any) -> Stack:
    return tuple(map(label, frames))


def task(comm: str, tid: int) -> str:
    return f"{comm} {tid}" if args.by_thread and tid > 0 else comm or "?"


def offcpu(event: PerfEvent) -> None:
    us = event.duration // 1000
    if event.state == "preempted":
        return
    waker = "" if event.open and event.waker_pid < 0 else task(event.waker_comm, event.waker_pid)
    woken = event._time - (event.waited or 0)
    if event.waker_pid > 0:
        wakers.note(event.pid, event.begin._time, woken, event.waker_pid, waker)
    if us < args.min or args.comm not in (None, event.comm):
        return
    chains.note(event._callchain)
    waiting.extend(event.open * [event.pid])
    links = tuple(wakers.chain(event.waker_pid, waker, event.begin._time, woken))
    waiter, stack, of_waker = task(event.comm, event.pid), names(event._callchain), names(wakers.frames(event))
    waits[waiter, stack, of_waker, links] += us
    if whole is not None:
        whole.add([waiter, *reversed(stack), "--", *of_waker, *(links if waker else ["(not woken yet)"])], us)


def show() -> None:
    chains.say()
    total = waits.total()
    rows, more = first_rows(waits.items(), args.top, lambda row: -row[1])
    for (waiter, stack, of_waker, (waker, *others)), us in rows:
        own, of_other = (
            [f"{'':>28}{name.removesuffix('_[k]').removesuffix('_[python]')}" for name in chain] for chain in (stack, of_waker)
        )
        lines = [f"{us / 10**6:>10.3f} s {us / max(total, 1):>6.1%}  {waiter}", *own]
        lines += [f"{'':>24}{f'woken by {waker}' if waker else 'not woken yet'}", *of_other]
        print("\n".join(lines + [f"{'':>24}which waited for {other}" for other in others]))
    print(f"{total / 10**6:.3f} s off CPU in {len(waits)} stacks{more}\n")
    say_missing()
    if waiting:
        print(f"(at least: waits that had not ended at the end, and last longer: {len(waiting)})\n")


def __interval__() -> None:
    show()
    waits.clear()


def __exit__() -> None:
    save_flame(whole, args.flame, lambda us: f"{us / 10**6:.3f} s", "no task waited", table=show)
