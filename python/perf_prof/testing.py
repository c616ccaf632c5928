"""Tests of scripts with made events, without root.

    from perf_prof.testing import make_event, run_script

    event = make_event("sched:sched_switch", prev_comm="make", prev_pid=7, next_comm="cc1", next_pid=8, _time=1_000)
    out = run_script("scripts/runqlat.py", [event], args=["--top", "3"])
    assert out.status == 0
"""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from perf_prof._native import _make_event as make_event
from perf_prof._native import _run_script

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perf_prof._native import PerfEvent

__all__ = ["Lost", "ScriptResult", "make_event", "run_script"]


class Lost(NamedTuple):
    """Lost events for run_script(), which calls the script's __lost__ before the next event of the same CPU."""

    time: int = 0
    cpu: int = 0
    events: int = 1


class ScriptResult(NamedTuple):
    """The output of a script, its exit status, and its module, which is None if its import failed."""

    stdout: str
    stderr: str
    status: int
    module: Any


# sys.stdout and similar objects belong to the whole process. The lock is reentrant, because a script may itself test a
# script in the same thread.
_one_at_a_time = threading.RLock()


def run_script(
    path: str | os.PathLike[str],
    events: Iterable[PerfEvent | Lost],
    args: Iterable[str | os.PathLike[str]] = (),
    interval: float | str | None = None,
) -> ScriptResult:
    """Runs a script on these events, as `perf-prof python` runs it on a recording, and returns what it printed.

    path is the script's file or the name of its module. It is imported anew for each run. Its functions are called in
    the order of the events' times: those with the names of events, __sample__, __init__, __exit__, and __lost__ for a
    Lost among the events. The functions get the same objects that events contains. args are its arguments:
    sys.argv[1:].

    With interval, in seconds or as a text such as '50ms', __interval__ is called whenever the events' times have passed
    another interval. realtime() is the time of the events, and is_recording() is True.

    An exception in a function is printed to the script's stderr. The run continues, and its status is 1. Raises
    FileNotFoundError if there is no such script, and KeyboardInterrupt if the run was interrupted. Afterwards,
    sys.argv, sys.path, sys.stdout, sys.stderr and the module's entry in sys.modules are restored.
    """
    with _one_at_a_time:
        return _run(os.fspath(path), list(events), [os.fspath(arg) for arg in args], interval)


def _run(path: str, events: list[PerfEvent | Lost], args: list[str], interval: float | str | None) -> ScriptResult:
    # The module of a script file has the name of the file without .py.
    name = os.path.basename(path).removesuffix(".py") if os.path.isfile(path) else path
    module = {name: sys.modules[name]} if name in sys.modules else {}
    if name not in sys.stdlib_module_names and name != "perf_prof":
        sys.modules.pop(name, None)
    outputs = _Output(), _Output()
    before = sys.argv, sys.path, sys.meta_path, sys.stdout, sys.stderr
    sys.path, sys.meta_path = list(sys.path), list(sys.meta_path)
    sys.stdout, sys.stderr = (output.stream() for output in outputs)
    try:
        status, loaded = _run_script(path, events, args, interval)
    finally:
        sys.argv, sys.path, sys.meta_path, sys.stdout, sys.stderr = before
        sys.modules.pop(name, None)
        sys.modules.update(module)
    stdout, stderr = (output.text() for output in outputs)
    return ScriptResult(stdout, stderr, status, loaded)


class _Output(io.BytesIO):
    """Keeps the output of a script to a stream, also if the script closes the stream."""

    written: bytes = b""

    def stream(self) -> io.TextIOWrapper:
        # Like sys.stdout, the stream has a buffer for bytes, and accepts comms that are not UTF-8.
        return io.TextIOWrapper(self, encoding="utf-8", errors="surrogateescape", newline="\n", write_through=True)

    def close(self) -> None:
        if not self.closed:
            self.written = self.getvalue()
        super().close()

    def text(self) -> str:
        written = self.written if self.closed else self.getvalue()
        return written.decode("utf-8", "surrogateescape")
