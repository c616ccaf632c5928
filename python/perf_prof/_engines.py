"""Replays several recordings for map_reduce(), and for the command's --jobs and --executor. Worker processes, perhaps
on other machines, replay parts of the recordings. This process merges their results.

All modules are imported before the script is loaded. Afterwards, a file with the name of a module in the script's
folder would be imported instead.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from glob import glob, has_magic
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from io import BytesIO, TextIOWrapper
from traceback import print_exception
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

from perf_prof import _native
from perf_prof._errors import RecordingNotFoundError, Warning
from perf_prof._fleet import FailedRecording, MapReduceResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType


def reduce(
    script: str | os.PathLike[str],
    recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    executor: Executor | None,
    parts: int,
    args: Iterable[str | os.PathLike[str]],
    options: Iterable[str | os.PathLike[str]],
) -> MapReduceResult:
    """Does the work of map_reduce()."""
    words, script_args = [os.fspath(word) for word in options], [os.fspath(arg) for arg in args]
    if parts < 1:
        raise ValueError("map_reduce(): parts is the number of parts of each recording, at least 1")
    processes = os.cpu_count() or 1
    plan = _Plan(os.fspath(script), script_args, ["-q", *words], processes, 0)
    parts_of = [(path, parts) for path in _expand(recordings)]
    output = BytesIO()
    before = sys.argv, sys.path, sys.meta_path
    sys.path, sys.meta_path = list(sys.path), list(sys.meta_path)
    text = TextIOWrapper(output, encoding="utf-8", errors="surrogateescape", newline="\n", write_through=True)
    engine = ThreadPoolExecutor(processes) if executor is None else executor
    try:
        reduction = _Reduction(output.write, _warn)
        reduction.replay(plan, parts_of, engine)
        with redirect_stdout(text):
            status = reduction.merge(plan)
    except BaseException:
        # The results of the parts are no longer needed after an exception such as KeyboardInterrupt.
        if executor is None:
            engine.shutdown(wait=False, cancel_futures=True)
            _end_processes()
        raise
    finally:
        if executor is None:
            engine.shutdown(cancel_futures=True)
        sys.argv, sys.path, sys.meta_path = before
    stdout = output.getvalue().decode("utf-8", "surrogateescape")
    return MapReduceResult(
        stdout, status, reduction.failed, reduction.incomplete, reduction.module, reduction.received
    )


def command(
    script: str,
    recordings: list[str],
    args: list[str],
    *,
    options: list[str],
    processes: int | None,
    executor: str | None,
    parts: int,
    own_events: int,
) -> int:
    """Does the work of `perf-prof python` with several recordings and --jobs or --executor. Returns the exit status."""
    beside = processes or os.cpu_count() or 1
    plan = _Plan(script, args, options, beside, own_events)
    engine: Executor
    try:
        if executor is None:
            engine, parts_of = ThreadPoolExecutor(beside), _parts_by_size(recordings, beside)
        else:
            engine, parts_of = _executor(executor), [(path, parts) for path in recordings]
    except _Refused as error:
        _say(str(error))
        return 1
    reduction = _Reduction(_write, _write_messages)
    try:
        reduction.replay(plan, parts_of, engine)
    except KeyboardInterrupt:
        _say("interrupted: the parts were not merged")
        _end_processes()
        _abandon(engine)
        return 130
    for failed in reduction.failed:
        _say(failed.error if failed.path in failed.error else f"{failed.path}: {failed.error}")
    # An executor of another package may have no shutdown().
    if hasattr(engine, "shutdown"):
        engine.shutdown()
    return reduction.merge(plan)


def _abandon(engine: Executor) -> None:
    """Ends an executor without waiting for its work. Work that has begun may go on, because not every executor can end
    it."""
    try:
        engine.shutdown(wait=False, cancel_futures=True)
    except (AttributeError, TypeError):
        pass


class _Plan(NamedTuple):
    """The settings that all parts of a run share."""

    script: str
    args: list[str]
    options: list[str]
    processes: int
    own_events: int


class _Part(NamedTuple):
    """A part of a recording, which is pickled for the worker that replays it."""

    plan: _Plan
    recording: str
    number: int
    parts: int
    is_first: bool


class _PartResult(NamedTuple):
    """What a worker returns. `result` is None if the recording has fewer parts than requested."""

    status: int
    stdout: bytes
    stderr: bytes
    result: bytes | None


def replay_part(part: _Part) -> _PartResult:
    """Replays a part in a process of its own, and returns its _PartResult. Runs in the workers of executors."""
    # The process writes its result to this file. The process writes no file if the recording has fewer parts than
    # requested.
    with tempfile.TemporaryDirectory(prefix="perf-prof-") as folder:
        file = os.path.join(folder, "result")
        plan = part.plan
        numbers = part.number, part.parts, plan.processes, plan.own_events, os.getpid()
        words = [*_native.own_command(), "python", *plan.options, "--input", part.recording]
        words += ["--part", "/".join([*map(str, numbers), file])]
        # Some messages are equal for all parts, so only the process of the first part prints them.
        words += ["-q"] if not part.is_first else []
        words += ["--", plan.script, *plan.args]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
            _processes.add(process)
            try:
                stdout, stderr = process.communicate()
            finally:
                _processes.discard(process)
        try:
            with open(file, "rb") as result:
                return _PartResult(process.returncode, stdout, stderr, result.read())
        except FileNotFoundError:
            return _PartResult(process.returncode, stdout, stderr, None)


# The processes that this process has started to replay parts.
_processes: set[subprocess.Popen[bytes]] = set()


def _end_processes() -> None:
    for process in list(_processes):
        process.kill()


if TYPE_CHECKING:
    # The future of a part, or the exception that the executor raised when the part was submitted.
    _Started = Future[_PartResult] | Exception


class _Reduction:
    """The results of the parts that have ended."""

    def __init__(self, write: Callable[[bytes], object], show_messages: Callable[[bytes], None]) -> None:
        self.failed: list[FailedRecording] = []
        self.incomplete: list[tuple[str, str]] = []
        self.module: ModuleType | None = None
        self.received = 0
        self._write = write
        self._show_messages = show_messages
        self._results = _native.PartResults()

    def replay(self, plan: _Plan, parts_of: list[tuple[str, int]], executor: Executor) -> None:
        """Replays all parts. If a part fails, all results of its recording are dropped."""
        is_first = True
        waiting: deque[tuple[str, list[_Started]]] = deque()
        for path, count in parts_of:
            futures: list[_Started] = []
            for number in range(count):
                part = _Part(plan, path, number, count, is_first)
                is_first = False
                try:
                    futures.append(executor.submit(replay_part, part))
                except Exception as error:
                    # The executor accepts no more work, for example after BrokenProcessPool.
                    futures.append(error)
            waiting.append((path, futures))
        try:
            while waiting:
                self._add(*waiting.popleft())
        finally:
            for _, futures in waiting:
                for future in futures:
                    if not isinstance(future, Exception):
                        future.cancel()

    def _add(self, path: str, futures: list[_Started]) -> None:
        """Waits for the parts of a recording. Adds their results if all parts succeeded."""
        results: list[_PartResult] = []
        error: str | None = None
        for future in futures:
            try:
                if isinstance(future, Exception):
                    raise future
                result = future.result()
                self.received += len(result.result or b"") + len(result.stdout) + len(result.stderr)
                error = error or _error_of(result)
                results.append(result)
            except Exception as raised:
                error = error or f"the process that replayed the recording failed: {type(raised).__name__}: {raised}"
        if error is None:
            try:
                reasons = self._results.add([result.result for result in results if result.result])
                # A reason starts with the path, like a line on stderr. The path is removed from the reason, because the
                # tuple already contains the path.
                self.incomplete += [(path, reason.removeprefix(path).removeprefix(":").lstrip()) for reason in reasons]
            except ValueError as damaged:
                error = str(damaged)
        if error is not None:
            self.failed.append(FailedRecording(path, error))
            return
        for result in results:
            self._show_messages(result.stderr)
            self._write(result.stdout)

    def merge(self, plan: _Plan) -> int:
        """Merges the partial results in this process. Returns the exit status."""
        if not self._results:
            return 1 if self.failed else 0
        try:
            status = self._merge(plan)
        except SystemExit as error:
            status = _status_of(error)
        except Exception as error:
            print_exception(type(error), error, error.__traceback__)
            status = 1
        finally:
            _native.end_merge()
        return status or int(bool(self.failed) or self._results.raised)

    def _merge(self, plan: _Plan) -> int:
        module = _native.load_to_merge(plan.script, plan.args, self._results)
        functions = vars(module)
        if "__init__" in functions:
            functions["__init__"]()
        partials = self._load(module)
        if "__merge__" in functions and "__partial__" in functions:
            functions["__merge__"](partials)
        else:
            _native.merge_aggregators(functions, partials)
        if "__exit__" in functions:
            functions["__exit__"]()
        self.module = module
        return 0

    def _load(self, module: ModuleType) -> list[Any]:
        """Unpickles the partial results, which may contain objects of the script's classes."""
        name = module.__name__
        before = {name: sys.modules[name]} if name in sys.modules else {}
        sys.modules[name] = module
        try:
            return [pickle.loads(partial) for partial in self._results.partials()]
        finally:
            sys.modules.pop(name, None)
            sys.modules.update(before)


