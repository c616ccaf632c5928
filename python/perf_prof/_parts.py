"""The classes and functions of `perf_prof` that are written in Python."""

from __future__ import annotations

import sys
from os.path import basename
from weakref import WeakSet

from perf_prof._native import is_host, lost_cpu, realtime, shard

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from perf_prof._native import _Shard

    _Step = TypeVar("_Step", bound=Callable[..., None])

# All Parts objects of this process. A program creates them before it forks the processes for the parts.
_all_parts: WeakSet[Parts] = WeakSet()


def enter_part() -> None:
    """Notes in all Parts objects that this process is a forked child that replays a part."""
    for parts in _all_parts:
        parts._enter(shard())


def enter_recording() -> None:
    """Notes in all Parts objects that the events of another recording follow."""
    for parts in _all_parts:
        parts._enter_recording()


class Branch(dict[str, int]):
    """A branch that the CPU recorded: an entry of branch_stack.

    The items are from and to (addresses), mispred, predicted, in_tx and abort (bool), and cycles (int, since
    the previous branch; 0 if the CPU does not report it). They are attributes too, except `from`, which is a
    keyword: branch["from"], branch.to.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> int:
        """Returns an item as an attribute."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Parts:
    """Counts events in a table for each interval (-i), and merges the tables of the processes that --jobs starts.

    table() returns an empty table. A table is an object with the method update(other), which adds the table
    other: a Counter, a Log2Hist, a FlameGraph or an object of the script's own class. A table may also be a
    dict of such objects. The attribute table is the table of the current interval. interval() replaces it, so
    a handler has to read the attribute for each event.

    show(table, end) prints the table of an interval. end is the end of the interval in ns since the epoch (int), or
    None for the time after the last interval. Without show, the whole run has one table.

    total is an object for the counts of the whole run. Like a table, it has update(other). merge() adds the
    totals of all parts to it.

    Use the methods interval, partial, merge and exit as the callbacks with the same names, for example __interval__ =
    parts.interval. For --jobs, tables and total have to be picklable. States are for what a script keeps from one event
    to the next. Raises TypeError if show is given without table.
    """

    def __init__(
        self,
        table: Callable[[], Any] | None = None,
        show: Callable[[Any, int | None], None] | None = None,
        total: Any = None,
    ) -> None:
        if show is not None and table is None:
            raise TypeError("Parts(show=...) needs table=, a function that returns an empty table")
        self._new_table: Any = table
        self._show: Any = show
        self._total = total
        self._shows = 0
        self._ended: list[tuple[int, Any]] = []  # (end, table) of each interval that has ended in this part
        self._steps: list[Callable[..., None]] = []  # all steps, in the order of their decorators
        self._put_off: list[tuple[Any, ...]] = []  # deferred steps: (time, interval number, step number, *arguments)
        self._states: list[States] = []
        self._losses: list[Losses] = []
        self._enter(shard())
        _all_parts.add(self)
        self.table: Any = table and table()

    def interval(self) -> None:
        """Ends an interval: shows its table (with --jobs, keeps it for merge()) and starts a new table."""
        if self._show is None:
            return
        table, self.table = self.table, self._new_table()
        if self._split:
            self._ended.append((realtime(), table))
        else:
            self._show_table(table, realtime())

    def partial(self) -> dict[str, Any]:
        """Returns what this process has found in its part of the recording, for merge()."""
        return {
            "split": self._split,
            "total": self._total,
            "tables": [*self._ended, (None, self.table)],
            "steps": self._put_off,
            "states": [(states._known, dict(states)) for states in self._states],
        }

    def merge(self, partials: Iterable[dict[str, Any]]) -> None:
        """Merges the results of partial() of all parts, in the order of the parts.

        Runs the deferred steps (see States) in the order of time. Then shows the tables of all intervals that have
        ended. The attribute table then contains the counts after the last interval. May be called only once.
        """
        partials = list(partials)
        tables: dict[Any, Any] = {}  # end of an interval (None for the time after the last one) -> table
        for partial in partials:
            if self._total is not None:
                _add(self._total, partial["total"])
            for end, table in partial["tables"]:
                if end not in tables:
                    tables[end] = table
                elif table is not None:
                    _add(tables[end], table)
        if any(partial["split"] == "cpu" for partial in partials):
            from heapq import merge

            for _, step in merge(*map(_steps_in_order, partials), key=lambda timed: timed[0]):
                self._do(tables, *step)
        else:
            for partial in partials:
                for step in _steps(partial):
                    self._do(tables, *step)
                for states, (known, at_end) in zip(self._states, partial["states"]):
                    states._continue(known, at_end)
        rest = tables.pop(None, self.table)
        for end in sorted(tables):
            self.table = tables[end]
            self._show_table(self.table, end)
        self.table = rest

    def exit(self) -> None:
        """Shows the table of the time after the last interval. Shows an empty table only if no other table was shown.
        """
        if self._show is not None and (self.table or not self._shows):
            self._show_table(self.table, None)

    def _enter(self, part: _Shard | None) -> None:
        self._split = part and part["split"]
        self._is_first = part is None or part["number"] == 0
        for states in self._states:
            states._enter()

    def _enter_recording(self) -> None:
        # Another recording may be from another machine, with other tasks and another clock.
        for states in self._states:
            states._leave_recording()
        for losses in self._losses:
            losses._clear()

    def _show_table(self, table: Any, end: int | None) -> None:
        self._shows += 1
        self._show(table, end)

    def _do(self, tables: dict[Any, Any], now: int, end: int | None, number: int, args: list[Any]) -> None:
        self.table = tables[end]
        self._steps[number](now, *args)

    def _number(self, step: Callable[..., None]) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _put_off_step(self, now: int, number: int, *args: Any) -> None:
        self._put_off.append((now, len(self._ended), number, *args))


