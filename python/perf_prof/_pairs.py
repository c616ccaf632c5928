"""Begins that wait for their ends, waits of tasks for a CPU, and the task on each CPU, for scripts that pair events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from perf_prof import Losses, Parts, PerfEvent, States


class Pairs(States):
    """What has begun and not ended. Maps a key, such as a thread id, to the time and the CPU of the begin, and to what began.

    begins(now, key, cpu, what) notes a begin, and drops(now, key) removes it. The step for an end (see States) calls end(now,
    key). A script uses the callback:

        __lost__ = pairs.lost

    open() returns how many begins had no end at the end of a recording.

    If events of the CPU of a begin are lost, the end may be among them. Then end() returns None and counts it in
    counts["untold"], and its ns in counts["untold ns"]. Losses of other CPUs do not matter, because most tasks stay on their
    CPU. (Sources drop begins at any loss, see docs/decisions.md.)
    """

    def __init__(self, parts: Parts, counts: Counter[str]) -> None:
        super().__init__(parts)
        self._counts = counts
        self._open_before = 0
        self.losses = Losses(parts)
        self.begins = self.sets(self._begins)
        self.drops = self.sets(self._drops)

    def _begins(self, now: int, key: Any, cpu: int, what: Any = None) -> None:
        self[key] = now, cpu, what

    def _drops(self, now: int, key: Any) -> None:
        self.pop(key, None)

    def end(self, now: int, key: Any) -> tuple[int, Any] | None:
        """Returns the ns since the begin, and what began. Returns None if the begin is not known, or if events were lost."""
        began, cpu, what = self.pop(key, (None, 0, None))
        if began is None:
            return None
        if self.losses.since(began, cpu):
            self._counts["untold"] += 1
            self._counts["untold ns"] += now - began
            return None
        return now - began, what

    def open(self) -> int:
        """Returns how many begins have no end: those of this recording, and those of the recordings before it."""
        return self._open_before + len(self)

    def lost(self, lost_start: int, lost_end: int) -> None:
        """Notes a loss."""
        self.losses.note(lost_end)

    def _leave_recording(self) -> None:
        self._open_before += len(self)
        super()._leave_recording()


class Waits(Pairs):
    """The time since which each task waits for a CPU, by thread id.

    Call begins(now, tid, cpu) when a runnable task leaves its CPU, and woken(now, tid, cpu) when it is woken. A task that is
    woken a second time has run in between, although no switch to it was seen. So its wait starts anew, and end() counts the
    earlier wait in counts["again"].
    """

    # Two wakeups of a task on a CPU within this time in ns are one wakeup: if waker and task are traced separately
    # (record -p), the kernel delivers the event to both.
    _SAME = 10_000

    def __init__(self, parts: Parts, counts: Counter[str]) -> None:
        super().__init__(parts, counts)
        self.woken = self.step(self._woken)

    def _woken(self, now: int, tid: int, cpu: int) -> None:
        began, of, wakeups = self.get(tid, (0, cpu, None))
        # The begin of the wait is not known, or the task may have run and slept since the begin, because events were
        # lost. So the wait starts now.
        if tid not in self or self.losses.since(began):
            self[tid] = now, cpu, 1
        elif wakeups is None:
            # The task was preempted before it slept (ttwu_runnable() in kernel/sched/core.c). Its wait continues.
            self[tid] = began, of, 1
        elif cpu != of or now - began > self._SAME:
            # The last wakeup set the task's state to TASK_RUNNING, and only the task itself changes it. So the task has
            # run since the last wakeup.
            self[tid] = now, cpu, wakeups + 1

    def end(self, now: int, key: Any) -> tuple[int, Any] | None:
        """Returns the ns of the wait, and the number of wakeups. Returns None if the start is not known or events were lost."""
        wait = super().end(now, key)
        if wait is not None and wait[1]:
            self._counts["again"] += wait[1] - 1
        return wait


class Switches(States):
    """The task that runs on each CPU. Switches that were not seen are counted in counts["unseen"].

    Some kernels do not trace all switches, and some are lost or filtered. If a switch does not leave the task to which the CPU
    switched before, there was at least one more. Call note(event) for each sched:sched_switch.

    is_of(tid) says whether the script is about a thread: then only switches from and to these threads count.
    """

    def __init__(self, parts: Parts, counts: Counter[str], is_of: Callable[[int], bool] | None = None) -> None:
        super().__init__(parts)
        self._counts = counts
        self._is_of = is_of
        self._leaves = self.ends(self._task_leaves)
        self._comes = self.sets(self._task_comes)

    def note(self, event: PerfEvent) -> None:
        """Notes a sched:sched_switch."""
        now, cpu = event._time, event._cpu
        self._leaves(now, cpu, event.prev_pid)
        self._comes(now, cpu, event.next_pid)

    def _task_leaves(self, now: int, cpu: int, tid: int) -> None:
        before = self.pop(cpu, tid)
        if before != tid:
            # `before` has left the CPU, and `tid` has come to it.
            self._counts["unseen"] += self._is_of is None or self._is_of(before) or self._is_of(tid)

    def _task_comes(self, now: int, cpu: int, tid: int) -> None:
        self[cpu] = tid
