"""Times of things that happen often: sums, histograms and percentiles, for tables of scripts."""

from __future__ import annotations

from collections import Counter

from perf_prof import Log2Hist, print


class Times:
    """How often something happened and how long it took, in ns: count, total, longest. place is where the longest happened."""

    __slots__ = ("count", "longest", "place", "total")

    def __init__(self) -> None:
        self.count = self.total = self.longest = self.place = 0

    def add(self, ns: int, place: int = 0) -> None:
        """Adds a time in ns. place is for example the CPU."""
        self.count += 1
        self.total += ns
        self.longest, self.place = max((self.longest, self.place), (ns, place))

    def update(self, other: Times) -> None:
        """Adds the times of other."""
        self.count += other.count
        self.total += other.total
        self.longest, self.place = max((self.longest, self.place), (other.longest, other.place))


class TimesHist(Times):
    """Times with a histogram in usecs or nsecs."""

    __slots__ = ("_per_unit", "hist")

    def __init__(self, unit: str = "usecs") -> None:
        super().__init__()
        self.hist = Log2Hist(unit)
        self._per_unit = {"nsecs": 1, "usecs": 1000}[unit]

    def add(self, ns: int, place: int = 0) -> None:
        """Adds a time."""
        super().add(ns, place)
        self.hist.add(ns / self._per_unit)

    def update(self, other: Times) -> None:
        """Adds the times of other."""
        super().update(other)
        if isinstance(other, TimesHist):
            self.hist.update(other.hist)

    def print(self, name: str) -> None:
        """Prints the name with the numbers, the histogram, and an empty line."""
        print(f"{name}: {self.count} calls, mean {self.total / self.count / 1000:.3f} us, longest {self.longest / 1000:.3f} us")
        self.hist.print()
        print()


class Percentiles:
    """Counts values in steps, so that tables stay small. Percentiles are at most 1 % too high. len() is the number of values,
    and longest the largest value.
    """

    _STEPS = 128  # steps from a power of two to the next

    __slots__ = ("longest", "steps")

    def __init__(self) -> None:
        self.steps: Counter[int] = Counter()  # largest value of a step -> number of values in the step
        self.longest = 0

    def add(self, value: int) -> None:
        """Adds a value, 0 or more."""
        width = max(value.bit_length() - self._STEPS.bit_length(), 0)
        self.steps[(value >> width) + 1 << width if width else value] += 1
        self.longest = max(self.longest, value)

    def update(self, other: Percentiles) -> None:
        """Adds the values of other."""
        self.steps.update(other.steps)
        self.longest = max(self.longest, other.longest)

    def __len__(self) -> int:
        return self.steps.total()

    def percentile(self, percent: int) -> int:
        """Returns the value that `percent` percent of the values do not exceed."""
        rank = -(-len(self) * percent // 100)
        for largest, count in sorted(self.steps.items()):
            rank -= count
            if rank <= 0:
                return min(largest, self.longest)
        return self.longest
