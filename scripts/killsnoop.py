#!/usr/bin/env -S perf-prof python -q --order -e syscall/name=kill|tkill|tgkill/,signal:signal_generate,oom:mark_victim,task:task_newtask,sched:sched_process_exec
"""Calls that send signals: the sender, its parent, the signal, each task that gets it, and the error if the call fails.

usage: killsnoop.py [OPTION of perf-prof python]... [--failed] [--json]

Prints a line for each target of kill(), tkill() and tgkill(), and for each victim that the kernel kills because memory
is used up (the sender is then `out of memory`):

    TIME         FROM                     SIGNAL       TO                       RESULT       PARENT
    14:03:12.611 watchdog 811             SIGUSR1      backup 7120              ignored      /sbin/init 1
    14:03:15.002 kill 9120                SIGKILL      604                      EPERM        ./deploy.sh 9100

If a process ended and nobody knows why, look for SIGKILL and its sender. EPERM: the sender has no right to send the
signal. ESRCH: no process has this number any more. If a call failed, TO is the number in the call. It may be 0 or
negative, which means a process group (kill(2)). Signal 0 only checks whether a process exists.

PARENT is the process that created the sender, with the program that it ran then or, of an interpreter, its script. The
script of a sender follows in parentheses. Arguments are read up to 0.1 s after an exec: if the program has ended by then,
its file is shown. A recording has no arguments, and parents only of processes that were created meanwhile. signals.py
shows all signals, also those that the kernel sends by itself, but not the calls that fail.

To replay a recording in two processes:

    perf-prof record -a -e 'syscall/name=kill|tkill|tgkill/,signal:signal_generate,oom:mark_victim,task:task_newtask' -- sleep 10
    killsnoop.py --input perf.data --jobs 2
"""
from __future__ import annotations

from typing import Any

from perf_prof import Parts, PerfEvent
from perf_prof.script import Columns, Lines, Options, Programs, Senders, clock, say_missing, signal_name

options = Options(__doc__, json=True)
options.add_argument("--failed", action="store_true", help="only calls that fail")
args = options.parse()

__without__ = {
    "signal:signal_generate": "the targets have no names, and each call has one line",
    "oom:mark_victim": "the victims of a lack of memory are not shown",
    "task:task_newtask": "the parents of senders are not shown",
    "sched:sched_process_exec": None,
}

parts, programs = Parts(), Programs()
senders = Senders(parts, programs)
columns = Columns(
    args.json, time=("TIME", "<12", clock), sender=("FROM", "<24"), signal=("SIGNAL", "<12"),
    target=("TO", "<24"), result=("RESULT", "<12"), parent=("PARENT", ""),
)  # fmt: skip
lines = Lines(columns, parts)
_, __partial__, __merge__ = lines.callbacks


def __init__() -> None:
    lines.init()
    senders.look()


def __lost__(lost_start: int, lost_end: int) -> None:
    senders.look()


@senders.step
def returns(now: int, pid: int, tid: int, began: int, ns: int | None, sender: str, number: int, target: str, error: str) -> None:
    parent, reached = senders.reached(pid, tid, began, number)
    # The kernel has no event for signal 0, so the result of a call with signal 0 is made here.
    results = [(target, error)] if error else reached or [(target, "exists" if number == 0 else "sent")]
    for name, result in results:
        lines.add(now, ns, sender, signal_name(number), name, result, parent)


def syscall(call: Any) -> None:
    # Skips the first argument of tgkill(), the process. Each argument is a 64-bit word, whose low half is a signed int.
    target, number = ((word + 2**31) % 2**32 - 2**31 for word in call.args[call.name == "tgkill" :][:2])
    if call.errno or not args.failed:
        sender = f"{call.comm} {call._tid}{programs.script(call._pid)}"
        returns(call._time, call._pid, call._tid, call.begin._time, call._realtime, sender, number, str(target), call.errno)


def oom__mark_victim(event: PerfEvent) -> None:
    if not args.failed:
        target = f"{event.get('comm', '')} {event.pid}".strip()  # Linux 6.8 added the field comm.
        lines.add(event._time, event._realtime, "out of memory", "SIGKILL", target, f"for {event._comm} {event._tid}", None)


task__task_newtask, sched__sched_process_exec = senders.begins, programs.executes
# With --failed, only calls that failed are shown. Such a call has sent no signal, so the events of signals are not
# needed.
signal__signal_generate = (lambda event: None) if args.failed else senders.sends


def __exit__() -> None:
    say_missing(columns)
