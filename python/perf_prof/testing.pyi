"""Tests of scripts, without root and without events of a kernel."""

from collections.abc import Iterable
from os import PathLike
from typing import Any, NamedTuple

from perf_prof import PerfEvent

__all__ = ["Lost", "ScriptResult", "make_event", "run_script"]

class Lost(NamedTuple):
    """Lost events, for run_script(): the script's __lost__ is called before the next event of the same CPU."""

    time: int = 0
    cpu: int = 0
    events: int = 1

class ScriptResult(NamedTuple):
    """What a script printed, its exit status, and its module, which is None if its import failed."""

    stdout: str
    stderr: str
    status: int
    module: Any

def make_event(event: str, /, *, formats: str | PathLike[str] | None = None, **fields: Any) -> PerfEvent:
    """Makes an event: a PerfEvent with these values of its fields, in a record like those of the kernel.

    event is the event's name: 'sched:sched_switch' for a tracepoint, 'page-faults' or 'profile' for other events,
    'uprobe:malloc' for a probe. The keywords are its fields. Fields that are not given are 0 or empty. Besides the
    fields, there are _time, _cpu, _pid, _tid, _period, _comm, _realtime, _ip, _addr and _callchain. A frame of
    _callchain is an address, (address, symbol), (address, symbol, dso), or a dict as in an event's _callchain.

    For a span, 'span:fsync=BEGIN..END' or a source such as 'syscall', the keywords are begin and end, each an event or a
    dict with the keywords of one, between with a list of such events, and duration in ns. The span's own fields are
    worked out from these events. Without end, the span is open. The file of 'function:NAME@FILE' need not exist, and
    the end of a call has the field ret.

    formats says where the format comes from: 'kernel' for this kernel, 'shipped' for those that perf_prof brings, or
    the path of a recording. Without it, it is this kernel's, or the shipped one if this kernel's cannot be read.

    Raises SelectorError, which is a ValueError, if there is no such event; TypeError if it has no such field or if a
    value has the wrong type; ValueError if a value does not fit into its field."""

def run_script(
    path: str | PathLike[str],
    events: Iterable[PerfEvent | Lost],
    args: Iterable[str | PathLike[str]] = (),
    interval: float | str | None = None,
) -> ScriptResult:
    """Runs a script on these events, as `perf-prof python` runs it on a recording, and returns what it printed.

    path is the script's file or the name of its module. It is imported anew for each run. Its functions are called in
    the order of the events' times: those with the names of events, __sample__, __init__, __exit__, and __lost__ for a
    Lost among the events. The functions get the very objects in events. args are its arguments: sys.argv[1:].

    With interval, in seconds or as a text such as '50ms', __interval__ is called whenever the events' times have passed
    another interval. realtime() is the time of the events, and is_recording() is True.

    An exception in a function is printed to the script's stderr, and the run goes on with status 1 at its end. Raises
    FileNotFoundError if there is no such script, and KeyboardInterrupt if the run was interrupted. sys.argv, sys.path,
    sys.stdout, sys.stderr and the module's entry in sys.modules are those of before afterwards.
    """
