#!/usr/bin/env -S perf-prof python -q --order -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch
"""Run-queue latency: how long tasks that could run waited for a CPU, as a histogram of powers of two per command.

usage: runqlat.py [OPTION of perf-prof python]... [--comm NAME] [--pid PID] [--all]

The wait begins when a task is woken up, or when it is taken off its CPU while it could go on, and ends when it is
switched to. With -i 1000 histograms of each second are printed, else one set at the end.

Needs --order (its first line has it): a wake-up and the switch that ends the wait may happen on two CPUs. A wake-up is an
event of the task that causes it, so this has to see all tasks: choose with --comm and --pid, not with -p, -t or --exec.

Of a recording (also perf's own: `perf record` for `perf-prof record`), by two processes side by side:

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch -- sleep 10
    runqlat.py --input perf.data --jobs 2
"""
import argparse
import heapq
import time
from collections import defaultdict

from perf_prof import Log2Hist, realtime, shard

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--pid", type=int, help="only the task with this thread id")
parser.add_argument("--all", action="store_true", help="one histogram for all commands together")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()

# What the result of a recording without this event lacks.
__without__ = {"sched:sched_wakeup_new": "the first wait of each new task is not counted"}

waiting = {}  # tid -> time since which it could run
histograms = defaultdict(Log2Hist)  # command -> its waits
unpaired = 0
tables = 0

# Of a recording that several processes share (--jobs), each sees a part. What a task did before the part begins is known to
# another process: until it is clear whether the task waits, its steps are put off until __merge__ has all parts. Where each
# process has its own CPUs that is never clear.
part = shard()
known = set()  # tasks of which it is clear
put_off = []  # (time, interval, name of the step, its arguments...)
intervals = []  # (when it ended, its histograms)


class Everything:
    def __contains__(self, _):
        return True


def step(function):
    """A step of a task, which depends on those before it."""
    if part is None:
        return function

    def now_or_later(now, tid, *more):
        if tid not in known:
            put_off.append((now, len(intervals), function.__name__, tid, *more))
            if part["split"] == "cpu" or function.__name__ == "woken":
                return
            known.add(tid)
            if function.__name__ == "came":
                return
        function(now, tid, *more)

    return now_or_later


@step
def woken(now, tid):
    waiting.setdefault(tid, now)


@step
def came(now, tid, command):
    global unpaired
    since = waiting.pop(tid, None)
    if args.pid not in (None, tid) or args.comm not in (None, command):
        return
    if since is None:
        unpaired += 1
    else:
        histograms["all commands" if args.all else command].add(max(now - since, 0) / 1000)


@step
def left(now, tid, runnable):
    if runnable:
        waiting[tid] = now
    else:
        # Gone to sleep: a wake-up that came before it slept was for nothing.
        waiting.pop(tid, None)


def sched__sched_wakeup(event):
    woken(event._time, event.pid)


# Not __sample__: a recording may have other events, too.
sched__sched_wakeup_new = sched__sched_wakeup


def sched__sched_switch(event):
    now = event._time
    tid = event.next_pid
    if tid:
        came(now, tid, event.next_comm)
    # 0 is TASK_RUNNING, 0x100 preempted (TASK_REPORT_MAX, include/linux/sched.h): it waits from now on.
    state = event.prev_state
    tid = event.prev_pid
    if tid:
        left(now, tid, state == 0 or state & 0x100 != 0)


def __lost__(lost_start, lost_end):
    global known
    # What waited then may have been switched to in the gap.
    waiting.clear()
    if part:
        put_off.append((lost_end, len(intervals), "lost"))
        if part["split"] == "time":
            known = Everything()


def show(end=None):
    global tables
    tables += 1
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    for command, histogram in sorted(histograms.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{command}: {len(histogram)} waits")
        histogram.print()
        print()
    if not histograms:
        print("no waits seen")
    histograms.clear()


def __interval__():
    if part:
        intervals.append((realtime(), histograms.copy()))
        histograms.clear()
    else:
        show(realtime())


def __partial__():
    # Where the tasks are at the end, of which that is clear.
    tasks = waiting if isinstance(known, Everything) else known
    put_off.extend((put_off[-1][0], len(intervals), "stands", tid, waiting.get(tid)) for tid in tasks)
    return put_off, [*intervals, (None, histograms)], unpaired


def __merge__(partials):
    global histograms, unpaired
    merged = {}  # when an interval ended, None for what comes after the last -> its histograms
    steps = []
    for put_off, intervals, count in partials:
        unpaired += count
        for end, part_of_it in intervals:
            interval = merged.setdefault(end, defaultdict(Log2Hist))
            for command, histogram in part_of_it.items():
                interval[command].update(histogram)
        steps.append([(now, intervals[interval][0], *rest) for now, interval, *rest in put_off])
    for now, end, name, *rest in heapq.merge(*steps, key=lambda step: step[0]):
        histograms = merged[end]
        STEPS[name](now, *rest)
    last = merged.pop(None)
    for end, histograms in merged.items():
        show(end)
    histograms = last


def stands(now, tid, since):
    if since is None:
        waiting.pop(tid, None)
    else:
        waiting[tid] = since


STEPS = {"woken": woken, "came": came, "left": left, "lost": lambda now: waiting.clear(), "stands": stands}


def __exit__():
    if histograms or not tables:
        show()
    if unpaired:
        print(f"({unpaired} waits whose beginning was not seen are not counted)")
