"""The classes and functions of the package `perf_prof` that are written in Rust."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, Protocol, TypedDict

from perf_prof._perf_events import evsel
from perf_prof._perf_records import SampleId
from perf_prof.testing import Lost

__version__: str

class _KnownFrame(TypedDict):
    """The keys that every frame of a call chain has. If the frame has no symbol, `offset` is the offset in the dso."""

    addr: int
    symbol: str
    offset: int
    kernel: bool
    dso: str

class _Frame(_KnownFrame, total=False):
    """One frame of a call chain. User frames have `pid`; `inlined` needs --inline, `srcline` needs --srcline.

    Functions of Python programs (--python-frames) have `python` (True) and `line`, and `srcline` without --srcline if
    their line is known. Otherwise `line` is None. Their `symbol` is the qualified name, or a reason in place of it,
    such as '[python: the process has ended]'; `dso` is the name of the file, or '[python]' with a reason.
    """

    pid: int
    inlined: bool
    srcline: str
    python: bool
    line: int | None

_Type = type[int] | type[bool] | type[str] | type[bytes]

class _Counts(TypedDict):
    """The number of delivered events and the number of lost events."""

    delivered: int
    lost: int

class _SpanCounts(TypedDict, total=False):
    """The counts that only spans have. `opened` is the sum of `ended`, `open` and `dropped`."""

    opened: int
    ended: int
    open: int
    dropped: int
    without_begin: int
    begun_before: int
    begun_before_events: int
    unseen: int
    partial: bool
    incomplete_tasks: dict[int, tuple[str, int]]
    missing_time: int | None
    cpus_without_idle_events: list[int]

class _EventCounts(_SpanCounts):
    """The counts of one selected event. `lost` is None on kernels before 6.0, and for spans that are not made in the
    kernel. `where` is where the event is added up: in the kernel, or in perf-prof, which gets its samples."""

    delivered: int
    lost: int | None
    where: Literal["kernel", "perf-prof"]

class _RecordingFacts(TypedDict):
    """The result of `recording()`. What the recording does not say is None."""

    path: str
    hostname: str | None
    kernel: str | None
    start: int | None
    end: int | None

class _Shard(TypedDict):
    """The result of `shard()`: this is part `number` (from 0 on) of `count` parts. `split` is 'time' or 'cpu'."""

    number: int
    count: int
    split: str

class _Stats(TypedDict, total=False):
    """The result of `stats()`. It is empty before the run has begun."""

    delivered: int
    lost: int
    own: int
    partial: bool
    events: dict[str, _EventCounts]
    cpus: dict[int, _Counts]

class _Counted(TypedDict):
    """The result of `count()`: each event with the arguments of its EventCount, and the time in seconds."""

    rows: list[tuple[str, dict[str, Any]]]
    elapsed: float
    status: int

class FieldError(KeyError, AttributeError):
    """Raised if an event has no field of the given name. It is both a KeyError and an AttributeError."""

class PerfEvent:
    """One kernel event, as it is passed to its handler. It is read-only. A field is decoded each time it is read.

    Every event has _pid, _tid, _time (ns), _cpu, _period, _realtime (ns since the epoch), _callchain (list of frames),
    _comm (name of the task) and _event (its name: 'sys:name', 'profile'). With --all-cgroups it has _cgroup (path of the
    task's cgroup). A tracepoint also has common_type, common_flags, common_preempt_count, common_pid and its own fields.
    Other events have the members of their samples (ip, addr, period, ...). type(event).__doc__ lists them.

    Access: event.field, event['field'], event.get('field', default=None), 'field' in event, len(event), keys(),
    values(), items(), iteration over (name, value), dict(event), to_dict(). event.print() writes the event as text.
    event.text('flags') returns a field as text, as the kernel prints it. event.array('args') returns the integers of
    an array field as a tuple. A script may keep an event after its handler has returned.
    """

    @property
    def _pid(self) -> int:
        """process id (int), -1 while the task exits"""
    @property
    def _tid(self) -> int:
        """thread id (int), -1 while the thread exits"""
    @property
    def _time(self) -> int:
        """time of the perf clock in ns; for latencies (int)"""
    @property
    def _cpu(self) -> int:
        """CPU (int)"""
    @property
    def _period(self) -> int:
        """sample period (int)"""
    @property
    def common_type(self) -> int:
        """id of the tracepoint in this kernel"""
    @property
    def common_flags(self) -> int:
        """bits of enum trace_flag_type: interrupts disabled, reschedule needed, in a hard or soft interrupt"""
    @property
    def common_preempt_count(self) -> int:
        """depth of disabled preemption, in the low four bits"""
    @property
    def common_pid(self) -> int:
        """thread id, in the initial PID namespace"""
    @property
    def _realtime(self) -> int | None:
        """time in ns since the Unix epoch; for display (int, computed at access; None if a recording does not say it)"""
    @property
    def _callchain(self) -> list[_Frame]:
        """call chain, innermost first: list of {'addr','symbol','offset','kernel','dso'} (resolved at access)"""
    @property
    def _event(self) -> str:
        """tracepoint: 'sys:name', or 'sys:alias' with alias=; other event: its name or alias (str)"""
    @property
    def _comm(self) -> str:
        """name of the task at the time of the event, as print() shows it; not one of keys() (str)"""
    @property
    def _cgroup(self) -> str:
        """path of the task's cgroup, with --all-cgroups; not one of keys() (str)"""

    def __getattr__(self, name: str) -> Any:
        """Returns a field of this event. Raises AttributeError if the event has no field of this name."""
    def __getitem__(self, name: str, /) -> Any: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[str, Any]]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle. A copy of the event is complete: it does not depend on the run."""
    def keys(self) -> list[str]:
        """Returns the names of all fields, in the order of the event's record."""
    def values(self) -> list[Any]:
        """Returns the values of all fields, in the order of keys()."""
    def items(self) -> list[tuple[str, Any]]:
        """Returns the (name, value) pairs of all fields, in the order of keys()."""
    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of the field with this name, or default if the event has no such field."""
    def _repr_html_(self) -> str:
        """Jupyter shows this in a notebook: a table of the names and values."""
    def to_dict(self) -> dict[str, Any]:
        """Returns a dict with the names and values of all fields."""
    def print(self, timestamp: bool = True, callchain: bool = True) -> None:
        """Writes the event to sys.stdout: the kernel's own text, and the call chain if there is one.

        If timestamp is true, the line starts with the local date and time.
        """
    def array(self, name: str) -> tuple[int, ...]:
        """Returns the integers of an array field. Raises TypeError if the field is not an array of integers."""
    def text(self, name: str) -> str:
        """Returns a field as text, as the kernel's print format shows it, for example GFP_KERNEL|__GFP_ZERO."""

