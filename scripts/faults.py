#!/usr/bin/env -S perf-prof python -q --order -g -e minor-faults,major-faults
"""Page faults: where memory is touched that is not there yet, by function, by stack or by process.

usage: faults.py [OPTION of perf-prof python]... [--by function|stack|process] [--top N] [--sort minor|major|all]
                 [--major] [--flame FILE]

A minor fault finds the page in memory: new memory, or a file's page that another one has read. A major fault waits for a
disk. For one process: faults.py -p PID; for a command: faults.py --exec COMMAND ARGS... MINOR and MAJOR of a function are
the faults in it, TOTAL those in what it calls too; that needs programs with frame pointers, or --call-graph dwarf. With
-i 1000 a table of each second is printed, else one at the end; the flame graph (FILE.svg, or FILE.folded for text) is of
the whole run.

Needs --order (its first line has it): what a process maps where is told by the CPU on which it does so, and has to come
before the faults on another one.

Of a recording (also perf's own: `perf record -c 1` for `perf-prof record`), by two processes side by side:

    perf-prof record -e minor-faults,major-faults -g -- COMMAND
    faults.py --input perf.data --jobs 2
"""
import argparse
import os
import sys
import time
from collections import defaultdict

from perf_prof import FlameGraph, realtime, shard

SORTS = {
    "minor": lambda row: (-row.minor, -row.major, -row.total),
    "major": lambda row: (-row.major, -row.minor, -row.total),
    "all": lambda row: (-row.minor - row.major, -row.total),
}

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument(
    "--by", choices=("function", "stack", "process"), default="function", help="what a row is (default: function)"
)
parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
parser.add_argument("--sort", choices=SORTS, default="all", help="what the rows are sorted by (default: all)")
parser.add_argument("--major", action="store_true", help="major faults only")
parser.add_argument("--flame", metavar="FILE", help="write a flame graph: FILE.svg, or FILE.folded as text")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()
if args.flame:
    # At the end of the run it would be too late to say so.
    folder = os.path.dirname(args.flame) or "."
    if not args.flame.endswith((".svg", ".folded")):
        parser.error(f"--flame {args.flame}: a flame graph is saved as .svg or .folded")
    if os.path.isdir(args.flame):
        parser.error(f"--flame {args.flame}: that is a folder")
    if not os.path.isdir(folder) or not os.access(args.flame if os.path.exists(args.flame) else folder, os.W_OK):
        parser.error(f"--flame {args.flame}: no file can be made in {folder}, nor is one there to be written over")


# What the result of a recording without these events lacks.
__without__ = {"minor-faults": "only major faults are counted", "major-faults": "only minor faults are counted"}
if args.major:
    __without__ = {"minor-faults": None}


class Row:
    """The faults of a function, stack or process."""

    __slots__ = ("minor", "major", "total", "event")

    def __init__(self):
        self.minor = 0
        self.major = 0
        self.total = 0  # of a function: in it, and in what it calls
        self.event = None  # the last one of a process, which knows its name

    def add(self, other):
        self.minor += other.minor
        self.major += other.major
        self.total += other.total
        if knows_better(other.event, self.event):
            self.event = other.event


def knows_better(event, other):
    """A process has the name of its first thread, the last one that it had."""
    if event is None or other is None:
        return event is not None
    first = event._pid == event._tid
    if first != (other._pid == other._tid):
        return first
    return event._time >= other._time if first else event._time < other._time


rows = defaultdict(Row)
all_minor = all_major = 0
graph = FlameGraph("Page faults", count_name="faults") if args.flame else None
tables = 0
has_frames = None  # whether a fault had any; None as long as there was no fault
# Of a recording that several processes share (--jobs), each sees a part of it, and of the table of an interval.
intervals = []  # (when it ended, its rows, minor and major faults)


def places(event):
    """What the fault is counted for, the place itself first."""
    if args.by == "process":
        return [event._pid]
    frames = [(frame["symbol"], frame["dso"]) for frame in event._callchain]
    if args.by == "stack":
        return [tuple(frames)]
    return dict.fromkeys(frames)  # a function that calls itself is counted once


def fault(event, minor, major):
    global all_minor, all_major
    all_minor += minor
    all_major += major
    row = None
    for place in places(event):
        caller = row is not None
        row = rows[place]
        row.total += 1
        if not caller:
            row.minor += minor
            row.major += major
    if args.by == "process" and knows_better(event, row.event):
        row.event = event
    if graph is not None:
        graph.add(event)


if not args.major:

    def minor_faults(event):
        fault(event, 1, 0)


def major_faults(event):
    fault(event, 0, 1)


def function(symbol, dso):
    """A function and the name of its file; all of a file that has no names is one row."""
    file = dso.rpartition("/")[2] if dso.startswith("/") else dso
    return f"[unknown] ({file})" if symbol == "Unknown" else f"{symbol} ({file})"


def name(event):
    """The name of an event's task, also when that has exited."""
    task = FlameGraph()
    task.add(event)
    return task.folded().partition(";")[0]


def counted():
    """What was counted since the last table."""
    global all_minor, all_major
    of_table = rows.copy(), all_minor, all_major
    rows.clear()
    all_minor = all_major = 0
    return of_table


def say_without_frames():
    """A table without functions looks as if there had been no faults."""
    global has_frames
    if args.by != "process" and all_minor + all_major and has_frames is None:
        has_frames = any(rows)
        if not has_frames:
            what = "functions" if args.by == "function" else "stacks"
            print(f"faults.py: no call chains, so no {what}: -g has them (perf-prof record -g)", file=sys.stderr)


def show(end=None):
    global tables
    tables += 1
    say_without_frames()
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    rows, all_minor, all_major = counted()
    head = f"{'MINOR':>9} {'MAJOR':>9}"
    order = sorted(rows.items(), key=lambda item: (SORTS[args.sort](item[1]), item[0]))
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
            print(f"{counts} {place:>9}  {name(row.event)}")
        else:
            print(f"{counts}  " + f"\n{'':>21}".join(function(*frame) for frame in place))
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    print(f"{all_minor} minor and {all_major} major faults{more}\n")


def __interval__():
    if shard():
        intervals.append((realtime(), *counted()))
    else:
        show(realtime())


def __partial__():
    return [*intervals, (None, *counted())], graph


def __merge__(partials):
    global rows, all_minor, all_major
    merged = {}  # when an interval ended, None for what comes after the last -> its rows, minor and major faults
    for of_intervals, of_run in partials:
        for end, *part in of_intervals:
            whole = merged.setdefault(end, [defaultdict(Row), 0, 0])
            for place, row in part[0].items():
                whole[0][place].add(row)
            whole[1:] = whole[1] + part[1], whole[2] + part[2]
        if graph is not None:
            graph.update(of_run)
    last = merged.pop(None)
    for end, (rows, all_minor, all_major) in merged.items():
        show(end)
    rows, all_minor, all_major = last


def __exit__():
    if rows or not tables:
        show()
    if graph:
        graph.save(args.flame)
        print(f"{args.flame}: {graph.total} faults in {len(graph)} stacks")
    elif graph is not None:
        print(f"{args.flame}: not written, there were no faults")
