"""Linux kernel events in Python: the class of events, and functions and classes to evaluate them."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from os import PathLike
from types import ModuleType, TracebackType
from typing import Any, Literal, Protocol, TypedDict, TypeVar

__version__: str

class _KnownFrame(TypedDict):
    """The keys that every frame of a call chain has. If the frame has no symbol, `offset` is the offset in the dso."""

    addr: int
    symbol: str
    offset: int
    kernel: bool
    dso: str

class _Frame(_KnownFrame, total=False):
    """One frame of a call chain. User frames have `pid`; `inlined` needs --inline, `srcline` needs --srcline."""

    pid: int
    inlined: bool
    srcline: str

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

class _EventCounts(_SpanCounts):
    """The counts of one selected event. `lost` is None on kernels before 6.0, and for spans."""

    delivered: int
    lost: int | None

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
    events: dict[str, _EventCounts]
    cpus: dict[int, _Counts]

class FieldError(KeyError, AttributeError):
    """Raised if an event has no field of the given name. It is both a KeyError and an AttributeError."""

class PerfEvent:
    """One kernel event, as it is passed to its handler. It is read-only. A field is decoded each time it is read.

    Every event has _pid, _tid, _time (ns), _cpu, _period, _realtime (ns since the epoch), _callchain (list of frames),
    _comm (name of the task) and _event (its name: 'sys:name', 'profile'). A tracepoint also has common_type,
    common_flags, common_preempt_count, common_pid and its own fields. Other events have the members of their samples
    (ip, addr, period, ...). type(event).__doc__ lists them.

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
        """thread id (int)"""
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

    colors is 'hot' (the default), 'offcpu' for time spent waiting, or a color: 'red', 'green', 'blue',
    'aqua', ... With 'java', 'js', 'python', 'rust', ... the color of a function shows its kind. count_name is
    the unit of the weights, for example 'us'. inverted draws the callers on top. len() is the number of
    different stacks. A notebook shows the picture, where a click zooms.
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
        symbol is shown as [file]. In folded text, the names of kernel frames end in _[k].
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
    def save(self, path: str | PathLike[str]) -> None:
        """Writes a file: a picture if path ends in .svg, folded text if it ends in .folded.

        Raises ValueError if path has another ending, or if there are no stacks for a picture.
        """
    def update(self, other: FlameGraph) -> None:
        """Adds all stacks of another FlameGraph."""
    def __repr__(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle. The stacks are stored as text, so that another process can load them."""
    def __setstate__(self, folded: str) -> None: ...

class Track:
    """A track of a Timeline."""

    @property
    def name(self) -> str:
        """The name of the track."""

class Timeline:
    """Slices, instants and counters on named tracks. save() writes them as a trace for ui.perfetto.dev.

    Times and durations are in nanoseconds, as event._time and event.duration. A track is given by its name, or as the
    object that track() returns. Arguments are shown with a slice: numbers, bool, str, and other objects as str(). Slices
    of a track may overlap. len() is the number of slices, instants and values of counters.
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

    The values are on a logarithmic scale with four rows for each power of two, so patterns with two or more levels are
    visible, and single slow requests beside millions of fast ones. Times are in nanoseconds, as event._time; there are up
    to 512 columns. unit is the unit of the values: ns, us, ms, s, or a word such as bytes. len() is the number of values. A
    notebook shows the picture.
    """

    def __new__(cls, title: str | None = None, unit: str = "ns", subtitle: str | None = None) -> Heatmap: ...
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
    """A histogram with a row for each power of two: 0 to 1, 2 to 3, 4 to 7, and so on. name is the unit of the
    values, for example 'usecs'.

    For several histograms, use collections.defaultdict(Log2Hist). len() is the number of values. A
    notebook shows a table with bars.
    """

    def __new__(cls, name: str = "usecs") -> Log2Hist: ...
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
    """How values are distributed: those of one key of a Hist, as they were when the object was made.

    count, sum, min, max and mean are of all values; min, max and mean are None if there are none. len() is count. A
    notebook shows a table with bars.
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

    In the place of a handler it gets all events of its name. A key is the value of a field if there is one name, else a
    tuple with the values of all names. len() is the number of keys, and iteration gives the keys. A notebook shows the
    table.
    """

    def add(self, event: PerfEvent) -> None:
        """Adds an event. Raises ValueError if the event does not have one of the names."""
    def update(self, other: Aggregator) -> None:
        """Adds everything that another object of the same class with the same names has."""
    def clear(self) -> None:
        """Removes all keys."""
    def most_common(self, n: int | None = None) -> list[tuple[Any, Any]]:
        """Returns the (key, amount) pairs of the n keys with the largest amounts, the largest first; of all keys without n."""
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
        """The sum of all amounts, with those that were folded. For a Hist, a Distribution of all values."""
    @property
    def others(self) -> Any:
        """The sum of the amounts of keys that were folded because there were more than limit keys."""
    @property
    def times_folded(self) -> int:
        """How often a key was folded because there were more than limit keys. If it is not 0, keys may have been larger."""
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
    """Adds up the value of a field, by the keys that by names: a name, or a tuple of names.

    where and limit are as for Count. An item is 0 if there is no such key.
    """

    def __new__(
        cls, value: str, by: str | Sequence[str] | None = None, *, where: str | None = None, limit: int = 1_000_000
    ) -> Sum: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Hist(Aggregator):
    """Counts how the value of a field is distributed, by the keys that by names: a name, or a tuple of names.

    Values are counted by powers of two, or with linear=(low, high, step) in ranges of the same width. With unit 'us',
    'ms' or 's', the values are in ns and are divided by a thousand, a million or a billion; any other unit is only a
    name. where and limit are as for Count. An item is a Distribution; it is empty if there is no such key.
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
    """Counts call chains by the keys that by names, or adds up the value of a field for each call chain. The events need
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
        amount."""
    def flame_graph(
        self,
        title: str | None = None,
        colors: str | None = None,
        count_name: str | None = None,
        subtitle: str | None = None,
        inverted: bool = False,
    ) -> FlameGraph:
        """Returns the stacks as a FlameGraph. The arguments are those of FlameGraph()."""
    def save(self, path: str | PathLike[str]) -> None:
        """Writes a flame graph if path ends in .svg, folded text if it ends in .folded. See FlameGraph.save()."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

class Top:
    """Keeps the n events with the largest values of a field, whole: with the name of the task and the call chain.

    where is a filter such as 'prev_state==0'. keep is a name, or a tuple of names: only their values are kept of each
    event, as in the keys of Count. Iteration gives the events, or these values, those with the largest value first. In
    the place of a handler it gets all events of its name.
    """

    def __new__(cls, n: int, value: str, *, where: str | None = None, keep: str | tuple[str, ...] | list[str] | None = None) -> Top: ...
    def add(self, event: PerfEvent) -> None:
        """Looks at an event. Raises ValueError if the event does not have one of the names."""
    def update(self, other: Top) -> None:
        """Adds the events of another Top with the same value and the same keep."""
    def clear(self) -> None:
        """Removes all events."""
    def most_common(self, n: int | None = None) -> list[tuple[Any, int]]:
        """Returns the (event, value) pairs of the n events with the largest values, the largest first; of all without n. With
        keep, the kept values are in the place of the event."""
    def print(self) -> None:
        """Prints the events, the one with the largest value first, as event.print() does. With keep, prints a table."""
    def __call__(self, event: PerfEvent) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __repr__(self) -> str: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def __getstate__(self) -> tuple[list[Any], int]: ...
    def __setstate__(self, state: tuple[list[Any], int]) -> None: ...

_Step = TypeVar("_Step", bound=Callable[..., None])

class Branch(dict[str, int]):
    """A branch that the CPU recorded: an entry of branch_stack.

    The items are from and to (addresses), mispred, predicted, in_tx and abort (bool), and cycles (int, since
    the previous branch; 0 if the CPU does not report it). They are attributes too, except `from`, which is a
    keyword: branch["from"], branch.to.
    """

    def __getattr__(self, name: str) -> int:
        """Returns an item."""

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

    Use the methods interval, partial, merge and exit as the callbacks with the same names, for example
    __interval__ = parts.interval. For --jobs, tables and total have to be picklable. For states that a script
    keeps from one event to the next, see States. Raises TypeError if show is given without table.
    """

    table: Any
    def __init__(
        self,
        table: Callable[[], Any] | None = None,
        show: Callable[[Any, int | None], None] | None = None,
        total: Any = None,
    ) -> None: ...
    def interval(self) -> None:
        """Ends an interval: shows its table (with --jobs, keeps it for merge()) and starts a new table."""
    def partial(self) -> dict[str, Any]:
        """Returns what this process has found in its part of the recording, for merge()."""
    def merge(self, partials: Iterable[dict[str, Any]]) -> None:
        """Merges the results of partial() of all parts, in the order of the parts.

        Runs the steps that were put off (see States), in the order of time. Then shows the tables of all
        intervals that have ended. The attribute table then has the counts of the time after the last interval.
        May be called only once.
        """
    def exit(self) -> None:
        """Shows the table of the time after the last interval. An empty table is shown only if no other was shown."""

class States(dict[Any, Any]):
    """A dict that keeps the state of each thread, CPU or other key between events, also from part to part.

    A step is a function with the parameters (now, key, ...) and one of the decorators step, sets and ends.
    now is the time of the event in ns (event._time). The step may read or change the state of key. Events
    have to be delivered in the order of time: use --order, or a recording.

    With --jobs, a process does not know the states at the start of its part. If the state of a key is not
    known, a step of this key is put off: parts.merge() runs the step when the states at the end of the
    previous part are known. With --split cpu, all steps are put off. The arguments of a step and the states
    have to be picklable. A step of key a may call a step of key b only if each part that knows the state of b
    also knows the state of a. In a script that runs without --jobs, the decorators return the function unchanged.
    """

    def __init__(self, parts: Parts) -> None: ...
    def step(self, function: _Step) -> _Step:
        """Decorates a step that may read the state of its key. This decorator is right for every step.

        After the step was put off, the state of its key is still unknown.
        """
    def sets(self, function: _Step) -> _Step:
        """Decorates a step that sets or removes the state of its key and does not read it.

        The step is put off only with --split cpu. After the step, the state of its key is known.
        """
    def ends(self, function: _Step) -> _Step:
        """Decorates a step that reads the state of its key and removes it.

        After the step, it is known that the key has no state. So in each part, at most one such step of a key is
        put off (with --split cpu, all of them).
        """
    def forget(self, now: int) -> None:
        """Removes all states. Call forget(lost_end) in __lost__: lost events may have changed states. now is in ns."""

class Losses:
    """Tells whether events were lost on a CPU after a time, so that a script need not forget all states.

    Call note(lost_end) in __lost__. Where a state ends, ask since(time, cpu), with the time and the CPU of the
    event at which the state began: if events of this CPU were lost meanwhile, the state may have ended and
    begun again, so it should be counted as one that cannot be told. Events have to be delivered in the order of
    time. With --jobs, ask only in a step (see States).
    """

    def __init__(self, parts: Parts) -> None: ...
    def note(self, now: int) -> None:
        """Notes the loss that __lost__ reports. now is its end in ns."""
    def since(self, time: int, cpu: int | None = None) -> bool:
        """Returns whether events of the CPU were lost after a time in ns. Without cpu: events of any CPU."""

class CallChains:
    """Notes call chains, and says on stderr if tables of them cannot be right: there are none, or they end early.

    Call note(chain) for each event, with event._callchain or with the names of a folded stack, and say() with
    each table. lack is what a script lacks without call chains. The chains of programs without frame pointers
    end early: say() says so if more than half of those with frames of programs have at most two of them.
    update(other) adds what other has noted, so it may be a total of Parts.
    """

    def __init__(self, lack: str = "stacks are empty") -> None: ...
    def note(self, chain: Sequence[Mapping[str, object]] | Sequence[str]) -> None:
        """Notes the call chain of an event: a list of frames, or of names as in folded stacks ('vfs_read_[k]')."""
    def update(self, other: CallChains) -> None:
        """Adds what other has noted."""
    def say(self) -> None:
        """Says what is wrong with the call chains, each message once."""

def at_least(least: float) -> Callable[[str], Any]:
    """Returns a function for the parameter type of argparse's add_argument: it turns the text of an option into a
    number of the type of least (int or float). A number below least is wrong usage, with exit status 2.
    """

def syscall_name(nr: int) -> str:
    """Returns the name of a system call, or 'sys_NR' if the number has no name. The number is looked up for this
    machine's architecture; with --input, for the recording's architecture (from __init__ on)."""

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
    """Returns the formats of the tracepoints that match pattern, sorted by name. In 'system:name', both parts may have
    wildcards: 'sched:*'. A pattern without ':' is one for names.

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
    """Returns True if -p, -t or --exec selects the thread tid, or if none of them is given. Use it with
    --all-cpus, which delivers the events of all tasks. Processes that a selected process creates during the run
    are selected too. In a program, it is for the handlers of run(), and raises Error elsewhere; a trace has
    Trace.is_target()."""

def process_of(tid: int) -> int | None:
    """Returns the process id of the thread tid, or None if it is not known. In a program, it is for the handlers of
    run(), and returns None elsewhere; a trace has Trace.process_of()."""

def lost_cpu() -> int | None:
    """Returns the CPU of the lost events that __lost__ reports. Returns None outside of __lost__, or if the CPU is
    not known: with -p, -t and --exec, events are not lost per CPU."""

def realtime() -> int:
    """Returns the wall clock time in ns since the epoch. With --input, it is the time that the replay has
    reached. In __interval__, it is the end of the interval."""

def recording() -> _RecordingFacts | None:
    """Returns the recording that the events come from, as a dict: 'path', 'hostname' and 'kernel' (the release of the
    kernel) of the recorded machine, 'start' and 'end'. These are the times of the first and the last sample, in ns
    since the epoch. What the recording does not say is None. Returns None for live events. With several recordings, it
    is the one whose events come now; where the results of all parts are merged, there is none."""

def shard() -> _Shard | None:
    """Returns {'number', 'count', 'split': 'time' or 'cpu'} if this process reads a part of a recording
    (--jobs). Returns None in all other processes, also in the process that merges the results."""

def print(
    *args: object, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False
) -> None:
    """Prints args as the built-in print() does. On a terminal, control characters in args are shown escaped: a task
    can have a name that changes the terminal. Files and pipes get the text as it is."""

def stats() -> _Stats:
    """Returns the counts so far: {'delivered', 'lost', 'own', 'events': {name: {'delivered', 'lost'}},
    'cpus': {cpu: {'delivered', 'lost'}}}.

    'own' is the number of events of perf-prof's own threads, which are left out without --include-self. The
    'lost' of an event is None on kernels before 6.0, which count losses only per ring. In __exit__ the counts
    are exact: delivered + lost + own is the number of events that the kernel produced.

    The row of a span also has 'opened', 'ended', 'open', 'dropped' and 'without_begin'.
    """

class Error(Exception):
    """The base of all exceptions of perf_prof."""

class SelectorError(Error, ValueError):
    """An event is unknown, or its selector or its filter is wrong."""

class OptionError(Error, ValueError):
    """A keyword argument has a wrong value, or two of them do not fit together."""

class HandlerError(Error, TypeError):
    """There is no handler for the events, or one of them is no plain function."""

class KernelError(Error, OSError):
    """The kernel refused a call. `errno` is its error number, or None if it gave none."""

class AccessError(KernelError, PermissionError):
    """This user may not trace the events. The text says what would allow it."""

class RecordingError(Error):
    """A recording is damaged, or it is no recording."""

class RecordingFileError(RecordingError, OSError):
    """The file of a recording cannot be opened, read or created. It has `errno` and `filename`."""

class RecordingNotFoundError(RecordingFileError, FileNotFoundError):
    """There is no file at the path of a recording, or no folder for a new one."""

class RecordingAccessError(RecordingFileError, PermissionError):
    """This user may not read the file of a recording."""

class ClosedError(Error, ValueError):
    """A trace was used after it was closed, or in a forked child."""

class Warning(UserWarning):
    """A message about a run: what is missing or different from what was asked for."""

class Trace:
    """The events of a live run or of a recording: an iterator of PerfEvent, a context manager, and for asyncio an
    asynchronous iterator.

    Iteration waits without the GIL. Ctrl-C raises KeyboardInterrupt. It ends when the traced tasks, the command or the
    recording end, or after stop(). An event may be kept longer than its trace. Several threads may use a trace.
    """

    def __iter__(self) -> Trace: ...
    def __next__(self) -> PerfEvent: ...
    def __aiter__(self) -> AsyncIterator[PerfEvent]: ...
    def __enter__(self) -> Trace: ...
    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def read(self, timeout: float | None = None) -> list[PerfEvent]:
        """Returns a list of all events that are there. Waits for the first one, at most timeout seconds. The list is
        empty after that time, and at the end. Raises ClosedError after close()."""
    def batches(
        self, columns: Sequence[str] | None = None, *, rows: int = 65536, every: float | None = None
    ) -> Batches:
        """Returns an iterator of Batch: some rows, with a column for each name. Each has `rows` events, the last one the
        rest. A large recording is decoded in parts; the last batch of each part also has the rest. With `every`, in seconds,
        a batch comes after this time too if there are events. Without columns, there are those of all fields."""
    def table(self, columns: Sequence[str] | None = None) -> Table:
        """Returns all events until the end as a Table, with a column for each name. Without columns, there are those of all
        fields."""
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
    """Some rows: an event each, with a column for each name. pyarrow.record_batch(batch), polars.DataFrame(batch) and
    others read it without a copy; batch["NAME"] is a Column.
    """

    def __len__(self) -> int: ...
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
    """A table: an event each row, in batches. polars.DataFrame(table), pyarrow.table(table), duckdb and others read it
    without a copy.
    """

    def __len__(self) -> int: ...
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
    """A column of a batch or of a table. numpy.asarray(column) does not copy the numbers of a column without nulls;
    pyarrow.array(column), polars.Series(column) and others read all columns.
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

class Recording:
    """A recording that record() makes. `path` is its file; `status` is the exit status of the command, once it is known."""

    path: str
    status: int | None
    def stop(self) -> None:
        """Ends the recording, and returns when its file is complete. Further calls have no effect."""
    def replay(self, *selectors: str, **options: Any) -> Trace:
        """Ends the recording if it goes on, and replays it: see perf_prof.replay()."""
    def __enter__(self) -> Recording: ...
    def __exit__(self, *_: object) -> None: ...

class FailedRecording:
    """A recording that is not in the result of map_reduce(). `path` is the recording, and `error` says why."""

    path: str
    error: str

class MapReduceResult:
    """The result of map_reduce().

    `stdout` is what the script printed: in the parts, in the order of the recordings, and then where they were merged.
    `status` is the exit status: 0, that of sys.exit(), or 1 if a recording failed or a function raised an exception.
    `failed` is a list of FailedRecording; nothing of these recordings is in the result. `module` is the script's module
    after its __merge__ and __exit__, or None if no recording could be replayed. `received` is the size of all partial
    results in bytes.
    """

    stdout: str
    status: int
    failed: list[FailedRecording]
    module: ModuleType | None
    received: int

class EventCount:
    """The count of an event. `value` is None if the machine lacks the event or never had a counter for it.

    `enabled` and `running` are times in ns: while the event was enabled, and while it had a counter. If running is less
    than enabled, value is scaled up to the whole time.
    """

    value: int | None
    enabled: int
    running: int
    is_supported: bool

class Counts(Mapping[str, EventCount]):
    """The result of stat(): from the name of an event to its EventCount. `elapsed` is in seconds."""

    elapsed: float
    status: int
    def __getitem__(self, name: str) -> EventCount: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

def trace(
    *selectors: str,
    cpus: str | int | Iterable[int] | None = None,
    pid: int | str | Iterable[int] | None = None,
    tid: int | str | Iterable[int] | None = None,
    cgroup: str | Iterable[str] | None = None,
    exec: Sequence[str | PathLike[str]] | None = None,
    all_cpus: bool | None = None,
    count: int | str | None = None,
    freq: int | str | None = None,
    call_graph: bool | str | None = None,
    user_callchain: bool | None = None,
    kernel_callchain: bool | None = None,
    mmap_pages: int | str | None = None,
    buffer: int | str | None = None,
    watermark: int | None = None,
    sampling_limit: int | None = None,
    order: bool | None = None,
    monotonic: bool | None = None,
    duration: float | str | None = None,
    limit: int | None = None,
    inline: bool | None = None,
    srcline: bool | None = None,
    symbol_cache: int | str | None = None,
    on_lost: Callable[[int, int], object] | None = None,
) -> Trace:
    """Opens events and starts to trace them. Returns a Trace, which is a context manager and an iterator of PerfEvent.

    A selector is written as after `perf-prof python -e`: 'sched:sched_switch/prev_pid>0/', 'page-faults', 'cycles:u'.
    Without cpus, pid, tid, cgroup and exec, the events of all tasks on all CPUs are traced, this program included. exec
    is a command as a list of words; the trace ends with it. Lists may be lists or text ('0-3'). Times are seconds
    (float) or text with a unit ('50ms'). call_graph is True, 'fp' or 'dwarf'. With order=True, the events of all CPUs
    come in the order of time. limit is a number of events, and duration a time, after which the trace ends.
    on_lost(start, end) is called where events were lost between these times (ns; 0 without order).

    Raises SelectorError (unknown event, wrong filter), OptionError, AccessError (a PermissionError), KernelError.
    """

def map_reduce(
    script: str | PathLike[str],
    recordings: str | PathLike[str] | Iterable[str | PathLike[str]],
    executor: Executor | None = None,
    parts: int = 1,
    args: Iterable[str | PathLike[str]] = (),
    options: Iterable[str | PathLike[str]] = (),
) -> MapReduceResult:
    """Runs a script on many recordings, in processes that replay a part each, and merges their results as --jobs does.

    The script needs __partial__() and __merge__(partials), or only aggregators. recordings is a path, a pattern such as
    'host*.data', or a list of both. Each recording is divided into this number of parts. executor is any
    concurrent.futures.Executor: a ProcessPoolExecutor, Dask's client.get_executor(), mpi4py.futures, loky. Its workers
    need perf_prof, the script and the recordings at the same paths. Without it, this machine starts a process for each
    part, and as many at a time as it has CPUs. args are the arguments of the script, and options are those of
    `perf-prof python`, such as ['-e', 'sched:sched_switch', '-i', '1s'].

    A recording that cannot be read, or whose worker ends early, is in `failed` of the result, and the others are merged.
    Returns a MapReduceResult. Raises RecordingNotFoundError for a pattern without files.
    """

def replay(
    path: str | PathLike[str],
    *selectors: str,
    cpus: str | int | Iterable[int] | None = None,
    pid: int | str | Iterable[int] | None = None,
    tid: int | str | Iterable[int] | None = None,
    time: str | tuple[float, float] | None = None,
    guest: bool | None = None,
    force: bool | None = None,
    user_callchain: bool | None = None,
    kernel_callchain: bool | None = None,
    buffer: int | str | None = None,
    limit: int | None = None,
    inline: bool | None = None,
    srcline: bool | None = None,
    symbol_cache: int | str | None = None,
    on_lost: Callable[[int, int], object] | None = None,
    progress: bool = False,
) -> Trace:
    """Opens a recording of perf or of perf-prof. Returns a Trace with its events, in the order of time.

    Without selectors, all events in the recording are delivered. time selects a part of it: '10%-20%', '10%/2' (the
    second tenth), or a pair of seconds of its clock. force=True reads the recording of another user.
    on_lost(start, end) is called where events were lost between these times (ns). With progress=True, iteration shows
    its progress with tqdm, if it is installed.

    Raises RecordingError (damaged, or no recording; RecordingFileError is an OSError too: it is missing or may not be read), SelectorError, OptionError.
    """

def run(
    *selectors: str,
    handlers: object,
    input: str | PathLike[str] | None = None,
    on_error: Literal["raise", "continue"] = "raise",
    interval: float | str | None = None,
    cpus: str | int | Iterable[int] | None = None,
    pid: int | str | Iterable[int] | None = None,
    tid: int | str | Iterable[int] | None = None,
    cgroup: str | Iterable[str] | None = None,
    exec: Sequence[str | PathLike[str]] | None = None,
    all_cpus: bool | None = None,
    count: int | str | None = None,
    freq: int | str | None = None,
    call_graph: bool | str | None = None,
    user_callchain: bool | None = None,
    kernel_callchain: bool | None = None,
    mmap_pages: int | str | None = None,
    buffer: int | str | None = None,
    watermark: int | None = None,
    sampling_limit: int | None = None,
    order: bool | None = None,
    monotonic: bool | None = None,
    duration: float | str | None = None,
    limit: int | None = None,
    inline: bool | None = None,
    srcline: bool | None = None,
    symbol_cache: int | str | None = None,
    time: str | tuple[float, float] | None = None,
    guest: bool | None = None,
    force: bool | None = None,
    jobs: int | None = None,
    split: Literal["time", "cpu"] | None = None,
    on_lost: Callable[[int, int], object] | None = None,
    progress: bool = False,
) -> RunResult:
    """Traces events, or replays the recording input, and calls handlers in this thread, as perf-prof does for a script.

    handlers is a module, an object, a dict or a single function. Its functions have the names of a script's functions:
    sched__sched_wakeup(event), __sample__(event), __interval__(), __lost__(start, end), __exit__(). A single function
    gets all events. on_lost is another way to give __lost__. The __exit__ of a context manager is not called. With
    progress=True, the replay of a recording shows its progress with tqdm, if it is installed. With on_error='raise', the first exception of a handler ends the run and is raised here, after
    __exit__; with 'continue', its traceback is printed and the run goes on. Signal handlers stay those of the program.

    With jobs=N, N forked processes replay a part of the recording each, with copies of the handlers. Each of them calls
    __partial__(), whose result has to be picklable, and this process then calls __merge__(partials) and __exit__().
    split='cpu' divides the recording by CPU and not by time. The output of the parts comes in their order. An exception
    in a part is raised here at once; then nothing is merged, and __exit__ is not called.

    Returns a RunResult with delivered, lost and status (that of the command of exec, else 0; 1 if a handler raised).
    """

def record(
    *selectors: str,
    output: str | PathLike[str] = "perf.data",
    exec: Sequence[str | PathLike[str]] | None = None,
    cpus: str | int | Iterable[int] | None = None,
    pid: int | str | Iterable[int] | None = None,
    tid: int | str | Iterable[int] | None = None,
    count: int | str | None = None,
    freq: int | str | None = None,
    call_graph: bool | str | None = None,
    mmap_pages: int | str | None = None,
    buffer: int | str | None = None,
    monotonic: bool | None = None,
    duration: float | str | None = None,
    threads: bool | str | None = None,
    compress: bool | int | None = None,
) -> Recording:
    """Records events into a file (or with threads=True a directory) that perf and perf-prof can read.

    With exec or duration, returns when the command has ended or the time is over. Without them, recording goes on in
    the background until the end of the `with` statement, or until stop(). Returns a Recording.
    """

def stat(
    *selectors: str,
    exec: Sequence[str | PathLike[str]] | None = None,
    cpus: str | int | Iterable[int] | None = None,
    pid: int | str | Iterable[int] | None = None,
    tid: int | str | Iterable[int] | None = None,
    cgroup: str | Iterable[str] | None = None,
    duration: float | str | None = None,
) -> Counts:
    """Counts events until the command exec has ended or the time duration is over. Returns a Counts: from name to EventCount.

    Without selectors, the usual events are counted, as `perf-prof stat` does.
    """
