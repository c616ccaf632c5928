#!/usr/bin/env -S perf-prof python -q --order -e uprobe:open64@libc//path=+0(arg1):ustring/,uprobe:openat64@libc//path=+0(arg2):ustring/,uprobe:fopen64@libc//path=+0(arg1):ustring/,uretprobe:fopen64@libc,syscall/name=open|openat|openat2|creat/
"""Files that programs open by this machine's libc: path, flags, result or error, and how long the call took.

usage: opensnoop.py [OPTION of perf-prof python]... [--failed] [--name TEXT] [--all] [--json]

    TIME         COMM PID                 TOOK us  RESULT    FLAGS                    PATH
    14:03:12.518 nginx 604                   12.4  7         O_RDONLY|O_CLOEXEC       /etc/nginx/mime.types
    14:03:12.520 backup 7120                  3.1  ENOENT    O_RDONLY                 /var/lib/backup/state

If a program looks for its files in a wrong place, it has lines with ENOENT. Before a program fails, its last line often
shows the missing file. EMFILE means a limit (`ulimit -n`), and EACCES a missing permission.

The script reads paths at open(), openat() and fopen() of this machine's libc. Other code makes the system call itself: the
loader of libraries, statically linked programs, programs in Go or in containers, and functions of libc such as opendir().
The last line counts these calls, and --all shows them, with `?` as the path.

A relative path is completed with the current folder of its process. The folder is read when the line is printed, up to
0.1 s later. If the process has ended by then, or if openat() has the descriptor of a folder, the path stays relative.
--name compares the path as it is shown; a last line counts relative ones. Needs root, as all probes with arguments do.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perf_prof import PerfEvent, print, stats
from perf_prof.script import Columns, Lines, Options, absolute, clock

options = Options(__doc__, json=True)
options.add_argument("--failed", action="store_true", help="only calls that fail")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
options.add_argument("--all", action="store_true", help="also calls whose path is not known")
args = options.parse()

# A flag with several bits comes before those that it contains: O_SYNC has the bit of O_DSYNC. Of two names with the same
# bits, the later one is used: O_NONBLOCK, not O_NDELAY.
NAMES = {bits: name for name, bits in sorted(vars(os).items()) if name.startswith("O_") and bits > os.O_ACCMODE}
FLAGS = sorted(NAMES.items(), key=lambda flag: (-flag[0].bit_count(), flag[0]))

counts: Counter[str] = Counter()  # with the keys "unnamed" and "relative"
paths: dict[int, str] = {}  # from a thread to the path with which it calls a function of libc
columns = Columns(
    args.json, time=("TIME", "<12", clock), task=("COMM PID", "<22"), took=("TOOK us", ">9.1f", lambda ns: ns / 1000),
    result=("RESULT", "<9"), flags=("FLAGS", "<24"), path=("PATH", ""),
)  # fmt: skip
__init__ = Lines(columns).init


def flag_names(flags: int) -> str:
    names = [("O_RDONLY", "O_WRONLY", "O_RDWR", "3")[flags & os.O_ACCMODE]]
    for bits, name in FLAGS:
        if flags & bits == bits:
            names.append(name)
            flags &= ~bits
    return "|".join(names)


def enters(event: PerfEvent) -> None:
    paths[event._tid] = event.path


uprobe__open64 = uprobe__openat64 = uprobe__fopen64 = enters


def uretprobe__fopen64(event: PerfEvent) -> None:
    # If fopen() made no system call, its path does not belong to the next one.
    paths.pop(event._tid, None)


def syscall(call: Any) -> None:
    folder, _, flags, *_ = call.args
    # Functions of libc make no other of these calls.
    path = paths.pop(call._tid, None) if call.name == "openat" else None
    counts["unnamed"] += path is None
    if path is not None:
        whole = absolute(path, call._pid, folder)
        counts["relative"] += whole is None
        path = whole or path
    if path is None and not args.all or args.failed and not call.errno or (args.name or "") not in (path or ""):
        return
    names = flag_names(flags) if call.name == "openat" else None
    task, result = f"{call.comm} {call._pid}", call.errno or str(call.ret)
    print(columns.line(call._realtime, task, call.duration, result, names, "?" if path is None else path))


def __lost__(lost_start: int, lost_end: int) -> None:
    # If the call of a path was lost, the path does not belong to the next call.
    paths.clear()


def __exit__() -> None:
    if (unnamed := counts["unnamed"]) and not args.all:
        columns.note(f"calls that are not shown, because they did not come from open(), openat() or fopen() of libc: {unnamed}")
    if (relative := counts["relative"]) and args.name:
        columns.note(f"relative paths whose folder is not known, compared with --name as they are: {relative}")
    events: dict[str, Any] = stats().get("events", {})
    if untold := events.get("syscall", {}).get("dropped"):
        columns.note(f"calls that are not shown, because events were lost meanwhile: {untold}")
