#!/usr/bin/env -S perf-prof python -q --order -g --user-callchain -e sched:sched_switch
"""Time off CPU by stack: where tasks were while they slept, waited or stood in the run queue, and for how long.

usage: offcpu.py [OPTION of perf-prof python]... [--top N] [--flame FILE] [--comm NAME] [--pid PID] [--state STATE] [--min US]

The stack is that of the task as it left its CPU. The time ends when the task is back on one, so a task that never comes
back is not in it. With -i 1000 a table of each second is printed, else one at the end; the flame graph (FILE.svg, or
FILE.folded for text) is of the whole run.

Needs --order (its first line has it): a task leaves one CPU and may come back on another. That it comes back is an event
of the task that was there before, so this has to see all tasks: choose with --comm and --pid, not with -p, -t or --exec.

Of a recording (also perf's own: `perf record` for `perf-prof record`), by two processes side by side:

    perf-prof record -a -g -e sched:sched_switch -- sleep 10
    offcpu.py --input perf.data --jobs 2
"""
import argparse
import heapq
import os
import sys
import time

from perf_prof import FlameGraph, realtime, shard

# By the bits of prev_state (include/linux/sched.h): without one it could go on, as it could with that for preempted.
STATES = {
    "any": lambda state: True,
    "interruptible": lambda state: state & 1,
    "uninterruptible": lambda state: state & 2,
    "runnable": lambda state: not state & 0xFF,
}

# EXIT_DEAD and EXIT_ZOMBIE: the next task that comes to a CPU with this number is another one.
EXITED = 0x10 | 0x20

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--top", type=int, default=10, metavar="N", help="stacks of a table (default: 10)")
parser.add_argument("--flame", metavar="FILE", help="write a flame graph: FILE.svg, or FILE.folded as text")
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--pid", type=int, help="only the threads of this process")
parser.add_argument("--state", choices=STATES, default="any", help="only tasks that left in this state (default: any)")
parser.add_argument("--min", type=int, default=0, metavar="US", help="only times of at least so many microseconds")
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

in_state = STATES[args.state]
left = {}  # tid -> the event with which it left its CPU
table = FlameGraph()
whole = FlameGraph(colors="offcpu", count_name="us") if args.flame else None
tables = 0
returns = 0
has_frames = None  # whether a stack had any; None as long as there was no stack

# Of a recording that several processes share (--jobs), each sees a part. Which tasks were away before the part begins is known
# to another process: that one of them came back is put off until __merge__ has all parts. Where each process has its own CPUs
# that is so of all tasks.
part = shard()
known = set()  # tasks of which it is clear whether they are away
put_off = []  # (time, interval, name of the step, its arguments...)
moment = 0  # when it last became clear of a task
intervals = []  # (when it ended, its table)


class Everything:
    def __contains__(self, _):
        return True


def step(function):
    """A step of a task, which depends on those before it."""
    if part is None:
        return function

    def now_or_later(now, tid, *more):
        global moment
        if tid not in known:
            moment = now
            if part["split"] == "cpu" or function.__name__ == "came":
                put_off.append((now, len(intervals), function.__name__, tid, *more))
            if part["split"] == "cpu":
                return
            known.add(tid)
        function(now, tid, *more)

    return now_or_later


@step
def came(now, tid):
    global returns
    began = left.pop(tid, None)
    if began is not None:
        us = (now - began._time) // 1000
        if us >= args.min:
            returns += 1
            table.add(began, us)
            if whole is not None:
                whole.add(began, us)


@step
def leaves(now, tid, event):
    left[tid] = event


def sched__sched_switch(event):
    if event.next_pid:
        came(event._time, event.next_pid)
    tid = event.prev_pid
    if (
        tid
        and not event.prev_state & EXITED
        and in_state(event.prev_state)
        and (args.comm is None or args.comm == event.prev_comm)
        and (args.pid is None or args.pid == event._pid)
    ):
        leaves(event._time, tid, event)


def __lost__(lost_start, lost_end):
    global known, moment
    # What left its CPU before may have been back and away again in the gap.
    left.clear()
    if part:
        moment = lost_end
        put_off.append((lost_end, len(intervals), "lost"))
        if part["split"] == "time":
            known = Everything()


def duration(us):
    """1234567 -> '1.235 s'"""
    return f"{us / 10**6:.3f} s" if us >= 10**6 else f"{us / 10**3:.3f} ms"


def say_without_frames(stacks):
    """A table of tasks alone looks as if it were right."""
    global has_frames
    if stacks and has_frames is None:
        has_frames = any(";" in frames for frames, _, _ in stacks)
        if not has_frames:
            print("offcpu.py: no call chains, so stacks are empty: -g has them (perf-prof record -g)", file=sys.stderr)


def show(end=None):
    global table, tables
    tables += 1
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    stacks = [line.rpartition(" ") for line in table.folded().splitlines()]
    say_without_frames(stacks)
    stacks.sort(key=lambda stack: (-int(stack[2]), stack[0]))
    for frames, _, us in stacks[: args.top]:
        task, *frames = frames.split(";")
        print(f"{duration(int(us)):>12} {int(us) / table.total:>7.1%}  {task}")
        for frame in reversed(frames):
            print(f"{'':>24}{frame.removesuffix('_[k]')}")
    hidden = len(stacks) - args.top
    more = f", {hidden} more with a larger --top" if hidden > 0 else ""
    # Whoever runs on a task's CPU meanwhile tells of its return.
    is_blind = end is None and left and not returns
    blind = "; with -p, -t or --exec nobody is seen to come back: use --pid or --comm" if is_blind else ""
    print(f"{duration(table.total)} off CPU in {len(stacks)} stacks{more}{blind}\n")
    table = FlameGraph()


def __interval__():
    global table
    if part:
        intervals.append((realtime(), table))
        table = FlameGraph()
    else:
        show(realtime())


def __partial__():
    # Where the tasks are at the end, of which that is clear.
    tasks = left if isinstance(known, Everything) else known
    put_off.extend((moment, len(intervals), "stands", tid, left.get(tid)) for tid in tasks)
    return put_off, [*intervals, (None, table)], whole, returns


def __merge__(partials):
    global table, returns
    merged = {}  # when an interval ended, None for what comes after the last -> its table
    steps = []
    for put_off, intervals, part_of_whole, count in partials:
        returns += count
        if whole is not None:
            whole.update(part_of_whole)
        for end, part_of_it in intervals:
            merged.setdefault(end, FlameGraph()).update(part_of_it)
        steps.append([(now, intervals[interval][0], *rest) for now, interval, *rest in put_off])
    for now, end, name, *rest in heapq.merge(*steps, key=lambda step: step[0]):
        table = merged[end]
        STEPS[name](now, *rest)
    last = merged.pop(None)
    for end, table in merged.items():
        show(end)
    table = last


def stands(now, tid, event):
    if event is None:
        left.pop(tid, None)
    else:
        left[tid] = event


STEPS = {"came": came, "leaves": leaves, "lost": lambda now: left.clear(), "stands": stands}


def __exit__():
    if table or not tables:
        show()
    if whole:
        whole.save(args.flame)
        print(f"{args.flame}: {duration(whole.total)} in {len(whole)} stacks")
    elif args.flame:
        print(f"{args.flame}: not written, no task came back to a CPU")
