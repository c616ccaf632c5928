"""Asynchronous iteration over the events of a trace."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from perf_prof._errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perf_prof._native import PerfEvent, Trace

# The number of events that are taken at once. After these events, other tasks of the event loop get a turn. Giving them
# a turn takes a few microseconds.
_AT_ONCE = 256


async def events_of(trace: Trace) -> AsyncIterator[PerfEvent]:
    """Yields the events of a trace. Other tasks of the event loop run during waits, and after each few hundred events.

    If several tasks iterate, each event goes to one of them, as with asyncio.Queue.
    """
    loop = asyncio.get_running_loop()
    while (events := trace._take(_AT_ONCE)) is not None:
        for event in events:
            yield event
        if events:
            await asyncio.sleep(0)
            continue
        ready: asyncio.Future[None] = loop.create_future()
        try:
            # The loop allows one reader for each descriptor. Several tasks may wait for one trace, so each wait uses
            # its own copy of the descriptor.
            descriptor = os.dup(trace.fileno())
        except ClosedError:
            # Another thread has closed the trace. The next call ends the iteration.
            continue
        try:
            loop.add_reader(descriptor, _set, ready)
            await ready
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
