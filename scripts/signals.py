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

import signal
from collections import Counter

from perf_prof import PerfEvent, is_target, print
from perf_prof.script import IN_INTERRUPT, Lines, Options, Report, clock, counted, first_rows, is_of_kernel, signal_name, signal_result

options = Options(__doc__, top=20)
options.add_argument("--signal", action="append", metavar="NAME", help="only this signal, for example TERM or 15")
options.add_argument("--table", action="store_true", help="print a table instead of a line for each signal")
args = options.parse()


def number(text: str) -> int:
    """TERM, SIGTERM or 15 -> 15"""
    try:
        found = int(text) if text.isdecimal() else signal.Signals["SIG" + text.upper().removeprefix("SIG")].value
        if 1 <= found <= signal.SIGRTMAX:
            return found
    except KeyError:
        pass
    options.error(f"--signal {text}: there is no such signal; `kill -l` lists the signals")


wanted = {number(text) for text in args.signal or ()}


def sender(event: PerfEvent) -> str:
    if event.common_flags & IN_INTERRUPT:
        return "interrupt"
    task = f"{event._comm} {event._tid}"
    return f"kernel ({task})" if is_of_kernel(event) else task


def show(table: Counter[tuple[str, str, str]]) -> None:
    print(f"{'COUNT':>8}  {'SIGNAL':<12} {'FROM':<32} TO")
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1], row[0]))
    for (what, source, target), count in rows:
        print(f"{count:>8}  {what:<12} {source:<32} {target}")
    print(f"{table.total()} signals in {counted(len(table), 'row')}{more}\n")


def signal__signal_generate(event: PerfEvent) -> None:
    if wanted and event.sig not in wanted or not (is_target(event._tid) or is_target(event.pid)):
        return
    what, source, target = signal_name(event.sig), sender(event), f"{event.comm} {event.pid}"
    if args.table:
        report.table[what, source, target] += 1
    else:
        result = signal_result(event.result)
        lines.print(event._time, f"{clock(event._realtime)} {what:<12} {source:<32} {target:<24} {result}")


if args.table:
    report = Report(Counter, show)
    __interval__, __partial__, __merge__, __exit__ = report.callbacks
else:
    lines = Lines(f"{'TIME':<12} {'SIGNAL':<12} {'FROM':<32} {'TO':<24} RESULT")
    __init__, __partial__, __merge__ = lines.callbacks
