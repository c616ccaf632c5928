"""The module `Util` for scripts of `perf script`: times, statistics, and names of system calls and errors."""

import errno
import os  # Scripts import it from here.
from typing import Any, Tuple

# The operations of futex() and their flags (include/uapi/linux/futex.h).
FUTEX_WAIT = 0
FUTEX_WAKE = 1
FUTEX_PRIVATE_FLAG = 128
FUTEX_CLOCK_REALTIME = 256
FUTEX_CMD_MASK = ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)

NSECS_PER_SEC = 1000000000


def avg(total: float, n: float) -> float:
    """Returns the average of n values from their sum."""
    return total / n


def nsecs(secs: int, nsecs: int) -> int:
    """Returns a time in ns from its seconds and its remaining ns."""
    return secs * NSECS_PER_SEC + nsecs


def nsecs_secs(nsecs: int) -> float:
    """Returns a time in ns as seconds."""
    return nsecs / NSECS_PER_SEC


def nsecs_nsecs(nsecs: int) -> int:
    """Returns the part of a time in ns that is less than a second."""
    return nsecs % NSECS_PER_SEC


def nsecs_str(nsecs: int) -> Tuple[str]:
    """Returns a time in ns as text with nine decimals, as the only item of a tuple.

    perf returns a tuple too, so "%s" % nsecs_str(t) is the text.
    """
    return ("%5d.%09d" % (nsecs_secs(nsecs), nsecs_nsecs(nsecs)),)


def add_stats(dict: Any, key: Any, value: float) -> None:
    """Adds a value to the statistics dict[key]: a tuple of minimum, maximum, average and number of the values.

    As in perf, the average is no plain one: each value counts as much as all earlier values together.
    """
    if key not in dict:
        dict[key] = (value, value, value, 1)
        return
    least, most, average, count = dict[key]
    dict[key] = (min(least, value), max(most, value), (average + value) / 2, count + 1)


def clear_term() -> None:
    """Clears the terminal."""
    print("\x1b[H\x1b[2J")


def syscall_name(id: Any) -> str:
    """Returns the name of a system call, or the number as text if it has no name.

    The number is looked up for the machine of the recording. perf needs the module `audit` for names.
    """
    import perf_prof

    try:
        name = perf_prof.syscall_name(id)
    except (TypeError, OverflowError):
        return str(id)
    return str(id) if name.startswith("sys_") and name[4:] == str(id) else name


def strerror(nr: int) -> str:
    """Returns the name of an error number, which may be negative: strerror(-2) == 'ENOENT'."""
    return errno.errorcode.get(abs(nr)) or "Unknown %d errno" % nr
