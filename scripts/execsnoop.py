#!/usr/bin/env -S perf-prof python -q --order -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver
"""Starts and ends of processes: file, arguments, parent, exit code or signal and its sender, lifetime.

usage: execsnoop.py [OPTION of perf-prof python]... [--name TEXT] [--forks]

Prints a line when a process executes a program, and another line when this process ends. The lifetime starts at the
fork; for a process that was forked before the script started, it starts at the exec. For a process that a signal ends,
the line has the name and the process id of the sender.

The arguments are in no event. The script reads them in /proc, a moment after the exec, so the arguments of a process
that ends at once are not shown, and a recording has none.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,\\
syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver -- sleep 10
    execsnoop.py --input perf.data --jobs 2
"""
from __future__ import annotations

import shlex

from perf_prof import Parts
from perf_prof.script import Columns, Lines, Options, Process, Processes, clock

options = Options(__doc__)
options.add_argument("--name", metavar="TEXT", help="only files or commands with this text in their name")
options.add_argument("--forks", action="store_true", help="also processes that do not execute a file")
args = options.parse()

# What the result lacks if a recording does not contain the event.
__without__ = {
    "task:task_newtask": "parents and processes without an exec are not known, and lifetimes start at the exec",
    "sched:sched_process_exit": "the ends of processes are not shown",
    **dict.fromkeys(("syscalls:sys_enter_exit", "syscalls:sys_enter_exit_group"), "some exit codes are not known"),
    **dict.fromkeys(("signal:signal_generate", "signal:signal_deliver"), "not all deaths by a signal are shown"),
}


def wanted(text: str) -> bool:
    return args.name is None or args.name in text


def duration(ns: int) -> str:
    return f"{ns / 10**6:.1f} ms" if ns < 10**9 else f"{ns / 10**9:.2f} s"


def forked(now: int, ns: int | None, pid: int, process: Process) -> None:
    if args.forks and wanted(process.comm):
        lines.add(now, ns, "fork", pid, process.parent, process.comm)


def executed(now: int, ns: int | None, pid: int, process: Process, words: list[str]) -> None:
    if process.file is not None and wanted(process.file):
        lines.add(now, ns, "exec", pid, process.parent, process.file + "".join(f" {shlex.quote(word)}" for word in words))


def ended(now: int, ns: int | None, pid: int, process: Process) -> None:
    file = process.comm if process.file is None and args.forks else process.file
    if file is not None and wanted(file):
        how = f"{process.status or 'ended'} after {duration(now - process.began)}"
        lines.add(now, ns, "exit", pid, process.parent, f"{how}  {file}")


told: list[tuple[int, int]] = []  # the last time whose loss was told
parts = Parts()
processes = Processes(parts, forked, executed, ended, has_arguments=wanted)
columns = Columns(
    False, time=("TIME", "<12", clock), what=("WHAT", "<5"), pid=("PID", ">8"), parent=("PARENT", ">8"),
    file=("FILE, or HOW IT ENDED", ""),
)  # fmt: skip
lines = Lines(columns, parts)
__init__, __partial__, __merge__ = lines.callbacks

task__task_newtask = processes.newtask
sched__sched_process_exec, sched__sched_process_exit = processes.process_exec, processes.process_exit
syscalls__sys_enter_exit, syscalls__sys_enter_exit_group = processes.exit, processes.exit_group
signal__signal_generate, signal__signal_deliver = processes.signal_generate, processes.signal_deliver


def __lost__(lost_start: int, lost_end: int) -> None:
    # Of a time whose records are not read, it is told where this time begins and where it ends.
    if [(lost_start, lost_end)] != told or not lost_end:
        lines.print(lost_start, "(events were lost or not read: lines may be missing or incomplete)")
    told[:] = [(lost_start, lost_end)]
