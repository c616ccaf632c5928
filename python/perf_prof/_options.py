"""The keywords of trace(), replay(), run(), record() and stat(). Each has a row with the type of its value and its
text.

Each keyword has the name of an option of perf-prof, with `_` instead of `-`. The check of arguments, the types, the
signatures in help() and a table in `docs/reference.md` are made from these rows. `src/python/library/options.rs`
converts a keyword and its value to an option.
"""

from __future__ import annotations

from functools import wraps

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike
    from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

    # The types of values. None means that the keyword is not given.
    Switch: TypeAlias = bool | None
    OnOff: TypeAlias = bool | None  # The option has an opposite, --no-...
    Integer: TypeAlias = int | None
    Quantity: TypeAlias = int | str | None
    Numbers: TypeAlias = int | str | Iterable[int] | None
    Names: TypeAlias = str | Iterable[str] | None
    Words: TypeAlias = Sequence[str | PathLike[str]] | None
    Time: TypeAlias = float | str | None
    TimeRange: TypeAlias = str | tuple[float, float] | None
    CallGraph: TypeAlias = bool | str | None
    Threads: TypeAlias = bool | str | None
    Level: TypeAlias = bool | int | None
    Split: TypeAlias = Literal["time", "cpu"] | None
    Where: TypeAlias = Literal["auto", "never", "always"] | None
    Function: TypeAlias = Callable[[int, int], object] | None
else:

    class TypedDict:
        """Replaces `typing.TypedDict` at run time."""

        def __init_subclass__(cls, total=True):
            pass


class Tasks(TypedDict, total=False):
    """The CPUs, tasks and cgroups whose events are selected."""

    cpus: Numbers
    """the CPUs: `0`, `[0, 2]` or `'0-3,7'`"""
    pid: Numbers
    """the processes, with their new children; a live run ends when they have exited"""
    tid: Numbers
    """the threads; a live run ends when they have exited"""
    cgroup: Names
    """the cgroups, with those below them: paths or globs"""


class Running(TypedDict, total=False):
    """When a live run ends."""

    exec: Words
    """a command to run, `['make', '-j4']`: only it and its children are traced, and the run ends with it"""
    duration: Time
    """the time after which the run ends, in seconds, or as `'50ms'`; a command of `exec` gets SIGTERM then"""


class Sampling(TypedDict, total=False):
    """What the kernel samples, and the rings for the samples."""

    count: Quantity
    """for events other than tracepoints: a sample every so many events"""
    freq: Quantity
    """for events other than tracepoints: so many samples a second; `'max'` is the highest rate of the kernel"""
    call_graph: CallGraph
    """call chains: True or `'fp'` (frame pointers), `'dwarf'` or `'dwarf,SIZE'` for programs without frame pointers"""
    all_cgroups: Switch
    """True: each sample has the cgroup of its task; its path is `event._cgroup`"""
    mmap_pages: Quantity
    """the size of each ring buffer, as a number of pages, or in bytes with a unit: `128`, `'8M'`"""
    monotonic: Switch
    """True: times are those of `CLOCK_MONOTONIC`"""


class Memory(TypedDict, total=False):
    """How much memory may be used."""

    buffer: Quantity
    """the limit of memory for events that wait for the program or the file, for spans that are open and for tables, in bytes
    or as `'512M'`"""


class Delivery(TypedDict, total=False):
    """How events are delivered to the program."""

    user_callchain: OnOff
    """True: call chains with user frames; False: without them"""
    kernel_callchain: OnOff
    """True: call chains with kernel frames; False: without them"""
    limit: Integer
    """the number of events after which the run ends"""
    inline: Switch
    """True: inlined functions are frames of their own (reads DWARF)"""
    srcline: Switch
    """True: user frames have their source file and line (reads DWARF)"""
    symbol_cache: Quantity
    """the limit of memory for symbols of programs and libraries, in bytes or as `'64M'`"""
    on_lost: Function
    """is called when events were lost, with two times in ns between which this happened; live without `order`, both are 0"""