class FlameGraph:
    """Stacks with weights. save() writes them as a flame graph (SVG, for a browser) or as folded text.

    Without colors, and with 'offcpu' for time spent waiting, the color of a function shows whether it is one of
    Python, of the kernel, or neither. Other colors are 'hot', 'red', 'green', 'blue', 'aqua', ..., and with 'java',
    'js', 'rust', ... the color is that of a kind of function in that language. count_name is the unit of the
    weights, for example 'us'. Without subtitle, the picture has the sum of the weights, the host, the date and the
    duration below its title. inverted draws the callers on top. len() is the number of different stacks. A
    notebook shows the picture, where a click zooms.
    """

    def __new__(
        cls,
        title: str | None = None,
        colors: str | None = None,
        count_name: str = "samples",
        subtitle: str | None = None,
        inverted: bool = False,
    ) -> FlameGraph: ...
    def add(self, stack: PerfEvent | list[str] | tuple[str, ...], weight: int = 1) -> None:
        """Adds a stack with its weight. The stack is an event, or a list or tuple of function names, outermost
        function first.

        If an event is given, its stack is the name of its task, followed by its call chain. A frame without a
        symbol is shown as [file]. In folded text, the names of kernel frames end in _[k], those of Python
        functions in _[python].
        """
    @property
    def total(self) -> int:
        """The sum of all weights."""
    def folded(self) -> str:
        """Returns one line per stack: the names, separated by ';' and outermost first, then a space and the weight."""
    @staticmethod
    def check(path: str | PathLike[str]) -> None:
        """Checks that save(path) can write the file. Call it before the run: after a failed save(), stacks are lost.

        Raises ValueError if path does not end in .svg or .folded, and OSError if no file can be created or
        overwritten there. The text of the error starts with path.
        """
    def save(self, path: str | PathLike[str], partial: str | None = None) -> None:
        """Writes a file: a picture if path ends in .svg, folded text if it ends in .folded.

        partial says what is missing in the stacks, beside the lost events, which the picture names itself. Raises
        ValueError if path has another ending, or if there are no stacks for a picture.
        """
    def update(self, other: FlameGraph) -> None:
        """Adds all stacks of another FlameGraph."""
    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle. The stacks are stored as text, so that another process can load them."""
    def __setstate__(self, state: tuple[str, int, int]) -> None: ...

class Track:
    """A track of a Timeline."""

    @property
    def name(self) -> str:
        """The name of the track."""

class Timeline:
    """Slices, instants and counters on named tracks. save() writes them as a trace for ui.perfetto.dev.

    Times and durations are in nanoseconds, as event._time and event.duration. A track is given by its name, or as the
    object that track() returns. Arguments are shown with a slice: numbers, bool, str, and other objects as str(). Slices
    of a track may overlap. If events were lost, the trace has a track that says so. len() is the number of slices,
    instants and values of counters.
    """

    def __new__(cls) -> Timeline: ...
    def track(self, name: str, parent: Track | str | None = None) -> Track:
        """Returns the track with this name, and creates it at first use. parent is a track (or its name) below which it is
        shown.
        """
    def slice(self, track: Track | str, name: str, start: int, duration: int, **args: object) -> int:
        """Adds a slice: something that took duration ns from start on. Returns its number, for flow()."""
    def instant(self, track: Track | str, name: str, time: int, **args: object) -> int:
        """Adds a moment. Returns its number, for flow()."""
    def counter(self, track: Track | str, time: int, value: float) -> None:
        """Says that the counter has this value (int or float) from time on. The counter is a track of its own."""
    def flow(self, source: int, target: int) -> None:
        """Draws an arrow from one slice or instant to another. Both are numbers that slice() and instant() returned."""
    def update(self, other: Timeline) -> None:
        """Adds everything that is in another Timeline. Tracks with the same name and parent become one."""
    def save(self, path: str | PathLike[str]) -> None:
        """Writes the trace. Raises ValueError if path does not end in .pftrace, and OSError if it cannot be written."""
    def to_bytes(self) -> bytes:
        """The bytes that save() writes."""
    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle."""
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...

class _Writes(Protocol):
    """A file to which text can be written."""

    def write(self, text: str, /) -> Any: ...

