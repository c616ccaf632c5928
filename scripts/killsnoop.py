#!/usr/bin/env -S perf-prof python -q --order -e syscalls:sys_enter_kill,syscalls:sys_exit_kill,syscalls:sys_enter_tkill,syscalls:sys_exit_tkill,syscalls:sys_enter_tgkill,syscalls:sys_exit_tgkill,signal:signal_generate,oom:mark_victim
"""Calls that send signals: the sender, the signal, each task that gets it, and the error if the call fails.

usage: killsnoop.py [OPTION of perf-prof python]... [--failed]

Prints a line for each target of kill(), tkill() and tgkill(), and for each victim that the kernel kills because memory
is used up (the sender is then `out of memory`):

    TIME         FROM                     SIGNAL       TO                       RESULT
    14:03:12.518 systemd 1                SIGTERM      rsyslogd 604             delivered
    14:03:12.611 watchdog 811             SIGUSR1      backup 7120              ignored
    14:03:15.002 deploy 9120              SIGKILL      604                      EPERM

If a process ended and nobody knows why, look for SIGKILL and its sender. EPERM is a sender without the right to do so,
ESRCH one that holds the number of a process that has ended. The number of a call that failed is as the call has it: it
may be 0 or negative, which is a process group (kill(2)). Signal 0 asks whether a process is there.

signals.py shows all signals, also those that the kernel sends by itself, but not the calls that fail.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e syscalls:sys_enter_kill,syscalls:sys_exit_kill,syscalls:sys_enter_tkill,\\
syscalls:sys_exit_tkill,syscalls:sys_enter_tgkill,syscalls:sys_exit_tgkill,signal:signal_generate,\\
oom:mark_victim -- sleep 10
    killsnoop.py --input perf.data --jobs 2
"""
from __future__ import annotations

import signal
from collections import Counter

from perf_prof import Losses, Parts, PerfEvent, States, errno_name, print
from perf_prof.script import IN_INTERRUPT, Lines, Options, clock, signal_name, signal_result

options = Options(__doc__)
options.add_argument("--failed", action="store_true", help="only calls that fail")
args = options.parse()

CALLS = ("kill", "tkill", "tgkill")
__without__ = {
    "signal:signal_generate": "the targets have no names, and each call has one line",
    "oom:mark_victim": "the victims of a lack of memory are not shown",
} | {f"syscalls:sys_{side}_{call}": f"calls of {call}() are not shown" for call in CALLS for side in ("enter", "exit")}

counts: Counter[str] = Counter()  # for the whole run, with the key "untold"
parts = Parts(total=counts)
# tid -> (signal, target in the call, time and CPU of the entry, (target, result) for each task that gets the signal)
calls = States(parts)
losses = Losses(parts)
lines = Lines(f"{'TIME':<12} {'FROM':<24} {'SIGNAL':<12} {'TO':<24} RESULT", parts)
__init__, __partial__, __merge__ = lines.callbacks


def show(now: int, ns: int | None, source: str, number: int, target: str, result: str) -> None:
    lines.print(now, f"{clock(ns)} {source:<24} {signal_name(number):<12} {target:<24} {result}")


@calls.sets
def enters(now: int, tid: int, number: int, target: int, cpu: int) -> None:
    calls[tid] = (number, target, now, cpu, [])


@calls.step
def generates(now: int, tid: int, number: int, target: str, result: str) -> None:
    call = calls.get(tid)
    if call is not None and call[0] == number:
        call[4].append((target, result))


@calls.ends
def leaves(now: int, tid: int, ns: int | None, source: str, ret: int) -> None:
    call = calls.pop(tid, None)
    if call is None:
        return
    number, target, began, cpu, reached = call
    if losses.since(began, cpu):
        # The exit and the entry of the next call may be among the lost events.
        counts["untold"] += 1
    elif ret < 0:
        show(now, ns, source, number, str(target), errno_name(ret))
    elif not args.failed:
        # Signal 0 has no event of its own.
        for task, result in reached or [(str(target), "exists" if number == 0 else "sent")]:
            show(now, ns, source, number, task, result)


def enter(event: PerfEvent) -> None:
    enters(event._time, event._tid, event.sig, event.pid, event._cpu)


def leave(event: PerfEvent) -> None:
    leaves(event._time, event._tid, event._realtime, f"{event._comm} {event._tid}", event.ret)


syscalls__sys_enter_kill = syscalls__sys_enter_tkill = syscalls__sys_enter_tgkill = enter
syscalls__sys_exit_kill = syscalls__sys_exit_tkill = syscalls__sys_exit_tgkill = leave


def signal__signal_generate(event: PerfEvent) -> None:
    if not event.common_flags & IN_INTERRUPT:
        generates(event._time, event._tid, event.sig, f"{event.comm} {event.pid}", signal_result(event.result))


def oom__mark_victim(event: PerfEvent) -> None:
    if not args.failed:
        # The name was added in Linux 6.8.
        target = f"{event.get('comm', '')} {event.pid}".strip()
        show(event._time, event._realtime, "out of memory", signal.SIGKILL, target, f"for {event._comm} {event._tid}")


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


def __exit__() -> None:
    if untold := counts["untold"]:
        print(f"(calls that are not shown, because events of their CPU were lost meanwhile: {untold})")
