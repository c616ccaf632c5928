"""Asynchronous iteration over the events of a trace."""

import asyncio

from perf_prof._errors import ClosedError

# So many events are taken at once. Then other tasks of the event loop run, which takes a few microseconds.
_AT_ONCE = 256


async def events_of(trace):
    """Yield the events of a trace. Other tasks of the event loop run while it waits, and after each few events."""
    loop = asyncio.get_running_loop()
    while (events := trace._take(_AT_ONCE)) is not None:
        for event in events:
            yield event
        if events:
            await asyncio.sleep(0)
            continue
        ready = loop.create_future()
        try:
            descriptor = trace.fileno()
        except ClosedError:
            # Another thread has closed the trace. The next call ends the iteration.
            continue
        loop.add_reader(descriptor, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)


def _set(ready):
    if not ready.done():
        ready.set_result(None)
