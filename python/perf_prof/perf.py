"""perf's Python module for scripts that import it: sessions on recordings, live events, and counts.

`perf-prof script FILE` runs such a script, whose `import perf` is this module. A program uses it by `from perf_prof
import perf`, and `python -m perf_prof.perf FILE` runs a script anywhere. docs/perf-module.md explains it.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from sys import byteorder as _BYTE_ORDER

from perf_prof import _native, _perf_jobs
from perf_prof._errors import RecordingError
from perf_prof._perf_constants import *  # noqa: F403
from perf_prof._perf_events import (
    counts_values as counts_values,
    cpu_map as cpu_map,
    evsel as evsel,
    known_events,
    thread_map as thread_map,
    tracepoint as tracepoint,
)
from perf_prof._perf_evlist import evlist as evlist, parse_events as parse_events
from perf_prof._perf_records import (
    CLASSES as _CLASSES,
    comm_event as comm_event,
    lost_event as lost_event,
    mmap2_event as mmap2_event,
    mmap_event as mmap_event,
    read_event as read_event,
    stat_event as stat_event,
    stat_round_event as stat_round_event,
    switch_event as switch_event,
    task_event as task_event,
    throttle_event as throttle_event,
)
from perf_prof._native import (
    branch_entry as branch_entry,
    branch_stack as branch_stack,
    callchain as callchain,
    callchain_node as callchain_node,
)

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from perf_prof._native import _SampleEvent
    from perf_prof._perf_records import SampleId

    sample_event = _SampleEvent
else:
    sample_event = _native.perf_sample_event()

# What other files define belongs to this module, so that help(perf) shows it.
for _public in (counts_values, cpu_map, evlist, evsel, parse_events, thread_map, tracepoint, *_CLASSES.values()):
    _public.__module__ = __name__


class data:
    """A recording: its path, '-' for standard input, or the descriptor of a pipe."""

    def __init__(self, path: str = "perf.data", fd: int = -1) -> None:
        if fd != -1 and path not in ("-", "perf.data"):
            raise ValueError("path must be '-' when fd is provided")
        self._path, self._shown = path, path
        if fd != -1:
            # The caller may close its descriptor before the recording is read.
            own = os.dup(fd)
            weakref.finalize(self, os.close, own)
            self._path, self._shown = f"/dev/fd/{own}", "-"
        if self._path != "-" and not os.access(self._path, os.R_OK):
            os.stat(self._path)  # Raises the error for a missing file.
            raise PermissionError(f"Failed to open perf data: {path}")

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__


class thread:
    """A thread of a recording."""

    def __init__(self, session: _native.PerfSession, found: _native._FoundThread) -> None:
        self._session = session
        self.pid = found["pid"]
        self.tid = found["tid"]
        self.ppid = found["ppid"]
        self.cpu = found["cpu"]

    def comm(self) -> str:
        """Returns the comm of the thread at the time of the current sample."""
        return self._session.comm(self.tid) or f":{self.tid}"


class session:
    """A recording, and the functions to which process_events() passes its events.

    sample(event) gets every sample, in the order of time. stat(event, name) gets the counts of a recording of `perf
    stat record`: a stat_event with the name of its event, and a stat_round_event with None at the end of a round.
    lost(event) gets a lost_event where records or samples are missing. perf does not support lost().
    """

    def __init__(
        self,
        data: data,
        sample: Callable[[sample_event], object] | None = None,
        stat: Callable[[stat_event | stat_round_event, str | None], object] | None = None,
        lost: Callable[[lost_event], object] | None = None,
    ) -> None:
        for name, function in {"sample": sample, "stat": stat, "lost": lost}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be callable")
        self._data = data
        self._sample = sample
        self._stat = stat
        self._lost = lost
        self._open()

    def _open(self, part: int | None = None, parts: int = 1) -> None:
        if not isinstance(self._data, data):
            raise TypeError(f"a session needs a perf.data, not {type(self._data).__name__}")
        with _os_errors():
            self._session = _native.open_perf_session(self._data._path, part, parts)
        self._evsels = [evsel._of_attr(name, attr, ids) for name, attr, ids in self._session.events()]
        for at, of in enumerate(self._evsels):
            of.tracking = at == 0
        self._session.set_evsels(self._evsels)

    def process_events(self) -> None:
        """Calls the functions for all events. Stops at the first exception of a function, and raises it.

        In a run with --jobs, processes call sample() for the parts of the recording, and the counts are added up here.
        """
        if _perf_jobs.processes > 1:
            _perf_jobs.process_events(self)
        else:
            self._process()

    def _process(self) -> None:
        sample = _nothing if self._sample is None else self._sample
        with _os_errors():
            if not self._session.process(sample, self._other):
                self._open()
                self._session.process(sample, self._other)

    def _other(self, record: bytes, sample_id: SampleId) -> None:
        event = _CLASSES[int.from_bytes(record[:4], _BYTE_ORDER)](record, sample_id, None)
        if isinstance(event, lost_event):
            # A record of no loss only says where the loss of a later record begins.
            if self._lost is not None and event.lost:
                self._lost(event)
        elif self._stat is None:
            pass
        elif isinstance(event, stat_event):
            at = self._session.event_with(event.id)
            event.evsel = None if at is None else self._evsels[at]
            self._stat(event, "unknown" if at is None else self._evsels[at]._name)
        elif isinstance(event, stat_round_event):
            self._stat(event, None)

    @property
    def e_machine(self) -> int:
        """e_machine of ELF files for the machine of the recording: 62 for x86-64. It is 0 if the machine is not known."""
        machine = self._session.machine()
        names = {**{name: number for number, name in _MACHINES.items()}, **_OTHER_NAMES}
        return names.get(machine or "", 0)

    @property
    def is_64_bit(self) -> bool:
        """Whether the kernel of the recording has 64 bits."""
        return "64" in (machine := self._session.machine() or "") or machine in ("s390x", "alpha")

    def find_thread(self, pid: int, tid: int = -1) -> thread:
        """Returns the thread tid, or the first thread of the process pid, as it is at the current sample.

        Raises TypeError if no earlier record names it.
        """
        found = self._session.find_thread(pid if tid == -1 else tid)
        if found is None:
            raise TypeError(f"Failed to find thread {pid if tid == -1 else tid}")
        return thread(self._session, found)


def _nothing(_: sample_event) -> None:
    pass


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raises OSError, as perf does, if a recording cannot be read."""
    try:
        yield
    except RecordingError as error:
        raise OSError(str(error)) from error


