"""Sessions of a run with `perf-prof script --jobs`: forked children process the parts of a recording."""

from __future__ import annotations

import os
import pickle
import sys

from perf_prof import _native

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from perf_prof.perf import session

# The number of processes. The command sets it before it runs the script.
processes = 1


def process_events(of: session) -> None:
    """Processes the recording of a session in several processes, and merges what their functions count."""
    from perf_prof._jobs import replay_parts

    main = sys.modules["__main__"].__dict__
    try:
        partial, merge = _callbacks(of, main)
        replay_parts(_Divided(of, partial, merge))
    except NotDivided as error:
        sys.exit(f"{main['__file__']}: {error}")


class NotDivided(Exception):
    """The session cannot be divided between processes."""


def _callbacks(of: session, main: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[list[Any]], object]]:
    """Returns the functions that return the result of a part, and merge the results of all parts."""
    if of._stat is not None or of._lost is not None:
        raise NotDivided("--jobs divides samples, and the session has stat= or lost=; leave --jobs out")
    if not os.path.exists(of._data._path) or of._data._path.startswith("/dev/"):
        raise NotDivided("--jobs cannot divide a pipe; write the recording to a file, or leave --jobs out")
    partial, merge = main.get("__partial__"), main.get("__merge__")
    if partial is not None and merge is not None:
        return partial, merge
    from perf_prof import _counted

    function = of._sample
    name = getattr(function, "__name__", "")
    if function is None or main.get(name) is not function:
        name = f"sample= of the session ({type(function).__name__})"
    try:
        return _counted.callbacks(main, main["__file__"], [name])
    except _counted.NotCounted as error:
        raise NotDivided(
            "--jobs runs the sample function in several processes, each on a part of the recording, and adds up what it "
            f"counts. {error}. Define __partial__(), which returns the result of a part, and __merge__(partials), which "
            "combines the results of all parts, or leave --jobs out"
        ) from None


class _Divided:
    """A session whose recording is divided: what replay_parts() needs of it."""

    def __init__(self, of: session, partial: Callable[[], Any], merge: Callable[[list[Any]], object]) -> None:
        self.parts = processes
        self._session = of
        self._partial = partial
        self._merge = merge
        self._result: list[Any] = []
        self._parent = os.getpid()

    def read_before(self, number: int) -> None:
        """Reads nothing: sessions have no spans, which could continue in the next part."""

    def enter_child(self, number: int) -> None:
        """Turns this forked child into the process of a part."""
        global processes
        processes = 1
        # The thread of the session is not in this process, so the session is not closed here.
        self._of_parent = self._session._session
        _native.enter_part_of_session(self._parent)

    def replay_part(self, number: int) -> None:
        """Passes the samples of a part to the function of the session."""
        from perf_prof import _counted

        self._session._open(number, self.parts)
        self._session._process()
        try:
            self._result = [self._partial()]
            pickle.dumps(self._result)
        except _counted.NotCounted as error:
            raise NotDivided(f"--jobs: {error}; define __partial__() and __merge__(partials), or leave --jobs out") from None

    def messages(self) -> list[Any]:
        """Returns the result of the part."""
        return self._result

    def merge(self, results: list[Any]) -> object:
        """Merges the results of the parts, in their order."""
        return self._merge(results)
