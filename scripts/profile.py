#!/usr/bin/env -S perf-prof python -q --order -e profile/-g/
"""What the CPUs execute: the functions that take the most time, by themselves and with what they call.

usage: profile.py [OPTION of perf-prof python]... [--top N] [--sort self|total] [--by-pid] [--flame FILE]

For one process: profile.py -p PID; for a command: profile.py --exec COMMAND ARGS... The command's programs need frame
pointers for TOTAL to be right; for those without: profile.py --call-graph dwarf. -F HZ samples as often as that a second
instead of 997 times. With -i 1000 a table of each second is printed, else one at the end; the flame graph (FILE.svg, or
FILE.folded for text) is of the whole run.

Needs --order (its first line has it): what a process maps where is told by the CPU on which it does so, and has to come
before the samples of another one.

Of a recording (also perf's own, of cycles or cpu-clock: `perf record` for `perf-prof record -e profile`), by two processes:

    perf-prof record -e profile -g -a -- sleep 10
    profile.py --input perf.data --jobs 2
"""
import argparse
import os
import sys
import time
from collections import defaultdict

from perf_prof import FlameGraph, realtime, shard

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
parser.add_argument("--sort", choices=("self", "total"), default="self", help="what the rows are sorted by (default: self)")
parser.add_argument("--by-pid", action="store_true", help="one row for each process and function")
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


class Row:
    """One function's share."""

    __slots__ = ("own", "total", "samples")

    def __init__(self):
        self.own = 0  # what was counted while it was executed
        self.total = 0  # the same, and while it waited for what it called
        self.samples = 0

    def add(self, other):
        self.own += other.own
        self.total += other.total
        self.samples += other.samples


rows = defaultdict(Row)
samples = weight = 0
graph = FlameGraph() if args.flame else None
tables = 0
has_frames = None  # whether a sample had any; None as long as there was no sample
# Of a recording that several processes share (--jobs), each sees a part of it, and of the table of an interval.
intervals = []  # (when it ended, its rows, samples and weight)


def profile(event):
    global samples, weight
    # Samples do not stand for equally much: the kernel changes the period to hold the frequency.
    period = event.period
    samples += 1
    weight += period
    pid = event._pid if args.by_pid else None
    seen = set()  # a function that calls itself has its time once
    for frame in event._callchain:
        key = pid, frame["symbol"], frame["dso"]
        if key not in seen:
            row = rows[key]
            if not seen:
                row.own += period
                row.samples += 1
            row.total += period
            seen.add(key)
    if graph is not None:
        graph.add(event)


def function(symbol, dso):
    """A function and the name of its file; all of a file that has no names is one row."""
    file = dso.rpartition("/")[2] if dso.startswith("/") else dso
    return f"[unknown] ({file})" if symbol == "Unknown" else f"{symbol} ({file})"


def counted():
    """What was counted since the last table."""
    global samples, weight
    of_table = rows.copy(), samples, weight
    rows.clear()
    samples = weight = 0
    return of_table


def say_without_frames():
    """A table without functions looks as if nothing had run."""
    global has_frames
    if samples and has_frames is None:
        has_frames = bool(rows)
        if not has_frames:
            print("profile.py: no call chains, so no functions: -g has them (perf-prof record -g)", file=sys.stderr)


def show(end=None):
    global tables
    tables += 1
    say_without_frames()
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    rows, samples, weight = counted()
    pid = f"{'PID':>8} " if args.by_pid else ""
    print(f"{pid}{'SELF':>7} {'TOTAL':>7} {'SAMPLES':>8}  FUNCTION")
    by = (lambda row: (-row.own, -row.total)) if args.sort == "self" else (lambda row: (-row.total, -row.own))
    order = sorted(rows.items(), key=lambda item: (*by(item[1]), item[0]))
    for (process, symbol, dso), row in order[: args.top]:
        pid = f"{process:>8} " if args.by_pid else ""
        shares = f"{row.own / weight:>7.1%} {row.total / weight:>7.1%}"
        print(f"{pid}{shares} {row.samples:>8}  {function(symbol, dso)}")
    hidden = len(order) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    print(f"{samples} samples in {len(order)} functions{more}\n")


def __interval__():
    if shard():
        intervals.append((realtime(), *counted()))
    else:
        show(realtime())


def __partial__():
    return [*intervals, (None, *counted())], graph


def __merge__(partials):
    global rows, samples, weight
    merged = {}  # when an interval ended, None for what comes after the last -> its rows, samples and weight
    for of_intervals, of_run in partials:
        for end, *part in of_intervals:
            whole = merged.setdefault(end, [defaultdict(Row), 0, 0])
            for key, row in part[0].items():
                whole[0][key].add(row)
            whole[1:] = whole[1] + part[1], whole[2] + part[2]
        if graph is not None:
            graph.update(of_run)
    last = merged.pop(None)
    for end, (rows, samples, weight) in merged.items():
        show(end)
    rows, samples, weight = last


def __exit__():
    if rows or not tables:
        show()
    if graph:
        graph.save(args.flame)
        print(f"{args.flame}: {graph.total} samples in {len(graph)} stacks")
    elif graph is not None:
        print(f"{args.flame}: not written, there were no samples")
