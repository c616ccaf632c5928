from collections.abc import Iterable
from os import PathLike
from typing import Any, NamedTuple

from perf_prof import PerfEvent

__all__ = ["Lost", "ScriptResult", "make_event", "run_script"]

class Lost(NamedTuple):
    """Lost events, for run_script(): the script's __lost__ is called before the next event of the same CPU."""

    time: int = 0
    cpu: int = 0
    count: int = 1

class ScriptResult(NamedTuple):
    """What a script printed, its exit status, and its module, which is None if its import failed."""

    stdout: str
    stderr: str
    status: int
    module: Any

def make_event(event: str, /, *, formats: str | PathLike[str] | None = None, **fields: Any) -> PerfEvent: ...
def run_script(
    path: str | PathLike[str],
    events: Iterable[PerfEvent | Lost],
    args: Iterable[str | PathLike[str]] = (),
    interval: float | str | None = None,
) -> ScriptResult: ...