class Heatmap:
    """Counts of values over time, for example of latencies. save() draws them as a heat map (SVG, for a browser).

    The values are on a logarithmic scale with four rows for each power of two. So several levels of values are
    visible, and single slow requests among millions of fast ones. Times are in nanoseconds, as event._time; there
    are up to 512 columns. unit is the unit of the values: ns, us, ms, s, or a word such as bytes. value is the title
    of their axis. The text below the title has subtitle, the number of values, the duration of the run, the host and the date.
    For values of a longer time than the run, such as those of a log, it shows neither its duration nor its date.
    len() is the number of values. A notebook shows the picture.
    """

    def __new__(
        cls, title: str | None = None, unit: str = "ns", subtitle: str | None = None, value: str | None = None
    ) -> Heatmap: ...
    def add(self, time: int, value: float, n: int = 1) -> None:
        """Counts a value n times at a time in ns. Digits after the decimal point are ignored. Values below zero are counted,
        but not drawn."""
    def update(self, other: Heatmap) -> None:
        """Adds the counts of another Heatmap."""
    @property
    def column_width(self) -> int:
        """The number of ns for which a column stands."""
    def cells(self) -> list[tuple[int, int, int, int]]:
        """Returns the counts as a list of (time, low, high, count), in order: the time at which the column starts, the
        smallest and the largest value of the row."""
    def clear(self) -> None:
        """Removes all values."""
    @staticmethod
    def check(path: str | PathLike[str]) -> None:
        """Checks that save(path) can write the file. Call it before the run: after a failed save(), the counts are lost.

        Raises ValueError if path does not end in .svg, and OSError if no file can be created or overwritten there.
        """
    def save(self, path: str | PathLike[str]) -> None:
        """Writes the picture. Raises ValueError if path does not end in .svg or if there are no values, and OSError if the
        file cannot be written."""
    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle."""
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...

class Log2Hist:
    """A histogram with a row for each power of two: 0 to 1, 2 to 3, 4 to 7, and so on. name is the heading of the
    values: their unit, for example 'usecs'.

    For several histograms, use collections.defaultdict(Log2Hist). len() is the number of values. A
    notebook shows a table with bars. It counts numbers and not events, so it does not say what missing() says.
    """

    def __new__(cls, name: str = "value") -> Log2Hist: ...
    def add(self, value: float, n: int = 1) -> None:
        """Counts a value n times. Digits after the decimal point are ignored. All negative values are counted in one
        row."""
    def update(self, values: Iterable[float] | Log2Hist) -> None:
        """Counts each value of an iterable, or adds the counts of another Log2Hist."""
    def print(self, file: _Writes | None = None) -> None:
        """Writes the histogram to a file, or to sys.stdout."""
    def to_dict(self) -> dict[int, int]:
        """Returns the count of each row by its smallest value: {0: 3, 2: 1, 4: 7}. Negative values have the key -1."""
    def clear(self) -> None:
        """Removes all values."""
    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle contains the name and the counts."""
    def __setstate__(self, counts: dict[int, int]) -> None: ...

class Distribution:
    """The distribution of the values of one key of a Hist, at the time when this object was made.

    count, sum, min, max and mean are numbers in the unit of the field. min, max and mean are None if there are no
    values. Printed text and tables are in the unit of the Hist. len() is count. A notebook shows a table with bars.
    """

    @property
    def count(self) -> int:
        """The number of values."""
    @property
    def sum(self) -> int:
        """The sum of the values."""
    @property
    def min(self) -> int | None:
        """The smallest value."""
    @property
    def max(self) -> int | None:
        """The largest value."""
    @property
    def mean(self) -> float | None:
        """The sum divided by the count."""
    def percentile(self, percent: float) -> int | None:
        """Returns the value that percent (0 to 100) of all values do not exceed, or None if there are no values.

        It is estimated within the range of values that are counted together: with powers of two, it is at most an
        eighth away from the value.
        """
    def to_dict(self) -> dict[str, Any]:
        """Returns {'count', 'sum', 'min', 'max', 'rows'}. rows has the count of each row by its smallest value; values
        below the first row have the key None."""
    def print(self, file: _Writes | None = None) -> None:
        """Writes the rows with bars to a file, or to sys.stdout."""
    def __len__(self) -> int: ...

class Aggregator:
    """The base of Count, Sum, Hist and Stacks: a table of amounts by key, which is filled without Python.

    A script uses it like a handler: an object that is named after an event gets all of its events. A key is the
    value of a field if there is one name, else a tuple with the values of all names. len() is the number of keys,
    and iteration yields the keys. A notebook shows the table.
    """

    def add(self, event: PerfEvent) -> None:
        """Adds an event. Raises ValueError if the event does not have one of the names."""
    def update(self, other: Aggregator) -> None:
        """Adds all amounts of another object of the same class with the same names."""
    def clear(self) -> None:
        """Removes all keys."""
    def most_common(self, n: int | None = None) -> list[tuple[Any, Any]]:
        """Returns the (key, amount) pairs of the n keys with the largest amounts, the largest first. Without n, returns all pairs."""
    def keys(self) -> list[Any]:
        """Returns all keys, in the order in which they came first."""
    def values(self) -> list[Any]:
        """Returns the amounts of all keys, in the order of keys()."""
    def items(self) -> list[tuple[Any, Any]]:
        """Returns the (key, amount) pairs of all keys, in the order of keys()."""
    def to_dict(self) -> dict[Any, Any]:
        """Returns a dict with all keys. The values are numbers, or for a Hist the dicts of Distribution.to_dict()."""
    def print(self, top: int | None = None, file: _Writes | None = None) -> None:
        """Writes the table to a file, or to sys.stdout: the top keys with the largest amounts, or all keys."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as columns, for libraries that read Arrow: those of the names, then count or sum; for a Hist, count,
        sum, min, max, p50, p90 and p99."""
    @property
    def total(self) -> Any:
        """The sum of all amounts, including folded ones. For a Hist: a Distribution of all values."""
    @property
    def others(self) -> Any:
        """The sum of the amounts of all folded keys. Keys are folded if there are more than limit, or if they take too
        much memory."""
    @property
    def times_folded(self) -> int:
        """How often a key was folded, because there were more than limit keys or they took too much memory (--buffer). If
        it is not 0, the true amounts of some keys may be larger than shown."""
    def __call__(self, event: PerfEvent) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __contains__(self, key: Any) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getstate__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...