def _error_of(result: _PartResult) -> str | None:
    """Returns the reason why a part failed, or None if the part succeeded."""
    if result.status == 0 and result.result != b"":
        return None
    if result.status < 0:
        return f"the process that replayed the recording was killed by signal {-result.status}"
    lines = result.stderr.decode("utf-8", "surrogateescape").strip().splitlines()
    if not lines:
        return f"the script ended with status {result.status} before its result was complete"
    return lines[-1].removeprefix("perf-prof: ")


def _status_of(error: SystemExit) -> int:
    """Returns the exit status of a SystemExit. As in Python, a text is printed to stderr and means 1."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _parts_by_size(recordings: list[str], processes: int) -> list[tuple[str, int]]:
    """Returns the recordings with their numbers of parts. A much larger recording is divided into several parts, so
    that all processes have work until the end."""
    sizes = [_size(path) for path in recordings]
    share = max(1, sum(sizes) / processes)
    return [(path, max(1, round(size / share))) for path, size in zip(recordings, sizes)]


def _size(path: str) -> int:
    """Returns the size of a recording, which may be a directory. Returns 0 if it cannot be read."""
    try:
        if os.path.isdir(path):
            return sum(entry.stat().st_size for entry in os.scandir(path))
        return os.path.getsize(path)
    except OSError:
        return 0


def _expand(recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths of recordings. A pattern stands for all files that it matches, sorted."""
    paths: list[str] = []
    given = [recordings] if isinstance(recordings, (str, bytes, os.PathLike)) else recordings
    for path in map(os.fsdecode, given):
        if not has_magic(path):
            paths.append(path)
            continue
        found = sorted(glob(path))
        # `path` may be a file and also a pattern that matches other files. All of these files are replayed.
        if os.path.exists(path) and path not in found:
            found.append(path)
        if not found:
            raise RecordingNotFoundError(2, "the pattern matches no file", path)
        paths += found
    return paths


