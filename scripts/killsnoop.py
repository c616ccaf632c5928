#!/usr/bin/env -S perf-prof python -q --order -e syscalls:sys_enter_kill,syscalls:sys_exit_kill,syscalls:sys_enter_tkill,syscalls:sys_exit_tkill,syscalls:sys_enter_tgkill,syscalls:sys_exit_tgkill,signal:signal_generate,oom:mark_victim
"""Calls that send signals: the sender, the signal, each task that gets it, and the error if the call fails.

usage: killsnoop.py [OPTION of perf-prof python]... [--failed]

Prints a line for each target of kill(), tkill() and tgkill(), and for each victim that the kernel kills because memory
is used up (the sender is then `out of memory`):

    TIME         FROM                     SIGNAL       TO                       RESULT
    14:03:12.518 systemd 1                SIGTERM      rsyslogd 604             delivered
    14:03:12.611 watchdog 811             SIGUSR1      backup 7120              ignored
    14:03:15.002 deploy 9120              SIGKILL      604                      EPERM

If a process ended and nobody knows why, look for SIGKILL and its sender. EPERM is a sender without the right to do so,
ESRCH one that holds the number of a process that has ended. The number of a call that failed is as the call has it: it
may be 0 or negative, which is a process group (kill(2)). Signal 0 asks whether a process is there.

signals.py shows all signals, also those that the kernel sends by itself, but not the calls that fail.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e syscalls:sys_enter_kill,syscalls:sys_exit_kill,syscalls:sys_enter_tkill,\\
syscalls:sys_exit_tkill,syscalls:sys_enter_tgkill,syscalls:sys_exit_tgkill,signal:signal_generate,\\
oom:mark_victim -- sleep 10
    killsnoop.py --input perf.data --jobs 2
"""
from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from perf_prof import Losses, Parts, PerfEvent, States, errno_name, print, shard

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--failed", action="store_true", help="only calls that fail")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()

IN_INTERRUPT = 0x08 | 0x10  # TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ (include/linux/trace_events.h)
# TRACE_SIGNAL_... (include/trace/events/signal.h)
RESULTS = ("delivered", "ignored", "already pending", "lost: queue is full", "delivered without details")

# What is missing in the result if the recording does not have these events.
CALLS = ("kill", "tkill", "tgkill")
__without__: dict[str, str] = {
    "signal:signal_generate": "the targets have no names, and each call has one line",
    "oom:mark_victim": "the victims of a lack of memory are not shown",
} | {f"syscalls:sys_{side}_{call}": f"calls of {call}() are not shown" for call in CALLS for side in ("enter", "exit")}

counts: Counter[str] = Counter()  # for the whole run, with the key "untold"
parts = Parts(total=counts)
# tid -> (signal, target as the call has it, time of the entry, its CPU, (target, result) of each task that gets it)
calls = States(parts)
losses = Losses(parts)
# With --jobs, lines are not printed at once: __merge__ prints the lines of all parts, in the order of time.
lines: list[tuple[int, str]] | None = [] if shard() else None  # (time, text)
Partial = tuple[dict[str, Any], list[tuple[int, str]]]


def name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if signal.SIGRTMIN < number <= signal.SIGRTMAX else str(number)


def clock(ns: int | None) -> str:
    """Returns the local time of day, to the millisecond. A recording may not say it."""
    if ns is None:
        return "--:--:--.---"
    return time.strftime("%H:%M:%S", time.localtime(ns // 10**9)) + f".{ns // 10**6 % 1000:03}"


def show(now: int, ns: int | None, source: str, number: int, target: str, result: str) -> None:
    text = f"{clock(ns)} {source:<24} {name(number):<12} {target:<24} {result}"
    if lines is None:
        print(text)
    else:
        lines.append((now, text))


def __init__() -> None:
    if lines is None:
        print(f"{'TIME':<12} {'FROM':<24} {'SIGNAL':<12} {'TO':<24} RESULT")


@calls.sets
def enters(now: int, tid: int, number: int, target: int, cpu: int) -> None:
    calls[tid] = (number, target, now, cpu, [])


@calls.step
def generates(now: int, tid: int, number: int, target: str, result: str) -> None:
    call = calls.get(tid)
    if call is not None and call[0] == number:
        call[4].append((target, result))


@calls.ends
def leaves(now: int, tid: int, ns: int | None, source: str, ret: int) -> None:
    call = calls.pop(tid, None)
    if call is None:
        return
    number, target, began, cpu, reached = call
    if losses.since(began, cpu):
        # The exit and the entry of the next call may be among the lost events.
        counts["untold"] += 1
    elif ret < 0:
        show(now, ns, source, number, str(target), errno_name(ret))
    elif not args.failed:
        # Signal 0 has no event of its own.
        for task, result in reached or [(str(target), "exists" if number == 0 else "sent")]:
            show(now, ns, source, number, task, result)


def enter(event: PerfEvent) -> None:
    enters(event._time, event._tid, event.sig, event.pid, event._cpu)


def leave(event: PerfEvent) -> None:
    leaves(event._time, event._tid, event._realtime, f"{event._comm} {event._tid}", event.ret)


syscalls__sys_enter_kill = syscalls__sys_enter_tkill = syscalls__sys_enter_tgkill = enter
syscalls__sys_exit_kill = syscalls__sys_exit_tkill = syscalls__sys_exit_tgkill = leave


def signal__signal_generate(event: PerfEvent) -> None:
    if not event.common_flags & IN_INTERRUPT:
        result = RESULTS[event.result] if 0 <= event.result < len(RESULTS) else str(event.result)
        generates(event._time, event._tid, event.sig, f"{event.comm} {event.pid}", result)


def oom__mark_victim(event: PerfEvent) -> None:
    if not args.failed:
        # The name was added in Linux 6.8.
        target = f"{event.get('comm', '')} {event.pid}".strip()
        show(event._time, event._realtime, "out of memory", signal.SIGKILL, target, f"for {event._comm} {event._tid}")


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


def __partial__() -> Partial:
    return parts.partial(), lines or []


def __merge__(partials: Iterable[Partial]) -> None:
    global lines
    lines = [line for _, lines_of_part in partials for line in lines_of_part]
    parts.merge(of_part for of_part, _ in partials)
    for _, text in sorted(lines, key=lambda line: line[0]):
        print(text)
    lines = None


def __exit__() -> None:
    if untold := counts["untold"]:
        print(f"(calls that are not shown, because events of their CPU were lost meanwhile: {untold})")
