#!/usr/bin/env -S perf-prof python -q --user-callchain -e lock//stack/,syscall/name=futex/stack/
"""Waits for locks: of the kernel by kind and place, of programs (futex) by task, place and holder; how often, how long.

usage: lockstat.py [OPTION of perf-prof python]... [--top N] [--kernel] [--futex] [--by-lock] [--by-thread] [--json]

    LOCK              COUNT   TOTAL ms  LONGEST ms  WHERE
    rwsem:W             303   2337.197      12.042  vm_mmap_pgoff
    futex                49     97.310       4.096  backup: flush_queue
                                                    held: 83% writer 4711: write_log, through 2 others
    spinlock             21      0.131       0.019  folio_lruvec_lock_irqsave [lruvec_lock]

WHERE is the function that takes the lock: the first one in the call chain that is not itself a function for locks or,
for a futex, a function of libc. With --python-frames it is the Python function, of programs in Python; if they run with
`-X perf`, the function of the interpreter follows in brackets. If a lock of the kernel is a variable, its name is in
brackets. With --by-lock, each lock has a row with its address; with --by-thread, each thread that waits for a futex.
The holder of a futex is the task that released it and so ended the wait. It is shown with its thread id and the function
that released it. If the holder itself waited for another futex most of that time, the task that ended this other wait is
shown instead, and so on. `(time limit)` means that the wait ended by itself. The percentages may add up to less than 100:
another process ended the other waits. What was before the start (--time) is not known, nor who holds a lock of the kernel.

If TOTAL is large, many tasks want the lock. If COUNT is small and LONGEST large, a task holds the lock for long. A task may
also wait for a condition or for the end of a thread with a futex: look at WHERE. This function may be wrong if the program or
a library, often libc, has no frame pointers: use --call-graph dwarf. With -i 1000, a table is printed every second.
A recording for it: `perf-prof record -a --call-graph dwarf -e 'lock//stack/,syscall/name=futex/stack/' -- sleep 10`
"""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

from perf_prof import CallChains, print
from perf_prof.script import Columns, Futexes, Options, Report, Times, counted, first_rows

options = Options(__doc__, top=20, json=True)
kind = options.add_mutually_exclusive_group()
kind.add_argument("--kernel", action="store_true", help="only locks of the kernel")
kind.add_argument("--futex", action="store_true", help="only locks of programs")
options.add_argument("--by-lock", action="store_true", help="a row for each lock, with its address")
options.add_argument("--by-thread", action="store_true", help="a row for each thread that waits for a futex")
args = options.parse()
__without__ = {"lock": None if args.futex else "no locks of the kernel", "syscall": None if args.kernel else "no futexes"}
# Kernel functions that take locks, and functions of the scheduler in which a task waits for a lock.
LOCK_FUNCTION = re.compile(
    r"_*(raw_|pv_|native_|queued_|do_)*(spin|read|write)_(try)?lock|_*(pv_|native_)?queued_|_*(ww_)?mutex_|_*rwsem_|_*down"
    r"|_*rt_(mutex|spin|read|write)|_*rwbase_|_*rtlock|_*percpu_|osq_|_*schedule|trace_|__traceiter_|__bpf_trace"
)


def new_row() -> dict[str, Any]:
    return {"times": Times(), "held": Counter()}


def held(parts: dict[str, float]) -> str:
    text = ", ".join(f"{part:.0%} {name}" for name, part in parts.items())
    return f"\n{'':>48}held: {text}" if text else ""


def show(table: dict[tuple[str, str], Any]) -> None:
    chains.say()
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1]["times"].total, row[0]))
    cells = []
    for (lock, where), row in rows:
        parts = {name: ns / max(row["times"].total, 1) for name, ns in row["held"].most_common(3)}
        cells.append((lock, row["times"].count, row["times"].total, row["times"].longest, where, parts))
    columns.print(cells, f"{sum(row['times'].count for row in table.values())} waits in {counted(len(table), 'row')}{more}")


chains = CallChains("places are not known")
columns = Columns(
    args.json, lock=("LOCK", "<14"), count=("COUNT", ">8"), total=("TOTAL ms", ">10.3f", lambda ns: ns / 10**6),
    longest=("LONGEST ms", ">11.3f", lambda ns: ns / 10**6), where=("WHERE", ""), held=("", "", held),
)  # fmt: skip
report = Report(lambda: defaultdict(new_row), show, chains, columns)
futexes = Futexes(report, lambda row: report.table[row]["held"])
__interval__, __partial__, __merge__, __exit__ = report.callbacks


def lock(wait: Any) -> None:
    if not args.futex:
        frames = [frame for frame in wait._callchain if str(frame["dso"]).startswith("[")]
        # Only kernel frames are passed, because the place of a kernel lock needs no user frames.
        chains.note(frames)
        asks = (str(frame["symbol"]) for frame in frames if frame["symbol"] and not LOCK_FUNCTION.match(frame["symbol"]))
        place = next(asks, "?") + (f" [{wait.name}]" if wait.name else "") + (f" {wait.addr:#x}" if args.by_lock else "")
        report.table[wait.kind, place]["times"].add(wait.duration)


def syscall(call: Any) -> None:
    if args.kernel:
        return
    chains.note(call._callchain)
    where, thread = futexes.place(call), f" {call._tid}" if args.by_thread else ""
    if futexes.is_wait(call):
        address = f" {call.args[0]:#x}" if args.by_lock or where == "?" else ""
        row = "futex", f"{call.comm}{thread}: {where}{address}"
        report.table[row]["times"].add(call.duration)
        futexes.waits(call, row)
    else:
        futexes.wakes(call, f"{call.comm} {call._tid}: {where}")