class _Refused(Exception):
    """There is no executor. The text tells the user the reason, in one line."""


def _module(name: str) -> ModuleType:
    """Imports the module of an executor. The module may be in the current folder.

    The current folder is searched last, and only for this module. It is never in `sys.path`, because root may run
    perf-prof in a folder where other users have put a json.py.
    """
    top = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        spec = PathFinder.find_spec(top, [os.getcwd()]) if error.name == top else None
        if spec is None or spec.loader is None:
            raise
    module = sys.modules[top] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[top]
        raise
    return importlib.import_module(name)


def _executor(name: str) -> Executor:
    """Returns the executor that the function MODULE:FUNCTION returns."""
    module, _, function = name.partition(":")
    try:
        made: Executor = getattr(_module(module), function)()
    except Exception as error:
        raise _Refused(f"--executor {name}: {type(error).__name__}: {error}") from error
    if not isinstance(made, Executor) and not callable(getattr(made, "submit", None)):
        raise _Refused(f"--executor {name}: the function returned '{type(made).__name__}', which has no submit()")
    return made


def _write(text: bytes) -> None:
    """Writes the output of a part to stdout."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _write_messages(text: bytes) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text.decode("utf-8", "surrogateescape"))


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"perf-prof: {text}\n")


def _warn(messages: bytes) -> None:
    """Shows the messages of a part as warnings, for the line that called map_reduce()."""
    for line in messages.decode("utf-8", "surrogateescape").splitlines():
        warn(line.removeprefix("perf-prof: ").removeprefix("warning: "), Warning, stacklevel=6)