class Count(Aggregator):
    """Counts events by keys: the names of fields, or of members such as _comm, _pid, _cpu and _stack.

    where is a filter such as 'prev_state==0'. If there are more than limit keys, the smallest are folded into others. An
    item is 0 if there is no such key.
    """

    def __new__(cls, *keys: str, where: str | None = None, limit: int = 1_000_000) -> Count: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Sum(Aggregator):
    """Adds up the value of a field for each key. by is the name of a field or member, or a tuple of names.

    where and limit are as for Count. An item is 0 if there is no such key.
    """

    def __new__(
        cls, value: str, by: str | Sequence[str] | None = None, *, where: str | None = None, limit: int = 1_000_000
    ) -> Sum: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Hist(Aggregator):
    """Counts how the value of a field is distributed, for each key. by is the name of a field or member, or a tuple of names.

    Values are counted by powers of two, or with linear=(low, high, step) in ranges of the same width. With unit
    'us', 'ms' or 's', the values must be in ns. They are shown in this unit, and low, high and step are in this
    unit too. The numbers of a Distribution stay in ns. Any other unit is only a name. where and limit are as for
    Count. An item is a Distribution, which is empty if there is no such key.
    """

    def __new__(
        cls,
        value: str,
        by: str | Sequence[str] | None = None,
        *,
        linear: tuple[int, int, int] | None = None,
        unit: str | None = None,
        where: str | None = None,
        limit: int = 1_000_000,
    ) -> Hist: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Stacks(Aggregator):
    """Counts call chains for each key, or adds up the value of a field for each call chain. by is as for Sum. The events need
    call chains: -g, or the attribute stack.

    The last part of a key is the call chain: the names of its functions, separated by ';' and outermost first. where and
    limit are as for Count.
    """

    def __new__(
        cls,
        by: str | Sequence[str] | None = "_comm",
        value: str | None = None,
        *,
        where: str | None = None,
        limit: int = 1_000_000,
    ) -> Stacks: ...
    def folded(self) -> str:
        """Returns one line per key: its parts and the functions, separated by ';' and outermost first, then a space and the
        amount. If keys were folded, the last line has the amount of [others], unless it is negative.
        """
    def flame_graph(
        self,
        title: str | None = None,
        colors: str | None = None,
        count_name: str | None = None,
        subtitle: str | None = None,
        inverted: bool = False,
    ) -> FlameGraph:
        """Returns the stacks as a FlameGraph. The arguments are those of FlameGraph()."""
    def pprof(self) -> bytes:
        """Returns the stacks as a profile of pprof, packed by gzip. The other parts of a key are labels."""
    def save(self, path: str | PathLike[str]) -> None:
        """Writes a flame graph if path ends in .svg, folded text if it ends in .folded, a profile of pprof if it ends in .pb.gz.
        See FlameGraph.save()."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Top:
    """Keeps the n events with the largest values of a field, whole: with the name of the task and the call chain.

    where is a filter such as 'prev_state==0'. keep is a name or a tuple of names, as in the keys of Count: then
    only these values of each event are kept. Iteration yields the events or the kept values, the largest first. A
    script uses the object like a handler: if it is named after an event, it gets all of its events.
    """

    def __new__(cls, n: int, value: str, *, where: str | None = None, keep: str | tuple[str, ...] | list[str] | None = None) -> Top: ...
    def add(self, event: PerfEvent) -> None:
        """Keeps an event if it is among the largest. Raises ValueError if the event does not have one of the names."""
    def update(self, other: Top) -> None:
        """Adds the events of another Top with the same value and the same keep."""
    def clear(self) -> None:
        """Removes all events."""
    def most_common(self, n: int | None = None) -> list[tuple[Any, int]]:
        """Returns the (event, value) pairs of the n events with the largest values, the largest first. Without n, returns all
        pairs. With keep, a pair has the kept values instead of the event."""
    def print(self, top: int | None = None) -> None:
        """Prints the events, the one with the largest value first, as event.print() does. With keep, prints a table. top is
        the number of events, without it all.
        """
    @property
    def without_room(self) -> int:
        """How many events had no room in memory (--buffer), although fewer than n are kept. They have the smallest values."""
    def __call__(self, event: PerfEvent) -> None: ...
    def _repr_html_(self) -> str:
        """Jupyter shows this in a notebook: the events with their values, or a table of what is kept of them."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __repr__(self) -> str: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def __getstate__(self) -> tuple[list[Any], int, int]: ...
    def __setstate__(self, state: tuple[list[Any], int, int]) -> None: ...

def syscall_name(nr: int) -> str:
    """Returns the name of a system call, or 'sys_NR' if the number has no name. The number is looked up for this
    machine's architecture; with --input, for the recording's architecture (from __init__ on). For calls of 32-bit programs
    on x86-64, 2048 is added to the number, as in `nr` of spans of `syscall`."""

def syscall_nr(name: str) -> int:
    """Returns the number of a system call. Raises KeyError if the architecture has no system call of this name."""

def errno_name(n: int) -> str:
    """Returns the name of an error number, which may be negative: errno_name(-2) == 'ENOENT'. Returns 'errno_N'
    if the number has no name."""

class FieldFormat:
    """A field of an event."""

    @property
    def name(self) -> str:
        """The field's name."""

    @property
    def type(self) -> str:
        """The type in C, such as 'char[16]'."""

    @property
    def python_type(self) -> _Type:
        """The type of the field's values in Python: int, bool, str or bytes."""

    @property
    def size(self) -> int:
        """The size in the event's data, in bytes. It is 0 for an array that extends to the end of the data."""

    @property
    def signed(self) -> bool:
        """True if the field can be negative."""

    @property
    def offset(self) -> int:
        """The place in the event's data, in bytes from its start."""

