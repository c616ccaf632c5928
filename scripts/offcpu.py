#!/usr/bin/env -S perf-prof python -q --order --all-cpus -g --user-callchain -e sched:sched_switch
"""Time off CPU by stack: where tasks slept, waited or were in the run queue, and for how long.

usage: offcpu.py [OPTION of perf-prof python]... [--top N] [--flame FILE] [--comm NAME] [--pid PID] [--tid TID]
                 [--state STATE] [--min US]

The stack is the task's call chain when it left its CPU. The time off CPU ends when the task is on a CPU again. A task
that does not come back is not counted. With -i 1000, a table is printed every second, else one at the end. The flame
graph (FILE.svg, or FILE.folded for text) shows the whole run.

-p PID, -t TID, --cgroups NAME and --exec COMMAND select the tasks that are off CPU: all threads of the processes, and the
processes that they create, or the tasks in the cgroup and in those below it. For this, the first line of the script has --all-cpus: the event that shows the return of a task
belongs to the other task, which leaves this CPU, so the script has to see the events of all tasks. --pid selects a
process without the processes that it creates, and --tid a thread. A live run with -p ends with the process, a run with
--pid does not. All of them work with --input too.

Stacks of programs without frame pointers, and waits in libc, may lack callers: --call-graph dwarf finds them.

If events of a CPU are lost, the tasks that left this CPU before may have come back and left again unseen. Their times
are not counted, and the last lines say how many there were. Another line counts switches that were not seen: some
kernels do not trace all of them.

Needs --order, which the script's first line has: a task may leave one CPU and come back on another.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -g -e sched:sched_switch -- sleep 10
    offcpu.py --input perf.data --jobs 2
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from perf_prof import CallChains, FlameGraph, Losses, PerfEvent, States, at_least, is_target, print, process_of
from perf_prof.script import Options, Report, Switches, first_rows, save_flame

# Tests of the bits of prev_state (include/linux/sched.h). A runnable task has none of the low eight bits; a preempted
# task is runnable too and has the bit 0x100.
STATES: dict[str, Callable[[int], int]] = {
    "any": lambda state: True,
    "interruptible": lambda state: state & 1,
    "uninterruptible": lambda state: state & 2,
    "runnable": lambda state: not state & 0xFF,
}

# EXIT_DEAD and EXIT_ZOMBIE: the task has exited. If a CPU later switches to the same thread id, it belongs to another
# task.
EXITED = 0x10 | 0x20

options = Options(__doc__, top=10, rows="stacks in a table", comm=True, flame=True)
options.add_argument("--pid", type=at_least(1), help="only the threads of this process")
options.add_argument("--tid", type=at_least(1), help="only this thread")
options.add_argument("--state", choices=STATES, default="any", help="only tasks that left in this state (default: any)")
options.add_argument("--min", type=at_least(0), default=0, metavar="US", help="only times of at least US microseconds")
args = options.parse()

in_state = STATES[args.state]
whole = FlameGraph(colors="offcpu", count_name="us") if args.flame else None
counts: Counter[str] = Counter()  # for the whole run, with the keys "unseen", "untold" and "untold us"
chains = CallChains()


def duration(us: int) -> str:
    """1234567 -> '1.235 s'"""
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
            print(f"{'':>24}{frame.removesuffix('_[k]')}")
    print(f"{duration(table.total)} off CPU in {len(stacks)} stacks{more}\n")


parts = Report(FlameGraph, show, counts)
left = States(parts)  # tid -> the event with which the task left its CPU
losses = Losses(parts)
switches = Switches(parts, counts)


@left.ends
def came(now: int, tid: int) -> None:
    began = left.pop(tid, None)
    if began is None:
        return
    us = (now - began._time) // 1000
    if losses.since(began._time, began._cpu):
        # A task mostly comes back to the CPU that it left. If events of this CPU were lost, the task may have come back
        # and left again with another stack.
        counts["untold"] += 1
        counts["untold us"] += us
        return
    if us >= args.min:
        parts.table.add(began, us)


@left.sets
def leaves(now: int, tid: int, event: PerfEvent | None) -> None:
    """Sets the event with which a task left its CPU. None means that its time off CPU is not counted."""
    if event is None:
        left.pop(tid, None)
    else:
        left[tid] = event


def is_of_process(event: PerfEvent, tid: int) -> bool:
    """Returns whether the task that leaves its CPU belongs to the process of --pid."""
    if args.pid is None:
        return True
    # While a task exits, its events have no process.
    return bool(args.pid == (event._pid if event._pid > 0 else process_of(tid)))


def sched__sched_switch(event: PerfEvent) -> None:
    switches.note(event)
    now, tid = event._time, event.prev_pid
    if event.next_pid:
        came(now, event.next_pid)
    if tid and is_target(tid) and args.tid in (None, tid) and is_of_process(event, tid):
        counted = (
            not event.prev_state & EXITED
            and in_state(event.prev_state)
            and (args.comm is None or args.comm == event.prev_comm)
        )
        leaves(now, tid, event if counted else None)


def __lost__(lost_start: int, lost_end: int) -> None:
    losses.note(lost_end)


__interval__, __partial__, __merge__, _ = parts.callbacks


def __exit__() -> None:
    parts.exit()
    if untold := counts["untold"]:
        print(f"(times that are not counted, because events of their CPU were lost meanwhile: {untold}, at most {duration(counts['untold us'])})")
    if unseen := counts["unseen"]:
        print(f"(switches that were not seen, by losses, a filter or the kernel: {unseen} or more; times may be missing or wrong)")
    save_flame(whole, args.flame, duration, "no task came back to a CPU")
