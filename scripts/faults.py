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

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from perf_prof import CallChains, FlameGraph, PerfEvent, print
from perf_prof.script import Options, Report, first_rows, function_name, save_flame

SORTS: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "minor": lambda row: (-row.minor, -row.major, -row.total),
    "major": lambda row: (-row.major, -row.minor, -row.total),
    "all": lambda row: (-row.minor - row.major, -row.total),
}
BY = {"function": f" {'TOTAL':>9}  FUNCTION", "stack": "  STACK", "process": f" {'PID':>9}  PROCESS"}

options = Options(__doc__, top=20, flame=True)
options.add_argument("--by", choices=BY, default="function", help="what the rows are (default: function)")
options.add_argument("--sort", choices=SORTS, default="all", help="what the rows are sorted by (default: all)")
options.add_argument("--major", action="store_true", help="major faults only")
args = options.parse()
__without__ = {"minor-faults": None if args.major else "only major faults are counted"}
__without__["major-faults"] = "only minor faults are counted"


class Row:
    """The faults of a function, stack or process. total has also those in the functions that a function calls."""

    minor = major = total = 0
    # The name of a process is the last name of its main thread, or else the first name of another thread.
    named: tuple[tuple[bool, int], PerfEvent | None] = ((False, -(2**63)), None)

    def update(self, other: Row) -> None:
        self.minor += other.minor
        self.major += other.major
        self.total += other.total
        self.named = max(self.named, other.named, key=lambda named: named[0])


def show(table: defaultdict[Any, Row]) -> None:
    chains.say()
    every = table.pop("every", Row())
    rows, more = first_rows(table.items(), args.top, lambda row: (SORTS[args.sort](row[1]), row[0]))
    print(f"{'MINOR':>9} {'MAJOR':>9}{BY[args.by]}")
    for place, row in rows:
        if args.by == "function":
            what = f" {row.total:>9}  {function_name(*place)}"
        elif args.by == "stack":
            what = "  " + f"\n{'':>21}".join(function_name(*frame) for frame in place)
        else:
            what = f" {place:>9}  {row.named[1]._comm if row.named[1] else ''}"
        print(f"{row.minor:>9} {row.major:>9}{what}")
    print(f"{every.minor} minor and {every.major} major faults{more}\n")


graph = FlameGraph("Page faults", count_name="faults") if args.flame else None
chains = CallChains("no functions" if args.by == "function" else "no stacks")
total: dict[str, CallChains | FlameGraph] = {"chains": chains} | ({"graph": graph} if graph is not None else {})
report = Report(lambda: defaultdict(Row), show, total)
__interval__, __partial__, __merge__, _ = report.callbacks


def fault(event: PerfEvent, minor: int, major: int) -> None:
    places: Any = [event._pid]
    if args.by != "process":
        chains.note(event._callchain)
        frames = [(frame["symbol"], frame["dso"]) for frame in event._callchain]
        # The first function is the place of the fault. A recursive function is counted once.
        places = [tuple(frames)] if args.by == "stack" else dict.fromkeys(frames)
    rows = [report.table[place] for place in ("every", *places)]
    for at, row in enumerate(rows):
        row.total += 1
        if at < 2:
            row.minor += minor
            row.major += major
    if args.by == "process":
        is_first = event._pid == event._tid
        rank = is_first, event._time if is_first else -event._time
        if rank > rows[1].named[0]:
            rows[1].named = rank, event
    if graph is not None:
        graph.add(event)


def minor_faults(event: PerfEvent) -> None:
    fault(event, 1, 0)


def major_faults(event: PerfEvent) -> None:
    fault(event, 0, 1)


if args.major:
    del minor_faults


def __exit__() -> None:
    report.exit()
    save_flame(graph, args.flame, "faults", "there were no faults")
