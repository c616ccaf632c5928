#!/usr/bin/env -S perf-prof python -q --order -e syscall/name=kill|tkill|tgkill/,signal:signal_generate,oom:mark_victim,task:task_newtask
"""Calls that send signals: the sender, its parent, the signal, each task that gets it, and the error if the call fails.

usage: killsnoop.py [OPTION of perf-prof python]... [--failed] [--json]

Prints a line for each target of kill(), tkill() and tgkill(), and for each victim that the kernel kills because memory
is used up (the sender is then `out of memory`):

    TIME         FROM                     SIGNAL       TO                       RESULT       PARENT
    14:03:12.518 systemd 1                SIGTERM      rsyslogd 604             delivered    -
    14:03:12.611 watchdog 811             SIGUSR1      backup 7120              ignored      /sbin/init 1
    14:03:15.002 kill 9120                SIGKILL      604                      EPERM        ./deploy.sh 9100

If a process ended and nobody knows why, look for SIGKILL and its sender. EPERM: the sender has no right to send the
signal. ESRCH: no process has this number any more. If a call failed, TO is the number in the call. It may be 0 or
negative, which means a process group (kill(2)). Signal 0 only checks whether a process exists.

PARENT is the process that created the sender, with the program that it runs when the line is printed. If that is a shell
or another interpreter, its script is shown. If the sender is an interpreter, its script follows in parentheses. A recording
has no command lines. signals.py shows all signals, also those that the kernel sends by itself, but not the calls that fail.

To replay a recording in two processes:

    perf-prof record -a -e 'syscall/name=kill|tkill|tgkill/,signal:signal_generate,oom:mark_victim' -- sleep 10
    killsnoop.py --input perf.data --jobs 2
"""
from __future__ import annotations

from typing import Any, cast

from perf_prof import Parts, PerfEvent, States, stats
from perf_prof.script import Columns, Lines, Options, arguments, clock, parent_of, program, signal_name, signal_result

options = Options(__doc__, json=True)
options.add_argument("--failed", action="store_true", help="only calls that fail")
args = options.parse()

CLONE_THREAD = 0x00010000  # include/uapi/linux/sched.h
MOST = 100_000  # processes whose parents are kept
SENT_BY_CALLS = (0, -6)  # SI_USER and SI_TKILL (include/uapi/asm-generic/siginfo.h)
__without__ = {
    "signal:signal_generate": "the targets have no names, and each call has one line",
    "oom:mark_victim": "the victims of a lack of memory are not shown",
    "task:task_newtask": None,
}

parts = Parts()
reached = States(parts)  # tid -> (time, signal, target, result) for each signal that it sends
parents: dict[int, int] = {}  # of processes that were created during the run
columns = Columns(
    args.json, time=("TIME", "<12", clock), sender=("FROM", "<24"), signal=("SIGNAL", "<12"),
    target=("TO", "<24"), result=("RESULT", "<12"), parent=("PARENT", ""),
)  # fmt: skip
lines = Lines(columns, parts)
__init__, __partial__, __merge__ = lines.callbacks


def sender(comm: str, pid: int, tid: int) -> tuple[str, str | None]:
    """Returns texts about the sender of a signal and about its parent, if that is known."""
    words, runs = arguments(pid), program(pid)
    script = f" ({runs})" if words and runs != words[0] else ""
    parent = parents.get(pid) or parent_of(pid)
    return f"{comm} {tid}{script}", f"{program(parent)} {parent}".strip() if parent else None


@reached.step
def generates(now: int, tid: int, number: int, target: str, result: str) -> None:
    reached.setdefault(tid, []).append((now, number, target, result))


@reached.ends
def returns(now: int, tid: int, began: int, ns: int | None, of: tuple[str, str | None], number: int, target: str, error: str) -> None:
    to = [(name, result) for time, sent, name, result in reached.pop(tid, ()) if time >= began and sent == number]
    if error:
        to = [(target, error)]
    # Signal 0 has no event of its own.
    for name, result in to or [(target, "exists" if number == 0 else "sent")]:
        lines.add(now, ns, of[0], signal_name(number), name, result, of[1])


def syscall(call: Any) -> None:
    # tgkill() has the process before the thread. The kernel has each argument as a word of 64 bits.
    target, number = ((word + 2**31) % 2**32 - 2**31 for word in call.args[call.name == "tgkill" :][:2])
    if call.errno or not args.failed:
        of = sender(call.comm, call._pid, call._tid)
        returns(call._time, call._tid, call.begin._time, call._realtime, of, number, str(target), call.errno)


def signal__signal_generate(event: PerfEvent) -> None:
    if event.code in SENT_BY_CALLS and not args.failed:
        generates(event._time, event._tid, event.sig, f"{event.comm} {event.pid}", signal_result(event.result))


def oom__mark_victim(event: PerfEvent) -> None:
    if not args.failed:
        # The name was added in Linux 6.8.
        target = f"{event.get('comm', '')} {event.pid}".strip()
        lines.add(event._time, event._realtime, "out of memory", "SIGKILL", target, f"for {event._comm} {event._tid}", None)


def task__task_newtask(event: PerfEvent) -> None:
    if not event.clone_flags & CLONE_THREAD:
        parents[event.pid] = event._pid
        if len(parents) > MOST:
            del parents[next(iter(parents))]


def __exit__() -> None:
    if untold := cast(Any, stats())["events"].get("syscall", {}).get("dropped"):
        columns.note(f"calls that are not shown, because events were lost meanwhile: {untold}")
