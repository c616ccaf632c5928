"""Linux kernel events in Python: the class of events, and functions and classes to evaluate them."""

from importlib import import_module as _import_module
from sys import version_info as _version_info

try:
    _import_module("perf_prof._native")
except ModuleNotFoundError as error:
    if error.name != "perf_prof._native":
        raise
    # This folder is the folder of the sources, or a package that was built for another Python.
    raise ImportError(
        f"this folder of perf_prof has no module for CPython {_version_info[0]}.{_version_info[1]}: in the repository, "
        "`python3 -m pip install .` builds it for the python3 that runs the command",
        name=error.name,
    ) from None

from perf_prof._native import (
    Aggregator as Aggregator,
    Batch as Batch,
    Batches as Batches,
    Column as Column,
    Count as Count,
    Distribution as Distribution,
    EventFormat as EventFormat,
    FieldError as FieldError,
    FieldFormat as FieldFormat,
    FlameGraph as FlameGraph,
    Heatmap as Heatmap,
    Hist as Hist,
    Log2Hist as Log2Hist,
    PerfEvent as PerfEvent,
    RunResult as RunResult,
    Stacks as Stacks,
    Sum as Sum,
    Table as Table,
    Timeline as Timeline,
    Top as Top,
    Trace as Trace,
    Track as Track,
    __version__ as __version__,
    _restore as _restore,  # Pickled events name this function.
    build_id as build_id,
    errno_name as errno_name,
    event as event,
    events as events,
    is_recording as is_recording,
    is_target as is_target,
    ksym as ksym,
    lost_cpu as lost_cpu,
    missing as missing,
    print as print,
    process_of as process_of,
    realtime as realtime,
    recording as recording,
    shard as shard,
    snapshot as snapshot,
    srcline as srcline,
    stats as stats,
    syscall_name as syscall_name,
    syscall_nr as syscall_nr,
    usym as usym,
)
from perf_prof._errors import (
    AccessError as AccessError,
    ClosedError as ClosedError,
    Error as Error,
    HandlerError as HandlerError,
    KernelError as KernelError,
    OptionError as OptionError,
    RecordingAccessError as RecordingAccessError,
    RecordingError as RecordingError,
    RecordingFileError as RecordingFileError,
    RecordingNotFoundError as RecordingNotFoundError,
    SelectorError as SelectorError,
    Warning as Warning,
)
from perf_prof._fleet import (
    FailedRecording as FailedRecording,
    MapReduceResult as MapReduceResult,
    map_reduce as map_reduce,
)
from perf_prof._parts import (
    Branch as Branch,
    CallChains as CallChains,
    Losses as Losses,
    Parts as Parts,
    States as States,
    at_least as at_least,
)
from perf_prof._runs import (
    Counts as Counts,
    EventCount as EventCount,
    Flight as Flight,
    Recording as Recording,
    flight as flight,
    record as record,
    replay as replay,
    run as run,
    stat as stat,
    trace as trace,
)

_public = sorted(["__version__", *(name for name in globals() if not name.startswith("_"))])
# Type checkers take the public names from the imports, with `as`. They cannot read an `__all__` that is computed.
globals()["__all__"] = _public

# Pickles and messages name the module from which programs import a class: `perf_prof`, not `perf_prof._native`.
for _member in map(globals().get, _public):
    if getattr(_member, "__module__", "").startswith("perf_prof._"):
        _member.__module__ = "perf_prof"
