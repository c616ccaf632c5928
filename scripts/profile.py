#!/usr/bin/env -S perf-prof python -q --order -e profile/-g/
"""CPU profile: the functions that take the most time, by themselves and together with the functions that they call.

usage: profile.py [OPTION of perf-prof python]... [--top N] [--sort self|total] [--by-pid] [--flame FILE]

For one process: profile.py -p PID; for a command: profile.py --exec COMMAND ARGS... TOTAL is right for programs with
frame pointers; for other programs, use profile.py --call-graph dwarf. -F HZ takes HZ samples per second instead of 997.
With -i 1000, a table is printed every second, else one at the end. The flame graph (FILE.svg, or FILE.folded for text)
shows the whole run.

Needs --order, which the script's first line has: a mapping is recorded on the CPU where the process ran at that time.
The script has to get this record before the samples of the process on other CPUs.

To replay a recording in two processes (`perf record -e cycles`, `-e cpu-clock` or `-e task-clock` can be used instead of
`perf-prof record -e profile`):

    perf-prof record -e profile -g -a -- sleep 10
    profile.py --input perf.data --jobs 2
"""
from __future__ import annotations

import argparse
import time
from collections import defaultdict

from perf_prof import CallChains, FlameGraph, Parts, PerfEvent, at_least, print

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=at_least(1), default=20, metavar="N", help="number of rows in a table (default: 20)")
parser.add_argument("--sort", choices=("self", "total"), default="self", help="what the rows are sorted by (default: self)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and function")
parser.add_argument("--flame", metavar="FILE", help="write a flame graph: FILE.svg, or FILE.folded as text")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()
if args.flame:
    # Checked before the run: after it, the collected stacks would be lost.
    try:
        FlameGraph.check(args.flame)
    except (OSError, ValueError) as error:
        parser.error(f"--flame {error}")


class Row:
    """The samples of one function."""

    __slots__ = ("own", "total", "samples")

    def __init__(self) -> None:
        self.own = 0  # the periods of the samples in the function itself
        self.total = 0  # the periods of the samples in the function and in the functions that it called
        self.samples = 0

    def update(self, other: Row) -> None:
        self.own += other.own
        self.total += other.total
        self.samples += other.samples


Place = tuple[int | None, str, str]  # process, function, file


class Table:
    """The samples of an interval."""

    def __init__(self) -> None:
        self.rows: defaultdict[Place, Row] = defaultdict(Row)
        self.samples = 0
        self.weight = 0  # the sum of the periods

    def __len__(self) -> int:
        return len(self.rows)

    def update(self, other: Table) -> None:
        for key, row in other.rows.items():
            self.rows[key].update(row)
        self.samples += other.samples
        self.weight += other.weight


graph = FlameGraph() if args.flame else None
chains = CallChains("no functions")


def function(symbol: str, dso: str) -> str:
    """Returns the name of a function and of its file. All functions without a symbol in a file are one row."""
    file = dso.rpartition("/")[2] if dso.startswith("/") else dso
    return f"[unknown] ({file})" if symbol == "Unknown" else f"{symbol} ({file})"


def show(table: Table, end: int | None) -> None:
    chains.say()
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    pid = f"{'PID':>8} " if args.by_pid else ""
    print(f"{pid}{'SELF':>7} {'TOTAL':>7} {'SAMPLES':>8}  FUNCTION")
    by_self = args.sort == "self"

    def key(item: tuple[Place, Row]) -> tuple[int, int, Place]:
        place, row = item
        return (-row.own, -row.total, place) if by_self else (-row.total, -row.own, place)

    order = sorted(table.rows.items(), key=key)
    for (process, symbol, dso), row in order[: args.top]:
        pid = f"{process:>8} " if args.by_pid else ""
        shares = f"{row.own / table.weight:>7.1%} {row.total / table.weight:>7.1%}"
        print(f"{pid}{shares} {row.samples:>8}  {function(symbol, dso)}")
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    print(f"{table.samples} samples in {len(order)} functions{more}\n")


total: dict[str, CallChains | FlameGraph] = {"chains": chains} | ({"graph": graph} if graph is not None else {})
parts = Parts(Table, show, total)


def profile(event: PerfEvent) -> None:
    table = parts.table
    # Samples are weighted by their periods: the kernel changes the period to keep the frequency.
    period = event.period
    table.samples += 1
    table.weight += period
    pid = event._pid if args.by_pid else None
    seen: set[Place] = set()  # a recursive function is counted once
    frames = event._callchain
    chains.note(frames)
    for frame in frames:
        key = pid, frame["symbol"], frame["dso"]
        if key not in seen:
            row = table.rows[key]
            if not seen:
                row.own += period
                row.samples += 1
            row.total += period
            seen.add(key)
    if graph is not None:
        graph.add(event)


__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge


def __exit__() -> None:
    parts.exit()
    if graph:
        graph.save(args.flame)
        print(f"{args.flame}: {graph.total} samples in {len(graph)} stacks")
    elif graph is not None:
        print(f"{args.flame}: not written, there were no samples")
