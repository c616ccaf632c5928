#!/usr/bin/env -S perf-prof python -qe syscall/name=open|openat|creat|unlink|unlinkat|rename|renameat|renameat2|chdir|fchdir,str/,task:task_newtask
"""Files that are created and soon removed: path, age, who created it and who removed it.

usage: filelife.py [OPTION of perf-prof python]... [--max MS] [--name TEXT] [--json]

    TIME               AGE ms  CREATED BY             REMOVED BY             PATH
    14:03:12.518         2.31  cc1 7120               gcc 7119               /tmp/ccT3Yx2a.s
    14:03:12.701        18.02  sort 7188              sort 7188              /tmp/sortq8K2vL

All programs are seen, static ones and in containers too: the kernel reads the path where the call is, and the folder
to which a relative one belongs. If it cannot tell the folder (no BTF, another thread changes it, old recordings), the script
follows chdir(), and a path of an unknown folder stays relative. Equal paths of two mount namespaces (containers) are two files.
`(mnt 4026532345)` marks paths of another namespace than your own (`lsns -t mnt` lists them). The last lines count removals that
are not shown for these reasons. A file counts as created when open(), openat() or creat() opens it with O_CREAT for the first time,
or with O_EXCL. Without O_EXCL it may be older, so its creator has a `?`. openat2(), mknod(), link(), symlink() and io_uring are not
seen. A renamed file keeps its age, but not the files in a renamed folder. The file that a rename replaces is removed by it, and
shown if its creation was seen. Needs root, or CAP_BPF and CAP_PERFMON.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perf_prof import PerfEvent, at_least, print
from perf_prof.script import Columns, File, Files, Lines, Options, Paths, clock, namespace_mark

options = Options(__doc__, json=True)
options.add_argument("--max", type=at_least(1), metavar="MS", help="only files that lived for at most MS milliseconds")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
args = options.parse()

MOST, MOST_NAMES = 100_000, 5  # maximum number of files that are kept, and of relative paths that are printed
AT_REMOVEDIR = 0x200  # include/uapi/linux/fcntl.h
FLAGS = {"open": 1, "openat": 2, "creat": None}  # the index of the argument with the flags; creat() always creates
ELSEWHERE = "whose path another mount namespace (container) created"
UNKNOWN, CUT = "of relative paths whose folder is not known", "..."  # the end of a name that is longer than 255 bytes

counts: Counter[str] = Counter()  # reason -> number of removals that are not shown
created = Files(MOST)  # file -> when and by which task it was created
unknown: list[str] = []  # some relative paths of removals that are not shown
paths = Paths()
columns = Columns(
    args.json, time=("TIME", "<12", clock), age=("AGE ms", ">12.2f", lambda ns: ns / 10**6),
    created_by=("CREATED BY", "<22"), removed_by=("REMOVED BY", "<22"), path=("PATH", ""), mnt_ns=("", "", namespace_mark),
)  # fmt: skip
__without__ = {"task:task_newtask": "relative paths whose folder is not in a recording stay relative"}


def __init__() -> None:
    Lines(columns).init()
    paths.look()


task__task_newtask = paths.begins


def removed(file: File, creation: tuple[int, str] | None, call: Any, task: str) -> None:
    is_named = (args.name or "") in file.path
    if is_named and creation:
        if args.max is None or call._time - creation[0] <= args.max * 10**6:
            print(columns.line(call._realtime, call._time - creation[0], creation[1], task, file.path, call.mnt_ns))
    elif file.folder:
        counts[UNKNOWN] += 1  # --name may match the folder, which is not known.
        unknown.extend([file.path][: MOST_NAMES - len(unknown)])
    elif is_named:
        reason = ELSEWHERE if created.elsewhere(file) else "of files whose creation was not seen"
        counts["whose name is cut off" if file.path.endswith(CUT) else reason] += 1


def syscall(call: Any) -> None:
    file, task = paths.of(call), f"{call.comm} {call._pid}"
    if call.errno or call.name.endswith("chdir") or call.name == "unlinkat" and call.args[2] & AT_REMOVEDIR:
        return
    if call.name.startswith("rename"):
        if replaced := paths.follow(call, created):
            removed(*replaced, call, task)
    elif call.name in FLAGS:
        flags = os.O_CREAT if FLAGS[call.name] is None else call.args[FLAGS[call.name]]
        if file and not file.path.endswith(CUT) and flags & os.O_CREAT and (flags & os.O_EXCL or file not in created):
            created[file] = call._time, task if flags & os.O_EXCL else f"{task}?"
    elif not file:
        counts["whose path could not be read"] += 1
    else:
        removed(file, created.pop(file, None), call, task)


def __lost__(lost_start: int, lost_end: int) -> None:
    # Lost events may have removed files and created them again.
    if created:
        counts["of files that existed while events were lost or not read, at most"] += len(created)
    created.clear()
    paths.lost(lost_start, lost_end)


def __exit__() -> None:
    counts[f"of more than {MOST} files at a time"] = created.dropped
    for reason, count in sorted((+counts).items()):
        names = f" ({', '.join(unknown)}{', ...' if count > len(unknown) else ''})" if reason == UNKNOWN else ""
        columns.note(f"removals that are not shown, {reason}: {count}{names}")
