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

from perf_prof import Parts, PerfEvent, States, is_recording
from perf_prof.script import IN_INTERRUPT, Lines, Options, clock, signal_name

options = Options(__doc__)
options.add_argument("--name", metavar="TEXT", help="only files or commands with this text in their name")
options.add_argument("--forks", action="store_true", help="also processes that do not execute a file")
args = options.parse()

CLONE_THREAD = 0x00010000  # include/uapi/linux/sched.h
MOST_ARGUMENTS = 4096  # in bytes; the rest is not shown
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
    # The last signal that was sent among those that end a process by default, and its sender.
    sent: tuple[int, str] | None = None


parts = Parts()
processes = States(parts)  # pid -> Process
threads = States(parts)  # tid -> pid, for all threads except the first thread of each process
lines = Lines(f"{'TIME':<12} {'WHAT':<5} {'PID':>8} {'PARENT':>8}  FILE, or HOW IT ENDED", parts)
__init__, __partial__, __merge__ = lines.callbacks


def parent_of(pid: int) -> int | None:
    """Returns the parent of a process that was forked before the script started."""
    if is_recording():
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def arguments(pid: int, file: str) -> str:
    """Returns the arguments of a process that has executed `file`, as text for a shell with a space before it. Returns
    "" if they are not known: the process has ended, or executes another file now."""
    if is_recording():
        return ""
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/cmdline", "rb") as cmdline:
            words = [os.fsdecode(word) for word in cmdline.read(MOST_ARGUMENTS).rstrip(b"\0").split(b"\0")]
        # The program of a script is its interpreter, which has the script as an argument.
        path = os.path.join(folder, "cwd", file)
        if file not in words[1:] and not os.path.samefile(f"{folder}/exe", path):
            return ""
    except OSError:
        return ""
    return "".join(f" {shlex.quote(word)}" for word in words[1:])


def show(now: int, ns: int | None, what: str, pid: int, parent: int | None, rest: str) -> None:
    lines.print(now, f"{clock(ns)} {what:<5} {pid:>8} {'-' if parent is None else parent:>8}  {rest}")


def wanted(text: str) -> bool:
    return args.name is None or args.name in text


def sender(event: PerfEvent) -> str:
    """Returns the sender of a signal. The kernel sent it if its code is positive (sigaction(2), si_code), or if the code
    is 0 and the signal is for one thread alone: write() raises SIGPIPE by send_sig() with priv 0 (kernel/signal.c)."""
    of_kernel = event.code > 0 or (event.code == 0 and event.get("group") == 0)
    if of_kernel or event.common_flags & IN_INTERRUPT:
        return " of the kernel"
    return f" from {event._comm} {event._pid}"


def duration(ns: int) -> str:
    return f"{ns / 10**6:.1f} ms" if ns < 10**9 else f"{ns / 10**9:.2f} s"


@processes.sets
def forks(now: int, pid: int, parent: int, comm: str, ns: int | None) -> None:
    thread_ends(now, pid)
    process = processes[pid] = Process(parent, now)
    if args.forks:
        process.file = comm
        if wanted(comm):
            show(now, ns, "fork", pid, parent, comm)


@threads.sets
def thread_begins(now: int, tid: int, pid: int) -> None:
    threads[tid] = pid


@threads.sets
def thread_ends(now: int, tid: int) -> None:
    threads.pop(tid, None)


@processes.step
def executes(now: int, pid: int, file: str, words: str, ns: int | None) -> None:
    process = processes.get(pid)
    if process is None:
        process = processes[pid] = Process(parent_of(pid), now)
    process.file = file
    # An exec kills the other threads of the process with SIGKILL. This is not the end of the process.
    process.status = None
    if wanted(file):
        show(now, ns, "exec", pid, process.parent, file + words)


@processes.step
def ends(now: int, pid: int, status: str) -> None:
    """Sets how a process ends. Only the first call for a process has an effect: later calls are for other threads,
    which are killed."""
    process = processes.get(pid)
    if process is not None and process.status is None:
        process.status = status


@processes.step
def is_sent(now: int, pid: int, number: int, sender: str) -> None:
    process = processes.get(pid)
    if process is not None:
        process.sent = (number, sender)


@threads.step
def thread_is_sent(now: int, tid: int, number: int, sender: str) -> None:
    is_sent(now, threads.get(tid, tid), number, sender)


@processes.step
def is_killed(now: int, pid: int, number: int) -> None:
    process = processes.get(pid)
    sender = ""
    how = f"killed by {signal_name(number)}"
    if process is not None:
        if process.sent is not None and number in (signal.SIGKILL, process.sent[0]):
            # For most signals that end a process, the kernel sends SIGKILL to each thread (complete_signal() in
            # kernel/signal.c). So the signal that was sent is shown.
            number, sender = process.sent
            how = f"killed by {signal_name(number)}"
        elif number == signal.SIGKILL:
            # The sender was not traced. So this may be the SIGKILL of the kernel for another signal.
            how = "killed"
    ends(now, pid, how + sender)


@processes.ends
def has_ended(now: int, pid: int, ns: int | None) -> None:
    process = processes.pop(pid, None)
    if process is None or process.file is None or not wanted(process.file):
        return
    how = process.status or "ended"
    if process.began is not None:
        how += f" after {duration(now - process.began)}"
    show(now, ns, "exit", pid, process.parent, f"{how}  {process.file}")


def task__task_newtask(event: PerfEvent) -> None:
    if event.clone_flags & CLONE_THREAD:
        thread_begins(event._time, event.pid, event._pid)
    else:
        forks(event._time, event.pid, event._pid, event.comm, event._realtime)


def sched__sched_process_exec(event: PerfEvent) -> None:
    file = event.filename
    words = arguments(event._pid, file) if wanted(file) else ""
    executes(event._time, event._pid, file, words, event._realtime)


def syscalls__sys_enter_exit_group(event: PerfEvent) -> None:
    ends(event._time, event._pid, f"exit {event.error_code & 0xFF}")


def syscalls__sys_enter_exit(event: PerfEvent) -> None:
    # This call ends one thread. If no thread calls exit_group, the exit code of the first thread is the exit code of
    # the process.
    if event._tid == event._pid:
        ends(event._time, event._pid, f"exit {event.error_code & 0xFF}")


def signal__signal_generate(event: PerfEvent) -> None:
    if event.result == TRACE_SIGNAL_DELIVERED and event.sig not in HARMLESS:
        thread_is_sent(event._time, event.pid, event.sig, sender(event))


def signal__signal_deliver(event: PerfEvent) -> None:
    if event.sa_handler == SIG_DFL and event.sig not in HARMLESS:
        is_killed(event._time, event._pid, event.sig)


def sched__sched_process_exit(event: PerfEvent) -> None:
    thread_ends(event._time, event._tid)
    # The field group_dead was added in Linux 6.16. On earlier kernels, the end of the first thread counts as the end of
    # the process.
    if event.get("group_dead", event._tid == event._pid):
        has_ended(event._time, event._pid, event._realtime)


def __lost__(lost_start: int, lost_end: int) -> None:
    lines.print(lost_end, "(events were lost: lines may be missing or incomplete)")
