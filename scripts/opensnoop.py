#!/usr/bin/env -S perf-prof python -qe uprobe:open64@libc//p=+0(%di):string/,uprobe:openat64@libc//p=+0(%si):string/,uprobe:chdir@libc//p=+0(%di):string/,syscall/name=open|openat|openat2|creat|*chdir/,task:task_newtask
"""Files that programs open by this machine's libc: path, flags, result or error, and how long the call took.

usage: opensnoop.py [OPTION of perf-prof python]... [--failed] [--name TEXT] [--all] [--json]

    TIME         COMM PID                 TOOK us  RESULT    FLAGS                    PATH
    14:03:12.518 nginx 604                   12.4  7         O_RDONLY|O_CLOEXEC       /etc/nginx/mime.types
    14:03:12.520 backup 7120                  3.1  ENOENT    O_RDONLY                 /var/lib/backup/state

If a program looks for its files in a wrong place, it has lines with ENOENT. Before a program fails, its last line often
shows the missing file. EMFILE means a limit (`ulimit -n`), and EACCES a missing permission.

The script reads paths at open() and openat() of this machine's libc; fopen() calls open(). Other code makes the system call itself: the
loader of libraries, statically linked programs, programs in Go or in containers, and functions of libc such as opendir().
The last line counts these calls, and --all shows them, with `?` as the path.

A relative path is completed with the folder in which its process was at the time of the call. For this the script looks up
the folders of all processes at the start, and follows chdir(), fchdir() and new processes. A path stays relative if the
folder is not known: for up to 0.1 s after fchdir(), after events were lost, if openat() has the descriptor of a folder, and
in recordings. --name compares the path as it is shown; a last line counts relative ones. Needs root, as all probes with
arguments do.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perf_prof import PerfEvent, print, stats
from perf_prof.script import Columns, Lines, Options, Paths, clock

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
paths = Paths()
columns = Columns(
    args.json, time=("TIME", "<12", clock), task=("COMM PID", "<22"), took=("TOOK us", ">9.1f", lambda ns: ns / 1000),
    result=("RESULT", "<9"), flags=("FLAGS", "<24"), path=("PATH", ""),
)  # fmt: skip

__without__ = dict.fromkeys(("uprobe:chdir", "task:task_newtask"), "relative paths are shown as they are")


def __init__() -> None:
    Lines(columns).init()
    paths.look()


uprobe__open64 = uprobe__openat64 = uprobe__chdir = paths.enters
task__task_newtask = paths.begins
# If the call of a path was lost, the path does not belong to the next call.
__lost__ = paths.lost


def flag_names(flags: int) -> str:
    names = [("O_RDONLY", "O_WRONLY", "O_RDWR", "3")[flags & os.O_ACCMODE]]
    for bits, name in FLAGS:
        if flags & bits == bits:
            names.append(name)
            flags &= ~bits
    return "|".join(names)


def syscall(call: Any) -> None:
    path, folder = paths.of(call) or (None, None)
    if call.name.endswith("chdir"):
        return
    counts["unnamed"] += path is None
    counts["relative"] += folder is not None
    if path is None and not args.all or args.failed and not call.errno or (args.name or "") not in (path or ""):
        return
    names = flag_names(call.args[2]) if call.name == "openat" else None
    task, result = f"{call.comm} {call._pid}", call.errno or str(call.ret)
    print(columns.line(call._realtime, task, call.duration, result, names, "?" if path is None else path))


def __exit__() -> None:
    if (unnamed := counts["unnamed"]) and not args.all:
        columns.note(f"calls that are not shown, because they did not come from open(), openat() or fopen() of libc: {unnamed}")
    if relative := counts["relative"]:
        compared = ", compared with --name as they are" if args.name else ", shown as they are"
        columns.note(f"relative paths whose folder is not known{compared}: {relative}")
    events: dict[str, Any] = stats().get("events", {})
    if untold := events.get("syscall", {}).get("dropped"):
        columns.note(f"calls that are not shown, because events were lost meanwhile: {untold}")
