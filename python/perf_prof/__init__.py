"""Linux kernel events in Python: the class of events, and functions and classes to evaluate them."""

from perf_prof._native import (
    FieldError,
    FlameGraph,
    Log2Hist,
    PerfEvent,
    __version__,
    _restore,  # Pickled events name this function.
    build_id,
    errno_name,
    is_recording,
    is_target,
    ksym,
    lost_cpu,
    print,
    process_of,
    realtime,
    shard,
    srcline,
    stats,
    syscall_name,
    syscall_nr,
    usym,
)
from perf_prof._parts import Branch, Losses, Parts, States, at_least

__all__ = [
    "Branch",
    "FieldError",
    "FlameGraph",
    "Log2Hist",
    "Losses",
    "Parts",
    "PerfEvent",
    "States",
    "__version__",
    "at_least",
    "build_id",
    "errno_name",
    "is_recording",
    "is_target",
    "ksym",
    "lost_cpu",
    "print",
    "process_of",
    "realtime",
    "shard",
    "srcline",
    "stats",
    "syscall_name",
    "syscall_nr",
    "usym",
]

# Pickles and messages name a class by the module that programs import it from.
for _part in (Branch, Losses, Parts, States, at_least):
    _part.__module__ = "perf_prof"
del _part