class States(dict["Any", "Any"]):
    """A dict with the state of each thread, CPU or other key. States are kept from event to event, also across parts.

    A step is a function with the parameters (now, key, ...) and one of the decorators step, sets and ends.
    now is the time of the event in ns (event._time). The step may read or change the state of key. Events
    have to be delivered in the order of time: use --order, or a recording.

    With --jobs, a process does not know the states at the start of its part. If the state of a key is not known, a step
    of this key is deferred: parts.merge() runs the step when the states at the end of the previous part are known. With
    --split cpu, all steps are deferred. The arguments of a step and the states have to be picklable. A step of key a
    may call a step of key b only if each part that knows the state of b also knows the state of a. In a script that
    runs without --jobs, the decorators return the function unchanged.
    """

    # The keys whose states are known. None means that the states of all keys are known, because there is no earlier
    # part, or because forget() was called.
    _known: set[Any] | None

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts
        self._enter()
        self._forgets = parts._number(lambda now: self.clear())
        parts._states.append(self)

    def step(self, function: _Step) -> _Step:
        """Decorates a step that may read the state of its key. This decorator is right for every step.

        If the step was deferred, the state of its key is still unknown.
        """
        number, put_off = self._parts._number(function), self._parts._put_off_step

        def step_in_part(now: int, key: Any, *args: Any) -> None:
            if self._known is None or key in self._known:
                function(now, key, *args)
            else:
                put_off(now, number, key, *args)

        return self._decorated(function, number, step_in_part)

    def sets(self, function: _Step) -> _Step:
        """Decorates a step that sets or removes the state of its key and does not read it.

        The step is deferred only with --split cpu. After the step, the state of its key is known.
        """

        def sets_in_part(now: int, key: Any, *args: Any) -> None:
            if self._known is not None:
                self._known.add(key)
            function(now, key, *args)

        return self._decorated(function, self._parts._number(function), sets_in_part)

    def ends(self, function: _Step) -> _Step:
        """Decorates a step that reads the state of its key and removes it.

        After the step, it is known that the key has no state. So in each part, at most one such step of a key is
        deferred (with --split cpu, all of them).
        """
        number, put_off = self._parts._number(function), self._parts._put_off_step

        def ends_in_part(now: int, key: Any, *args: Any) -> None:
            if self._known is None or key in self._known:
                function(now, key, *args)
            else:
                self._known.add(key)
                put_off(now, number, key, *args)

        return self._decorated(function, number, ends_in_part)

    def forget(self, now: int) -> None:
        """Removes all states. Call forget(lost_end) in __lost__, because lost events may have changed states. now is in
        ns."""
        if self._parts._split == "cpu":
            self._parts._put_off_step(now, self._forgets)
        else:
            self.clear()
            self._known = None

    def _enter(self) -> None:
        self._known = None if self._parts._is_first and self._parts._split != "cpu" else set()

    def _decorated(self, function: _Step, number: int, in_part: Callable[..., None]) -> _Step:
        parts = self._parts

        def put_off(now: int, *args: Any) -> None:
            parts._put_off_step(now, number, *args)

        forms: dict[str | None, Any] = {None: function, "time": in_part, "cpu": put_off}
        # The decorated function chooses at each call, because the program may replay parts of a recording later.
        later: Any = lambda *args: forms[parts._split](*args)
        step: _Step = forms[parts._split] if is_host() else later
        return step

    def _continue(self, known: set[Any] | None, at_end: dict[Any, Any]) -> None:
        """Takes over the states at the end of a part. `known` contains the keys whose states are known. None means all
        keys."""
        if known is None:
            self._leave_recording()
        else:
            for key in known:
                self.pop(key, None)
        self.update(at_end)

    def _leave_recording(self) -> None:
        self.clear()