class EventFormat:
    """The format of a tracepoint: its name, its fields, and how the kernel prints it."""

    def _repr_html_(self) -> str:
        """Jupyter shows this in a notebook: a table of the fields."""

    @property
    def name(self) -> str:
        """The event's name without its system, such as 'sched_switch'."""

    @property
    def system(self) -> str:
        """The event's system, such as 'sched'."""

    @property
    def id(self) -> int:
        """The event's number in its kernel."""

    @property
    def fields(self) -> tuple[FieldFormat, ...]:
        """The event's own fields, as a tuple of FieldFormat."""

    @property
    def common_fields(self) -> tuple[FieldFormat, ...]:
        """The fields that all tracepoints have, such as common_pid, as a tuple of FieldFormat."""

    @property
    def print_format(self) -> str:
        """The format with which the kernel prints the event."""

def events(pattern: str = "*:*", *, formats: str | PathLike[str] | None = None) -> list[EventFormat]:
    """Returns the formats of the tracepoints that match pattern, sorted by name. A pattern is 'system:name',
    and both parts may have wildcards: 'sched:*'. A pattern without ':' is compared with the names in all systems.

    formats says where the formats come from: 'kernel' (the default) for this kernel, 'shipped' for those that
    perf_prof brings, or the path of a recording. Raises AccessError, which is a PermissionError, if this kernel's
    formats cannot be read."""

def event(name: str, *, formats: str | PathLike[str] | None = None) -> EventFormat:
    """Returns the format of the tracepoint name, which is written as 'system:name'.

    formats says where the format comes from, as in events(). Raises SelectorError, which is a ValueError, with similar
    names if there is no such tracepoint."""

def ksym(addr: int) -> str:
    """Returns 'symbol+0xoffset' for a kernel address, or '0x...' if it has no symbol."""

def usym(pid: int, addr: int) -> str:
    """Returns 'symbol+0xoffset' for an address in a process, using the process's current mappings. Returns
    'dso+0xoffset' if there is no symbol, '0x...' if nothing is mapped at the address, and '[unknown]+0x...'
    if the process is not known."""

def srcline(frame: _Frame) -> str | None:
    """Returns 'file:line' for frame, a user frame from a call chain. Returns None if it is a kernel frame or if
    there is no debug information. Works without --srcline too, by reading the file's DWARF."""

def build_id(frame: _Frame) -> str | None:
    """Returns the build id of a user frame's file as hexadecimal digits. Debug files are found by their build
    id. Returns None if frame is a kernel frame, or if the file has no build id or can no longer be read."""

def is_recording() -> bool:
    """Returns True if the events come from a recording. Then /proc does not show the processes of the events.
    The result is valid from __init__ on."""

def is_target(tid: int) -> bool:
    """Returns True if -p, -t, --cgroups or --exec selects the thread tid, or if none of them is given. Use it with
    --all-cpus, which delivers the events of all tasks. Processes that a selected process creates during the run
    are selected too. In a program, it is for the handlers of run(), and raises Error elsewhere; a trace has
    Trace.is_target()."""

def process_of(tid: int) -> int | None:
    """Returns the process id of the thread tid, or None if it is not known. In a program, it is for the handlers of
    run(), and returns None elsewhere; a trace has Trace.process_of()."""

def lost_cpu() -> int | None:
    """Returns the CPU of the lost events that __lost__ reports. Returns None outside of __lost__, or if the CPU is
    not known: with -p, -t and --exec, events are not lost per CPU."""

def missing() -> str:
    """Returns what is missing in the events and spans so far, as text: '12 events were lost'. Returns '' if they are
    complete. Tables and pictures that perf_prof makes have this text in a line or in the subtitle."""

def realtime() -> int:
    """Returns the wall clock time in ns since the epoch. With --input, it is the time that the replay has
    reached. In __interval__, it is the end of the interval."""

def recording() -> _RecordingFacts | None:
    """Returns the recording that the events come from, as a dict: 'path', 'hostname' and 'kernel' (the release of the
    kernel) of the recorded machine, 'start' and 'end'. These are the times of the first and the last sample, in ns
    since the epoch. A value that the recording does not contain is None. Returns None for live events. With several
    recordings, returns the one whose events are being delivered; returns None where the results of all parts are merged."""

def shard() -> _Shard | None:
    """Returns {'number', 'count', 'split': 'time' or 'cpu'} if this process reads a part of a recording
    (--jobs). Returns None in all other processes, also in the process that merges the results."""

def snapshot(reason: str = "", path: str | PathLike[str] | None = None) -> str:
    """Writes a recording with the events of the last seconds, which --before keeps, and of the time of --after.
    Returns its path when it is complete. Until then, events wait for the script; its other threads continue. The
    name of the file contains the time and reason, unless path is given. A program uses flight() instead.

    Raises RecordingFileError (the file cannot be written), Error (nothing is kept: there is no --before, or this is the
    import or __init__), ClosedError (in a forked child)."""

def print(
    *args: object, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False
) -> None:
    """Prints args as the built-in print() does. On a terminal, control characters in args are shown escaped: a task
    can have a name that changes the terminal. Files and pipes get the text as it is."""

