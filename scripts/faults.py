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

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from perf_prof import CallChains, FlameGraph, PerfEvent, print
from perf_prof.script import Options, ProcessNames, Report, first_rows, function_name, save_flame

SORTS: dict[str, Callable[[Counter[str]], tuple[int, ...]]] = {
    "minor": lambda row: (-row["minor"], -row["major"], -row["total"]),
    "major": lambda row: (-row["major"], -row["minor"], -row["total"]),
    "all": lambda row: (-row["minor"] - row["major"], -row["total"]),
}
BY = {"function": f" {'TOTAL':>9}  FUNCTION", "stack": "  STACK", "process": f" {'PID':>9}  PROCESS"}

options = Options(__doc__, top=20, flame=True)
options.add_argument("--by", choices=BY, default="function", help="what the rows are (default: function)")
options.add_argument("--sort", choices=SORTS, default="all", help="what the rows are sorted by (default: all)")
options.add_argument("--major", action="store_true", help="major faults only")
args = options.parse()
__without__ = {"minor-faults": None if args.major else "only major faults are counted"}
__without__["major-faults"] = "only minor faults are counted"


def new_table() -> dict[str, Any]:
    # places: the faults of each function, stack or process. "total" includes faults in functions that a function calls.
    return {"places": defaultdict(Counter), "names": ProcessNames(), "every": Counter()}


def show(table: dict[str, Any]) -> None:
    chains.say()
    every = table["every"]
    rows, more = first_rows(table["places"].items(), args.top, lambda row: (SORTS[args.sort](row[1]), row[0]))
    print(f"{'MINOR':>9} {'MAJOR':>9}{BY[args.by]}")
    for place, row in rows:
        if args.by == "function":
            what = f" {row['total']:>9}  {function_name(*place)}"
        elif args.by == "stack":
            what = "  " + f"\n{'':>21}".join(function_name(*frame) for frame in place)
        else:
            what = f" {place:>9}  {table['names'].name(place)}"
        print(f"{row['minor']:>9} {row['major']:>9}{what}")
    print(f"{every['minor']} minor and {every['major']} major faults{more}\n")


graph = FlameGraph("Page faults", count_name="faults") if args.flame else None
chains = CallChains("no functions" if args.by == "function" else "no stacks")
report = Report(new_table, show, {"chains": chains} | ({"graph": graph} if graph is not None else {}))
__interval__, __partial__, __merge__, _ = report.callbacks


def fault(event: PerfEvent, kind: str) -> None:
    table = report.table
    table["every"][kind] += 1
    places: Any = [event._pid]
    if args.by == "process":
        table["names"].note(event)
    else:
        chains.note(event._callchain)
        frames = [(frame["symbol"], frame["dso"]) for frame in event._callchain]
        # The first function is where the fault happened. A recursive function is counted once.
        places = [tuple(frames)] if args.by == "stack" else dict.fromkeys(frames)
    for depth, row in enumerate([table["places"][place] for place in places]):
        row["total"] += 1
        row[kind] += depth == 0
    if graph is not None:
        graph.add(event)


if not args.major:
    minor_faults = partial(fault, kind="minor")
major_faults = partial(fault, kind="major")


def __exit__() -> None:
    save_flame(graph, args.flame, "faults", "there were no faults", table=report.exit)