class Recorded(TypedDict, total=False):
    """Which part of a recording is replayed, and how."""

    time: TimeRange
    """a part: `'10%-20%'`, `'10%/2'` (the second tenth), `'03:12,03:14'` (local time), or a pair of seconds of its clock"""
    guest: Switch
    """True: also the samples of virtual machines, which are else only counted"""
    force: Switch
    """True: also the recording of another user"""


class Interval(TypedDict, total=False):
    """When __interval__ is called."""

    interval: Time
    """the time between two calls of `__interval__`, in seconds, or as `'50ms'`"""
    in_kernel: Where
    """where tracepoints are added up if all handlers are aggregators: `'auto'` (the default: in the kernel if it can),
    `'never'`, or `'always'` (else the run does not start)"""


class Divided(TypedDict, total=False):
    """How a recording is divided between processes."""

    jobs: Integer
    """the number of forked processes, which replay a part each"""
    split: Split
    """`'time'` (the default) or `'cpu'`: how it is divided"""


class StatOptions(Tasks, Running, total=False):
    """The keywords of stat()."""


class TraceOptions(StatOptions, Sampling, Memory, Delivery, total=False):
    """The keywords of trace()."""

    all_cpus: Switch
    """True: the events of all tasks; `pid`, `tid`, `cgroup` and `exec` select tasks for `is_target()`"""
    watermark: Integer
    """a ring buffer is read when it is so many percent full"""
    sampling_limit: Integer
    """the most samples a second for each ring buffer"""
    order: Switch
    """True: the events of all CPUs come in the order of time, and not only those of each CPU"""


class ReplayOptions(Tasks, Memory, Delivery, Recorded, total=False):
    """The keywords of replay()."""


class RunOptions(TraceOptions, Recorded, Interval, Divided, total=False):
    """The keywords of run()."""


class RecordOptions(Tasks, Running, Sampling, Memory, total=False):
    """The keywords of record()."""

    threads: Threads
    """several threads that write a directory: True for one per CPU, or a text as for `perf-prof record --threads`"""
    compress: Level
    """compression with zstd: True, or a level from 1 to 22"""


class FlightOptions(Tasks, Sampling, Memory, total=False):
    """The keywords of flight()."""

    before: Time
    """how much time before dump() a dump contains, in seconds, or as `'10s'` (the default)"""
    after: Time
    """how long a dump continues after dump(), in seconds, or as `'5s'`"""
    max_files: Integer
    """the maximum number of dumps in the folder; older ones are removed"""
    compress: Level
    """compression with zstd: True, or a level from 1 to 22"""


def forms(*tables: type) -> dict[str, str]:
    """Returns the keywords of the tables, each with the type of its value."""
    found: dict[str, str] = {}
    for table in tables:
        found.update(forms(*table.__bases__), **getattr(table, "__annotations__", {}))
    return found


def takes(table: type) -> Callable[[_Function], _Function]:
    """Decorates a function that takes the keywords of a table as **options. Any other keyword raises TypeError."""

    def decorated(function: Any) -> Any:
        @wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            names = [*function.__annotations__, *forms(table)]
            for name in options.keys() - names:
                from difflib import get_close_matches

                near = "".join(f". Did you mean '{near}'?" for near in get_close_matches(name, names, 1))
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{near}")
            return function(*args, **options)

        shown: Any = checked
        shown.__wrapped__ = _Shown(function, table)
        return shown

    return decorated


class _Shown:
    """Replaces a function in inspect.signature() and help(), to show its parameters and the keywords of the table."""

    def __init__(self, function: Callable[..., Any], table: type) -> None:
        self.__wrapped__ = function
        self._table = table

    @property
    def __signature__(self) -> object:
        from inspect import Parameter, signature  # Importing it takes milliseconds.

        own = signature(self.__wrapped__)
        *parameters, _ = own.parameters.values()
        for keyword, form in forms(self._table).items():
            parameters.append(Parameter(keyword, Parameter.KEYWORD_ONLY, default=None, annotation=form))
        return own.replace(parameters=parameters)
