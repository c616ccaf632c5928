#!/usr/bin/env -S perf-prof python -q --order -e uprobe:open64@libc//path=+0(arg1):ustring/,uprobe:unlink@libc//path=+0(arg1):ustring/,uprobe:unlinkat@libc//path=+0(arg2):ustring/,syscall/name=openat|unlink|unlinkat|rename|renameat2/
"""Files that are created and soon removed by this machine's libc: path, age, who created it and who removed it.

usage: filelife.py [OPTION of perf-prof python]... [--max MS] [--name TEXT] [--json]

    TIME               AGE ms  CREATED BY             REMOVED BY             PATH
    14:03:12.518         2.31  cc1 7120               gcc 7119               /tmp/ccT3Yx2a.s
    14:03:12.701        18.02  sort 7188              sort 7188              /tmp/sortq8K2vL

For files that live for milliseconds, creating and removing takes most of the time: a pipe, or a folder in memory, is
faster. If a file disappears, the script shows who removes it.

The script reads paths at open(), unlink() and unlinkat() of this machine's libc; fopen(), mkstemp() and remove() call
these. Not seen are statically linked programs, and programs in Go or in containers. A relative path is completed with the
current folder of its process, up to 0.1 s after the call; this fails if the process has ended by then. A path that belongs
to the descriptor of another folder stays relative. Renamed files are not followed. The last lines count the removals that
are not shown for these reasons.

A file counts as created when it is opened with O_CREAT for the first time; whether it was there before is not known.
Needs root, as all probes with arguments do.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perf_prof import PerfEvent, at_least, print
from perf_prof.script import AT_FDCWD, Columns, Lines, Options, absolute, clock

options = Options(__doc__, json=True)
options.add_argument("--max", type=at_least(1), metavar="MS", help="only files that lived for at most MS milliseconds")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
args = options.parse()

# The maximum number of files that are kept. The oldest are dropped.
MOST = 100_000
AT_REMOVEDIR = 0x200  # include/uapi/linux/fcntl.h

File = tuple[str, int, int]  # the path; of a relative one, the process and the descriptor of the folder
counts: Counter[str] = Counter()  # of removals that are not shown, by the reason
created: dict[File, tuple[int, str]] = {}  # when, and by which task
paths: dict[int, str] = {}  # from a thread to the path with which it calls a function of libc
columns = Columns(
    args.json, time=("TIME", "<12", clock), age=("AGE ms", ">12.2f", lambda ns: ns / 10**6),
    created_by=("CREATED BY", "<22"), removed_by=("REMOVED BY", "<22"), path=("PATH", ""),
)  # fmt: skip
__init__ = Lines(columns).init


def enters(event: PerfEvent) -> None:
    paths[event._tid] = event.path


uprobe__open64 = uprobe__unlink = uprobe__unlinkat = enters


def file_of(path: str, call: Any) -> File:
    folder = call.args[0] if call.name.endswith("at") else AT_FDCWD
    whole = absolute(path, call._pid, folder)
    return (whole, 0, 0) if whole else (path, call._pid, folder % 2**32)


def syscall(call: Any) -> None:
    path, task = paths.pop(call._tid, None), f"{call.comm} {call._pid}"
    if call.errno or call.name == "unlinkat" and call.args[2] & AT_REMOVEDIR:
        return
    file = path and file_of(path, call)
    if call.name.startswith("rename"):
        counts["of files that were renamed, at most"] += 1
    elif call.name == "openat":
        if file and call.args[2] & os.O_CREAT:
            created.setdefault(file, (call._time, task))
        if len(created) > MOST:
            del created[next(iter(created))]
            counts[f"of more than {MOST} files at a time"] += 1
    elif not file:
        counts["by programs that do not use this libc"] += 1
    elif (args.name or "") not in file[0]:
        return
    elif file not in created:
        counts["by relative paths of unknown folders" if file[1] else "of files whose creation was not seen"] += 1
    else:
        begin, creator = created.pop(file)
        age = call._time - begin
        if args.max is None or age <= args.max * 10**6:
            print(columns.line(call._realtime, age, creator, task, file[0]))


def __lost__(lost_start: int, lost_end: int) -> None:
    # The files may have been removed and created again among the lost events.
    if created:
        counts["of files that existed while events were lost, at most"] += len(created)
    created.clear()
    paths.clear()


def __exit__() -> None:
    for reason, count in sorted(counts.items()):
        columns.note(f"removals that are not shown, {reason}: {count}")
