"""`evlist` of perf's Python module: live events, whose records the program reads."""

from __future__ import annotations

from sys import byteorder

from perf_prof import _native
from perf_prof._perf_constants import (
    SAMPLE_CPU,
    SAMPLE_IP,
    SAMPLE_PERIOD,
    SAMPLE_TID,
    SAMPLE_TIME,
    TYPE_TRACEPOINT,
)
from perf_prof._perf_events import _any, _copy, _Map, cpu_map, evsel, software_names, thread_map
from perf_prof._perf_records import CLASSES

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from perf_prof._native import PerfRings, _SampleEvent
    from perf_prof._perf_records import _RecordEvent

# PERF_SAMPLE_IDENTIFIER puts the id of the event at the same offset in all records.
_SAMPLE_IDENTIFIER = 1 << 16
# The sampling frequency that config() gives to events without one, as in perf.
_FREQUENCY = 4000


class evlist:
    """A list of events that are opened together, on the same CPUs and threads.

    open() opens them, mmap() maps the rings of their samples, and read_on_cpu() takes the records one after the other.
    """

    def __init__(self, cpus: cpu_map, threads: thread_map) -> None:
        if not isinstance(cpus, cpu_map):
            raise TypeError(f"cpus must be a perf.cpu_map, not {type(cpus).__name__}")
        if not isinstance(threads, thread_map):
            raise TypeError(f"threads must be a perf.thread_map, not {type(threads).__name__}")
        self._maps: tuple[_Map, _Map] = (cpus, threads)
        self._events: list[evsel] = []
        self._rings: PerfRings | None = None

    def add(self, evsel: evsel) -> int:
        """Adds an event. Returns the number of events."""
        evsel.tracking = not self._events
        evsel._cpus, evsel._threads = self._maps
        self._events.append(evsel)
        return len(self._events)

    def config(self) -> None:
        """Sets the attributes for sampling. Samples contain instruction pointer, task, time, CPU and period. Events
        without a rate get 4000 samples per second. The first event records tasks and mappings. All events are disabled
        until enable()."""
        for of in self._events:
            of.sample_type |= SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU | SAMPLE_PERIOD
            if of.sample_period == 0 and of.type != TYPE_TRACEPOINT:
                of._set_flag("freq", True)
                of.sample_period = _FREQUENCY
            for flag in ("disabled", "sample_id_all"):
                of._set_flag(flag, True)
            for flag in ("mmap", "comm", "task"):
                of._set_flag(flag, of.tracking)
            of.wakeup_events = 1

    def open(self) -> None:
        """Opens the events on each pair of a CPU and a thread of the list."""
        self.close()
        self._identify()
        for of in self._events:
            of._open_on(*self._maps)

    def _identify(self) -> None:
        """Makes records contain the id of their event if there are several events."""
        if len(self._events) > 1:
            for of in self._events:
                of.sample_type |= _SAMPLE_IDENTIFIER
                of._set_flag("sample_id_all", True)

    def mmap(self, pages: int = 128, overwrite: bool | int = False) -> None:
        """Maps a ring of this number of pages for each CPU, or for each thread if the CPU is -1."""
        if overwrite:
            raise NotImplementedError("evlist.mmap(): overwrite is not supported; use perf_prof.flight() to keep the last seconds")
        for of in self._events:
            if of._opened is None:
                of._open_on(*self._maps)
        self._rings = _native.map_perf_rings([of._given() for of in self._events], pages)

    def close(self) -> None:
        """Closes the events and their rings."""
        self._rings = None
        for of in self._events:
            of._close()

    def enable(self) -> None:
        """Enables all events."""
        for of in self._events:
            if of._opened is not None:
                of._opened.enable()

    def disable(self) -> None:
        """Disables all events."""
        for of in self._events:
            if of._opened is not None:
                of._opened.disable()

    def poll(self, timeout: int = -1) -> int:
        """Waits until rings contain records, at most timeout ms, or without a limit for -1. Returns the number of these
        rings."""
        return self._mapped().poll(timeout)

    def get_pollfd(self) -> list[int]:
        """Returns the descriptors of the rings, for select and the like."""
        return self._mapped().descriptors()

    def _mapped(self) -> PerfRings:
        if self._rings is None:
            raise ValueError("the events have no rings: call open() and mmap() first")
        return self._rings

    def read_on_cpu(self, cpu: int, sample_id_all: bool | int = True) -> _SampleEvent | _RecordEvent | None:
        """Takes the next record of a CPU: a sample_event or another event. Returns None if there is none.

        Raises TypeError for a CPU without a ring, and for a record of a type that perf's module does not support.
        """
        rings = self._mapped()
        taken = rings.read(_any(cpu))
        if taken is None:
            if not rings.has(_any(cpu)):
                raise TypeError(f"Unknown CPU '{cpu}'")
            return None
        if not isinstance(taken, tuple):
            return taken
        record, sample_id, at = taken
        kind = int.from_bytes(record[:4], byteorder)
        if kind not in CLASSES:
            raise TypeError(f"Unexpected header type {kind}")
        return CLASSES[kind](record, sample_id, self._events[at])

    def all_cpus(self) -> cpu_map:
        """Returns the CPUs of the events."""
        cpus = self._events[0]._cpus if self._events else self._maps[0]
        return _copy(cpu_map, cpus)

    def metrics(self) -> list[str]:
        """Returns the names of the metrics in the list: none, because perf-prof has no tables of metrics."""
        return []

    def compute_metric(self, metric: str, cpu: int, thread: int) -> NoReturn:
        """Raises TypeError: there are no metrics in the list."""
        raise TypeError(f"Unknown metric '{metric}' for CPU '{cpu}' and thread '{thread}'")

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: int) -> evsel:
        try:
            return self._events[index]
        except IndexError:
            raise IndexError("Index out of range") from None

    def __iter__(self) -> Iterator[evsel]:
        return iter(self._events)

    def __str__(self) -> str:
        return f"evlist([{','.join(str(of)[6:-1] for of in self._events)}])"

    __repr__ = __str__


def parse_events(
    event_string: str, cpus: cpu_map | None = None, threads: thread_map | None = None
) -> evlist:
    """Returns an evlist of the events in a list of selectors, as after `perf-prof stat -e`: 'cycles,sched:sched_switch'.

    Without cpus and threads, the events are for all CPUs. Raises OSError for an unknown event.
    """
    for name in software_names:
        event_string = event_string.replace(f"software/{name}/", name)
    try:
        parsed = _native.parse_perf_events(event_string)
    except ValueError as error:
        raise OSError(22, str(error)) from error
    if cpus is None:
        cpus = cpu_map() if threads is None else _copy(cpu_map, _Map((-1,)))
    made = evlist(cpus, _copy(thread_map, _Map((-1,))) if threads is None else threads)
    for name, attr, filter, tracepoint in parsed:
        of = evsel._of_attr(name, attr, [])
        of._filter, of._tracepoint = filter, tracepoint
        if tracepoint is not None:
            of.sample_type = _OF_TRACEPOINTS
        made.add(of)
    return made


# The members that perf's tracepoint samples contain: PERF_SAMPLE_RAW, TIME, CPU and PERIOD.
_OF_TRACEPOINTS = 1 << 10 | SAMPLE_TIME | SAMPLE_CPU | SAMPLE_PERIOD
