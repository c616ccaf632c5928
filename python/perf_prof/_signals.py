"""Signals in events: their names and results, and whether the kernel itself sent them."""

from __future__ import annotations

import signal

from perf_prof import PerfEvent

# Bits of common_flags: TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ (include/linux/trace_events.h).
IN_INTERRUPT = 0x08 | 0x10


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as SIGTERM or SIGRTMIN+1. Returns its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if signal.SIGRTMIN < number <= signal.SIGRTMAX else str(number)


def is_of_kernel(event: PerfEvent) -> bool:
    """Returns whether the kernel itself sent the signal of a signal:signal_generate.

    The kernel's signals have a positive code (sigaction(2), si_code). SIGPIPE of write() is an exception: it has the
    code 0 and is for one thread (send_sig() with priv 0 in kernel/signal.c). A signal of kill() also has the code 0,
    but is for a process. A signal of tgkill() has the code -6 (SI_TKILL).
    """
    return bool(event.code > 0 or (event.code == 0 and event.get("group") == 0))


def signal_result(number: int) -> str:
    """Returns what the kernel did with a signal, as text. number is the field result of signal:signal_generate."""
    # TRACE_SIGNAL_... (include/trace/events/signal.h)
    results = ("delivered", "ignored", "already pending", "lost: queue is full", "delivered without details")
    return results[number] if 0 <= number < len(results) else str(number)
