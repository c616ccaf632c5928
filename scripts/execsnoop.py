#!/usr/bin/env -S perf-prof python -q --order -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver
"""Processes as they start and end: file, parent, exit code or signal, lifetime.

usage: execsnoop.py [OPTION of perf-prof python]... [--name TEXT] [--forks]

A line for each program that is executed, and one for each process that ends after it was seen to execute a program.
The lifetime counts from the fork, or from the exec of a process that was there before the start.

Of a recording (also perf's own: `perf record` for `perf-prof record`), by two processes side by side:

    perf-prof record -a -e task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,\\
syscalls:sys_enter_exit,syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver -- sleep 10
    execsnoop.py --input perf.data --jobs 2
"""
import argparse
import heapq
import signal
import time

from perf_prof import is_recording, shard

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


# What the result of a recording without these events lacks.
__without__ = {
    "task:task_newtask": "parents are not known, nor processes that execute nothing; lifetimes count from the exec",
    "sched:sched_process_exit": "the ends of processes are not shown",
    **dict.fromkeys(("syscalls:sys_enter_exit", "syscalls:sys_enter_exit_group"), "some exit codes are not known"),
    **dict.fromkeys(("signal:signal_generate", "signal:signal_deliver"), "not all deaths by a signal are told"),
}


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

# Of a recording that several processes share (--jobs), each sees a part. How a process began that was there before is known to
# another one: its steps are put off until __merge__ has all parts, and so is what is printed, which is to be in the order of
# time. Where each process has its own CPUs that is so of all steps. In memory are these steps, and the lines.
part = shard()
known = set()  # pids of processes that began, or ended, in this part
known_threads = set()  # the same of tids
put_off = []  # (time, name of the step, its arguments...)
last = 0  # when something of that became known
lines = [] if part else None  # (time, text)


def step(function):
    """A step of a process, which depends on those before it."""
    if part is None:
        return function

    def now_or_later(now, pid, *more):
        if pid in known:
            function(now, pid, *more)
        else:
            put_off.append((now, function.__name__, pid, *more))

    return now_or_later


def beginning(function):
    """A step that depends on nothing before it."""
    if part is None or part["split"] == "time":
        return function
    return lambda now, *more: put_off.append((now, function.__name__, *more))


def is_known(now, of, number):
    global last
    if part:
        last = now
        of.add(number)


