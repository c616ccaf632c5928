#!/usr/bin/env -S perf-prof python -q --no-user-callchain -e alloc/open==1/open/stack/
"""Memory that was allocated during the run and is not freed at its end: bytes by call chain, of the kernel or of malloc().

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

For the memory of a program, probes on malloc() and free() take the place of the first line of the script:

    perf-prof python -q --order -e 'uprobe:malloc@libc//bytes=arg1:u64/stack/' -e 'uretprobe:malloc@libc//ptr=retval/' \\
        -e 'uprobe:free@libc//ptr=arg1/' scripts/memleak.py -p 4711

Each call then costs a few microseconds. Memory of calloc() and realloc() is not seen. A program without frame pointers
needs --call-graph dwarf for its call chains.
"""
from __future__ import annotations

from typing import Any, NamedTuple

from perf_prof import CallChains, Count, Sum, at_least, print
from perf_prof.script import Options, first_rows

options = Options(__doc__, top=10, rows="call chains")
options.add_argument("--older", type=at_least(0), default=0, metavar="MS", help="only memory that is at least MS ms old")
args = options.parse()

older = args.older * 10**6
# Call chains of the kernel's memory.
kernel_bytes = Sum("bytes", by="_stack", where=f"duration >= {older}")
kernel_count = Count("_stack", where=f"duration >= {older}")
alloc = kernel_bytes, kernel_count


class Memory(NamedTuple):
    """Memory of a program that is not freed."""

    bytes: int
    chain: str
    time: int


chains = CallChains()
asked: dict[int, tuple[int, str]] = {}  # thread -> bytes and call chain of the malloc() that it is in
live: dict[tuple[int, int], Memory] = {}  # process and address
now = 0


def uprobe__malloc(event: Any) -> None:
    chains.note(event._callchain)
    frames = [str(frame["symbol"]) or hex(frame["addr"]) for frame in event._callchain]
    asked[event._tid] = event.bytes, ";".join(reversed(frames)) or f"(no call chain) {event._comm}"


def uretprobe__malloc(event: Any) -> None:
    global now
    now = event._time
    call = asked.pop(event._tid, None)
    if call is not None and event.ptr:
        live[event._pid, event.ptr] = Memory(*call, now)


def uprobe__free(event: Any) -> None:
    global now
    now = event._time
    live.pop((event._pid, event.ptr), None)


def __lost__(lost_start: int, lost_end: int) -> None:
    # Any of the memory may have been freed among the lost events.
    asked.clear()
    live.clear()


def __exit__() -> None:
    rows = {chain: (size, kernel_count[chain]) for chain, size in kernel_bytes.items()}
    for memory in live.values():
        if now - memory.time >= older:
            size, count = rows.get(memory.chain, (0, 0))
            rows[memory.chain] = size + memory.bytes, count + 1
    for chain in kernel_bytes:
        chains.note(chain.split(";") if chain else [])
    chains.say()
    first, more = first_rows(rows.items(), args.top, lambda row: (-row[1][0], row[0]))
    for chain, (size, count) in first:
        print(f"{size:,} bytes in {count:,} allocations")
        for frame in reversed(chain.split(";")):
            print(f"        {frame.removesuffix('_[k]')}")
    total, count = (sum(row[at] for row in rows.values()) for at in (0, 1))
    print(f"{total:,} bytes in {count:,} allocations of {len(rows)} call chains are not freed{more}")
