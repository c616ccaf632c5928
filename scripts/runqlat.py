#!/usr/bin/env -S perf-prof python -q --order --all-cpus -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch
"""Run-queue latency: how long runnable tasks waited for a CPU, as a histogram for each command and a row for each task.

usage: runqlat.py [OPTION of perf-prof python]... [--top N] [--comm NAME] [--pid PID] [--tid TID] [--all]

The wait starts when a task is woken up, or when it leaves its CPU and is still runnable. It ends when a CPU switches to
the task. With -i 1000, histograms are printed every second, else once at the end. Each histogram counts in powers of
two. In the rows of tasks, P50 and P99 are at most 1 % too high, and MAX is exact.

-p PID, -t TID, --cgroups NAME and --exec COMMAND select the tasks that wait: all threads of the processes, and the processes
that they create, or the tasks in the cgroup and in those below it. For this, the first line of the script has --all-cpus: a wake-up is an event of the task that wakes the other
task up, so the script has to see the events of all tasks. --pid selects a process without the processes that it creates, and
--tid a thread. A live run with -p ends with the process, a run with --pid does not. All of them work with --input too.

If events of a CPU are lost, the tasks that waited for this CPU may have run unseen. Their waits are not counted, and the
last lines say how many there were. Another line counts switches that were not seen: some kernels do not trace all of
them.

Needs --order, which the script's first line has: a wake-up and the switch that ends the wait may happen on different
CPUs.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch -- sleep 10
    runqlat.py --input perf.data --jobs 2
"""
from __future__ import annotations

from collections import Counter, defaultdict

from perf_prof import Log2Hist, Losses, PerfEvent, States, at_least, is_target, print, process_of
from perf_prof.script import Options, Percentiles, Report, Switches, counted, first_rows

options = Options(__doc__, comm=True)
options.add_argument("--top", type=at_least(0), default=10, metavar="N", help="number of rows of tasks; 0: none (default: 10)")
options.add_argument("--pid", type=at_least(1), help="only the threads of this process")
options.add_argument("--tid", type=at_least(1), help="only this thread")
options.add_argument("--all", action="store_true", help="one histogram for all commands together")
args = options.parse()

# What is missing in the result if the recording does not have this event.
__without__ = {"sched:sched_wakeup_new": "the first wait of each new task is not counted"}

counts: Counter[str] = Counter()  # for the whole run, with the keys "unpaired", "unseen" and "untold"


class Table:
    """The waits of an interval."""

    def __init__(self) -> None:
        self.commands: defaultdict[str, Log2Hist] = defaultdict(Log2Hist)
        self.tasks: defaultdict[tuple[str, int], Percentiles] = defaultdict(Percentiles)  # from (command, thread id)

    def __len__(self) -> int:
        return len(self.commands)

    def update(self, other: Table) -> None:
        for command, histogram in other.commands.items():
            self.commands[command].update(histogram)
        for task, waits in other.tasks.items():
            self.tasks[task].update(waits)


def us(ns: int) -> str:
    return f"{ns / 1000:.1f}"


def show(table: Table) -> None:
    for command, histogram in sorted(table.commands.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{command}: {len(histogram)} waits")
        histogram.print()
        print()
    if not table.commands:
        print("no waits seen")
        return
    if args.top > 0:
        rows, more = first_rows(table.tasks.items(), args.top, lambda row: (-row[1].longest, row[0]))
        print(f"{'COMM':<16} {'TID':>8} {'WAITS':>8} {'P50 us':>10} {'P99 us':>10} {'MAX us':>10}")
        for (command, tid), waits in rows:
            p50, p99, longest = us(waits.percentile(50)), us(waits.percentile(99)), us(waits.longest)
            print(f"{command:<16} {tid:>8} {len(waits):>8} {p50:>10} {p99:>10} {longest:>10}")
        print(f"{counted(len(table.tasks), 'task')}{more}\n")


parts = Report(Table, show, counts)
waiting = States(parts)  # tid -> (when its wait started, the CPU in whose run queue it is)
losses = Losses(parts)
switches = Switches(parts, counts)


def wanted(tid: int) -> bool:
    return is_target(tid) and args.tid in (None, tid) and (args.pid is None or args.pid == process_of(tid))


@waiting.step
def woken(now: int, tid: int, cpu: int) -> None:
    since = waiting.get(tid)
    # After a loss, the task may have run and slept since the first wake-up, on any CPU. Then the wait starts now.
    if since is None or losses.since(since[0]):
        waiting[tid] = (now, cpu)


@waiting.ends
def came(now: int, tid: int, command: str) -> None:
    since = waiting.pop(tid, None)
    if args.comm not in (None, command):
        return
    if since is None:
        counts["unpaired"] += 1
    elif losses.since(*since):
        # Events of this CPU were lost. The task may have got the CPU meanwhile.
        counts["untold"] += 1
    else:
        ns = max(now - since[0], 0)
        parts.table.commands["all commands" if args.all else command].add(ns / 1000)
        parts.table.tasks[command, tid].add(ns)


@waiting.sets
def left(now: int, tid: int, runnable: bool, cpu: int) -> None:
    if runnable:
        waiting[tid] = (now, cpu)
    else:
        # The task goes to sleep. An earlier wake-up has no effect.
        waiting.pop(tid, None)


def sched__sched_wakeup(event: PerfEvent) -> None:
    if wanted(event.pid):
        woken(event._time, event.pid, event.target_cpu)


# Not __sample__, because a recording may have other events too.
sched__sched_wakeup_new = sched__sched_wakeup


def sched__sched_switch(event: PerfEvent) -> None:
    switches.note(event)
    now, tid = event._time, event.next_pid
    if tid and wanted(tid):
        came(now, tid, event.next_comm)
    # 0 is TASK_RUNNING, 0x100 is preempted (TASK_REPORT_MAX, include/linux/sched.h): the task waits from now on.
    state = event.prev_state
    tid = event.prev_pid
    if tid and wanted(tid):
        left(now, tid, state == 0 or state & 0x100 != 0, event._cpu)


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


__interval__, __partial__, __merge__, _ = parts.callbacks


def __exit__() -> None:
    parts.exit()
    if unpaired := counts["unpaired"]:
        print(f"(waits that are not counted, because their start was not seen: {unpaired})")
    if untold := counts["untold"]:
        print(f"(waits that are not counted, because events of their CPU were lost meanwhile: {untold})")
    if unseen := counts["unseen"]:
        print(f"(switches that were not seen, by losses, a filter or the kernel: {unseen} or more; waits may be missing or wrong)")