def parent_of(pid):
    """The parent of a process that was there before the start."""
    if is_recording():
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def clock(ns):
    """Wall clock, to the millisecond."""
    return time.strftime("%H:%M:%S", time.localtime(ns // 10**9)) + f".{ns // 10**6 % 1000:03}"


def line(now, text):
    if lines is None:
        print(text)
    else:
        lines.append((now, text))


def show(now, ns, what, pid, parent, rest):
    parent = "-" if parent is None else parent
    line(now, f"{clock(ns)} {what:<5} {pid:>8} {parent:>8}  {rest}")


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
    if part is None:
        print(f"{'TIME':<12} {'WHAT':<5} {'PID':>8} {'PARENT':>8}  FILE, or HOW IT ENDED")


@beginning
def forks(now, pid, parent, comm, ns):
    is_known(now, known, pid)
    is_known(now, known_threads, pid)
    threads.pop(pid, None)
    process = processes[pid] = Process(parent, now)
    if args.forks:
        process.file = comm
        if wanted(comm):
            show(now, ns, "fork", pid, parent, comm)


@beginning
def thread_begins(now, tid, pid):
    is_known(now, known_threads, tid)
    threads[tid] = pid


@beginning
def thread_ends(now, tid):
    is_known(now, known_threads, tid)
    threads.pop(tid, None)


@step
def executes(now, pid, file, ns):
    process = processes.get(pid)
    if process is None:
        process = processes[pid] = Process(parent_of(pid), now)
    process.file = file
    # An exec kills the process's other threads with SIGKILL, and that was not its end.
    process.status = None
    if wanted(file):
        show(now, ns, "exec", pid, process.parent, file)


@step
def ends(now, pid, status):
    """What happens first to a process decides how it ends; its other threads are killed after that."""
    process = processes.get(pid)
    if process is not None and process.status is None:
        process.status = status


@step
def is_sent(now, pid, number):
    process = processes.get(pid)
    if process is not None:
        process.sent = number


def thread_is_sent(now, tid, number):
    if part and tid not in known_threads:
        put_off.append((now, "thread_is_sent", tid, number))
    else:
        is_sent(now, threads.get(tid, tid), number)


@step
def is_killed(now, pid, number):
    process = processes.get(pid)
    if number == signal.SIGKILL and process is not None:
        # The kernel turns most deadly signals into SIGKILL for each thread (complete_signal() in kernel/signal.c), so
        # what was sent tells more. A sender that is not traced leaves it open.
        number = process.sent
    ends(now, pid, "killed" if number is None else f"killed by {signal_name(number)}")


@step
def has_ended(now, pid, ns):
    process = processes.pop(pid, None)
    if process is None or process.file is None or not wanted(process.file):
        return
    how = process.status or "ended"
    if process.began is not None:
        how += f" after {duration(now - process.began)}"
    show(now, ns, "exit", pid, process.parent, f"{how}  {process.file}")


def task__task_newtask(event):
    if event.clone_flags & CLONE_THREAD:
        thread_begins(event._time, event.pid, event._pid)
    else:
        forks(event._time, event.pid, event._pid, event.comm, event._realtime)


def sched__sched_process_exec(event):
    executes(event._time, event._pid, event.filename, event._realtime)


def syscalls__sys_enter_exit_group(event):
    ends(event._time, event._pid, f"exit {event.error_code & 0xFF}")


def syscalls__sys_enter_exit(event):
    # Ends one thread; the code of the first is the process's when nobody calls exit_group.
    if event._tid == event._pid:
        ends(event._time, event._pid, f"exit {event.error_code & 0xFF}")


def signal__signal_generate(event):
    if event.result == TRACE_SIGNAL_DELIVERED and event.sig not in HARMLESS:
        thread_is_sent(event._time, event.pid, event.sig)


def signal__signal_deliver(event):
    if event.sa_handler == SIG_DFL and event.sig not in HARMLESS:
        is_killed(event._time, event._pid, event.sig)


def sched__sched_process_exit(event):
    thread_ends(event._time, event._tid)
    # group_dead came with Linux 6.16; before it, the end of a process's first thread has to do.
    if event.get("group_dead", event._tid == event._pid):
        has_ended(event._time, event._pid, event._realtime)
        if part and part["split"] == "time":
            is_known(event._time, known, event._pid)


def __lost__(lost_start, lost_end):
    line(lost_end, "(events were lost: lines may be missing or say too little)")


def __partial__():
    # Where processes and threads are at the end, of which that is clear: after all that this part has put off.
    end = max(put_off[-1][0] if put_off else 0, last)
    put_off.extend((end, "process_stands", pid, processes.get(pid)) for pid in known)
    put_off.extend((end, "thread_stands", tid, threads.get(tid)) for tid in known_threads)
    return put_off, lines


def __merge__(partials):
    global lines
    lines = []
    steps, their_lines = [], []
    for put_off, part_of_lines in partials:
        steps.append(put_off)
        their_lines.append(part_of_lines)
    for now, name, *rest in heapq.merge(*steps, key=lambda step: step[0]):
        STEPS[name](now, *rest)
    for _, text in heapq.merge(*their_lines, lines, key=lambda line: line[0]):
        print(text)
    lines = None


def stands(of, number, state):
    if state is None:
        of.pop(number, None)
    else:
        of[number] = state


STEPS = {
    **{function.__name__: function for function in (forks, thread_begins, thread_ends, thread_is_sent)},
    **{function.__name__: function for function in (executes, ends, is_sent, is_killed, has_ended)},
    "process_stands": lambda now, pid, process: stands(processes, pid, process),
    "thread_stands": lambda now, tid, pid: stands(threads, tid, pid),
}
