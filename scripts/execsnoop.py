#!/usr/bin/env -S perf-prof python -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit_group,signal:signal_deliver --order
"""Processes as they start and end: file, parent, exit code or signal, lifetime.

usage: execsnoop.py [OPTION of perf-prof python]... [--name TEXT] [--forks]

A line for each program that is executed and one for each process that ends after that. --forks shows processes too that
never execute anything.
"""
import argparse
import signal
import time

parser = argparse.ArgumentParser(
    description="Show process starts and ends.", usage="execsnoop.py [--name TEXT] [--forks]"
)
parser.add_argument("--name", help="only files or commands whose name has this text in it")
parser.add_argument("--forks", action="store_true", help="also processes that do not execute a file")
args = parser.parse_args()

CLONE_THREAD = 0x00010000  # include/uapi/linux/sched.h
SIG_DFL = 0


class Process:
    """What is known of a process."""

    __slots__ = ("parent", "began", "file", "status")

    def __init__(self, parent, began):
        self.parent = parent
        self.began = began
        self.file = None
        self.status = None


processes = {}  # pid -> Process


def parent_of(pid):
    """The parent of a process that was there before the start."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def clock(event):
    """Wall clock of an event, to the millisecond."""
    ns = event._realtime
    return time.strftime("%H:%M:%S", time.localtime(ns // 10**9)) + f".{ns // 10**6 % 1000:03}"


def line(event, what, pid, parent, rest):
    parent = "-" if parent is None else parent
    print(f"{clock(event)} {what:<5} {pid:>8} {parent:>8}  {rest}")


def wanted(text):
    return args.name is None or args.name in text


def __init__():
    print(f"{'TIME':<12} {'WHAT':<5} {'PID':>8} {'PARENT':>8}  FILE, or HOW IT ENDED")


def task__task_newtask(event):
    if event.clone_flags & CLONE_THREAD:
        return
    process = processes[event.pid] = Process(event._pid, event._time)
    if args.forks and wanted(event.comm):
        process.file = event.comm
        line(event, "fork", event.pid, process.parent, event.comm)


def sched__sched_process_exec(event):
    pid = event._pid
    process = processes.get(pid)
    if process is None:
        process = processes[pid] = Process(parent_of(pid), None)
    process.file = event.filename
    if wanted(process.file):
        line(event, "exec", pid, process.parent, process.file)


def syscalls__sys_enter_exit_group(event):
    process = processes.get(event._pid)
    if process is not None:
        process.status = f"exit {event.error_code & 0xFF}"


def signal__signal_deliver(event):
    # A signal that nobody handles may be what ends the process; the last one before its end is.
    process = processes.get(event._pid)
    if process is not None and event.sa_handler == SIG_DFL:
        try:
            name = signal.Signals(event.sig).name
        except ValueError:
            name = f"signal {event.sig}"
        process.status = f"killed by {name}"


def sched__sched_process_exit(event):
    if not event.group_dead:
        return  # a thread of a process that lives on
    process = processes.pop(event._pid, None)
    if process is None or process.file is None or not wanted(process.file):
        return
    how = process.status or "exit 0"
    if process.began is not None:
        how += f" after {(event._time - process.began) / 10**6:.1f} ms"
    line(event, "exit", event._pid, process.parent, f"{how}  {process.file}")


def __lost__(lost_start, lost_end):
    print("(events lost: some lines are missing)")
