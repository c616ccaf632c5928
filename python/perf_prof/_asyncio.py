"""Asynchronous iteration over the events of a trace."""

import asyncio
import os

from perf_prof._errors import ClosedError

# So many events are taken at once. Then other tasks of the event loop run, which takes a few microseconds.
_AT_ONCE = 256


async def events_of(trace):
    """Yield the events of a trace. Other tasks of the event loop run while it waits, and after each few events.

    If several tasks iterate, each event goes to one of them, as with asyncio.Queue.
    """
    loop = asyncio.get_running_loop()
    while (events := trace._take(_AT_ONCE)) is not None:
        for event in events:
            yield event
        if events:
            await asyncio.sleep(0)
            continue
        ready = loop.create_future()
        try:
            # A copy: the loop allows one reader for each descriptor, and another task may wait too.
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


def _set(ready):
    if not ready.done():
        ready.set_result(None)
