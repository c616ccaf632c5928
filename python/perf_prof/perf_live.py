"""Live events for a callback, like perf's module `perf_live`."""

from __future__ import annotations

from bisect import bisect_right

from perf_prof import perf

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The maximum numbers of samples that are taken from a CPU before the next CPU: without order, and with order=True.
# Sorting needs all available samples, so the second number is high.
_AT_ONCE = 1000
_MOST = 1_000_000


class LiveSession:
    """The events in a list of selectors, on all CPUs. run() passes each sample to the callback until Ctrl-C.

    With order=True, the samples of all CPUs are delivered in the order of time, about 0.1 s later. lost(event) gets a
    lost_event where records were lost. perf supports neither.
    """

    def __init__(
        self,
        event_string: str,
        sample_callback: Callable[[perf.sample_event], object],
        order: bool = False,
        lost: Callable[[perf.lost_event], object] | None = None,
    ) -> None:
        self.event_string = event_string
        self.sample_callback = sample_callback
        self.order = order
        self.lost = lost
        self.cpus = perf.cpu_map()
        self.evlist = perf.parse_events(event_string, self.cpus)
        self.evlist.config()
        self._kept: list[perf.sample_event] = []
        self._complete = -1

    def run(self) -> None:
        """Passes the samples to the callback until Ctrl-C."""
        try:
            self.evlist.open()
            self.evlist.mmap()
            self.evlist.enable()
            while True:
                self.evlist.poll(100)
                if self.order:
                    self._deliver_in_order()
                    continue
                for cpu in self.cpus:
                    for event in self._waiting(cpu, _AT_ONCE):
                        self.sample_callback(event)
        except KeyboardInterrupt:
            kept, self._kept = self._kept, []
            for event in kept:
                self.sample_callback(event)
        finally:
            self.evlist.close()

    def _deliver_in_order(self) -> None:
        """Reads all rings. Delivers the samples up to the latest time of the previous call, because all earlier samples
        have now been read."""
        is_all = True
        for cpu in self.cpus:
            samples = self._waiting(cpu, _MOST)
            is_all = is_all and len(samples) < _MOST
            self._kept.extend(samples)
        if not is_all or not self._kept:
            return
        self._kept.sort(key=_time)
        latest = _time(self._kept[-1])
        count = bisect_right(self._kept, self._complete, key=_time)
        self._complete = max(self._complete, latest)
        complete, self._kept = self._kept[:count], self._kept[count:]
        for event in complete:
            self.sample_callback(event)

    def _waiting(self, cpu: int, limit: int) -> list[perf.sample_event]:
        """Takes the available samples of a CPU, and passes losses to lost()."""
        samples: list[perf.sample_event] = []
        while len(samples) < limit:
            try:
                event: Any = self.evlist.read_on_cpu(cpu)
            except TypeError:
                continue  # perf's module does not support this type of record.
            if event is None:
                break
            if isinstance(event, perf.sample_event):
                samples.append(event)
            elif isinstance(event, perf.lost_event) and self.lost is not None:
                self.lost(event)
        return samples


def _time(event: perf.sample_event) -> int:
    return event.sample_time