# The names of machines, as `uname -m` prints them, by e_machine of ELF files.
_MACHINES = {
    2: "sparc",
    3: "i386",
    8: "mips64",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    43: "sparc64",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}


# Other names of these machines.
_OTHER_NAMES = {"i486": 3, "i586": 3, "i686": 3, "armv6l": 40, "armv7l": 40, "mips": 8, "ppc64le": 21, "x86": 3}


def _machine(elf_machine: int | None) -> str | None:
    # Numbers that are not of a machine stand for this one, as in perf.
    return None if elf_machine is None or not 0 < elf_machine < 1 << 16 else _MACHINES.get(elf_machine, "unknown")


def syscall_name(id: int, elf_machine: int | None = None) -> str | None:
    """Returns the name of a system call of this machine, or of the machine with this e_machine in ELF files (62 for
    x86-64). Returns None if no system call has the number."""
    return _native.syscall_of_machine(id, _machine(elf_machine))


def syscall_id(name: str, elf_machine: int | None = None) -> int:
    """Returns the number of a system call of this machine, or of the machine with this e_machine in ELF files. Raises
    ValueError if there is no such system call."""
    number = _native.syscall_nr_of_machine(name, _machine(elf_machine))
    if number is None:
        raise ValueError(f"Failed to find syscall {name}")
    return number


# The machines with other error numbers than all others: SPARC, MIPS, PA-RISC and Alpha, with all their numbers in
# include/uapi/linux/elf-em.h.
_OTHER_ERRORS = (2, 8, 10, 15, 18, 43, 36902)
# The names in the kernel's include/uapi/asm-generic/errno.h, where Python has another name of the number, or none.
_ERRORS = {35: "EDEADLK", 95: "EOPNOTSUPP", 133: "EHWPOISON"}