def stats() -> _Stats:
    """Returns the counts so far: {'delivered', 'lost', 'own', 'partial', 'events': {name: {'delivered', 'lost', 'where'}},
    'cpus': {cpu: {'delivered', 'lost'}}}. 'partial' is True if events or spans are missing: missing() says which.

    'own' is the number of events of perf-prof's own threads, which are left out without --include-self. The
    'lost' of an event is None on kernels before 6.0, which count losses only per ring. In __exit__ the counts
    are exact: delivered + lost + own is the number of events that the kernel produced. 'where' is 'kernel' if the
    kernel adds up the event: it then counts in 'delivered' when its tables are read, and belongs to no CPU. Of a
    recording of perf, and with --jobs, the 'lost' of a CPU counts events that were recorded but not selected too.

    The row of a span also contains 'opened', 'ended', 'open', 'dropped', 'without_begin', 'begun_before',
    'begun_before_events' and 'unseen'.
    'begun_before' is the number of spans that began before the run or the recording and ended in it, if their ends show
    this, and 'begun_before_events' counts events of spans whose begin was not seen: of `tcp`, packets that were sent
    again. 'unseen' is the number of events of the selected tasks that the kernel did not deliver, although it reported
    no loss; later events show this. 'partial' is True if spans of the selected tasks are missing. 'incomplete_tasks' maps the
    thread id of each such task to its name and the number of its gaps. 'missing_time' is the maximum total
    duration, in ns, of the spans that were dropped because events were lost; None if spans are missing and nothing
    shows how long they lasted. 'cpus_without_idle_events' lists the CPUs of whose idle task the kernel delivers no
    events.
    """

class Trace:
    """The events of a live run or of a recording: an iterator of PerfEvent, a context manager, and for asyncio an
    asynchronous iterator.

    Iteration waits without the GIL. Ctrl-C raises KeyboardInterrupt. Iteration ends when the traced tasks, the
    command or the recording end, or after stop(). An event may be kept longer than its trace. Several threads may
    use a trace.
    """

    def __iter__(self) -> Trace: ...
    def __next__(self) -> PerfEvent: ...
    def __aiter__(self) -> AsyncIterator[PerfEvent]: ...
    def __enter__(self) -> Trace: ...
    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def _take(self, limit: int) -> list[PerfEvent] | None:
        """Returns at most `limit` events that are there, or None after the end. Does not wait."""
    def read(self, timeout: float | None = None) -> list[PerfEvent]:
        """Returns a list of all events that are there. Waits for the first one, at most timeout seconds. The list is
        empty after that time, and at the end. Raises ClosedError after close()."""
    def batches(
        self, columns: Sequence[str] | None = None, *, rows: int = 65536, every: float | None = None
    ) -> Batches:
        """Returns an iterator of Batch: some rows, with a column for each name. Each batch has `rows` events; the last one has
        fewer. A large recording is decoded in parts, and the last batch of each part may have fewer too. With `every`, in
        seconds, a batch also ends after this time if it has events. Without columns, there is a column for each field."""
    def table(self, columns: Sequence[str] | None = None) -> Table:
        """Returns all events until the end as a Table, with a column for each name. Without columns, there is a column for each
        field."""
    def fileno(self) -> int:
        """Returns a descriptor for select() and poll(). It is readable when there are events, and at the end. It can
        also be readable when there is nothing; then read(0) returns an empty list."""
    def stop(self) -> None:
        """Ends the trace after the events that were recorded until now: iteration delivers them and ends. Any thread
        and any signal handler may call it."""
    def close(self) -> None:
        """Ends the trace at once, and drops what was recorded. Further calls have no effect."""
    @property
    def delivered(self) -> int:
        """the number of events that were delivered so far"""
    @property
    def lost(self) -> int:
        """the number of events that were lost so far; exact when the iteration has ended"""
    @property
    def status(self) -> int | None:
        """the exit status of the command of exec, or 0 without one, when all events were delivered; None before. 128 and the
        signal's number if a signal ended the command"""
    @property
    def closed(self) -> bool:
        """True after close() and after the with statement, and in a forked child"""
    def stats(self) -> _Stats:
        """Returns the counts so far, as perf_prof.stats() does in a script. Delivered events may still wait for the
        program, so their number can be higher than that of `delivered`."""
    def ksym(self, addr: int) -> str:
        """Returns 'symbol+0xoffset' for a kernel address of this trace, or '0x...' if it has no symbol."""
    def usym(self, pid: int, addr: int) -> str:
        """Returns 'symbol+0xoffset' for an address in a process of this trace, 'dso+0xoffset' if there is no symbol,
        and '0x...' if nothing is mapped at the address."""
    def is_target(self, tid: int) -> bool:
        """Returns True if pid, tid or exec of this trace selects the thread tid, or if none of them is given. Use it with
        all_cpus=True, which delivers the events of all tasks."""
    def process_of(self, tid: int) -> int | None:
        """Returns the process id of the thread tid, or None if this trace does not know it."""

