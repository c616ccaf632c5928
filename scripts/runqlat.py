#!/usr/bin/env -S perf-prof python -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch --order
"""Run-queue latency: how long tasks that could run waited for a CPU, as a histogram of powers of two per command.

usage: runqlat.py [OPTION of perf-prof python]... [--comm NAME] [--pid PID] [--all]

The wait begins when a task is woken up, or when it is taken off its CPU while it could go on, and ends when it is
switched to. With -i MS a histogram of each interval is printed, else one at the end. Needs --order: a wake-up and the
switch that ends it may happen on two CPUs.
"""
import argparse

parser = argparse.ArgumentParser(
    description="Run-queue latency per command.", usage="runqlat.py [--comm NAME] [--pid PID] [--all]"
)
parser.add_argument("--comm", help="only tasks of this name")
parser.add_argument("--pid", type=int, help="only the task with this thread id")
parser.add_argument("--all", action="store_true", help="one histogram for all commands together")
args = parser.parse_args()

BAR = 40

waiting = {}  # tid -> time since which it could run
histograms = {}  # command -> [count of waits below 2**n microseconds]
unpaired = 0


def __sample__(event):  # the two wake-ups
    waiting.setdefault(event.pid, event._time)


def sched__sched_switch(event):
    global unpaired
    time = event._time
    tid = event.next_pid
    if tid:
        since = waiting.pop(tid, None)
        if since is None:
            unpaired += 1
        elif (args.pid is None or args.pid == tid) and (args.comm is None or args.comm == event.next_comm):
            record("all commands" if args.all else event.next_comm, time - since)
    # TASK_RUNNING, or preempted (the bit above all states): it waits from now on.
    state = event.prev_state
    prev = event.prev_pid
    if prev:
        if state == 0 or state & 0x100:
            waiting[prev] = time
        else:
            # Gone to sleep: a wake-up that came before it slept was for nothing.
            waiting.pop(prev, None)


def record(command, ns):
    slot = max(ns // 1000, 0).bit_length()
    counts = histograms.setdefault(command, [])
    counts.extend([0] * (slot + 1 - len(counts)))
    counts[slot] += 1


def __lost__(lost_start, lost_end):
    # What waited then may have been switched to in the gap.
    waiting.clear()


def show():
    for command, counts in sorted(histograms.items(), key=lambda item: -sum(item[1])):
        most = max(counts)
        print(f"{command}: {sum(counts)} waits")
        print(f"{'usecs':>24} : {'count':<9} distribution")
        first = next(slot for slot, count in enumerate(counts) if count)
        for slot in range(first, len(counts)):
            low, high = (1 << slot >> 1, (1 << slot) - 1)
            bar = "*" * (counts[slot] * BAR // most)
            print(f"{low:>10} -> {high:<10} : {counts[slot]:<9} |{bar:<{BAR}}|")
        print()
    if not histograms:
        print("no waits seen")
    histograms.clear()


def __interval__():
    show()


def __exit__():
    if histograms:
        show()
    if unpaired:
        print(f"({unpaired} switches to tasks that were waiting before the start)")