class Losses:
    """Knows whether events were lost on a CPU after a time, so that a script need not forget all states.

    Call note(lost_end) in __lost__. Where a state ends, call since(time, cpu), with the time and the CPU of the event
    at which the state began. If it returns True, events of this CPU were lost meanwhile. The state may have ended and
    begun again, so its duration is unknown. Events have to be delivered in the order of time. With --jobs, call since()
    only in a step (see States).
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._last: dict[int | None, int] = {}  # CPU (None: not known) -> the end of its last loss
        self._last_of_all = 0
        self._notes = parts._number(self._note)
        parts._losses.append(self)

    def note(self, now: int) -> None:
        """Notes the loss that __lost__ reports. now is its end in ns."""
        cpu = lost_cpu()
        self._note(now, cpu)
        if self._parts._split:
            # The step that ends a state of an earlier part is deferred, and also needs this loss.
            self._parts._put_off_step(now, self._notes, cpu)

    def since(self, time: int, cpu: int | None = None) -> bool:
        """Returns whether events of the CPU were lost after a time in ns. Without cpu, the events of any CPU count."""
        if cpu is None:
            return self._last_of_all > time
        return self._last.get(cpu, 0) > time or self._last.get(None, 0) > time

    def _note(self, now: int, cpu: int | None) -> None:
        # The end of a time whose records cannot be read is known before it is reached, and losses may end earlier.
        self._last[cpu] = max(now, self._last.get(cpu, 0))
        self._last_of_all = max(now, self._last_of_all)

    def _clear(self) -> None:
        self._last.clear()
        self._last_of_all = 0


class CallChains:
    """Checks call chains, and prints a message to stderr if there are none or if they end early.

    Call note(chain) for each event, with event._callchain or with the names of a folded stack, and say() with each
    table. lack says what the output lacks without call chains. The chains of programs without frame pointers end early:
    say() prints this if more than half of the chains with user frames have at most two user frames. update(other) adds
    the chains of other, so the object may be the total of Parts.
    """

    def __init__(self, lack: str = "stacks are empty") -> None:
        self._lack = lack
        self._script = basename(sys.argv[0])
        self._empty = self._with_frames = self._of_programs = self._short = 0
        self._said: set[str] = set()

    def note(self, chain: Sequence[Mapping[str, object]] | Sequence[str]) -> None:
        """Notes the call chain of an event: a list of frames, or of names as in folded stacks ('vfs_read_[k]')."""
        if not chain:
            self._empty += 1
            return
        self._with_frames += 1
        own = sum(not (frame.endswith("_[k]") if isinstance(frame, str) else frame["kernel"]) for frame in chain)
        if own:
            self._of_programs += 1
            self._short += own <= 2

    def update(self, other: CallChains) -> None:
        """Adds the call chains of other."""
        self._empty += other._empty
        self._with_frames += other._with_frames
        self._of_programs += other._of_programs
        self._short += other._short

    def say(self) -> None:
        """Prints what is wrong with the call chains. Each message is printed once."""
        if self._empty and not self._with_frames:
            self._say(f"no call chains, so {self._lack}: -g adds them (perf-prof record -g)")
        if 2 * self._short > self._of_programs:
            self._say("call chains end early; programs and libraries without frame pointers need --call-graph dwarf")

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            print(f"{self._script}: {message}", file=sys.stderr)


def at_least(least: float) -> Callable[[str], Any]:
    """Returns a function for the parameter type of argparse's add_argument: it turns the text of an option into a
    number of the type of least (int or float). A number below least is wrong usage, with exit status 2.
    """

    def number(text: str) -> float:
        from argparse import ArgumentTypeError

        try:
            value = type(least)(text)
            if value >= least:
                return value
        except ValueError:
            pass
        kind = "an integer" if isinstance(least, int) else "a number"
        raise ArgumentTypeError(f"'{text}' is not {kind} of at least {least}")

    return number


def _steps(partial: dict[str, Any]) -> Iterator[tuple[int, int | None, int, list[Any]]]:
    """Returns (time, end of the interval, number, arguments) of each deferred step of a part."""
    ends = [end for end, _ in partial["tables"]]
    return ((now, ends[interval], number, args) for now, interval, number, *args in partial["steps"])


def _steps_in_order(partial: dict[str, Any]) -> Iterator[tuple[int, tuple[int, int | None, int, list[Any]]]]:
    """Returns the deferred steps of a part, each with a time that never falls. The end of a time whose records cannot be read
    is told where this time begins. So the step for it has a later time than the steps behind it."""
    from itertools import accumulate

    steps = list(_steps(partial))
    times = list(accumulate((step[0] for step in reversed(steps)), min))
    return zip(reversed(times), steps)


def _add(table: Any, other: Any) -> None:
    """Adds `other` to `table`. A dict is added key by key, because dict.update() would replace its values."""
    update = getattr(type(table), "update", None)
    if update is None:
        kind = type(table).__name__
        raise TypeError(f"a table is an object with update() or a dict of such objects, not '{kind}'; use a Counter")
    if update is not dict.update:
        table.update(other)
        return
    for key, counts in other.items():
        if key in table:
            _add(table[key], counts)
        else:
            table[key] = counts
