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

from typing import Any, cast

from perf_prof import Parts, PerfEvent, States, stats
from perf_prof.script import Columns, Lines, Options, Programs, clock, signal_name, signal_result

options = Options(__doc__, json=True)
options.add_argument("--failed", action="store_true", help="only calls that fail")
args = options.parse()

MOST = 100_000  # processes whose parents are kept
SENT_BY_CALLS = (0, -6)  # SI_USER and SI_TKILL (include/uapi/asm-generic/siginfo.h)
__without__ = {
    "signal:signal_generate": "the targets have no names, and each call has one line",
    "oom:mark_victim": "the victims of a lack of memory are not shown",
    "task:task_newtask": "the parents of senders are not shown",
    "sched:sched_process_exec": None,
}

parts = Parts()
# For each process: a text about its parent, and (thread, time, signal, target, result) for each signal that it sends.
senders = States(parts)
programs = Programs()
columns = Columns(
    args.json, time=("TIME", "<12", clock), sender=("FROM", "<24"), signal=("SIGNAL", "<12"),
    target=("TO", "<24"), result=("RESULT", "<12"), parent=("PARENT", ""),
)  # fmt: skip
lines = Lines(columns, parts)
_, __partial__, __merge__ = lines.callbacks


def __init__() -> None:
    lines.init()
    __lost__(0, 0)


def __lost__(lost_start: int, lost_end: int) -> None:
    # Among the lost events, processes may have begun or executed other programs.
    senders.update((pid, (parent, [])) for pid, parent in programs.look().items())


@senders.sets
def forks(now: int, pid: int, parent: str) -> None:
    senders[pid] = parent, []
    if len(senders) > MOST:
        del senders[next(iter(senders))]


@senders.step
def generates(now: int, pid: int, *signal: Any) -> None:
    senders.setdefault(pid, (None, []))[1].append(signal)


@senders.step
def returns(now: int, pid: int, tid: int, began: int, ns: int | None, sender: str, number: int, target: str, error: str) -> None:
    parent, sent = senders.setdefault(pid, (None, []))
    to = [(name, result) for thread, time, sig, name, result in sent if (thread, sig) == (tid, number) and time >= began]
    sent[:] = [signal for signal in sent if signal[0] != tid]
    if error:
        to = [(target, error)]
    # The kernel has no event for signal 0, so its result is made here.
    for name, result in to or [(target, "exists" if number == 0 else "sent")]:
        lines.add(now, ns, sender, signal_name(number), name, result, parent)


def syscall(call: Any) -> None:
    # Skips the first argument of tgkill(), the process. Each argument is a word of 64 bits, and its low half is a signed int.
    target, number = ((word + 2**31) % 2**32 - 2**31 for word in call.args[call.name == "tgkill" :][:2])
    if call.errno or not args.failed:
        sender = f"{call.comm} {call._tid}{programs.script(call._pid)}"
        returns(call._time, call._pid, call._tid, call.begin._time, call._realtime, sender, number, str(target), call.errno)


def signal__signal_generate(event: PerfEvent) -> None:
    if event.code in SENT_BY_CALLS and not args.failed:
        reached = event._time, event.sig, f"{event.comm} {event.pid}", signal_result(event.result)
        generates(event._time, event._pid, event._tid, *reached)


def oom__mark_victim(event: PerfEvent) -> None:
    if not args.failed:
        target = f"{event.get('comm', '')} {event.pid}".strip()  # The name was added in Linux 6.8.
        lines.add(event._time, event._realtime, "out of memory", "SIGKILL", target, f"for {event._comm} {event._tid}", None)


def task__task_newtask(event: PerfEvent) -> None:
    if parent := programs.begins(event):
        forks(event._time, event.pid, parent)


sched__sched_process_exec = programs.executes


def __exit__() -> None:
    if untold := cast(Any, stats())["events"].get("syscall", {}).get("dropped"):
        columns.note(f"calls that are not shown, because events were lost meanwhile: {untold}")
