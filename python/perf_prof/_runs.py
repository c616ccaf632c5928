"""The functions that trace, replay, record and count. Their keywords are the rows of `_options.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from os import fspath, register_at_fork

from perf_prof import _native
from perf_prof._errors import OptionError, SelectorError
from perf_prof._options import (
    Divided,
    FlightOptions,
    Interval,
    RecordOptions,
    ReplayOptions,
    RunOptions,
    StatOptions,
    TraceOptions,
    forms,
    takes,
)

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from os import PathLike
    from typing import Any, Literal

    from typing_extensions import Unpack

    from perf_prof._native import FlightRun, PerfEvent, RecordingRun, RunResult, Trace

register_at_fork(after_in_child=_native.close_copies)


@takes(TraceOptions)
def trace(*selectors: str, **options: Unpack[TraceOptions]) -> Trace:
    """Opens events and starts to trace them. Returns a Trace, which is a context manager and an iterator of PerfEvent.

    A selector is written as after `perf-prof python -e`: 'sched:sched_switch/prev_pid>0/', 'page-faults', 'cycles:u'.
    Without cpus, pid, tid, cgroup and exec, the events of all tasks on all CPUs are traced, including this program.
    exec is a command as a list of words. The trace ends with the command. Lists may be lists or text ('0-3'). Times are
    seconds (float) or text with a unit ('50ms'). call_graph is True, 'fp' or 'dwarf'. With order=True, the events of
    all CPUs come in the order of time. The trace ends after limit events, or after the time duration.
    on_lost(start, end) is called where events were lost between these times (ns; 0 without order).

    Raises SelectorError (unknown event, wrong filter), OptionError, AccessError (a PermissionError), KernelError.
    """
    return _native.open_trace(selectors, options, forms(TraceOptions))


@takes(ReplayOptions)
def replay(
    path: str | PathLike[str], *selectors: str, progress: bool = False, **options: Unpack[ReplayOptions]
) -> Trace:
    """Opens a recording of perf or of perf-prof. Returns a Trace with its events, in the order of time.

    Without selectors, all events in the recording are delivered. time selects a part of it: '10%-20%', '10%/2' (the
    second tenth), or a pair of seconds of its clock. force=True reads the recording of another user.
    on_lost(start, end) is called where events were lost between these times (ns). With progress=True, iteration shows
    its progress with tqdm, if it is installed.

    Raises RecordingError (damaged, or no recording; RecordingFileError is an OSError too: it is missing or may not be
    read), SelectorError, OptionError.
    """
    events = _native.open_trace(selectors, options, forms(ReplayOptions), path)
    return _with_progress(events) if progress else events


@takes(RunOptions)
def run(
    *selectors: str,
    handlers: object,
    input: str | PathLike[str] | None = None,
    on_error: Literal["raise", "continue"] = "raise",
    progress: bool = False,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Traces events, or replays the recording input, and calls handlers in this thread, as perf-prof does for a script.

    handlers is a module, an object, a dict or a single function. Its functions have the names of a script's functions:
    sched__sched_wakeup(event), __sample__(event), __interval__(), __lost__(start, end), __exit__(). A single function
    gets all events. on_lost is another way to give __lost__. If handlers is a context manager, its __exit__ is not
    called. With progress=True, the replay of a recording shows its progress with tqdm, if it is installed. With
    on_error='raise', the first exception of a handler ends the run and is raised here, after __exit__; with 'continue',
    its traceback is printed and the run goes on. Signal handlers stay those of the program.

    With jobs=N, N forked processes each replay a part of the recording with copies of the handlers. Each process calls
    __partial__(), whose result has to be picklable. This process then calls __merge__(partials) and __exit__().
    split='cpu' divides the recording by CPU and not by time. The output of the parts comes in their order. An exception
    in a part is raised here at once. Then nothing is merged, and __exit__ is not called.

    Returns a RunResult with delivered, lost and status (that of the command of exec, else 0; 1 if a handler raised).
    Raises HandlerError (no handler for the events, or no plain function), and what trace() and replay() raise.
    """
    table = forms(TraceOptions, Interval) if input is None else forms(ReplayOptions, Interval, Divided)
    if progress and input is None:
        raise OptionError("run(): progress needs a recording; give input, or leave progress out")
    if options.get("jobs") is not None or options.get("split") is not None:
        divided = _native.divide(selectors, options, table, handlers, input, on_error)
        if divided is not None:
            from perf_prof._jobs import replay_parts

            with _bar(progress, unit=" parts", total=divided.parts) as bar:
                return replay_parts(divided, bar and bar.update)
    with _bar(progress, **_EVENTS) as bar:
        return _native.run_handlers(selectors, options, table, handlers, input, on_error, bar and bar.update)


@takes(RecordOptions)
def record(
    *selectors: str, output: str | PathLike[str] = "perf.data", **options: Unpack[RecordOptions]
) -> Recording:
    """Records events into a file (or with threads=True a directory) that perf and perf-prof can read.

    With exec or duration, returns when the command has ended or the time is over. Without them, recording continues in
    the background until the end of the `with` statement, or until stop(). Returns a Recording.

    Raises SelectorError, OptionError, AccessError (a PermissionError), KernelError, RecordingFileError (the file cannot be
    created or written).
    """
    path = fspath(output)
    recording = Recording(path, _native.start_recording(path, selectors, options, forms(RecordOptions)))
    if options.get("exec") is not None or options.get("duration") is not None:
        recording.status = recording._run.wait()
    return recording


