"""The maps and the event selectors of perf's Python module: `cpu_map`, `thread_map` and `evsel`."""

from __future__ import annotations

from glob import glob
from os import listdir
from struct import pack_into, unpack_from

from perf_prof import _native
from perf_prof._perf_constants import SAMPLE_PERIOD, SAMPLE_TID, TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    from perf_prof._native import OpenPerfEvent

    _SomeMap = TypeVar("_SomeMap", bound="_Map")

_ONLINE = "/sys/devices/system/cpu/online"


class _Map:
    """A list of numbers that cannot be changed."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = tuple(numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> int:
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError("Index out of range") from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)


class cpu_map(_Map):
    """CPUs: those in cpustr ('0-3,8'), or all that are online. -1 stands for any CPU."""

    def __init__(self, cpustr: str | None = None) -> None:
        if cpustr is None:
            with open(_ONLINE, encoding="ascii") as online:
                cpustr = online.read()
        super().__init__(_cpus(cpustr))

    def __repr__(self) -> str:
        return f"cpu_map({','.join(map(str, self))})"


def _copy(kind: type[_SomeMap], numbers: _Map) -> _SomeMap:
    made = kind.__new__(kind)
    _Map.__init__(made, tuple(numbers))
    return made


def _any(number: int) -> int | None:
    return None if number == -1 else number


class counts_values:
    """The count of an event: val, the times ena and run in ns while it was enabled and counted, id, and lost samples.

    What its read_format does not request is 0.
    """

    def __init__(self) -> None:
        self.val = self.ena = self.run = self.id = self.lost = 0

    @classmethod
    def _of(cls, values: tuple[int, int, int, int, int]) -> counts_values:
        made = cls()
        made.values = list(values)
        return made

    @property
    def values(self) -> list[int]:
        """val, ena, run, id and lost"""
        return [self.val, self.ena, self.run, self.id, self.lost]

    @values.setter
    def values(self, values: list[int]) -> None:
        if len(values) != 5:
            raise ValueError("List must have exactly 5 entries")
        self.val, self.ena, self.run, self.id, self.lost = values


def _cpus(text: str) -> list[int]:
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-") if not part.startswith("-") else (part, "", "")
        try:
            cpus.update(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            raise ValueError(f"{text!r} is no list of CPUs such as '0-3,8'") from None
    return sorted(cpus)


class thread_map(_Map):
    """Threads: all of the process pid, or the thread tid. Without both it has one entry, -1: any thread."""

    def __init__(self, pid: int = -1, tid: int = -1) -> None:
        if tid != -1:
            threads = [tid]
        elif pid != -1:
            threads = sorted(map(int, listdir(f"/proc/{pid}/task")))
        else:
            threads = [-1]
        super().__init__(threads)

    def __repr__(self) -> str:
        return f"thread_map({','.join(map(str, self))})"


# The size of `perf_event_attr`, and for each member its format and its offset.
_SIZE = 136
_MEMBERS = {
    "type": ("=I", 0),
    "size": ("=I", 4),
    "config": ("=Q", 8),
    "sample_period": ("=Q", 16),
    "sample_type": ("=Q", 24),
    "read_format": ("=Q", 32),
    "wakeup_events": ("=I", 48),
    "bp_type": ("=I", 52),
    "bp_addr": ("=Q", 56),
    "bp_len": ("=Q", 64),
}
_FLAGS_AT = 40
# The flags of `perf_event_attr`: the lowest bit, and the number of bits.
_FLAGS = {
    "disabled": (0, 1),
    "inherit": (1, 1),
    "pinned": (2, 1),
    "exclusive": (3, 1),
    "exclude_user": (4, 1),
    "exclude_kernel": (5, 1),
    "exclude_hv": (6, 1),
    "exclude_idle": (7, 1),
    "mmap": (8, 1),
    "comm": (9, 1),
    "freq": (10, 1),
    "inherit_stat": (11, 1),
    "enable_on_exec": (12, 1),
    "task": (13, 1),
    "watermark": (14, 1),
    "precise_ip": (15, 2),
    "mmap_data": (17, 1),
    "sample_id_all": (18, 1),
    "context_switch": (26, 1),
}


class _Number:
    """A member of `perf_event_attr` as an attribute of evsel."""

    def __init__(self, form: str, at: int, doc: str) -> None:
        self._form = form
        self._at = at
        self.__doc__ = doc

    def __get__(self, of: evsel, _: object = None) -> int:
        (number,) = unpack_from(self._form, of._attr, self._at)
        return int(number)

    def __set__(self, of: evsel, number: int) -> None:
        pack_into(self._form, of._attr, self._at, number)


class evsel:
    """An event: a `perf_event_attr` of the kernel, by its members. str() of it is its name, as in `evsel(cpu-clock)`."""

    def __init__(
        self,
        type: int = TYPE_HARDWARE,
        config: int = 0,
        sample_freq: int = 0,
        sample_period: int = 0,
        sample_type: int = SAMPLE_PERIOD | SAMPLE_TID,
        read_format: int = 0,
        disabled: bool | int = False,
        inherit: bool | int = False,
        pinned: bool | int = False,
        exclusive: bool | int = False,
        exclude_user: bool | int = False,
        exclude_kernel: bool | int = False,
        exclude_hv: bool | int = False,
        exclude_idle: bool | int = False,
        mmap: bool | int = False,
        context_switch: bool | int = False,
        comm: bool | int = False,
        freq: bool | int = True,
        inherit_stat: bool | int = False,
        enable_on_exec: bool | int = False,
        task: bool | int = False,
        watermark: int = 0,
        precise_ip: int = 0,
        mmap_data: bool | int = False,
        sample_id_all: bool | int = True,
        wakeup_events: int = 0,
        bp_type: int = 0,
        bp_addr: int = 0,
        bp_len: int = 0,
        idx: int = 0,
    ) -> None:
        given = locals()
        if sample_freq and sample_period:
            raise ValueError("give sample_freq or sample_period, not both")
        self._attr = bytearray(_SIZE)
        for name, (form, at) in _MEMBERS.items():
            if name != "size":
                pack_into(form, self._attr, at, given[name])
        self.sample_period = sample_period or sample_freq
        pack_into("=I", self._attr, 4, _SIZE)
        flags = sum((int(given[name]) & (1 << bits) - 1) << first for name, (first, bits) in _FLAGS.items())
        pack_into("=Q", self._attr, _FLAGS_AT, flags)
        self._name = ""
        self._filter: str | None = None
        self._tracepoint: tuple[str, str] | None = None
        self._opened: OpenPerfEvent | None = None
        self._cpus: _Map = _Map((-1,))
        self._threads: _Map = _Map((-1,))
        self._before: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.ids: list[int] = []
        self.tracking = idx == 0

    @classmethod
    def _of_attr(cls, name: str, attr: bytes, ids: list[int]) -> evsel:
        """Returns the event with this `perf_event_attr`."""
        made = cls()
        made._attr[:] = attr[:_SIZE].ljust(_SIZE, b"\0")
        pack_into("=I", made._attr, 4, _SIZE)
        made._name = name
        made.ids = ids
        return made

    def open(
        self,
        cpus: cpu_map | None = None,
        threads: thread_map | None = None,
        group: bool | int = False,
        inherit: bool | int = False,
    ) -> None:
        """Opens the event on each pair of a CPU and a thread: without cpus on any CPU, without threads on all threads. Without
        both, on the maps of its evlist, or on all CPUs."""
        self._set_flag("inherit", bool(inherit))
        self._open_on(self._cpus if cpus is None else cpus, self._threads if threads is None else threads)

    def _open_on(self, cpus: _Map, threads: _Map) -> None:
        if list(cpus) == [-1] == list(threads):
            cpus = cpu_map()
        places = [(_any(cpu), _any(thread)) for cpu in cpus for thread in threads]
        self._close()
        try:
            self._opened = _native.open_perf_event(bytes(self._attr), places, self._filter)
        except OSError as error:
            error.strerror = f"{self}: {error.strerror}"
            raise
        self._cpus, self._threads = cpus, threads
        self.ids = self._opened.ids()

    def _close(self) -> None:
        self._opened = None
        self._before.clear()

    def _set_flag(self, name: str, value: int) -> None:
        first, bits = _FLAGS[name]
        (flags,) = unpack_from("=Q", self._attr, _FLAGS_AT)
        mask = (1 << bits) - 1
        pack_into("=Q", self._attr, _FLAGS_AT, flags & ~(mask << first) | (int(value) & mask) << first)

    def _flag(self, name: str) -> int:
        first, bits = _FLAGS[name]
        (flags,) = unpack_from("=Q", self._attr, _FLAGS_AT)
        return int(flags >> first & (1 << bits) - 1)

    def cpus(self) -> cpu_map:
        """Returns the CPUs that the event is for; -1 is any CPU."""
        return _copy(cpu_map, self._cpus)

    def threads(self) -> thread_map:
        """Returns the threads that the event is for; -1 is any thread."""
        return _copy(thread_map, self._threads)

    def read(self, cpu: int, thread: int) -> counts_values:
        """Returns the count on a CPU and a thread since the last call, of the event while it is open."""
        for number, numbers, name, many in (
            (cpu, self._cpus, "CPU", "CPUs"),
            (thread, self._threads, "Thread", "threads"),
        ):
            if number not in numbers:
                raise TypeError(f"{name} {number} is not part of evsel's {many}")
        values = self._opened and self._opened.read(_any(cpu), _any(thread))
        if not values:
            raise ValueError(f"{self} is not open")
        val, ena, run, id, lost = values
        before = self._before.get((cpu, thread), (0, 0, 0))
        self._before[cpu, thread] = (val, ena, run)
        return counts_values._of((val - before[0], ena - before[1], run - before[2], id, lost))

    def _given(self) -> tuple[OpenPerfEvent, str, bytes, tuple[str, str] | None, evsel]:
        """Returns what the rings need to know about the event."""
        if self._opened is None:
            raise ValueError(f"{self} is not open")
        of_name = str(self)[6:-1]
        tracepoint = self._tracepoint
        if tracepoint is None and self.type == TYPE_TRACEPOINT:
            system, _, name = of_name.partition(":")
            tracepoint = (system, name)
        return self._opened, of_name, bytes(self._attr), tracepoint, self

    type = _Number("=I", 0, "type of the event, one of TYPE_*")
    size = _Number("=I", 4, "size of the attr in bytes")
    config = _Number("=Q", 8, "the event among those of its type: one of COUNT_*, or the id of a tracepoint")
    sample_period = _Number("=Q", 16, "events for a sample; with freq, samples for a second")
    sample_type = _Number("=Q", 24, "members of samples, of SAMPLE_*")
    read_format = _Number("=Q", 32, "members of counts, of FORMAT_*")
    wakeup_events = _Number("=I", 48, "samples after which poll() returns")

    def __str__(self) -> str:
        return f"evsel({self._name or _name(self)})"

    __repr__ = __str__


_HARDWARE = (
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
)
# The events of the PMU `software`, by their configs.
software_names = (
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
)
# The names of tracepoints by their ids.
_TRACEPOINTS: dict[int, str] = {}
_TRACEFS = ("/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events")


def _name(of: evsel) -> str:
    """Returns the name of an event that was created from numbers."""
    names = {TYPE_HARDWARE: _HARDWARE, TYPE_SOFTWARE: software_names}.get(of.type, ())
    if of.config < len(names):
        return names[of.config]
    if of.type == TYPE_TRACEPOINT:
        return _TRACEPOINTS.get(of.config) or _tracepoint_with(of.config)
    return f"raw {of.config:#x}"


def _tracepoint_with(number: int) -> str:
    """Returns the name of the tracepoint with this id."""
    for folder in _TRACEFS:
        for path in glob(f"{folder}/*/*/id"):
            with open(path, encoding="ascii") as file:
                if int(file.read()) == number:
                    system, name = path.split("/")[-3:-1]
                    return _TRACEPOINTS.setdefault(number, f"{system}:{name}")
    return f"unknown tracepoint {number}"


def known_events(pmu: str) -> list[dict[str, str]]:
    """Returns the events of the PMU `software` or `tracepoint`, as pmu.events() does."""
    if pmu == "software":
        return [
            {"name": name, "encoding_desc": f"software/config={number}/", "event_type_desc": "Software event"}
            for number, name in enumerate(software_names)
        ]
    found = next((sorted(glob(f"{folder}/*/*/id")) for folder in _TRACEFS if glob(f"{folder}/sched/*/id")), [])
    names = [":".join(path.split("/")[-3:-1]) for path in found]
    return [{"name": name, "event_type_desc": "Tracepoint event"} for name in names]


def tracepoint(sys: str, name: str) -> int:
    """Returns the id of a tracepoint: the config of its evsel. It is -1 if there is no such tracepoint."""
    for folder in _TRACEFS:
        try:
            with open(f"{folder}/{sys}/{name}/id", encoding="ascii") as file:
                number = int(file.read())
        except (FileNotFoundError, NotADirectoryError):
            continue
        _TRACEPOINTS[number] = f"{sys}:{name}"
        return number
    return -1
