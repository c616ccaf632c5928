"""Finds the tasks that ended the waits of other tasks, for scripts about locks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from perf_prof import States

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from perf_prof import Parts

# The functions with which x86 and arm64 enter an interrupt. In a call chain, the callers of such a function were
# interrupted.
_ENTRIES = re.compile(r"asm_(sysvec_|common_interrupt).*|ret_from_intr|(apic_timer|common)_interrupt|el[01]\w*_(irq|fiq)")


class Wakers:
    """Finds the tasks that delayed a wait. The task that ended the wait may itself have waited for another task.

        wakers.note(tid, began, ended, waker, "writer 4711")
        wakers.chain(waker, "writer 4711", began, ended)  # for a wait that this waker ended
    """

    _WAITS = 16  # the maximum number of waits per task
    _TASKS = 10_000  # the maximum number of tasks

    def __init__(self) -> None:
        self._waits: dict[int, list[tuple[int, int, int, str]]] = {}

    def note(self, tid: int, began: int, ended: int, waker: int, name: str) -> None:
        """Notes a wait of the task tid that the task waker ended. name is a text about the waker. Times are in ns."""
        waits = self._waits.pop(tid, [])[1 - self._WAITS :]
        self._waits[tid] = [*waits, (began, ended, waker, name)]
        if len(self._waits) > self._TASKS:
            del self._waits[next(iter(self._waits))]

    def chain(self, waker: int, name: str, began: int, ended: int) -> list[str]:
        """Returns texts about the tasks that delayed a wait: its waker, the task that woke this waker, and so on.

        The chain continues only if the last waker itself waited during more than half of this time.
        """
        names, seen = [name], {waker}
        while True:
            earlier = (wait for wait in reversed(self._waits.get(waker, ())) if wait[1] <= ended)
            its_began, its_ended, waker, name = next(earlier, (0, 0, waker, ""))
            if waker in seen or 2 * (its_ended - max(its_began, began)) <= ended - began:
                return names
            names.append(name)
            seen.add(waker)
            ended = its_ended

    @staticmethod
    def frames(wait: Any) -> list[Any]:
        """Returns the frames of the code that ended a wait of `offcpu`, innermost first. Returns an empty list if they
        are not known.

        If an interrupt ended the wait, the frames of the interrupted code are left out.
        """
        frames = list(wait.between[0]._callchain) if wait.between else []
        if wait.waker_pid != 0:
            return frames
        entry = next((at for at, frame in enumerate(frames) if _ENTRIES.fullmatch(frame["symbol"] or "")), len(frames))
        return [frame for frame in frames[: entry + 1] if frame["kernel"]]


# include/uapi/linux/futex.h
_FUTEX_CMD = 0x7F  # without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
_WAITS = {0, 6, 9, 11, 13}  # FUTEX_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI and _LOCK_PI2
_WAKES = {1, 5, 10}  # FUTEX_WAKE, _WAKE_OP and _WAKE_BITSET, which return the number of tasks that they wake
_UNLOCK_PI = 7  # FUTEX_UNLOCK_PI, which wakes one task


_LIBC = re.compile(r"/(libc|libpthread|ld)[-.]")
_INTERPRETER = re.compile(r"/(lib)?python[\d.]+(so[\d.]*)?$")


class _Wait(NamedTuple):
    """A wait that has ended, and whose wake has not been seen yet."""

    tid: int
    began: int
    ended: int
    holders: Counter[str]


class _Wake:
    """A call that woke tasks. `tasks` is the number of these tasks whose waits have not been seen yet."""

    def __init__(self, call: Any, name: str, tasks: int) -> None:
        self.tid, self.name, self.tasks = call._tid, name, tasks
        self.began, self.ended = call.begin._time, call._time

    def may_end(self, wait: _Wait) -> bool:
        """Returns whether the call may have ended the wait, because the two overlapped."""
        return self.tasks > 0 and self.began <= wait.ended and wait.began <= self.ended


class Futexes:
    """Finds the holders of the locks that tasks wait for: the holder of a futex wakes the waiter at the futex's
    address.

    Call waits(call, row) for each span of `syscall/name=futex/` for which is_wait(call) is true, and wakes(call, name)
    for all others. When the wait and its wake are known, the duration of the wait is added to holders(row), at the name
    of the task that the chain of Wakers leads to. parts are the Parts of the script, and holders(row) is a Counter in
    its table.
    """

    _CALLS = 64  # the maximum number of calls per address
    _ADDRESSES = 10_000  # the maximum number of addresses

    def __init__(self, parts: Parts, holders: Callable[[Any], Counter[str]]) -> None:
        self._holders = holders
        # A chain of waits may lead to any futex and to an earlier part of a recording. So all calls are steps of one key.
        self._states = States(parts)
        self._wait = self._states.step(self._waited)
        self._wake = self._states.step(self._woke)

    @staticmethod
    def place(call: Any) -> str:
        """Returns the function that makes a call: the innermost frame that belongs neither to the kernel nor to libc,
        or `?`.

        Under python -X perf, this is the Python function, and the interpreter's function follows in brackets:
        step:/app.py [PyThread_acquire_lock_timed].
        """
        frames = [(str(frame["symbol"]), str(frame["dso"])) for frame in call._callchain if frame["symbol"]]
        frames = [(name, file) for name, file in frames if not file.startswith("[") and not _LIBC.search(file)]
        first, file = frames[0] if frames else ("?", "")
        python = next((name.removeprefix("py::") for name, _ in frames if name.startswith("py::")), None)
        if python is None or first.startswith("py::"):
            return python or first
        return f"{python} [{first}]" if _INTERPRETER.search(file) else first

    @staticmethod
    def is_wait(call: Any) -> bool:
        """Returns whether the call waits for a futex, even if it returned at once because the lock was free."""
        return call.args[1] & _FUTEX_CMD in _WAITS

    def waits(self, call: Any, row: Any) -> None:
        """Notes a call that waited."""
        if call.errno:
            self._holders(row)["(time limit)" if call.errno == "ETIMEDOUT" else "(nobody)"] += call.duration
        else:
            self._wait(call._time, None, (call._pid, call.args[0]), call._tid, call.begin._time, row)

    def wakes(self, call: Any, name: str) -> None:
        """Notes a call that may wake tasks. name is a text about its task."""
        operation = call.args[1] & _FUTEX_CMD
        tasks = call.ret if operation in _WAKES else int(operation == _UNLOCK_PI)
        if not call.errno and tasks > 0:
            self._wake(call._time, None, (call._pid, call.args[0]), _Wake(call, name, tasks))

    def _waited(self, now: int, _: None, address: tuple[int, int], tid: int, began: int, row: Any) -> None:
        wait = _Wait(tid, began, now, self._holders(row))
        waits, wakes = self._at(address)
        # The kernel wakes tasks in the order in which they began to wait, so the oldest wake that may have ended the
        # wait is taken.
        for wake in wakes:
            if wake.may_end(wait):
                self._join(wait, wake)
                return
        waits.append(wait)
        del waits[: -self._CALLS]

    def _woke(self, now: int, _: None, address: tuple[int, int], wake: _Wake) -> None:
        waits, wakes = self._at(address)
        for wait in [wait for wait in waits if wake.may_end(wait)][: wake.tasks]:
            waits.remove(wait)
            self._join(wait, wake)
        wakes[:] = [*(other for other in wakes if other.tasks), wake][-self._CALLS :]

    def _known(self) -> tuple[Wakers, dict[tuple[int, int], tuple[list[_Wait], list[_Wake]]]]:
        """Returns who woke tasks, and for each futex (process, address) the waits whose wake has not been seen, and the
        wakes whose waits have not all been seen."""
        known: tuple[Wakers, dict[tuple[int, int], tuple[list[_Wait], list[_Wake]]]]
        known = self._states.setdefault(None, (Wakers(), {}))
        return known

    def _at(self, address: tuple[int, int]) -> tuple[list[_Wait], list[_Wake]]:
        _, futexes = self._known()
        calls = futexes[address] = futexes.pop(address, ([], []))
        if len(futexes) > self._ADDRESSES:
            del futexes[next(iter(futexes))]
        return calls

    def _join(self, wait: _Wait, wake: _Wake) -> None:
        wakers, _ = self._known()
        wake.tasks -= 1
        wakers.note(wait.tid, wait.began, wake.began, wake.tid, wake.name)
        *others, start = wakers.chain(wake.tid, wake.name, wait.began, wake.began)
        through = f", through {len(others)} other{'s' if len(others) > 1 else ''}" if others else ""
        wait.holders[start + through] += wait.ended - wait.began
