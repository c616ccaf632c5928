#!/usr/bin/env -S perf-prof python -q --order -e function:malloc@libc//size=arg1/stack/,function:calloc@libc//size=arg1/n=arg2/stack/,function:realloc@libc//size=arg2/old=arg1/stack/,function:aligned_alloc@libc//size=arg2/stack/,uprobe:free@libc//p=arg1/
"""Memory of programs that was allocated by malloc() during the run and is not freed at its end: bytes by call chain.

usage: mallocleak.py [OPTION of perf-prof python]... [--older MS] [--top N] [--json]

             BYTES      COUNT  CALL CHAIN
        18,874,368      2,304  malloc
                               load_table
    18,874,368 bytes in 2,304 allocations of 1 call chain are not freed

What is in use for a while is no leak: let the run be long (--duration 60s), leave out what is young with --older, and look for
call chains whose bytes grow (tables with -i 5000). Memory from before the run is not seen. Without frame pointers, add
--call-graph dwarf. Without -p or --exec, all processes are traced. Seen are malloc(), calloc(), realloc() and aligned_alloc()
of the host's libc, and new; not posix_memalign(), mmap() (small objects of Python, unless PYTHONMALLOC=malloc), other
allocators, containers and static programs. After a loss, earlier allocations are forgotten. Needs root.
"""
from __future__ import annotations

from collections import Counter
from typing import Any

from perf_prof import CallChains, PerfEvent, at_least, print, realtime
from perf_prof.script import Columns, Options, clock, counted, first_rows, say_missing

options = Options(__doc__, top=10, rows="call chains", json=True)
options.add_argument("--older", type=at_least(0), default=0, metavar="MS", help="only memory that is at least MS ms old")
args = options.parse()

chains, now = CallChains(), 0
counts: Counter[str] = Counter()  # "forgotten": allocations; "new": events since the last table
columns = Columns(args.json, bytes=("BYTES", ">18,"), count=("COUNT", ">10,"), chain=("CALL CHAIN", "", f"\n{'':>31}".join))
live: dict[tuple[int, int], tuple[int, tuple[str, ...], int]] = {}  # (process, address): bytes, call chain, time


def allocates(call: Any, size: int) -> None:
    global now
    now = call._time
    counts["new"] += 1
    if call.ret:
        chains.note(call._callchain)
        names = tuple(str(frame["symbol"] or frame["dso"]) for frame in call._callchain)
        live[call._pid, call.ret % 2**64] = size, names or (f"(no call chain) {call._comm}",), now


def function__malloc(call: Any) -> None:
    allocates(call, call.size)


function__aligned_alloc = function__malloc


def function__calloc(call: Any) -> None:
    allocates(call, call.size * call.n)


def function__realloc(call: Any) -> None:
    old = live.get((call._pid, call.old))
    # A failed realloc() keeps the old memory, unless size is 0. During the call, another thread may get the old address.
    if old is not None and old[2] < call.begin._time and (call.ret or not call.size):
        del live[call._pid, call.old]
    allocates(call, call.size)


def uprobe__free(event: PerfEvent) -> None:
    counts["new"] += live.pop((event._pid, event.p), None) is not None


def __lost__(lost_start: int, lost_end: int) -> None:
    # Lost events may have freed any of the memory.
    counts["forgotten"] += len(live)
    live.clear()


def show() -> None:
    counts["new"] = 0
    rows: dict[tuple[str, ...], list[int]] = {}
    for size, chain, time in live.values():
        if now - time >= args.older * 10**6:
            rows.setdefault(chain, []).append(size)
    chains.say()
    first, more = first_rows(rows.items(), args.top, lambda row: (-sum(row[1]), row[0]))
    total, number = sum(map(sum, rows.values())), sum(map(len, rows.values()))
    last = f"{total:,} bytes in {number:,} allocations of {counted(len(rows), 'call chain')} are not freed{more}"
    columns.print(((sum(sizes), len(sizes), chain) for chain, sizes in first), last)
    say_missing(columns)


def __interval__() -> None:
    columns.end = realtime()
    print("" if columns.json else clock(columns.end) + "\n", end="")
    show()


def __exit__() -> None:
    if columns.end is None:
        show()
    elif counts["new"]:
        __interval__()
    if forgotten := counts["forgotten"]:
        columns.note(f"allocations that are no longer counted, because events that were lost or not read may have freed them: {forgotten}")
