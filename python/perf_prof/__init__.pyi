"""Script the Linux kernel's events: the event class and what helps reading events."""

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any, Protocol, TypedDict

__version__: str

class _KnownFrame(TypedDict):
    """What every frame of a call chain has; without a symbol, `offset` is the place in the dso."""

    addr: int
    symbol: str
    offset: int
    kernel: bool
    dso: str

class _Frame(_KnownFrame, total=False):
    """One frame of a call chain: `pid` in user frames, `inlined` with --inline, `srcline` with --srcline."""

    pid: int
    inlined: bool
    srcline: str

class _Counts(TypedDict):
    """Events that were delivered, and events that were lost."""

    delivered: int
    lost: int

class _EventCounts(TypedDict):
    """The same of one event; `lost` is None on kernels before 6.0."""

    delivered: int
    lost: int | None

class _Shard(TypedDict):
    """What `shard()` gives; `split` is 'time' or 'cpu'."""

    number: int
    count: int
    split: str

class _Stats(TypedDict, total=False):
    """What `stats()` gives; empty before the run has begun."""

    delivered: int
    lost: int
    events: dict[str, _EventCounts]
    cpus: dict[int, _Counts]

class FieldError(KeyError, AttributeError):
    """An event has no field of that name; both a KeyError and an AttributeError."""

class PerfEvent:
    """One kernel event, as its handler gets it. Read-only; fields are decoded when they are read.

    Every event has _pid, _tid, _time (ns), _cpu, _period, _realtime (ns since the epoch), _callchain (list of frames) and
    _event (its name: 'sys:name', 'profile'), tracepoints also common_type, common_flags, common_preempt_count, common_pid. Then
    its own fields, of what is no tracepoint the members of its samples (ip, addr, period, ...): type(event).__doc__ lists them.

    Access: event.field, event['field'], event.get('field', default=None), 'field' in event, len(event), keys(), values(),
    items(), iteration over (name, value), dict(event), to_dict(). event.print() writes it as text, event.text('flags') gives
    one field as the kernel shows it, event.array('args') an integer array as a tuple. An event that is kept stays usable.
    """

    @property
    def _pid(self) -> int:
        """process id (int)"""
    @property
    def _tid(self) -> int:
        """thread id (int)"""
    @property
    def _time(self) -> int:
        """time in ns, of the perf clock; for latencies (int)"""
    @property
    def _cpu(self) -> int:
        """CPU (int)"""
    @property
    def _period(self) -> int:
        """sample period (int)"""
    @property
    def common_type(self) -> int:
        """the event's number in this kernel"""
    @property
    def common_flags(self) -> int:
        """interrupts off, rescheduling due, in hard or soft interrupt: bits of enum trace_flag_type"""
    @property
    def common_preempt_count(self) -> int:
        """how deeply preemption was off, in the low four bits"""
    @property
    def common_pid(self) -> int:
        """thread id, in the first PID namespace"""
    @property
    def _realtime(self) -> int:
        """time in ns since the Unix epoch; for display (int, computed at access)"""
    @property
    def _callchain(self) -> list[_Frame]:
        """call chain, innermost first: list of {'addr','symbol','offset','kernel','dso'} (resolved at access)"""
    @property
    def _event(self) -> str:
        """'sys:name', or 'sys:alias' with alias=; of what is no tracepoint, its name or alias (str)"""

    def __getattr__(self, name: str) -> Any:
        """A field of the event's own; AttributeError when it has none of that name."""
    def __getitem__(self, name: str, /) -> Any: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[str, Any]]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is a detached event: complete, and independent of the run."""
    def keys(self) -> list[str]:
        """All names, in the order of the event's record."""
    def values(self) -> list[Any]:
        """All values, in the order of keys()."""
    def items(self) -> list[tuple[str, Any]]:
        """All (name, value) pairs, in the order of keys()."""
    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or default when there is no such name."""
    def to_dict(self) -> dict[str, Any]:
        """A dict of all names and values."""
    def print(self, timestamp: bool = True, callchain: bool = True) -> None:
        """Writes the event to sys.stdout: the kernel's own text, and the call chain where there is one.

        timestamp puts the local date and time in front.
        """
    def array(self, name: str) -> tuple[int, ...]:
        """The integers of an array field; TypeError for a field of another kind."""
    def text(self, name: str) -> str:
        """One field as the kernel's print format shows it: GFP_KERNEL|__GFP_ZERO."""

