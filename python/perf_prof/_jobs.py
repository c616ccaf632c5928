"""run(jobs=...): forked children replay the parts of a recording, and this process merges their results."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from selectors import EVENT_READ, DefaultSelector
from shutil import copyfileobj
from tempfile import TemporaryFile
from traceback import format_exception

from perf_prof import _parts
from perf_prof._errors import Error

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from typing import Any, Protocol, TypeVar

    _Merged = TypeVar("_Merged", covariant=True)

    class Divided(Protocol[_Merged]):
        """A recording that is divided: a DividedRun or a session."""

        @property
        def parts(self) -> int: ...
        def read_before(self, number: int) -> None: ...
        def enter_child(self, number: int) -> None: ...
        def replay_part(self, number: int) -> None: ...
        def messages(self) -> list[Any]: ...
        def merge(self, messages: list[Any]) -> _Merged: ...


def replay_parts(divided: Divided[_Merged], progress: Callable[[int], object] | None = None) -> _Merged:
    """Replays each part in a process of its own, and merges the results. Returns what merge() returns.

    progress(1) is called after each part.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    children: list[_Child] = []
    try:
        with DefaultSelector() as selector:
            for number in range(divided.parts):
                # A span that is open at the end of the previous part ends in this part. So the previous part is read
                # first, which may take long.
                divided.read_before(number)
                children.append(_Child(divided, number))
                selector.register(children[-1].results, EVENT_READ, children[-1])
                _read_results(selector, progress, timeout=0)
            for child in children:
                while not child.has_ended:
                    _read_results(selector, progress, timeout=None)
                child.show_output()
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.close()
    return divided.merge([message for child in children for message in child.messages])


def _read_results(
    selector: DefaultSelector, progress: Callable[[int], object] | None, timeout: float | None
) -> None:
    """Waits until a child has sent something, and reads it. Waits at most timeout seconds; None means no limit. Raises
    the first error of a child."""
    for key, _ in selector.select(timeout):
        if key.data.read():
            selector.unregister(key.fileobj)
            if progress is not None:
                progress(1)


class _Child:
    """A forked child that replays a part."""

    def __init__(self, divided: Divided[object], number: int) -> None:
        self.messages: list[Any] = []
        self.has_ended = False
        self._part = f"part {number + 1} of {divided.parts}"
        self._received = bytearray()
        self._output = TemporaryFile()
        self.results, results = os.pipe()
        self._pid: int | None = None
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _in_child(divided, number, self._output.fileno(), results)
        finally:
            os.close(results)
            if self._pid is None:
                self.close()

    def read(self) -> bool:
        """Reads from the child. Returns whether the child has ended. Raises the error that the child reported."""
        received = os.read(self.results, 1 << 16)
        if received:
            self._received += received
            return False
        self._wait()
        self.has_ended = True
        if not self._received:
            raise Error(f"run(): the process of {self._part} was killed")
        self.messages, error, text = pickle.loads(self._received)
        if text is not None:
            self.show_output()
            error = Error(f"run(): {text.splitlines()[-1]}") if error is None else pickle.loads(error)
            raise error from _InPart(f"in {self._part}:\n{text}")
        return True

    def show_output(self) -> None:
        """Writes the output of the child to sys.stdout."""
        if sys.stdout is not None:
            self._output.seek(0)
            with open(self._output.fileno(), errors="surrogateescape", newline="", encoding="utf-8", closefd=False) as text:
                copyfileobj(text, sys.stdout)

    def kill(self) -> None:
        """Ends the child if it still runs."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the files and reaps the process of the child."""
        self._wait()
        os.close(self.results)
        self._output.close()

    def _wait(self) -> None:
        pid, self._pid = self._pid, None
        try:
            if pid is not None:
                os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # The program ignores SIGCHLD, or has waited for all of its children.


class _InPart(Exception):
    """Shows the traceback of an exception that was raised in another process."""


def _in_child(divided: Divided[object], number: int, output: int, results: int) -> NoReturn:
    """Replays a part in the forked child, and ends the process. So no other code of the program runs in the child."""
    status = 1
    try:
        # Ctrl-C in a terminal does not reach this process group. The parent gets the signal, and ends this process.
        os.setpgid(0, 0)
        divided.enter_child(number)
        _parts.enter_part()
        os.dup2(output, 1)
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
        result = _result_of(divided, number)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        with open(results, "wb") as pipe:
            pipe.write(result)
        status = 0
    finally:
        os._exit(status)


def _result_of(divided: Divided[object], number: int) -> bytes:
    """Replays the part. Returns a pickle of its messages, its exception and the traceback."""
    try:
        divided.replay_part(number)
        return pickle.dumps((divided.messages(), None, None))
    except BaseException as error:
        text = "".join(format_exception(type(error), error, error.__traceback__))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = None
        return pickle.dumps((divided.messages(), pickled, text))
