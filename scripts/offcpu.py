#!/usr/bin/env -S perf-prof python -q --order --all-cpus -g --user-callchain -e sched:sched_switch
"""Time off CPU by stack: where tasks slept, waited or were in the run queue, and for how long.

usage: offcpu.py [OPTION of perf-prof python]... [--top N] [--flame FILE] [--comm NAME] [--pid PID] [--tid TID]
                 [--state STATE] [--min US]

The stack is the task's call chain when it left its CPU. Stacks of programs without frame pointers, and of waits in libc, may
lack callers: --call-graph dwarf finds them. A time ends when the task is on a CPU again. Times that began before the first event
(with --time: the first in that time) are not in the table, nor those that have not ended; a line says how many tasks had not come
back (offwake.py has both). -i 1000 prints a table every second. The flame graph (FILE.svg or .folded) shows the whole run.

-p PID, -t TID, --cgroups NAME and --exec COMMAND select the tasks that are off CPU, with the processes that they create or the
cgroups below; the first line has --all-cpus for that, because a return is an event of the task that leaves the CPU. --pid is
for a process without those that it creates, and --tid for a thread; a run with --pid does not end with the process.

Times in which events of the CPU were lost are not counted, because the task may have come back unseen; lines say how many, and
how many switches some kernels do not trace. Needs --order (in the first line): a task may come back on another CPU.

To replay a recording in two processes (`perf record` can be used too):

    perf-prof record -a -g -e sched:sched_switch -- sleep 10
    offcpu.py --input perf.data --jobs 2
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from perf_prof import CallChains, FlameGraph, PerfEvent, at_least, print
from perf_prof.script import Options, Pairs, Report, Switches, first_rows, is_selected, save_flame

# Tests of prev_state (include/linux/sched.h). In a runnable task, the low eight bits are 0. Bit 0x100 means preempted.
STATES: dict[str, Callable[[int], int]] = {
    "any": lambda state: True,
    "interruptible": lambda state: state & 1,
    "uninterruptible": lambda state: state & 2,
    "runnable": lambda state: not state & 0xFF,
}
EXITED = 0x10 | 0x20  # EXIT_DEAD and EXIT_ZOMBIE: if a CPU later switches to the same thread id, it is another task.
options = Options(__doc__, top=10, rows="stacks in a table", comm=True, task=True, flame=True)
options.add_argument("--state", choices=STATES, default="any", help="only tasks that left in this state (default: any)")
options.add_argument("--min", type=at_least(0), default=0, metavar="US", help="only times of at least US microseconds")
args = options.parse()
whole, chains = FlameGraph("Off-CPU Time (of waits whose begin and end were seen)", "offcpu", "us") if args.flame else None, CallChains()
counts: Counter[str] = Counter()  # for the whole run


def duration(us: int) -> str:
    return f"{us / 10**6:.3f} s" if us >= 10**6 else f"{us / 10**3:.3f} ms"


def show(table: FlameGraph) -> None:
    if whole is not None:
        whole.update(table)
    stacks = [line.rpartition(" ") for line in table.folded().splitlines()]
    for stack, _, _ in stacks:
        chains.note(stack.split(";")[1:])
    chains.say()
    rows, more = first_rows(stacks, args.top, lambda stack: (-int(stack[2]), stack[0]))
    for stack, _, us in rows:
        task, *frames = stack.split(";")
        print(f"{duration(int(us)):>12} {int(us) / table.total:>7.1%}  {task}")
        for frame in reversed(frames):
            print(f"{'':>24}{frame.removesuffix('_[k]').removesuffix('_[python]')}")
    print(f"{duration(table.total)} off CPU in {len(stacks)} stacks{more}, of waits whose begin and end were seen\n")


report = Report(FlameGraph, show, counts, notes={
    "untold": lambda untold: "times that are not counted, because events were lost or not read during them: "
    f"{untold}, at most {duration(counts['untold ns'] // 1000)}",
    "away": "tasks that had not come back at the end, so that their last times are missing (offwake has them): {}".format,
    "unseen": "switches that were not seen, by losses, a filter or the kernel: {} or more; times may be missing or wrong".format,
})  # fmt: skip
left = Pairs(report, counts)  # with the event at which a task left its CPU
switches = Switches(report, counts, lambda tid: is_selected(args, tid))
__interval__, __partial__, __merge__, _, __lost__ = *report.callbacks, left.lost


@left.ends
def came(now: int, tid: int) -> None:
    ns, began = left.end(now, tid) or (0, None)
    if began is not None and ns // 1000 >= args.min:
        report.table.add(began, ns // 1000)


def sched__sched_switch(event: PerfEvent) -> None:
    switches.note(event)
    now, tid, state = event._time, event.prev_pid, event.prev_state
    if event.next_pid:
        came(now, event.next_pid)
    if tid and is_selected(args, tid, event._pid):
        if not state & EXITED and STATES[args.state](state) and args.comm in (None, event.prev_comm):
            left.begins(now, tid, event._cpu, event)
        else:
            left.drops(now, tid)


def __exit__() -> None:
    counts["away"] = left.open()
    save_flame(whole, args.flame, duration, "no wait that began and ended was seen", report, table=report.exit)
