#!/usr/bin/env -S perf-prof python -q --order -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how often each one was called, how long the calls took, and which errors they returned.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid] [--json]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS... With -i 1000, a table is printed every
second, else one at the end. Calls that were entered before the script started are not counted. `perf-prof top syscall/str/ --by
name,path` shows the files of the calls.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -- sleep 10
    syscalls.py --input perf.data --jobs 2

Needs --order, which the script's first line has: a thread may enter a call on one CPU and leave it on another one. Calls
during which events of their CPU were lost are not timed, nor are those whose exit does not match the last entry of their
thread. The last lines say how many there were.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from perf_prof import PerfEvent, errno_name, syscall_name
from perf_prof.script import Columns, Options, Pairs, Report, Times, duration, first_rows

RESTORING = ("rt_sigreturn", "sigreturn")  # System calls that do not return to the caller.
SORTS: dict[str, Callable[[Any], int]] = {
    "calls": lambda row: row["counts"][0],
    "time": lambda row: row["times"].total,
    "errors": lambda row: row["counts"].total() - row["counts"][0],
    "max": lambda row: row["times"].longest,
}
options = Options(__doc__, top=20, json=True)
options.add_argument("--sort", choices=SORTS, default="time", help="what the rows are sorted by (default: time)")
options.add_argument("--by-pid", action="store_true", help="one row for each process and call")
args = options.parse()
# What the result lacks if a recording does not contain the event.
__without__ = {"raw_syscalls:sys_exit": "calls are counted, but neither their times nor their errors are known"}


def new_row() -> dict[str, Any]:
    # counts: error number -> number of calls. The key 0 is the number of all calls.
    return {"counts": Counter(), "times": Times()}


def show(table: dict[tuple[int | None, int], Any]) -> None:
    cells = []
    rows, more = first_rows(
        table.items(), args.top, lambda row: (-SORTS[args.sort](row[1]), -SORTS["calls"](row[1]), row[0][1], row[0][0])
    )
    for (process, number), row in rows:
        counts, times = row["counts"], row["times"]
        spent = (times.total, times.total // times.count, times.longest) if times.count else (None, None, None)
        errors = {errno_name(error): count for error, count in sorted(counts.items(), key=lambda of: (-of[1], of[0])) if error}
        cells.append((*[process][: args.by_pid], syscall_name(number), counts[0], *spent, errors))
    calls = sum(row["counts"][0] for row in table.values())
    columns.print(cells, f"{calls} calls of {len({number for _, number in table})} kinds{more}")


counts: Counter[str] = Counter()  # for the whole run
columns = Columns(
    args.json, **{"pid": ("PID", ">8")} if args.by_pid else {}, syscall=("SYSCALL", "<24"), calls=("CALLS", ">9"),
    total=("TOTAL", ">11", duration), average=("AVERAGE", ">11", duration), longest=("MAX", ">11", duration),
    errors=("ERRORS", "", lambda errors: " ".join(f"{name}:{count}" for name, count in errors.items())),
)  # fmt: skip
report = Report(lambda: defaultdict(new_row), show, counts, columns, {
    "untold": "calls that are not timed, because events were lost or not read during them",
    "unpaired": "calls that are not timed, because their entry or exit was not seen or came in the wrong order",
})  # fmt: skip
entered = Pairs(report, counts)  # thread id -> the system call that the thread is in
__interval__, __partial__, __merge__, __exit__ = report.callbacks
__lost__ = entered.lost


@entered.ends
def leaves(now: int, tid: int, process: int | None, number: int, result: int) -> None:
    # An exit has no entry if the call was entered before the script started, or if a new task returns from its parent's
    # clone().
    took, call = entered.end(now, tid) or (0, None)
    if call != number or took < 0:
        # rt_sigreturn() restores the registers of the interrupted code, so its exit has another number, often -1.
        counts["unpaired"] += call is not None and syscall_name(call) not in RESTORING
        return
    row = report.table[process, number]
    row["times"].add(took)
    # The kernel returns errors as -4095 to -1 (include/linux/err.h, MAX_ERRNO).
    if -4095 <= result < 0:
        row["counts"][-result] += 1


def raw_syscalls__sys_enter(event: PerfEvent) -> None:
    number = event.id
    report.table[event._pid if args.by_pid else None, number]["counts"][0] += 1
    entered.begins(event._time, event._tid, event._cpu, number)


def raw_syscalls__sys_exit(event: PerfEvent) -> None:
    leaves(event._time, event._tid, event._pid if args.by_pid else None, event.id, event.ret)
