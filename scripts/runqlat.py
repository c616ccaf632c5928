#!/usr/bin/env -S perf-prof python -q --order --all-cpus -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch
"""Run-queue latency: how long runnable tasks waited for a CPU, as a histogram for each command and a row for each task.

usage: runqlat.py [OPTION of perf-prof python]... [--top N] [--comm NAME] [--pid PID] [--tid TID] [--all]

The wait starts when a task is woken up, or when it leaves its CPU and is still runnable. It ends when a CPU switches to
the task. With -i 1000, histograms are printed every second, else once at the end. Each histogram counts in powers of
two. In the rows of tasks, P50 and P99 are at most 1 % too high, and MAX is exact.

-p PID, -t TID, --cgroups NAME and --exec COMMAND select the tasks that wait, with the processes that they create or the cgroups
below. The script's first line has --all-cpus for that, because a wake-up is an event of the task that wakes the other one up.
--pid selects a process without those that it creates, and --tid a thread; a live run with -p ends with the process, a run with
--pid does not. All of these options work with --input too.

If events of a CPU are lost, the tasks that waited for this CPU may have run unseen. Their waits are not counted, nor is a wait
whose task was woken again before a switch to it was seen. The last lines say how many there were, and how many switches were
not seen: some kernels do not trace all. Needs --order, as in the first line: wake-up and switch may happen on different CPUs.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch -- sleep 10
    runqlat.py --input perf.data --jobs 2
"""
from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from perf_prof import Log2Hist, PerfEvent, print
from perf_prof.script import Columns, Options, Percentiles, Report, Switches, Waits, counted, first_rows, is_selected

options = Options(__doc__, top=10, least=0, rows="rows of tasks; 0: none", comm=True, task=True)
options.add_argument("--all", action="store_true", help="one histogram for all commands together")
args = options.parse()
__without__ = {"sched:sched_wakeup_new": "the first wait of each new task is not counted"}


def new_waits() -> dict[str, Any]:
    return {"histogram": Log2Hist("usecs"), "tasks": defaultdict(Percentiles)}  # "tasks" by (command, thread id)


def show(table: dict[str, Any]) -> None:
    tasks: dict[tuple[str, int], Percentiles] = {}
    for command, waits in sorted(table.items(), key=lambda row: (-len(row[1]["histogram"]), row[0])):
        print(f"{command}: {len(waits['histogram'])} waits")
        waits["histogram"].print()
        print()
        tasks.update(waits["tasks"])
    if not table:
        print("no waits seen")
    elif args.top:
        rows, more = first_rows(tasks.items(), args.top, lambda row: (-row[1].longest, row[0]))
        cells = ((*task, len(waits), waits.percentile(50), waits.percentile(99), waits.longest) for task, waits in rows)
        columns.print(cells, f"{counted(len(tasks), 'task')}{more}")


counts: Counter[str] = Counter()  # for the whole run
times = {title: (f"{title} us", ">10.1f", lambda ns: ns / 1000) for title in ("P50", "P99", "MAX")}
columns = Columns(False, comm=("COMM", "<16"), tid=("TID", ">8"), waits=("WAITS", ">8"), **times)
report = Report(lambda: defaultdict(new_waits), show, counts, notes={
    "unpaired": "waits that are not counted, because their start was not seen",
    "untold": "waits that are not counted, because events were lost or not read during them",
    "again": "waits that are not counted, because the task was woken again before a switch to it was seen",
    "unseen": "switches that were not seen, by losses, a filter or the kernel: {} or more; waits may be missing or wrong".format,
})  # fmt: skip
waiting, switches = Waits(report, counts), Switches(report, counts, lambda tid: is_selected(args, tid))
__interval__, __partial__, __merge__, __exit__, __lost__ = *report.callbacks, waiting.lost


@waiting.ends
def came(now: int, tid: int, command: str) -> None:
    if args.comm not in (None, command):
        waiting.pop(tid, None)
    elif tid not in waiting:
        counts["unpaired"] += 1
    elif wait := waiting.end(now, tid):
        waits = report.table["all commands" if args.all else command]
        waits["histogram"].add(max(wait[0], 0) / 1000)
        waits["tasks"][command, tid].add(max(wait[0], 0))


def sched__sched_wakeup(event: PerfEvent) -> None:
    if is_selected(args, event.pid):
        waiting.woken(event._time, event.pid, event.target_cpu)


sched__sched_wakeup_new = sched__sched_wakeup


def sched__sched_switch(event: PerfEvent) -> None:
    switches.note(event)
    now, coming, leaving, state = event._time, event.next_pid, event.prev_pid, event.prev_state
    if coming and is_selected(args, coming):
        came(now, coming, event.next_comm)
    if leaving and is_selected(args, leaving):
        # TASK_RUNNING is 0, and 0x100 means preempted (TASK_REPORT_MAX, include/linux/sched.h): the wait starts.
        if state == 0 or state & 0x100:
            waiting.begins(now, leaving, event._cpu)
        else:  # The task does not wait for a CPU: an earlier wakeup no longer counts.
            waiting.drops(now, leaving)
