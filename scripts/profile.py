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

from collections import Counter, defaultdict

from perf_prof import CallChains, FlameGraph, PerfEvent, print
from perf_prof.script import Options, Report, first_rows, function_name, save_flame

options = Options(__doc__, top=20, flame=True)
options.add_argument("--sort", choices=("self", "total"), default="self", help="what the rows are sorted by (default: self)")
options.add_argument("--by-pid", action="store_true", help="one row for each process and function")
args = options.parse()

# (process, function, file) or ALL -> `samples`; `self`, the sum of their periods; `total`, the sum including called
# functions
Table = defaultdict[tuple[int, str, str], Counter[str]]
ALL = (-1, "", "")

graph = FlameGraph("CPU Profile") if args.flame else None
chains = CallChains("no functions")


def show(table: Table) -> None:
    chains.say()
    pid = f"{'PID':>8} " if args.by_pid else ""
    print(f"{pid}{'SELF':>7} {'TOTAL':>7} {'SAMPLES':>8}  FUNCTION")
    whole = table.pop(ALL, Counter())
    other = "total" if args.sort == "self" else "self"
    rows, more = first_rows(table.items(), args.top, lambda row: (-row[1][args.sort], -row[1][other], row[0]))
    for (process, symbol, dso), row in rows:
        pid = f"{process:>8} " if args.by_pid else ""
        shares = f"{row['self'] / whole['self']:>7.1%} {row['total'] / whole['self']:>7.1%}"
        print(f"{pid}{shares} {row['samples']:>8}  {function_name(symbol, dso)}")
    print(f"{whole['samples']} samples in {len(table)} functions{more}\n")


total: dict[str, CallChains | FlameGraph] = {"chains": chains} | ({"graph": graph} if graph is not None else {})
report = Report(lambda: defaultdict(Counter), show, total)
__interval__, __partial__, __merge__, _ = report.callbacks


def profile(event: PerfEvent) -> None:
    frames = event._callchain
    chains.note(frames)
    pid = event._pid if args.by_pid else 0
    # A recursive function is counted once. Samples are weighted by period, because the kernel changes the period to
    # keep the frequency.
    period = event.period
    places = dict.fromkeys([ALL, *((pid, frame["symbol"], frame["dso"]) for frame in frames)])
    for depth, row in enumerate([report.table[place] for place in places]):
        row["total"] += period
        if depth < 2:
            row["self"] += period
            row["samples"] += 1
    if graph is not None:
        graph.add(event)


def __exit__() -> None:
    save_flame(graph, args.flame, "samples", "there were no samples", table=report.exit)
