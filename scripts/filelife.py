#!/usr/bin/env -S perf-prof python -q --order -e uprobe:open64@libc//path=+0(arg1):ustring/flags=arg2/,uprobe:unlink@libc//path=+0(arg1):ustring/,syscalls:sys_exit_unlink,uprobe:unlinkat@libc//path=+0(arg2):ustring/,syscalls:sys_exit_unlinkat
"""Files that are created and soon removed: path, age, who created it and who removed it.

usage: filelife.py [OPTION of perf-prof python]... [--max MS] [--name TEXT]

    TIME         AGE ms       CREATED BY             REMOVED BY             PATH
    14:03:12.518        2.31  cc1 7120               gcc 7119               /tmp/ccT3Yx2a.s
    14:03:12.701       18.02  sort 7188              sort 7188              /tmp/sortq8K2vL

Files that live for milliseconds cost more to create and to remove than they hold: a pipe, or a folder in memory, is
faster. If a program loses a file, this shows who removes it.

Paths are read where open(), unlink() and unlinkat() of this machine's libc are entered, so only their callers are seen;
fopen(), mkstemp() and remove() call them. Programs that call the kernel by themselves, such as those in Go or in
containers, are not seen. A file counts as created when it is opened with O_CREAT for the first time; whether it was there
before is not known. A relative path belongs to its process. Relative paths of unlinkat() are left out, because they may
belong to another folder. Needs root, as all probes with arguments do.
"""
from __future__ import annotations

import os
from collections import Counter

from perf_prof import PerfEvent, at_least, print
from perf_prof.script import Options, clock

options = Options(__doc__)
options.add_argument("--max", type=at_least(1), metavar="MS", help="only files that lived for at most MS milliseconds")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
args = options.parse()

# The maximum number of files and calls that are kept. The oldest are dropped.
MOST = 100_000

Key = tuple[str, int]  # the path, and the process if the path is relative
counts: Counter[str] = Counter()
created: dict[Key, tuple[int, str]] = {}  # when, and by which task
removals: dict[int, Key] = {}  # thread -> the file that it is removing


def key(event: PerfEvent) -> Key:
    return event.path, 0 if event.path.startswith("/") else event._pid


def task(event: PerfEvent) -> str:
    return f"{event._comm} {event._pid}"


def __init__() -> None:
    print(f"{'TIME':<12} {'AGE ms':>12}  {'CREATED BY':<22} {'REMOVED BY':<22} PATH")


def uprobe__open64(event: PerfEvent) -> None:
    if not event.flags & os.O_CREAT:
        return
    file = key(event)
    if file not in created and len(created) >= MOST:
        del created[next(iter(created))]
        counts["forgotten"] += 1
    created.setdefault(file, (event._time, task(event)))


def uprobe__unlink(event: PerfEvent) -> None:
    if len(removals) >= MOST:
        del removals[next(iter(removals))]
    removals[event._tid] = key(event)


def uprobe__unlinkat(event: PerfEvent) -> None:
    if event.path.startswith("/"):
        uprobe__unlink(event)


def removed(event: PerfEvent) -> None:
    file = removals.pop(event._tid, None)
    if file is None or event.ret != 0 or (known := created.pop(file, None)) is None:
        return
    begin, creator = known
    age = (event._time - begin) / 10**6
    if args.max is not None and age > args.max or (args.name or "") not in file[0]:
        return
    print(f"{clock(event._realtime)} {age:>12.2f}  {creator:<22} {task(event):<22} {file[0]}")


syscalls__sys_exit_unlink = syscalls__sys_exit_unlinkat = removed


def __lost__(lost_start: int, lost_end: int) -> None:
    # The files may have been removed and created again among the lost events.
    counts["untold"] += len(created)
    created.clear()
    removals.clear()


def __exit__() -> None:
    if forgotten := counts["forgotten"]:
        print(f"(files that are not shown, because more than {MOST} were open at a time: {forgotten})")
    if untold := counts["untold"]:
        print(f"(files that are not shown, because events were lost while they existed: up to {untold})")
