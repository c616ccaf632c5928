#!/usr/bin/env -S perf-prof python -q --no-user-callchain -e alloc/open==1/open/stack/
"""Memory of the kernel that was allocated during the run and is not freed at its end: bytes by call chain.

usage: memleak.py [OPTION of perf-prof python]... [--older MS] [--top N]

    4,608 bytes in 18 allocations
            kmalloc_noprof
            alloc_msg
            do_msgsnd
            __x64_sys_msgsnd

Memory that the kernel uses for a while is not a leak. Let the run be long, leave out what is young with --older, and look
for call chains whose bytes grow from one run to the next. Memory that is allocated before the run is not seen.
-p PID and --exec COMMAND select the tasks that allocate; where it is freed does not matter. Some functions of the kernel
free memory without an event, such as those that free many objects at once: it is shown until it is allocated again.

The memory of a program itself is not here: mallocleak.py -p PID shows what it takes from malloc().
"""
from __future__ import annotations

from perf_prof import CallChains, Count, Sum, at_least, print
from perf_prof.script import Options, first_rows, say_missing

options = Options(__doc__, top=10, rows="call chains")
options.add_argument("--older", type=at_least(0), default=0, metavar="MS", help="only memory that is at least MS ms old")
args = options.parse()

sizes = Sum("bytes", by="_stack", where=f"duration >= {args.older * 10**6}")
counts = Count("_stack", where=f"duration >= {args.older * 10**6}")
alloc = sizes, counts
chains = CallChains()


def __exit__() -> None:
    for chain in sizes:
        chains.note(chain.split(";") if chain else [])
    chains.say()
    first, more = first_rows(sizes.items(), args.top, lambda row: (-row[1], row[0]))
    for chain, size in first:
        print(f"{size:,} bytes in {counts[chain]:,} allocations")
        for frame in reversed(chain.split(";")):
            print(f"        {frame.removesuffix('_[k]').removesuffix('_[python]')}")
    total, number = sizes.total, counts.total
    print(f"{total:,} bytes of the kernel in {number:,} allocations of {len(sizes)} call chains are not freed{more}")
    print("(memory of programs is not counted: mallocleak.py -p PID shows that of malloc())")
    say_missing()