class Batches:
    """The batches of a trace: an iterator of Batch. polars, duckdb and others read it as one table, a batch at a time."""

    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch: ...
    @property
    def column_names(self) -> list[str]:
        """the names of the columns"""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Batch:
    """Some rows of a table: one row for each event, one column for each name. pyarrow.record_batch(batch),
    polars.DataFrame(batch) and others read it without a copy; batch["NAME"] is a Column.
    """

    def _repr_html_(self) -> str:
        """Jupyter shows this in a notebook: the first rows."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each a dict from the name of a column to its value. This is slow: an object is made for each value."""
    def __getitem__(self, name: str, /) -> Column: ...
    @property
    def column_names(self) -> list[str]:
        """the names of the columns"""
    @property
    def schema(self) -> dict[str, str]:
        """the types of the columns by their names, as Arrow names them"""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Table:
    """A table with one row for each event. It consists of batches. polars.DataFrame(table), pyarrow.table(table), duckdb and
    others read it without a copy.
    """

    def _repr_html_(self) -> str:
        """Jupyter shows this in a notebook: the first rows."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each a dict from the name of a column to its value. This is slow: an object is made for each value."""
    def __getitem__(self, name: str, /) -> Column:
        """Copies the column if the table has several batches."""
    @property
    def column_names(self) -> list[str]:
        """the names of the columns"""
    @property
    def schema(self) -> dict[str, str]:
        """the types of the columns by their names, as Arrow names them"""
    @property
    def batches(self) -> list[Batch]:
        """the batches that the table is made of"""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Copies the rows if the table has several batches."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Column:
    """A column of a batch or of a table. numpy.asarray(column) does not copy the numbers of a column without nulls; of other
    columns it makes an array of objects, with None for missing values. pyarrow.array(column), polars.Series(column) and
    others read all columns.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    @property
    def name(self) -> str:
        """the name of the column"""
    @property
    def type(self) -> str:
        """the type of its values, as Arrow names it"""
    @property
    def null_count(self) -> int:
        """the number of values that are missing"""
    def to_list(self) -> list[Any]:
        """Returns the values as a list: int, bool, str, bytes, lists of them, and None for missing values."""
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """numpy calls this if the column has no buffer of numbers."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class RunResult:
    """The result of run()."""

    @property
    def delivered(self) -> int:
        """the number of events that were delivered"""
    @property
    def lost(self) -> int:
        """the number of events that were lost"""
    @property
    def status(self) -> int:
        """the exit status of the command of exec; else 0, or 1 if a handler raised an exception"""


def _make_event(event: str, /, *, formats: str | PathLike[str] | None = None, **fields: Any) -> PerfEvent:
    """Makes an event: a PerfEvent with these values of its fields, in a record like those of the kernel.

    event is the event's name: 'sched:sched_switch' for a tracepoint, 'syscalls:sys_enter_openat//str=filename/' for
    a tracepoint with strings, 'page-faults' or 'profile' for other events, 'uprobe:malloc' for a probe. The
    keywords are its fields. Fields that are not given are 0 or empty. Further keywords are _time, _cpu, _pid, _tid,
    _period, _comm, _cgroup, _realtime, _ip, _addr and _callchain. A frame of _callchain is an address, (address,
    symbol), (address, symbol, dso), or a dict as in an event's _callchain.

    For a span, event is 'span:fsync=BEGIN..END' or a source such as 'syscall', and the keywords are begin, end,
    between, and duration in ns. begin and end are each an event, or a dict with the keywords of an event; between
    is a list of them. The fields of the span are computed from these events. Without end, the span is open. The
    file of 'function:NAME@FILE' need not exist. The end of a call has the field ret.

    formats says where the format comes from: 'kernel' for this kernel, 'shipped' for the formats that are part of
    perf_prof, or the path of a recording. Without formats, the format of this kernel is used, or the shipped one if
    it cannot be read.

    Raises SelectorError, which is a ValueError, if there is no such event; TypeError if it has no such field or if a
    value has the wrong type; ValueError if a value does not fit into its field."""

# The rest is only for the files of the package. Its docstrings are in the Rust files.

class RecordingRun:
    def wait(self) -> int: ...
    def stop(self) -> int: ...

class FlightRun:
    def dump(self, reason: str, path: str | PathLike[str] | None) -> Path: ...
    def stop(self) -> None: ...

class DividedRun:
    @property
    def parts(self) -> int: ...
    def read_before(self, number: int) -> None: ...
    def enter_child(self, number: int) -> None: ...
    def replay_part(self, number: int) -> None: ...
    def messages(self) -> list[str]: ...
    def merge(self, messages: list[str]) -> RunResult: ...

class _SampleEvent(PerfEvent):
    @property
    def evsel(self) -> evsel: ...
    @property
    def sample_pid(self) -> int: ...
    @property
    def sample_tid(self) -> int: ...
    @property
    def sample_time(self) -> int: ...
    @property
    def sample_id(self) -> int: ...
    @property
    def sample_stream_id(self) -> int: ...
    @property
    def sample_period(self) -> int: ...
    @property
    def sample_cpu(self) -> int: ...
    @property
    def sample_ip(self) -> int: ...
    @property
    def sample_addr(self) -> int: ...
    @property
    def sample_phys_addr(self) -> int: ...
    @property
    def sample_weight(self) -> int: ...
    @property
    def sample_data_src(self) -> int: ...
    @property
    def sample_insn_count(self) -> int: ...
    @property
    def sample_cyc_count(self) -> int: ...
    @property
    def type(self) -> int: ...
    @property
    def raw_buf(self) -> bytes: ...
    @property
    def dso(self) -> str | None: ...
    @property
    def dso_long_name(self) -> str | None: ...
    @property
    def dso_bid(self) -> str | None: ...
    @property
    def map_start(self) -> int | None: ...
    @property
    def map_end(self) -> int | None: ...
    @property
    def map_pgoff(self) -> int | None: ...
    @property
    def symbol(self) -> str | None: ...
    @property
    def sym_start(self) -> int | None: ...
    @property
    def sym_end(self) -> int | None: ...
    @property
    def brstack(self) -> branch_stack | None: ...
    @property
    def callchain(self) -> callchain | None: ...
    def srccode(self, addr: int | None = None, /) -> tuple[str | None, int, str | None]: ...
    def insn(self) -> bytes | None: ...

class branch_stack:
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> branch_entry: ...
    def __iter__(self) -> Iterator[branch_entry]: ...

class branch_entry:
    @property
    def from_ip(self) -> int: ...
    @property
    def to_ip(self) -> int: ...
    @property
    def mispred(self) -> bool: ...
    @property
    def predicted(self) -> bool: ...
    @property
    def in_tx(self) -> bool: ...
    @property
    def abort(self) -> bool: ...
    @property
    def cycles(self) -> int: ...
    @property
    def type(self) -> int: ...

