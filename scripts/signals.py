#!/usr/bin/env -S perf-prof python -q --order --all-cpus -e signal:signal_generate
"""Signals: which task sends which signal to which task, and what the kernel does with it.

usage: signals.py [OPTION of perf-prof python]... [--signal NAME]... [--top N] [--table]

Prints a line for each signal: the sender and the target, each with its name and thread id. With --table, prints a
table of senders and targets instead: one every second with -i 1000, else one at the end.

A signal of the kernel itself has `kernel` as its sender: the kernel sends SIGSEGV, SIGPIPE or the SIGCHLD of a child
while a task runs, and this task is shown after it. A timer may expire in an interrupt; then the task that was
interrupted has nothing to do with the signal, and the sender is `interrupt`.

-p PID, -t TID and --exec COMMAND select tasks: the script shows the signals that they send and the signals that they
get. For this, the first line of the script has --all-cpus: a signal is an event of the task that sends it.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e signal:signal_generate -- sleep 10
    signals.py --input perf.data --jobs 2
"""
from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from perf_prof import Parts, PerfEvent, at_least, is_target, print, shard

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--signal", action="append", metavar="NAME", help="only this signal, for example TERM or 15")
parser.add_argument("--table", action="store_true", help="print a table instead of a line for each signal")
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows in a table (default: 20)")
parser.add_argument("--usage", action="help", help="show this text (--help shows the options of perf-prof)")
args = parser.parse_args()

IN_INTERRUPT = 0x08 | 0x10  # TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ (include/linux/trace_events.h)
# TRACE_SIGNAL_... (include/trace/events/signal.h)
RESULTS = ("delivered", "ignored", "already pending", "lost: queue is full", "delivered without details")


def name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if signal.SIGRTMIN < number <= signal.SIGRTMAX else str(number)


def number(text: str) -> int:
    """TERM, SIGTERM or 15 -> 15"""
    try:
        found = int(text) if text.isdecimal() else signal.Signals["SIG" + text.upper().removeprefix("SIG")].value
        if 1 <= found <= signal.SIGRTMAX:
            return found
    except KeyError:
        pass
    parser.error(f"--signal {text}: there is no such signal; `kill -l` lists the signals")


wanted = {number(text) for text in args.signal or ()}


def is_of_kernel(event: PerfEvent) -> bool:
    """Returns whether the kernel sent the signal. Then its code is positive (sigaction(2), si_code), or it is 0 and the
    signal is for the running thread alone: write() raises SIGPIPE by send_sig() with priv 0 (kernel/signal.c). A signal of
    kill() has the code 0 too, but it is for a process, and a signal of tgkill() has the code -6 (SI_TKILL)."""
    return bool(event.code > 0 or (event.code == 0 and event.get("group") == 0))


def sender(event: PerfEvent) -> str:
    if event.common_flags & IN_INTERRUPT:
        return "interrupt"
    task = f"{event._comm} {event._tid}"
    return f"kernel ({task})" if is_of_kernel(event) else task


def result(event: PerfEvent) -> str:
    return RESULTS[event.result] if 0 <= event.result < len(RESULTS) else str(event.result)


def show(table: Counter[tuple[str, str, str]], end: int | None) -> None:
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    print(f"{'COUNT':>8}  {'SIGNAL':<12} {'FROM':<32} TO")
    order = sorted(table.items(), key=lambda item: (-item[1], item[0]))
    for (what, source, target), count in order[: args.top]:
        print(f"{count:>8}  {what:<12} {source:<32} {target}")
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    rows = f"{len(order)} row{'' if len(order) == 1 else 's'}"
    print(f"{sum(table.values())} signals in {rows}{more}\n")


parts = Parts(Counter, show) if args.table else Parts()
# With --jobs, lines are not printed at once: __merge__ prints the lines of all parts, in the order of time.
lines: list[tuple[int, str]] | None = [] if shard() else None  # (time, text)
Partial = tuple[dict[str, Any], list[tuple[int, str]]]


def clock(ns: int | None) -> str:
    """Returns the local time of day, to the millisecond. A recording may not say it."""
    if ns is None:
        return "--:--:--.---"
    return time.strftime("%H:%M:%S", time.localtime(ns // 10**9)) + f".{ns // 10**6 % 1000:03}"


def line(now: int, text: str) -> None:
    if lines is None:
        print(text)
    else:
        lines.append((now, text))


def signal__signal_generate(event: PerfEvent) -> None:
    if wanted and event.sig not in wanted or not (is_target(event._tid) or is_target(event.pid)):
        return
    what, source, target = name(event.sig), sender(event), f"{event.comm} {event.pid}"
    if args.table:
        parts.table[what, source, target] += 1
        return
    line(event._time, f"{clock(event._realtime)} {what:<12} {source:<32} {target:<24} {result(event)}")


def __init__() -> None:
    if lines is None and not args.table:
        print(f"{'TIME':<12} {'SIGNAL':<12} {'FROM':<32} {'TO':<24} RESULT")


def __partial__() -> Partial:
    return parts.partial(), lines or []


def __merge__(partials: Iterable[Partial]) -> None:
    global lines
    partials = list(partials)
    found = sorted((line for _, of_part in partials for line in of_part), key=lambda line: line[0])
    lines = None
    for _, text in found:
        print(text)
    parts.merge(of_part for of_part, _ in partials)


if args.table:
    __interval__ = parts.interval
    __exit__ = parts.exit