def arch_strerrno(err: int, elf_machine: int | None = None) -> str | None:
    """Returns the name of an error number, which may be negative: 'ENOENT'. Returns None if it has none, and for machines
    with other numbers than most: SPARC, MIPS, PA-RISC and Alpha."""
    if elf_machine in _OTHER_ERRORS:
        return None
    from errno import errorcode

    return _ERRORS.get(abs(err)) or errorcode.get(abs(err))


_DEVICES = "/sys/bus/event_source/devices"


class pmu:
    """A PMU of this machine: a part that counts events, as the kernel lists it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """Returns the name, such as 'cpu'."""
        return self._name

    def events(self) -> list[dict[str, str]]:
        """Returns the events that the kernel lists, as dicts with name, encoding_desc and, if known, scale_unit.

        The events of `software` and `tracepoint` are those that parse_events() knows by their names alone.
        """
        if self._name in ("software", "tracepoint"):
            return known_events(self._name)
        folder = f"{_DEVICES}/{self._name}/events"
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        events = []
        for name in names:
            if name.endswith((".scale", ".unit")):
                continue
            event = {"name": name, "encoding_desc": f"{self._name}/{_line(f'{folder}/{name}')}/"}
            if unit := _line(f"{folder}/{name}.unit"):
                event["scale_unit"] = _line(f"{folder}/{name}.scale") + unit
            events.append(event)
        return events

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"pmu({self._name})"


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def pmus() -> Iterator[pmu]:
    """Returns the PMUs of this machine."""
    names = sorted(os.listdir(_DEVICES)) if os.path.isdir(_DEVICES) else []
    return iter([pmu(name) for name in names])


def metrics() -> list[dict[str, str | list[str]]]:
    """Returns the metrics of this machine: none, because perf-prof lacks the tables of the CPUs' events."""
    return []


def parse_metrics(
    metrics_string: str, pmu: str | None = None, cpus: cpu_map | None = None, threads: thread_map | None = None
) -> NoReturn:
    """Raises NotImplementedError, because metrics need the tables of a CPU's events, which perf-prof lacks."""
    raise NotImplementedError(
        "perf.parse_metrics(): perf-prof has no tables of the events and metrics of CPUs; read the metric's events with "
        "parse_events() and compute it from their counts, as `perf list --details METRIC` shows it, or use the perf module "
        "of an installed perf"
    )


def config_get(name: str) -> str | None:
    """Returns a value of perf's configuration ('colors.top') from ~/.perfconfig and /etc/perfconfig, or None if it is
    not set.

    The environment variable PERF_CONFIG names a file that replaces both.
    """
    own = os.environ.get("PERF_CONFIG")
    paths = [own] if own else ["/etc/perfconfig", os.path.expanduser("~/.perfconfig")]
    value = None
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                value = _config(file.read()).get(name.lower(), value)
        except OSError:
            continue
    return value


def _config(text: str) -> dict[str, str]:
    """Returns the values in a configuration file by `section.key`."""
    section, values = "", {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().replace(' "', ".").rstrip('"').lower()
        elif line and line[0] not in "#;":
            key, equals, value = line.partition("=")
            values[f"{section}.{key.strip().lower()}"] = _unquoted(value) if equals else "true"
    return values


def _unquoted(value: str) -> str:
    """Returns a value without its quotes and the comment after it."""
    text, is_quoted = "", False
    for letter in value:
        if letter == '"':
            is_quoted = not is_quoted
        elif letter in "#;" and not is_quoted:
            break
        else:
            text += letter
    return text.strip()


def _run(argv: list[str]) -> None:
    """Runs a script as `python FILE` does, but `import perf` imports this module."""
    import runpy
    import sys

    from perf_prof import _perf_import

    if len(argv) < 2:
        sys.exit("usage: python -m perf_prof.perf FILE [ARGS]")
    _perf_import.install()
    script = argv[1]
    sys.argv[:] = argv[1:]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    import sys as _sys

    from perf_prof.perf import _run as _run_script

    _run_script(_sys.argv)
