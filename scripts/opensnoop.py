#!/usr/bin/env -S perf-prof python -qe syscall/name=open|openat|openat2|creat|chdir|fchdir,str/,task:task_newtask
"""Files that programs open: path, flags, result or error, and how long the call took.

usage: opensnoop.py [OPTION of perf-prof python]... [--failed] [--name TEXT] [--json]

    TIME         COMM PID                 TOOK us  RESULT    FLAGS                    PATH
    14:03:12.518 nginx 604                   12.4  7         O_RDONLY|O_CLOEXEC       /etc/nginx/mime.types
    14:03:12.520 backup 7120                  3.1  ENOENT    O_RDONLY                 /var/lib/backup/state

If a program looks for its files in a wrong place, it has lines with ENOENT. Before a program fails, its last line often
shows the missing file. EMFILE means a limit (`ulimit -n`), and EACCES a missing permission.

All programs are seen, static ones and those in containers too: the kernel reads the path where the call happens.
`(mnt 4026532345)` marks paths of another mount namespace than your own, such as a container's (`lsns -t mnt` lists them).
`?` is a path that could not be read, and names of more than 255 bytes end in `...`. creat() and openat2() have no flags here: those of
openat2() are in the memory of the program. Opens by io_uring are not calls: `perf-prof top
io_uring:io_uring_submit_req --by comm,op_str` counts them. Needs root, or CAP_BPF and CAP_PERFMON.

Paths are absolute: the kernel also tells the folder to which a relative one belongs. If it cannot (it has no BTF, another
thread changes the folder meanwhile, a recording of an earlier version), the script follows chdir(), fchdir() and new
processes, and a path whose folder is not known stays relative. --name compares the path as it is shown, that is as the
program wrote it: a file has other paths by links and `..`. Last lines count relative ones, and those that could not be compared.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perf_prof import PerfEvent, print
from perf_prof.script import Columns, Lines, Options, Paths, clock, namespace_mark, say_missing

options = Options(__doc__, json=True)
options.add_argument("--failed", action="store_true", help="only calls that fail")
options.add_argument("--name", metavar="TEXT", help="only paths with this text")
args = options.parse()

# A flag with several bits comes before those that it contains: O_SYNC has the bit of O_DSYNC. Of two names with the same
# bits, the later one is used: O_NONBLOCK, not O_NDELAY.
NAMES = {bits: name for name, bits in sorted(vars(os).items()) if name.startswith("O_") and bits > os.O_ACCMODE}
FLAGS = sorted(NAMES.items(), key=lambda flag: (-flag[0].bit_count(), flag[0]))

counts: Counter[str] = Counter()  # "relative" -> relative paths whose folder is not known, "unknown" -> paths not compared
paths = Paths()
columns = Columns(
    args.json, time=("TIME", "<12", clock), task=("COMM PID", "<22"), took=("TOOK us", ">9.1f", lambda ns: ns / 1000),
    result=("RESULT", "<9"), flags=("FLAGS", "<24"), path=("PATH", ""), mnt_ns=("", "", namespace_mark),
)  # fmt: skip

__without__ = {"task:task_newtask": "relative paths whose folder is not in a recording stay relative"}


def __init__() -> None:
    Lines(columns).init()
    paths.look()


task__task_newtask = paths.begins
__lost__ = paths.lost


def flag_names(flags: int) -> str:
    names = [("O_RDONLY", "O_WRONLY", "O_RDWR", "3")[flags & os.O_ACCMODE]]
    for bits, name in FLAGS:
        if flags & bits == bits:
            names.append(name)
            flags &= ~bits
    return "|".join(names)


def syscall(call: Any) -> None:
    path, folder, _ = paths.of(call) or (None, None, 0)
    if call.name.endswith("chdir"):
        return
    counts["relative"] += folder is not None
    if args.failed and not call.errno:
        return
    if args.name and args.name not in (path or ""):
        counts["unknown"] += path is None or path.endswith("...")
        return
    # openat2() takes its flags from memory, and creat() takes none.
    at = {"open": 1, "openat": 2}.get(call.name)
    names = flag_names(call.args[at]) if at else None
    task, result = f"{call.comm} {call._pid}", call.errno or str(call.ret)
    print(columns.line(call._realtime, task, call.duration, result, names, "?" if path is None else path, call.mnt_ns))


def __exit__() -> None:
    if relative := counts["relative"]:
        compared = ", compared with --name as they are" if args.name else ", shown as they are"
        columns.note(f"relative paths whose folder is not known{compared}: {relative}")
    if unknown := counts["unknown"]:
        columns.note(f"opens whose path is not known, or cut, so --name cannot be compared: {unknown}")
    say_missing(columns)
