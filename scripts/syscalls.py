#!/usr/bin/env -S perf-prof python -q --order -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
"""System calls: how often each one was called, how long the calls took, and which errors they returned.

usage: syscalls.py [OPTION of perf-prof python]... [--top N] [--sort calls|time|errors|max] [--by-pid] [--json]

For one process: syscalls.py -p PID; for a command: syscalls.py --exec COMMAND ARGS...
With -i 1000, a table is printed every second, else one at the end. Calls that were entered before the script started
are not counted.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -- sleep 10
    syscalls.py --input perf.data --jobs 2

Needs --order, which the script's first line has: a thread may enter a call on one CPU and leave the call on another
CPU. Calls during which events of their CPU were lost are not timed, nor are calls whose exit does not match the last
entry of their thread. The last lines say how many there were.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from perf_prof import Losses, PerfEvent, States, errno_name, syscall_name
from perf_prof.script import Columns, Options, Report, Times, first_rows

# System calls that do not return to the caller.
RESTORING = ("rt_sigreturn", "sigreturn")

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


# What is missing in the result if the recording does not have this event.
__without__ = {"raw_syscalls:sys_exit": "calls are counted, but neither their times nor their errors are known"}


def new_row() -> dict[str, Any]:
    # Counts errors by number. The number 0 counts all calls.
    return {"counts": Counter(), "times": Times()}


def duration(ns: int) -> str:
    """1234567 -> '1.235 ms'"""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"


def show(table: dict[tuple[int | None, int], Any]) -> None:
    rows, more = first_rows(
        table.items(), args.top, lambda row: (-SORTS[args.sort](row[1]), -SORTS["calls"](row[1]), row[0][1], row[0][0])
    )
    cells = []
    for (process, number), row in rows:
        counts, times = row["counts"], row["times"]
        spent = (times.total, times.total // times.count, times.longest) if times.count else (None, None, None)
        errors = {errno_name(error): count for error, count in sorted(counts.items(), key=lambda of: (-of[1], of[0])) if error}
        cells.append((*[process][: args.by_pid], syscall_name(number), counts[0], *spent, errors))
    calls = sum(row["counts"][0] for row in table.values())
    columns.print(cells, f"{calls} calls of {len({number for _, number in table})} kinds{more}")


columns = Columns(
    args.json, **{"pid": ("PID", ">8")} if args.by_pid else {}, syscall=("SYSCALL", "<24"), calls=("CALLS", ">9"),
    total=("TOTAL", ">11", duration), average=("AVERAGE", ">11", duration), longest=("MAX", ">11", duration),
    errors=("ERRORS", "", lambda errors: " ".join(f"{name}:{count}" for name, count in errors.items())),
)  # fmt: skip
counts: Counter[str] = Counter()  # for the whole run, with the keys "unpaired" and "untold"
parts = Report(lambda: defaultdict(new_row), show, counts, columns)
entered = States(parts)  # tid -> (number of the system call, time of its entry, CPU of its entry)
losses = Losses(parts)


@entered.sets
def enters(now: int, tid: int, number: int, cpu: int) -> None:
    entered[tid] = (number, now, cpu)


@entered.ends
def leaves(now: int, tid: int, process: int | None, number: int, result: int) -> None:
    # There is an exit without an entry if the call was entered before the script started, or if a new task returns from
    # the clone call of its parent.
    began = entered.pop(tid, None)
    if began is None:
        return
    if losses.since(*began[1:]):
        # The exit and the entry of the next call may be among the lost events.
        counts["untold"] += 1
        return
    took = now - began[1]
    if began[0] != number or took < 0:
        # rt_sigreturn restores the registers of the interrupted code, so its exit has another number, often -1.
        counts["unpaired"] += syscall_name(began[0]) not in RESTORING
        return
    row = parts.table[process, number]
    row["times"].add(took)
    # The kernel returns errors as -4095 to -1 (include/linux/err.h, MAX_ERRNO).
    if -4095 <= result < 0:
        row["counts"][-result] += 1


def raw_syscalls__sys_enter(event: PerfEvent) -> None:
    number = event.id
    parts.table[event._pid if args.by_pid else None, number]["counts"][0] += 1
    enters(event._time, event._tid, number, event._cpu)


def raw_syscalls__sys_exit(event: PerfEvent) -> None:
    leaves(event._time, event._tid, event._pid if args.by_pid else None, event.id, event.ret)


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


__interval__, __partial__, __merge__, _ = parts.callbacks


def __exit__() -> None:
    parts.exit()
    if untold := counts["untold"]:
        columns.note(f"calls that are not timed, because events of their CPU were lost meanwhile: {untold}")
    if unpaired := counts["unpaired"]:
        columns.note(f"calls that are not timed, because their entry or exit was not seen or came in the wrong order: {unpaired}")
