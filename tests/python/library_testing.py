"""Helpers of the tests of the package's functions: work to trace, and a check of what a trace leaves behind."""

import mmap
import os
import signal
import subprocess
import sys
import time
import unittest

import perf_prof as pp

needs_root = unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")


def child(code, *args):
    """Runs a Python program in a child process."""
    words = [sys.executable, "-X", "dev", "-c", code, *args]
    # A shell without job control starts commands in the background with SIGINT ignored. The program must not inherit
    # this.
    stop_ignoring = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=os.environ, preexec_fn=stop_ignoring
    )


def use_memory():
    """Causes page faults in this process: one for each page of new memory."""
    with mmap.mmap(-1, 1 << 20) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def resources():
    """Returns how many file descriptors and threads this process has."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def left_behind(before):
    """Returns how many descriptors and threads this process has more than before.

    A thread that was joined stays in /proc for a moment. Threads of earlier tests may end meanwhile.
    """
    end = time.monotonic() + 60
    while True:
        more = tuple(max(0, now - was) for now, was in zip(resources(), before))
        if more == (0, 0) or time.monotonic() > end:
            return more
        time.sleep(0.01)


class Numbers:
    """Collects a number from each event, in one process or in several."""

    def __init__(self):
        self.times = []
        self.found = None
        self.exits = 0

    def __sample__(self, event):
        self.times.append(event._time)

    def __partial__(self):
        print("part", pp.shard()["number"], "of", pp.shard()["count"])
        subprocess.run(["echo", "from a command"], stdin=subprocess.DEVNULL)
        return self.times, os.getpid()

    def __merge__(self, partials):
        self.found = partials

    def __exit__(self):
        self.exits += 1
