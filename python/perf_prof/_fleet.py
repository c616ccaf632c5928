"""map_reduce() and its result. `_engines.py`, which does the work, is imported when it is needed."""

from __future__ import annotations

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Executor
    from os import PathLike
    from types import ModuleType


class FailedRecording:
    """A recording that could not be replayed. `path` is the recording, and `error` is the reason."""

    def __init__(self, path: str, error: str) -> None:
        self.path = path
        self.error = error

    def __repr__(self) -> str:
        return f"FailedRecording({self.path!r}, {self.error!r})"


class MapReduceResult:
    """The result of map_reduce().

    `stdout` is what the script printed: the output of the parts in the order of the recordings, and then that of
    __merge__ and __exit__. `status` is the exit status: 0, that of sys.exit(), or 1 if a recording failed or a function
    raised an exception. `failed` is a list of FailedRecording, whose events are missing in the result. `incomplete` is
    a list of (path, reason): some events of these recordings are missing, because the file is cut off or damaged, or
    events were lost. `module` is the script's module after its __merge__ and __exit__, or None if no recording could be
    replayed. `received` is the size of all partial results in bytes.
    """

    def __init__(
        self,
        stdout: str,
        status: int,
        failed: list[FailedRecording],
        incomplete: list[tuple[str, str]],
        module: ModuleType | None,
        received: int,
    ) -> None:
        self.stdout = stdout
        self.status = status
        self.failed = failed
        self.incomplete = incomplete
        self.module = module
        self.received = received

    def __repr__(self) -> str:
        counts = f"{len(self.failed)} failed, {len(self.incomplete)} incomplete"
        return f"<perf_prof.MapReduceResult: status {self.status}, {counts}>"


def map_reduce(
    script: str | PathLike[str],
    recordings: str | PathLike[str] | Iterable[str | PathLike[str]],
    executor: Executor | None = None,
    parts: int = 1,
    args: Iterable[str | PathLike[str]] = (),
    options: Iterable[str | PathLike[str]] = (),
) -> MapReduceResult:
    """Runs a script on many recordings, and merges the results as --jobs does. Each process replays one part of a
    recording.

    The script needs __partial__() and __merge__(partials), or only aggregators. recordings is a path, a pattern such as
    'host*.data', or a list of both. parts is the number of parts of each recording. executor is any
    concurrent.futures.Executor: a ProcessPoolExecutor, Dask's client.get_executor(), mpi4py.futures, loky. Its workers
    need perf_prof, the script and the recordings at the same paths. Without it, this machine starts a process for each
    part, and as many at a time as it has CPUs. args are the arguments of the script, and options are those of
    `perf-prof python`, such as ['-e', 'sched:sched_switch', '-i', '1s'].

    A recording that cannot be read, or whose worker ends early, is in `failed` of the result, and the others are merged.
    One that is cut off, or that lost events, is merged and is in `incomplete`.
    Returns a MapReduceResult. Raises RecordingNotFoundError for a pattern without files.
    """
    from perf_prof._engines import reduce

    return reduce(script, recordings, executor, parts, args, options)
