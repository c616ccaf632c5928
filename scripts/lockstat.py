#!/usr/bin/env -S perf-prof python -q --user-callchain -e lock//stack/,syscall/name=futex/stack/
"""Waits for locks: of the kernel by kind and place, of programs (futex) by task and place; how often, how long.

usage: lockstat.py [OPTION of perf-prof python]... [--top N] [--kernel] [--futex] [--by-lock]

    LOCK              COUNT   TOTAL ms  LONGEST ms  WHERE
    rwsem:W             303   2337.197      12.042  vm_mmap_pgoff
    futex                49     97.310       4.096  backup: flush_queue
    spinlock             21      0.131       0.019  folio_lruvec_lock_irqsave [lruvec_lock]

WHERE is the function that asks for the lock: the first one in the call chain that is not itself a function for locks,
and for a futex not one of libc. A name in brackets is that of the lock, if it is a variable of the kernel. With --by-lock
there is a row for each lock, with its address.

A row with a large TOTAL is a lock that many want; one with a small COUNT and a large LONGEST is a lock that somebody
holds for long. perf-prof trace -e 'lock/min=10ms/stack/' shows the single waits and who waits.

A task that waits for a futex may also wait for a condition or for the end of a thread: look at its place. The place may
be wrong, for example the caller of the function that takes the lock, if the program or a library has no frame pointers.
Often the libc has none, even if the program has them. --call-graph dwarf finds the place. With -i 1000, a table is
printed every second, else one at the end.
"""
from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from perf_prof import CallChains, print
from perf_prof.script import Options, Report, Times, counted, first_rows

options = Options(__doc__, top=20)
kind = options.add_mutually_exclusive_group()
kind.add_argument("--kernel", action="store_true", help="only locks of the kernel")
kind.add_argument("--futex", action="store_true", help="only locks of programs")
options.add_argument("--by-lock", action="store_true", help="a row for each lock, with its address")
args = options.parse()

# Functions of the kernel that take locks, and the scheduler, in which a task waits for one.
LOCK_FUNCTION = re.compile(
    r"_*(raw_|pv_|native_|queued_|do_)*(spin|read|write)_(try)?lock|_*(pv_|native_)?queued_|_*(ww_)?mutex_|_*rwsem_|_*down"
    r"|_*rt_(mutex|spin|read|write)|_*rwbase_|_*rtlock|_*percpu_|osq_|_*schedule|trace_|__traceiter_|__bpf_trace"
)
# FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2 (include/uapi/linux/futex.h).
WAITS = {0, 6, 9, 11, 13}
FUTEX_CMD = 0x7F  # without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME


def show(table: defaultdict[tuple[str, str], Times]) -> None:
    chains.say()
    print(f"{'LOCK':<14} {'COUNT':>8} {'TOTAL ms':>10} {'LONGEST ms':>11}  WHERE")
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1].total, row[0]))
    for (lock, where), times in rows:
        print(f"{lock:<14} {times.count:>8} {times.total / 10**6:>10.3f} {times.longest / 10**6:>11.3f}  {where}")
    print(f"{sum(times.count for times in table.values())} waits in {counted(len(table), 'row')}{more}\n")


chains = CallChains("places are not known")
report = Report(lambda: defaultdict(Times), show, chains)
__interval__, __partial__, __merge__, __exit__ = report.callbacks


def place(frames: list[Any], is_of_lock: Any) -> str:
    return next((str(frame["symbol"]) for frame in frames if frame["symbol"] and not is_of_lock(frame)), "?")


def is_of_kernel(frame: Any) -> bool:
    return str(frame["dso"]).startswith("[")


def lock(wait: Any) -> None:
    if not args.futex:
        frames = [frame for frame in wait._callchain if is_of_kernel(frame)]
        # Places in the kernel need no frames of programs.
        chains.note(frames)
        where = place(frames, lambda frame: LOCK_FUNCTION.match(frame["symbol"]))
        name = f" [{wait.name}]" if wait.name else ""
        address = f" {wait.addr:#x}" if args.by_lock else ""
        report.table[wait.kind, where + name + address].add(wait.duration)


def syscall(call: Any) -> None:
    address, operation = call.args[:2]
    if not args.kernel and operation & FUTEX_CMD in WAITS:
        chains.note(call._callchain)
        frames = [frame for frame in call._callchain if not is_of_kernel(frame)]
        where = place(frames, lambda frame: re.search(r"/(libc|libpthread|ld)[-.]", str(frame["dso"])))
        lock = f" {address:#x}" if args.by_lock or where == "?" else ""
        report.table["futex", f"{call.comm}: {where}{lock}"].add(call.duration)
