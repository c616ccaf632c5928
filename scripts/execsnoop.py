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

import os
import shlex
import signal
from dataclasses import dataclass

from perf_prof import Parts, PerfEvent, States, process_of
from perf_prof.script import IN_INTERRUPT, Columns, Lines, Options, arguments, clock, is_of_kernel, parent_of, signal_name

options = Options(__doc__)
options.add_argument("--name", metavar="TEXT", help="only files or commands with this text in their name")
options.add_argument("--forks", action="store_true", help="also processes that do not execute a file")
args = options.parse()

CLONE_THREAD = 0x00010000  # include/uapi/linux/sched.h
SIG_DFL = 0
TRACE_SIGNAL_DELIVERED = 0  # include/trace/events/signal.h
# Signals that do not end a process by default, see signal(7).
HARMLESS = {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
}  # fmt: skip
# What is missing in the result if the recording does not have these events.
__without__ = {
    "task:task_newtask": "parents and processes without an exec are not known, and lifetimes start at the exec",
    "sched:sched_process_exit": "the ends of processes are not shown",
    **dict.fromkeys(("syscalls:sys_enter_exit", "syscalls:sys_enter_exit_group"), "some exit codes are not known"),
    **dict.fromkeys(("signal:signal_generate", "signal:signal_deliver"), "not all deaths by a signal are shown"),
}


@dataclass(slots=True)
class Process:
    """The state of a process."""

    parent: int | None
    began: int
    file: str | None = None
    status: str | None = None  # how the process ends, if known: its exit code or the signal
    # The last signal that was sent to the process and ends a process by default, with its sender.
    sent: tuple[int, str] | None = None


parts = Parts()
processes = States(parts)  # pid -> Process
columns = Columns(
    False, time=("TIME", "<12", clock), what=("WHAT", "<5"), pid=("PID", ">8"), parent=("PARENT", ">8"),
    file=("FILE, or HOW IT ENDED", ""),
)  # fmt: skip
lines = Lines(columns, parts)
__init__, __partial__, __merge__ = lines.callbacks


def arguments_of(file: str, pid: int) -> str:
    """Returns the arguments of a process that has executed `file`, as text for a shell with a space before it. Returns
    "" if they are not known: the process has ended, or executes another file now."""
    words = arguments(pid)[1:]
    try:
        # If the file is a script, the process runs its interpreter, which has the file as an argument.
        if file in words or os.path.samefile(f"/proc/{pid}/exe", os.path.join(f"/proc/{pid}/cwd", file)):
            return "".join(f" {shlex.quote(word)}" for word in words)
    except OSError:
        pass
    return ""


def wanted(text: str) -> bool:
    return args.name is None or args.name in text


def duration(ns: int) -> str:
    return f"{ns / 10**6:.1f} ms" if ns < 10**9 else f"{ns / 10**9:.2f} s"


@processes.sets
def forks(now: int, pid: int, parent: int, comm: str, ns: int | None) -> None:
    processes[pid] = Process(parent, now, comm if args.forks else None)
    if args.forks and wanted(comm):
        lines.add(now, ns, "fork", pid, parent, comm)


@processes.step
def executes(now: int, pid: int, file: str, words: str, ns: int | None) -> None:
    process = processes.get(pid)
    if process is None:
        process = processes[pid] = Process(parent_of(pid), now)
    process.file = file
    # An exec kills the other threads of the process with SIGKILL. This is not the end of the process.
    process.status = None
    if wanted(file):
        lines.add(now, ns, "exec", pid, process.parent, file + words)


@processes.step
def exits(now: int, pid: int, code: int) -> None:
    process = processes.get(pid)
    # Only the first call or signal ends the process. Later ones are of its other threads, which are killed.
    if process is not None and process.status is None:
        process.status = f"exit {code & 0xFF}"


@processes.step
def is_sent(now: int, pid: int, number: int, sender: str) -> None:
    if process := processes.get(pid):
        process.sent = (number, sender)


@processes.step
def is_killed(now: int, pid: int, number: int) -> None:
    process = processes.get(pid)
    if process is None or process.status is not None:
        return
    if process.sent is not None and number in (signal.SIGKILL, process.sent[0]):
        # For most signals that end a process, the kernel sends SIGKILL to each thread (complete_signal() in
        # kernel/signal.c). So the signal that was sent is shown.
        process.status = f"killed by {signal_name(process.sent[0])}{process.sent[1]}"
    else:
        # The sender was not traced. A SIGKILL may then have come from the kernel, which sends it for other signals too.
        process.status = "killed" if number == signal.SIGKILL else f"killed by {signal_name(number)}"


@processes.ends
def has_ended(now: int, pid: int, ns: int | None) -> None:
    process = processes.pop(pid, None)
    if process is not None and process.file is not None and wanted(process.file):
        how = f"{process.status or 'ended'} after {duration(now - process.began)}"
        lines.add(now, ns, "exit", pid, process.parent, f"{how}  {process.file}")


def task__task_newtask(event: PerfEvent) -> None:
    if not event.clone_flags & CLONE_THREAD:
        forks(event._time, event.pid, event._pid, event.comm, event._realtime)


def sched__sched_process_exec(event: PerfEvent) -> None:
    file = event.filename
    words = arguments_of(file, event._pid) if wanted(file) else ""
    executes(event._time, event._pid, file, words, event._realtime)


def syscalls__sys_enter_exit_group(event: PerfEvent) -> None:
    exits(event._time, event._pid, event.error_code)


def syscalls__sys_enter_exit(event: PerfEvent) -> None:
    # This call ends one thread. If no thread calls exit_group, the exit code of the first thread is the exit code of
    # the process.
    if event._tid == event._pid:
        exits(event._time, event._pid, event.error_code)


def signal__signal_generate(event: PerfEvent) -> None:
    if event.result == TRACE_SIGNAL_DELIVERED and event.sig not in HARMLESS:
        is_own = is_of_kernel(event) or event.common_flags & IN_INTERRUPT
        sender = " of the kernel" if is_own else f" from {event._comm} {event._pid}"
        is_sent(event._time, process_of(event.pid) or event.pid, event.sig, sender)


def signal__signal_deliver(event: PerfEvent) -> None:
    if event.sa_handler == SIG_DFL and event.sig not in HARMLESS:
        is_killed(event._time, event._pid, event.sig)


def sched__sched_process_exit(event: PerfEvent) -> None:
    # The field group_dead was added in Linux 6.16. On earlier kernels, the end of the first thread counts as the end of
    # the process.
    if event.get("group_dead", event._tid == event._pid):
        has_ended(event._time, event._pid, event._realtime)


def __lost__(lost_start: int, lost_end: int) -> None:
    lines.print(lost_end, "(events were lost: lines may be missing or incomplete)")
