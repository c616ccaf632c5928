#!/usr/bin/env -S perf-prof python -q --order -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch
"""Run-queue latency: how long runnable tasks waited for a CPU, as one histogram (powers of two) for each command.

usage: runqlat.py [OPTION of perf-prof python]... [--comm NAME] [--pid PID] [--all]

The wait starts when a task is woken up, or when it leaves its CPU and is still runnable. It ends when a CPU switches to
the task. With -i 1000, histograms are printed every second, else once at the end.

Needs --order, which the script's first line has: a wake-up and the switch that ends the wait may happen on different
CPUs. A wake-up is an event of the task that wakes the other task up, so the script has to see the events of all tasks:
select tasks with --comm and --pid, not with -p, -t or --exec.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch -- sleep 10
    runqlat.py --input perf.data --jobs 2
"""
import argparse
import time
from collections import Counter, defaultdict

from perf_prof import Log2Hist, Parts, States, print

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--pid", type=int, help="only the task with this thread id")
parser.add_argument("--all", action="store_true", help="one histogram for all commands together")
parser.add_argument("--usage", action="help", help="show this text (--help shows the options of perf-prof)")
args = parser.parse_args()

# What is missing in the result if the recording does not have this event.
__without__ = {"sched:sched_wakeup_new": "the first wait of each new task is not counted"}

counts = Counter()  # for the whole run, with the key "unpaired"


def show(histograms, end):
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    for command, histogram in sorted(histograms.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{command}: {len(histogram)} waits")
        histogram.print()
        print()
    if not histograms:
        print("no waits seen")


parts = Parts(lambda: defaultdict(Log2Hist), show, counts)  # each table: from command to the histogram of its waits
waiting = States(parts)  # tid -> when its wait started


@waiting.step
def woken(now, tid):
    waiting.setdefault(tid, now)


@waiting.ends
def came(now, tid, command):
    since = waiting.pop(tid, None)
    if args.pid not in (None, tid) or args.comm not in (None, command):
        return
    if since is None:
        counts["unpaired"] += 1
    else:
        parts.table["all commands" if args.all else command].add(max(now - since, 0) / 1000)


@waiting.sets
def left(now, tid, runnable):
    if runnable:
        waiting[tid] = now
    else:
        # The task goes to sleep. An earlier wake-up has no effect.
        waiting.pop(tid, None)


def sched__sched_wakeup(event):
    woken(event._time, event.pid)


# Not __sample__, because a recording may have other events too.
sched__sched_wakeup_new = sched__sched_wakeup


def sched__sched_switch(event):
    now = event._time
    tid = event.next_pid
    if tid:
        came(now, tid, event.next_comm)
    # 0 is TASK_RUNNING, 0x100 is preempted (TASK_REPORT_MAX, include/linux/sched.h): the task waits from now on.
    state = event.prev_state
    tid = event.prev_pid
    if tid:
        left(now, tid, state == 0 or state & 0x100 != 0)


def __lost__(lost_start, lost_end):
    # A CPU may have switched to a waiting task while events were lost.
    waiting.forget(lost_end)


__interval__ = parts.interval
__partial__ = parts.partial
__merge__ = parts.merge


def __exit__():
    parts.exit()
    if unpaired := counts["unpaired"]:
        print(f"(waits that are not counted, because their start was not seen: {unpaired})")