class callchain:
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> callchain_node: ...
    def __iter__(self) -> Iterator[callchain_node]: ...

class callchain_node:
    @property
    def ip(self) -> int: ...
    @property
    def symbol(self) -> str: ...
    @property
    def dso(self) -> str: ...

class _FoundThread(TypedDict):
    pid: int
    tid: int
    ppid: int
    cpu: int

class PerfSession:
    def machine(self) -> str | None: ...
    def events(self) -> list[tuple[str, bytes, list[int]]]: ...
    def set_evsels(self, evsels: list[evsel]) -> None: ...
    def process(
        self, sample: Callable[[_SampleEvent], object], other: Callable[[bytes, SampleId], object]
    ) -> bool: ...
    def find_thread(self, tid: int) -> _FoundThread | None: ...
    def comm(self, tid: int) -> str | None: ...
    def event_with(self, id: int) -> int | None: ...

class OpenPerfEvent:
    def ids(self) -> list[int]: ...
    def enable(self) -> None: ...
    def disable(self) -> None: ...
    def read(self, cpu: int | None, thread: int | None) -> tuple[int, int, int, int, int] | None: ...

class PerfRings:
    def descriptors(self) -> list[int]: ...
    def poll(self, timeout: int) -> int: ...
    def has(self, cpu: int | None) -> bool: ...
    def read(self, cpu: int | None) -> _SampleEvent | tuple[bytes, SampleId, int] | None: ...

def parse_perf_events(text: str) -> list[tuple[str, bytes, str | None, tuple[str, str] | None]]: ...
def open_perf_event(
    attr: bytes, places: list[tuple[int | None, int | None]], filter: str | None
) -> OpenPerfEvent: ...
def map_perf_rings(
    events: list[tuple[OpenPerfEvent, str, bytes, tuple[str, str] | None, evsel]], pages: int
) -> PerfRings: ...
def perf_sample_event() -> type[_SampleEvent]: ...
def open_perf_session(path: str, part: int | None = None, parts: int = 1) -> PerfSession: ...
def enter_part_of_session(parent: int) -> None: ...
def syscall_of_machine(nr: int, machine: str | None = None) -> str | None: ...
def syscall_nr_of_machine(name: str, machine: str | None = None) -> int | None: ...
def open_trace(
    selectors: tuple[str, ...],
    options: Mapping[str, object],
    forms: dict[str, str],
    input: str | PathLike[str] | None = None,
) -> Trace: ...
def run_handlers(
    selectors: tuple[str, ...],
    options: Mapping[str, object],
    forms: dict[str, str],
    handlers: object,
    input: str | PathLike[str] | None = None,
    on_error: str = "raise",
    progress: Callable[[int], object] | None = None,
) -> RunResult: ...
def divide(
    selectors: tuple[str, ...],
    options: Mapping[str, object],
    forms: dict[str, str],
    handlers: object,
    input: str | PathLike[str] | None,
    on_error: str,
) -> DividedRun | None: ...
def start_recording(
    output: str, selectors: tuple[str, ...], options: Mapping[str, object], forms: dict[str, str]
) -> RecordingRun: ...
def start_flight(
    folder: str, selectors: tuple[str, ...], options: Mapping[str, object], forms: dict[str, str]
) -> FlightRun: ...
def count(selectors: tuple[str, ...], options: Mapping[str, object], forms: dict[str, str]) -> _Counted: ...
def close_copies() -> None: ...
def keep_first_keys(tables: Sequence[Aggregator]) -> None:
    """Makes full tables keep the keys that they contain: the amounts of new keys are added to others."""
def refresh_tables(tables: Sequence[Aggregator]) -> bool:
    """Requests that the runs which fill the tables read the tables in the kernel. Does not do so if they were read within
    the last half second. Returns False if a run is too busy or has ended; its tables are then unchanged."""
def metrics_page(tables: Sequence[tuple[str, Aggregator]], *, native: bool, others: Sequence[Aggregator] = ...) -> bytes:
    """Returns a page with the metrics of tables and the metrics that describe perf-prof itself. The page is text of
    Prometheus or, with native, protobuf, which supports native histograms. Reads the tables in the kernel first, as
    refresh_tables does. The losses include those of the tables in others, whose metrics are not on the page."""
def metric_families(
    tables: Sequence[tuple[str, Aggregator]], *, others: Sequence[Aggregator] | None = None
) -> list[tuple[str, str, str, list[str], list[tuple[list[str], float, list[tuple[float, int]]]]]]:
    """Returns the metrics of tables: (name, kind, help, names of the labels, rows). A row is (values of the labels, sum,
    buckets). A bucket is (its largest value, the number of values up to it); the last bucket is (inf, the number of all
    values). With others, also reads the tables in the kernel first, and adds the metrics that describe perf-prof
    itself, as metrics_page does."""
def is_host() -> bool: ...
def main(argv: Sequence[str]) -> int: ...
def own_command() -> list[str]: ...
def load_to_merge(module: str, args: Sequence[str], results: PartResults) -> ModuleType: ...

class PartResults:
    def __init__(self) -> None: ...
    def add(self, results: list[bytes]) -> list[str]: ...
    @property
    def raised(self) -> bool: ...
    def partials(self) -> list[bytes]: ...
    def __len__(self) -> int: ...

def merge_aggregators(names: dict[str, Any], partials: list[Any]) -> None: ...
def end_merge() -> None: ...
def _restore(identity: Any, state: Any, span: Any = None) -> PerfEvent: ...
def _run_script(
    path: str, events: list[PerfEvent | Lost], args: list[str], interval: float | str | None
) -> tuple[int, ModuleType | None]: ...
