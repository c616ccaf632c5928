#!/usr/bin/env -S perf-prof python -q --order -e uprobe:open64@libc//path=+0(arg1):ustring/,uprobe:openat64@libc//path=+0(arg2):ustring/,uprobe:fopen64@libc//path=+0(arg1):ustring/,uretprobe:fopen64@libc,syscalls:sys_enter_openat,syscalls:sys_exit_openat
"""Opened files: path, flags, result or error, and how long the call took.

usage: opensnoop.py [OPTION of perf-prof python]... [--failed] [--name TEXT] [--all]

    TIME         COMM PID                 TOOK us  RESULT    FLAGS                    PATH
    14:03:12.518 nginx 604                   12.4  7         O_RDONLY|O_CLOEXEC       /etc/nginx/mime.types
    14:03:12.520 backup 7120                  3.1  ENOENT    O_RDONLY                 /var/lib/backup/state

A program that looks for its files in a wrong place has lines with ENOENT; the last line before it ends often has the
file that it lacks. EMFILE is a limit (`ulimit -n`), EACCES a missing right.

The path is read where open(), openat() and fopen() of this machine's libc are entered, so only their callers are seen
with it. The loader of libraries, programs in Go, programs in containers and functions of libc such as opendir() call the
kernel by themselves. The last line counts these calls, and --all shows them, with `?` as the path. A relative path is
as the caller gave it. Needs root, as all probes with arguments do.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import NamedTuple

from perf_prof import Losses, Parts, PerfEvent, errno_name, print
from perf_prof.script import Options, clock

options = Options(__doc__)
options.add_argument("--failed", action="store_true", help="only calls that fail")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
options.add_argument("--all", action="store_true", help="also calls whose path is not known")
args = options.parse()

ACCESS = ("O_RDONLY", "O_WRONLY", "O_RDWR")
# A flag with several bits comes before the flags that it contains: O_SYNC contains the bit of O_DSYNC.
FLAGS = [(name, getattr(os, name)) for name in (
    "O_SYNC", "O_DSYNC", "O_TMPFILE", "O_DIRECTORY", "O_CREAT", "O_EXCL", "O_NOCTTY", "O_TRUNC", "O_APPEND", "O_NONBLOCK",
    "O_ASYNC", "O_DIRECT", "O_NOFOLLOW", "O_NOATIME", "O_CLOEXEC", "O_PATH",
)]  # fmt: skip

class Open(NamedTuple):
    """A call that is not complete: a probe saw it, or the kernel has begun it."""

    path: str | None  # None if no probe saw the call
    flags: int | None  # None until the system call
    began: int
    cpu: int


counts: Counter[str] = Counter()  # with the keys "untold" and "unnamed"
opens: dict[int, Open] = {}  # from the thread
losses = Losses(Parts())


def flag_names(flags: int) -> str:
    access = flags & os.O_ACCMODE
    names = [ACCESS[access] if access < len(ACCESS) else str(access)]
    rest = flags & ~os.O_ACCMODE
    for name, bits in FLAGS:
        if rest & bits == bits != 0:
            names.append(name)
            rest &= ~bits
    return "|".join(names)


def __init__() -> None:
    print(f"{'TIME':<12} {'COMM PID':<22} {'TOOK us':>9}  {'RESULT':<9} {'FLAGS':<24} PATH")


def entry(event: PerfEvent) -> None:
    opens[event._tid] = Open(event.path, None, event._time, event._cpu)


uprobe__open64 = uprobe__openat64 = uprobe__fopen64 = entry


def uretprobe__fopen64(event: PerfEvent) -> None:
    # If fopen() made no system call, its path does not belong to the next one.
    opens.pop(event._tid, None)


def syscalls__sys_enter_openat(event: PerfEvent) -> None:
    named = opens.get(event._tid)
    path = None
    # If the call of a path was lost, the path does not belong to this call.
    if named is not None and named.flags is None and not losses.since(named.began, named.cpu):
        path = named.path
    opens[event._tid] = Open(path, event.flags, event._time, event._cpu)


def syscalls__sys_exit_openat(event: PerfEvent) -> None:
    call = opens.pop(event._tid, None)
    if call is None or call.flags is None:
        return
    if losses.since(call.began, call.cpu):
        counts["untold"] += 1
        return
    counts["unnamed"] += call.path is None
    if call.path is None and not args.all or args.failed and event.ret >= 0 or (args.name or "") not in (call.path or ""):
        return
    result = errno_name(event.ret) if event.ret < 0 else str(event.ret)
    took = (event._time - call.began) / 1000
    task, flags = f"{event._comm} {event._pid}", flag_names(call.flags)
    print(f"{clock(event._realtime)} {task:<22} {took:>9.1f}  {result:<9} {flags:<24} {'?' if call.path is None else call.path}")


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


def __exit__() -> None:
    if (unnamed := counts["unnamed"]) and not args.all:
        print(f"(calls that are not shown, because they did not come from open(), openat() or fopen() of libc: {unnamed})")
    if untold := counts["untold"]:
        print(f"(calls that are not shown, because events of their CPU were lost meanwhile: {untold})")