class Recording:
    """A recording that record() makes. `path` is its file; `status` is the exit status of the command, once it is known
    (0 without a command)."""

    def __init__(self, path: str, run: RecordingRun) -> None:
        self.path = path
        self.status: int | None = None
        self._run = run

    def stop(self) -> None:
        """Ends the recording, and returns when its file is complete. Further calls have no effect."""
        if self.status is None:
            self.status = self._run.stop()

    def replay(self, *selectors: str, progress: bool = False, **options: Unpack[ReplayOptions]) -> Trace:
        """Ends the recording if it still runs, and replays it like perf_prof.replay()."""
        self.stop()
        return replay(self.path, *selectors, progress=progress, **options)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<perf_prof.Recording {self.path!r}, {'open' if self.status is None else 'complete'}>"


@takes(FlightOptions)
def flight(
    *selectors: str, folder: str | PathLike[str] = ".", **options: Unpack[FlightOptions]
) -> Flight:
    """Keeps the events of the last seconds in memory. dump() of the returned Flight writes them into a recording.
    Events wake no process.

    before is the time that is kept ('10s'). after is the time that a dump goes on after dump(). Each dump is a file of
    its own in folder, which is created if it does not exist.

    Raises SelectorError, OptionError, AccessError (a PermissionError), KernelError.
    """
    return Flight(_native.start_flight(fspath(folder), selectors, options, forms(FlightOptions)))


class Flight:
    """The events of the last seconds, which flight() keeps until stop() or the end of the `with` statement."""

    def __init__(self, run: FlightRun) -> None:
        self._run = run

    def dump(self, reason: str = "", path: str | PathLike[str] | None = None) -> str:
        """Writes a recording of the events before this call, and of those in the time after that follows. Returns its
        path. The file's name contains the time and the reason, unless path is given.

        Raises RecordingFileError (the file cannot be written), ClosedError (after stop(), or in a forked child).
        """
        return fspath(self._run.dump(reason, None if path is None else fspath(path)))

    def stop(self) -> None:
        """Ends the flight recorder. Further calls have no effect."""
        self._run.stop()

    def __enter__(self) -> Flight:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@takes(StatOptions)
def stat(*selectors: str, **options: Unpack[StatOptions]) -> Counts:
    """Counts events until the command exec has ended or the time duration is over. Returns a Counts, which maps names
    to EventCount.

    Without selectors, counts the default events of `perf-prof stat`.

    Raises SelectorError (unknown event, or one that is selected twice), OptionError, AccessError (a PermissionError),
    KernelError.
    """
    counted = _native.count(selectors, options, forms(StatOptions))
    counts: dict[str, EventCount] = {}
    for name, count in counted["rows"]:
        if name in counts:
            raise SelectorError(f"stat(): {name} is selected twice; count it once, or give the filters to two calls")
        counts[name] = EventCount(unit="ns" if name.partition(":")[0] in _TIMES else "", **count)
    return Counts(counts, counted["elapsed"], counted["status"])


# The events whose counts are times in ns (PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK).
_TIMES = ("cpu-clock", "task-clock")


class EventCount:
    """The count of an event. `value` is None if the machine lacks the event or never had a counter for it.

    `unit` is 'ns' if the value is a time, and '' if it is a number of events. `enabled` and `running` are times in ns:
    while the event was enabled, and while it had a counter. If running is less than enabled, value is scaled up to the
    time enabled.
    """

    __slots__ = ("value", "unit", "enabled", "running", "is_supported")

    def __init__(self, value: int | None, unit: str, enabled: int, running: int, is_supported: bool) -> None:
        self.value = value
        self.unit = unit
        self.enabled = enabled
        self.running = running
        self.is_supported = is_supported

    def __repr__(self) -> str:
        unit = f", unit={self.unit!r}" if self.unit else ""
        return f"EventCount(value={self.value}{unit}, enabled={self.enabled}, running={self.running})"


class Counts(Mapping[str, EventCount]):
    """The result of stat(), which maps the names of events to EventCount. `elapsed` is in seconds. `status` is the exit
    status of the command, or 0."""

    def __init__(self, counts: dict[str, EventCount], elapsed: float, status: int) -> None:
        self._counts = counts
        self.elapsed = elapsed
        self.status = status

    def __getitem__(self, name: str) -> EventCount:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Counts({self._counts!r})"

    def _repr_html_(self) -> str:
        from html import escape  # Importing it takes a millisecond.

        row = "<tr><td>{}</td><td style='text-align:right'>{}</td><td>{}</td></tr>".format
        rows = []
        for name, count in self.items():
            shown = "not counted" if count.value is None else f"{count.value / 1e6 if count.unit else count.value:,}"
            rows.append(row(escape(name), shown, "ms" if count.unit and count.value is not None else ""))
        return "<table>" + "".join(rows) + "</table>"


class _WithProgress:
    """A Trace whose iteration shows how many events there were."""

    def __init__(self, events: Trace, tqdm: Callable[..., Any]) -> None:
        self._events = events
        self._tqdm = tqdm

    def __iter__(self) -> Iterator[PerfEvent]:
        return iter(self._tqdm(self._events, **_EVENTS))

    def __enter__(self) -> _WithProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)


# The arguments for tqdm's progress bar with a number of events.
_EVENTS: dict[str, Any] = {"unit": " events", "unit_scale": True}


def _tqdm() -> Any:
    """Returns the class of tqdm's progress bars, or None if tqdm is not installed."""
    from importlib import import_module  # Type checkers may not know types of tqdm.

    try:
        return import_module("tqdm.auto").tqdm
    except ImportError:
        return None


def _with_progress(events: Trace) -> Any:
    tqdm = _tqdm()
    return events if tqdm is None else _WithProgress(events, tqdm)


def _bar(progress: bool, **options: Any) -> AbstractContextManager[Any]:
    """Returns a context manager for a progress bar. Its value in the `with` statement is None if there is no bar."""
    tqdm = _tqdm() if progress else None
    return nullcontext() if tqdm is None else tqdm(**options)