class FlameGraph:
    """Stacks with their weights, to be saved as a flame graph (SVG, for a browser) or as folded text.

    colors: 'hot' (the default), 'offcpu' for time spent waiting, 'java', 'js', 'python', 'rust' and so on by the kind of
    function, or a plain 'red', 'green', 'blue', 'aqua', ... count_name says what weights count, 'us' for instance. inverted
    draws the callers on top. len() is the number of different stacks.
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
        """Adds a stack: an event's call chain below the name of its task, or a list or tuple of names, the outermost first.

        Frames without a symbol are shown as [file], the kernel's frames end in _[k] in folded text.
        """
    @property
    def total(self) -> int:
        """The sum of all weights."""
    def folded(self) -> str:
        """The stacks as text, a line for each: names from the outermost, separated by ';', a blank, the weight."""
    def save(self, path: str | PathLike[str]) -> None:
        """Writes a file: a picture for x.svg, folded text for x.folded.

        ValueError for another ending, and for a picture of no stacks.
        """
    def update(self, other: FlameGraph) -> None:
        """Adds all stacks of another FlameGraph."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle has the stacks as text: another process can go on with it."""
    def __setstate__(self, folded: str) -> None: ...

class _Writes(Protocol):
    """A file that text can be written to."""

    def write(self, text: str, /) -> Any: ...

class Log2Hist:
    """A histogram of powers of two. name says what the values are, 'usecs' for instance.

    For several of them: collections.defaultdict(Log2Hist). len() is the number of values.
    """

    def __new__(cls, name: str = "usecs") -> Log2Hist: ...
    def add(self, value: float, n: int = 1) -> None:
        """Counts a value n times. What is behind the decimal point does not matter; all that is negative is one row."""
    def update(self, values: Iterable[float] | Log2Hist) -> None:
        """Counts each of these values, or all that another Log2Hist has counted."""
    def print(self, file: _Writes | None = None) -> None:
        """Writes the histogram to a file, or to sys.stdout."""
    def to_dict(self) -> dict[int, int]:
        """The counts by each row's smallest value: {0: 3, 2: 1, 4: 7}; -1 stands for all that was negative."""
    def clear(self) -> None:
        """Forgets all values."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle has the name and the counts."""
    def __setstate__(self, counts: dict[int, int]) -> None: ...

def syscall_name(nr: int) -> str:
    """The name of a system call, or 'sys_NR' for a number without one. From __init__ on of the recording's architecture, else
    of this one."""

def syscall_nr(name: str) -> int:
    """The number of a system call. KeyError for a name that the architecture does not have."""

def errno_name(n: int) -> str:
    """The name of an error number, of either sign: errno_name(-2) == 'ENOENT'. 'errno_N' for one without a name."""

def ksym(addr: int) -> str:
    """'symbol+0xoffset' of a kernel address; '0x...' when it has no name."""

def usym(pid: int, addr: int) -> str:
    """'symbol+0xoffset' of an address of a process, as it is now; 'dso+0xoffset' when it has no name there, '0x...' when
    the process has nothing at that address, or is not known."""

def srcline(frame: _Frame) -> str | None:
    """'file:line' of a user frame, an element of a call chain; None for a frame of the kernel, and where no debug
    information tells. Reads DWARF, whatever the options say."""

def build_id(frame: _Frame) -> str | None:
    """The build id of a user frame's file, in hexadecimal digits: what a debug file for it is found by. None for a frame of
    the kernel, and for a file that has none or cannot be read any more."""

def is_recording() -> bool:
    """Whether the events are those of a recording: then /proc has other processes than they tell of. From __init__ on."""

def realtime() -> int:
    """The time of day, in ns since the epoch: of a recording that of its events, in __interval__ when the interval ended."""

def shard() -> _Shard | None:
    """In a process that --jobs gave a part of a recording: {'number', 'count', 'split': 'time' or 'cpu'}. None in all others,
    also in the one that merges."""

def stats() -> _Stats:
    """Counts so far: {'delivered', 'lost', 'events': {name: {'delivered', 'lost'}}, 'cpus': {cpu: {'delivered', 'lost'}}}.

    'lost' of an event is None on kernels before 6.0, which count losses per ring only. In __exit__ they are exact:
    delivered + lost is what the kernel produced.
    """
