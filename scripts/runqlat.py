#!/usr/bin/env -S perf-prof python -q --order -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch
"""Run-queue latency: how long tasks that could run waited for a CPU, as a histogram of powers of two per command.

usage: runqlat.py [OPTION of perf-prof python]... [--comm NAME] [--pid PID] [--all]

The wait begins when a task is woken up, or when it is taken off its CPU while it could go on, and ends when it is
switched to. With -i 1000 histograms of each second are printed, else one set at the end.

Needs --order (its first line has it): a wake-up and the switch that ends the wait may happen on two CPUs. A wake-up is an
event of the task that causes it, so this has to see all tasks: choose with --comm and --pid, not with -p, -t or --exec.
"""
import argparse
import time
from collections import defaultdict

from perf_prof import Log2Hist

parser = argparse.ArgumentParser(description="Run-queue latency per command.", add_help=False)
parser.add_argument("--comm", metavar="NAME", help="only tasks of this name")
parser.add_argument("--pid", type=int, help="only the task with this thread id")
parser.add_argument("--all", action="store_true", help="one histogram for all commands together")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()

waiting = {}  # tid -> time since which it could run
histograms = defaultdict(Log2Hist)  # command -> its waits
unpaired = 0
tables = 0


def __sample__(event):  # the two wake-ups
    waiting.setdefault(event.pid, event._time)


def sched__sched_switch(event):
    global unpaired
    now = event._time
    tid = event.next_pid
    if tid:
        since = waiting.pop(tid, None)
        if since is None:
            unpaired += 1
        elif (args.pid is None or args.pid == tid) and (args.comm is None or args.comm == event.next_comm):
            histograms["all commands" if args.all else event.next_comm].add(max(now - since, 0) / 1000)
    # 0 is TASK_RUNNING, 0x100 preempted (TASK_REPORT_MAX, include/linux/sched.h): it waits from now on.
    state = event.prev_state
    prev = event.prev_pid
    if prev:
        if state == 0 or state & 0x100:
            waiting[prev] = now
        else:
            # Gone to sleep: a wake-up that came before it slept was for nothing.
            waiting.pop(prev, None)


def __lost__(lost_start, lost_end):
    # What waited then may have been switched to in the gap.
    waiting.clear()


def show():
    global tables
    tables += 1
    for command, histogram in sorted(histograms.items(), key=lambda item: -len(item[1])):
        print(f"{command}: {len(histogram)} waits")
        histogram.print()
        print()
    if not histograms:
        print("no waits seen")
    histograms.clear()


def __interval__():
    print(time.strftime("%H:%M:%S"))
    show()


def __exit__():
    if histograms or not tables:
        show()
    if unpaired:
        print(f"({unpaired} waits whose beginning was not seen are not counted)")
