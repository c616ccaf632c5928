"""The pytest plugin of perf_prof: tests limit and count the system calls of their code.

    def test_a_commit_syncs_once(max_syscalls, database):
        with max_syscalls("fsync|fdatasync", 1):
            database.commit()

A test is skipped with the reason if this user may not trace system calls.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class SystemCalls(Counter[str]):
    """The numbers of calls by name, after the `with` statement has ended. `lost` is the number of lost events: if it is
    not 0, there were more calls."""

    lost = 0


@contextmanager
def count_syscalls(names: str = "") -> Iterator[SystemCalls]:
    """Counts the system calls of this process, its threads and its children. names are separated by '|'. Without names,
    counts all system calls."""
    import perf_prof

    counts = SystemCalls()
    calls = "|".join(name.strip() for name in names.split("|"))
    selector = f"syscall/name={calls}/" if names else "syscall"
    try:
        trace = perf_prof.trace(selector, pid=os.getpid(), buffer="64M")
    except perf_prof.AccessError as error:
        pytest.skip(f"system calls cannot be traced: {error}")
    with trace as events:
        try:
            yield counts
        finally:
            events.stop()
            counts.update(event.name for event in events)
            counts.lost = events.lost


@pytest.fixture
def syscalls() -> Callable[..., AbstractContextManager[SystemCalls]]:
    """Counts system calls: `with syscalls("openat|read") as calls: ...`, and then `calls["openat"]`."""
    return count_syscalls


@pytest.fixture
def max_syscalls() -> Callable[[str, int], AbstractContextManager[SystemCalls]]:
    """Fails if there are more system calls of these names: `with max_syscalls("fsync", 3): ...`."""

    @contextmanager
    def check(names: str, most: int) -> Iterator[SystemCalls]:
        with count_syscalls(names) as calls:
            yield calls
        found = calls.total() if hasattr(calls, "total") else sum(calls.values())
        if found > most:
            each = ", ".join(f"{name}: {count}" for name, count in calls.most_common())
            pytest.fail(f"{found} calls of {names}, at most {most} are allowed ({each})", pytrace=False)
        if calls.lost:
            pytest.fail(f"{calls.lost} events were lost, so there were more than {found} calls of {names}", pytrace=False)

    return check
