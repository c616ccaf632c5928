#!/usr/bin/env -S perf-prof python -q --order -g -e minor-faults,major-faults
"""Page faults: where programs access pages that are not mapped yet, counted by function, stack or process.

usage: faults.py [OPTION of perf-prof python]... [--by function|stack|process] [--top N] [--sort minor|major|all]
                 [--major] [--flame FILE]

A minor fault needs no disk access: the page is new memory, or it belongs to a file and is in memory already. A major
fault waits for a disk. For one process: faults.py -p PID; for a command: faults.py --exec COMMAND ARGS...

MINOR and MAJOR count the faults in a function itself. TOTAL also counts the faults in the functions that it calls.
TOTAL needs programs with frame pointers, or --call-graph dwarf. With -i 1000, a table is printed every second, else one
at the end. The flame graph (FILE.svg, or FILE.folded for text) shows the whole run.

Needs --order, which the script's first line has: a mapping is recorded on the CPU where the process ran at that time.
The script has to get this record before the faults of the process on other CPUs.

To replay a recording in two processes (`perf record -c 1` can be used instead of `perf-prof record`):

    perf-prof record -e minor-faults,major-faults -g -- COMMAND
    faults.py --input perf.data --jobs 2
"""
from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from perf_prof import CallChains, FlameGraph, Parts, PerfEvent, at_least, print

SORTS: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "minor": lambda row: (-row.minor, -row.major, -row.total),
    "major": lambda row: (-row.major, -row.minor, -row.total),
    "all": lambda row: (-row.minor - row.major, -row.total),
}

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument(
    "--by", choices=("function", "stack", "process"), default="function", help="what the rows are (default: function)"
)
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows in a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="all", help="what the rows are sorted by (default: all)")
parser.add_argument("--major", action="store_true", help="major faults only")
parser.add_argument("--flame", metavar="FILE", help="write a flame graph: FILE.svg, or FILE.folded as text")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()
if args.flame:
    # Checked before the run: after it, the collected stacks would be lost.
    try:
        FlameGraph.check(args.flame)
    except (OSError, ValueError) as error:
        parser.error(f"--flame {error}")


# What is missing in the result if the recording does not have these events.
__without__: dict[str, str | None] = {
    "minor-faults": "only major faults are counted",
    "major-faults": "only minor faults are counted",
}
if args.major:
    __without__ = {"minor-faults": None}


class Row:
    """The faults of a function, stack or process."""

    __slots__ = ("minor", "major", "total", "event")

    def __init__(self) -> None:
        self.minor = 0
        self.major = 0
        self.total = 0  # for a function: the faults in the function and in the functions that it calls
        self.event: PerfEvent | None = None  # for a process: the event from which its name is taken

    def update(self, other: Row) -> None:
        self.minor += other.minor
        self.major += other.major
        self.total += other.total
        if knows_better(other.event, self.event):
            self.event = other.event


def knows_better(event: PerfEvent | None, other: PerfEvent | None) -> bool:
    """Returns whether the name of the process is taken from `event` and not from `other`.

    The last event of the process's first thread is best. Without one, the first event of another thread is used.
    """
    if event is None or other is None:
        return event is not None
    first = event._pid == event._tid
    if first != (other._pid == other._tid):
        return first
    return event._time >= other._time if first else event._time < other._time


class Table:
    """The faults of an interval."""

    def __init__(self) -> None:
        self.rows: defaultdict[Any, Row] = defaultdict(Row)
        self.minor = self.major = 0

    def __len__(self) -> int:
        return len(self.rows)

    def update(self, other: Table) -> None:
        for place, row in other.rows.items():
            self.rows[place].update(row)
        self.minor += other.minor
        self.major += other.major


graph = FlameGraph("Page faults", count_name="faults") if args.flame else None
chains = CallChains("no functions" if args.by == "function" else "no stacks")


def function(symbol: str, dso: str) -> str:
    """Returns the name of a function and of its file. All functions without a symbol in a file are one row."""
    file = dso.rpartition("/")[2] if dso.startswith("/") else dso
    return f"[unknown] ({file})" if symbol == "Unknown" else f"{symbol} ({file})"


def show(table: Table, end: int | None) -> None:
    chains.say()
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    head = f"{'MINOR':>9} {'MAJOR':>9}"
    order = sorted(table.rows.items(), key=lambda item: (SORTS[args.sort](item[1]), item[0]))
    if args.by == "function":
        print(f"{head} {'TOTAL':>9}  FUNCTION")
    elif args.by == "process":
        print(f"{head} {'PID':>9}  PROCESS")
    else:
        print(f"{head}  STACK")
    for place, row in order[: args.top]:
        counts = f"{row.minor:>9} {row.major:>9}"
        if args.by == "function":
            print(f"{counts} {row.total:>9}  {function(*place)}")
        elif args.by == "process":
            print(f"{counts} {place:>9}  {row.event._comm if row.event else ''}")
        else:
            print(f"{counts}  " + f"\n{'':>21}".join(function(*frame) for frame in place))
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    print(f"{table.minor} minor and {table.major} major faults{more}\n")


total: dict[str, CallChains | FlameGraph] = {"chains": chains} | ({"graph": graph} if graph is not None else {})
parts = Parts(Table, show, total)


def places(event: PerfEvent) -> Iterable[Any]:
    """Returns the keys of the rows in which the fault is counted. The first key is the place of the fault, the other
    keys are its callers."""
    if args.by == "process":
        return [event._pid]
    chains.note(event._callchain)
    frames = [(frame["symbol"], frame["dso"]) for frame in event._callchain]
    if args.by == "stack":
        return [tuple(frames)]
    return dict.fromkeys(frames)  # a recursive function is counted once


def fault(event: PerfEvent, minor: int, major: int) -> None:
    table = parts.table
    table.minor += minor
    table.major += major
    row = None
    for place in places(event):
        caller = row is not None
        row = table.rows[place]
        row.total += 1
        if not caller:
            row.minor += minor
            row.major += major
    if row is not None and args.by == "process" and knows_better(event, row.event):
        row.event = event
    if graph is not None:
        graph.add(event)


if not args.major:

    def minor_faults(event: PerfEvent) -> None:
        fault(event, 1, 0)


def major_faults(event: PerfEvent) -> None:
    fault(event, 0, 1)


__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge


def __exit__() -> None:
    parts.exit()
    if graph:
        graph.save(args.flame)
        print(f"{args.flame}: {graph.total} faults in {len(graph)} stacks")
    elif graph is not None:
        print(f"{args.flame}: not written, there were no faults")
