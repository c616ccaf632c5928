#!/usr/bin/env -S perf-prof python -q --order -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver
"""Processes as they start and end: file, parent, exit code or signal, lifetime.

usage: execsnoop.py [OPTION of perf-prof python]... [--name TEXT] [--forks]

A line for each program that is executed, and one for each process that ends after it was seen to execute a program.
The lifetime counts from the fork, or from the exec of a process that was there before the start.

Of a recording (also perf's own: `perf record` for `perf-prof record`):

    perf-prof record -a -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,\\
syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver -- sleep 10
    execsnoop.py --input perf.data
"""
import argparse
import signal
import time

from perf_prof import is_recording

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--name", metavar="TEXT", help="only files or commands whose name has this text in it")
parser.add_argument("--forks", action="store_true", help="also processes that do not execute a file")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()

CLONE_THREAD = 0x00010000  # include/uapi/linux/sched.h
SIG_DFL = 0
TRACE_SIGNAL_DELIVERED = 0  # include/trace/events/signal.h
# Those that do not end a process by default, see signal(7).
HARMLESS = {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
}  # fmt: skip


class Process:
    """What is known of a process."""

    __slots__ = ("parent", "began", "file", "status", "sent")

    def __init__(self, parent, began):
        self.parent = parent
        self.began = began
        self.file = None
        self.status = None  # how it ends, as soon as that is known
        self.sent = None  # the last deadly signal that was sent to it


processes = {}  # pid -> Process
threads = {}  # tid -> pid, of threads that are not their process's first


def parent_of(pid):
    """The parent of a process that was there before the start."""
    if is_recording():
        return None
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


def duration(ns):
    return f"{ns / 10**6:.1f} ms" if ns < 10**9 else f"{ns / 10**9:.2f} s"


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def __init__():
    print(f"{'TIME':<12} {'WHAT':<5} {'PID':>8} {'PARENT':>8}  FILE, or HOW IT ENDED")


def task__task_newtask(event):
    if event.clone_flags & CLONE_THREAD:
        threads[event.pid] = event._pid
        return
    process = processes[event.pid] = Process(event._pid, event._time)
    if args.forks:
        process.file = event.comm
        if wanted(event.comm):
            line(event, "fork", event.pid, process.parent, event.comm)


def sched__sched_process_exec(event):
    pid = event._pid
    process = processes.get(pid)
    if process is None:
        process = processes[pid] = Process(parent_of(pid), event._time)
    process.file = event.filename
    # An exec kills the process's other threads with SIGKILL, and that was not its end.
    process.status = None
    if wanted(process.file):
        line(event, "exec", pid, process.parent, process.file)


def ends(pid, status):
    """What happens first to a process decides how it ends; its other threads are killed after that."""
    process = processes.get(pid)
    if process is not None and process.status is None:
        process.status = status


def syscalls__sys_enter_exit_group(event):
    ends(event._pid, f"exit {event.error_code & 0xFF}")


def syscalls__sys_enter_exit(event):
    # Ends one thread; the code of the first is the process's when nobody calls exit_group.
    if event._tid == event._pid:
        ends(event._pid, f"exit {event.error_code & 0xFF}")


def signal__signal_generate(event):
    if event.result == TRACE_SIGNAL_DELIVERED and event.sig not in HARMLESS:
        process = processes.get(threads.get(event.pid, event.pid))
        if process is not None:
            process.sent = event.sig


def signal__signal_deliver(event):
    if event.sa_handler != SIG_DFL or event.sig in HARMLESS:
        return
    number = event.sig
    process = processes.get(event._pid)
    if number == signal.SIGKILL and process is not None:
        # The kernel turns most deadly signals into SIGKILL for each thread (complete_signal() in kernel/signal.c), so
        # what was sent tells more. A sender that is not traced leaves it open.
        number = process.sent
    ends(event._pid, "killed" if number is None else f"killed by {signal_name(number)}")


def sched__sched_process_exit(event):
    threads.pop(event._tid, None)
    # group_dead came with Linux 6.16; before it, the end of a process's first thread has to do.
    if not event.get("group_dead", event._tid == event._pid):
        return
    process = processes.pop(event._pid, None)
    if process is None or process.file is None or not wanted(process.file):
        return
    how = process.status or "ended"
    if process.began is not None:
        how += f" after {duration(event._time - process.began)}"
    line(event, "exit", event._pid, process.parent, f"{how}  {process.file}")


def __lost__(lost_start, lost_end):
    print("(events were lost: lines may be missing or say too little)")
