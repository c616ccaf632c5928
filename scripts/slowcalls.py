#!/usr/bin/env -S perf-prof python -q -e syscall/min=1ms,str/
"""Slow system calls: each call that takes 1 ms or more, with its arguments and its result.

usage: slowcalls.py [OPTION of perf-prof python]... [--min MS] [--call NAME]... [--comm NAME] [--all] [--json]

    TIME         COMM TID                  TOOK ms  CALL
    14:03:12.518 postgres 604               31.042  fdatasync(fd=12</var/lib/pg/base/1/2619>) = 0
    14:03:12.733 postgres 604              104.310  openat(dfd=AT_FDCWD, filename="/mnt/log", flags=0x80000, mode=0) = EINTR

fsync, write or unlink with a long time is a slow disk or a lock of the file system. For the code that makes a call, add
-g: the call chain at its start follows. Where it waits in the kernel: perf-prof trace -e offcpu/min=1ms/stack/ -p PID.

Calls that tasks make to wait (poll, futex, nanosleep, wait4, ...) are not shown without --all or --call: they take as
long as they are asked to. A last line says which ones there were, and how long they took together. perf-prof itself times
the calls, and Python sees the slow ones only. Calls that were entered before the script started are not seen.
"""
from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

from perf_prof import CallChains, SelectorError, at_least, event, print, syscall_nr
from perf_prof.script import Columns, Lines, Options, Times, clock, first_rows

options = Options(__doc__, comm=True, json=True)
options.add_argument("--min", type=at_least(1.0), default=1.0, metavar="MS", help="only calls of at least MS milliseconds; the least is 1")
options.add_argument("--call", action="append", metavar="NAME", help="only this system call, for example fsync")
options.add_argument("--all", action="store_true", help="also calls that wait on purpose")
args = options.parse()

# Calls that wait for another task, for a device or for a time.
WAITS = set("""accept accept4 clock_nanosleep clock_nanosleep_time64 epoll_pwait epoll_pwait2 epoll_wait flock futex
futex_time64 futex_wait futex_waitv io_getevents io_pgetevents io_uring_enter mq_timedreceive msgrcv nanosleep
_newselect pause poll ppoll pselect6 recvfrom recvmmsg recvmsg restart_syscall rt_sigsuspend rt_sigtimedwait select
semop semtimedop wait4 waitid waitpid""".split())

for call in args.call or ():
    try:
        syscall_nr(call)
    except KeyError:
        options.error(f"--call {call}: there is no such system call")


@cache
def arguments(call: str) -> list[tuple[str, str]] | None:
    """Returns the types and names of a system call's arguments. Returns None if they are not known."""
    try:
        fields = event(f"syscalls:sys_enter_{call}", formats="shipped").fields
        return [(field.type, field.name) for field in fields if not field.name.startswith("__")]
    except SelectorError:
        return None


def value(type: str, name: str, word: int, text: str | None) -> str:
    """Returns an argument, a word of 64 bits, as text. text is the string to which it points, or the path of a descriptor."""
    half = 2**63 if type == "long" else 2**31
    signed = (word + half) % (2 * half) - half
    number = "AT_FDCWD" if name.endswith("dfd") and signed == -100 else str(signed)
    if text is not None:
        return f'"{text}"' if "*" in type else f"{number}<{text}>"
    if "*" in type or name.endswith(("flags", "mode", "cmd", "addr")):
        return "0" if word == 0 else f"0{word:o}" if name.endswith("mode") else hex(word)
    return number if type in ("int", "long", "pid_t") else str(word)


def call_text(span: Any) -> str:
    if (known := arguments(span.name)) is None:
        return f"{span.name}({', '.join(map(hex, span.args))})"
    texts = (f"{name}={value(type, name, word, getattr(span, f'{name}_str', None))}" for (type, name), word in zip(known, span.args))
    return f"{span.name}({', '.join(texts)})"


chains = CallChains()
columns = Columns(
    args.json, time=("TIME", "<12", clock), task=("COMM TID", "<22"), took=("TOOK ms", ">9.3f", lambda ns: ns / 10**6),
    call=("CALL", ""), callchain=("", "", lambda frames: "".join(f"\n    {frame}" for frame in frames)),
)  # fmt: skip
left_out: defaultdict[str, Times] = defaultdict(Times)  # calls that wait on purpose
__init__ = Lines(columns).init


def syscall(span: Any) -> None:
    call = span.name
    if span.duration < args.min * 10**6 or args.comm not in (None, span.comm) or args.call and call not in args.call:
        return
    if call in WAITS and not args.all and not args.call:
        return left_out[call].add(span.duration)
    if span._callchain:
        chains.note(span._callchain)  # Without -g, there are none, which is no reason for a message.
    frames = [f"{frame['symbol'] or hex(frame['addr'])} ({frame['dso']})" for frame in span._callchain]
    print(columns.line(span._realtime, f"{span.comm} {span._tid}", span.duration, f"{call_text(span)} = {span.errno or span.ret}", frames))


def __exit__() -> None:
    chains.say()
    rows, _ = first_rows(left_out.items(), len(left_out), lambda row: -row[1].total)
    if text := ", ".join(f"{times.count} of {call} ({times.total / 10**6:.1f} ms)" for call, times in rows):
        columns.note(f"calls that wait on purpose, not shown without --all: {text}")
