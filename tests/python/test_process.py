"""Tests that a program that imports perf_prof keeps its signal handlers, limits, streams and exit."""

import errno
import os
import signal
import threading
import unittest

import perf_prof as pp
from library_testing import child, needs_root, use_memory

# Calls each function, and compares the state of the process before, during and after the calls.
EVERYTHING = """
import os, pathlib, resource, signal, sys, tempfile, perf_prof as pp

def process():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    status = {name: int(mask, 16) for name, mask in (line.split(":") for line in lines) if name in ("SigIgn", "SigCgt")}
    # The C library handles signals 32 and 33 itself, from the first thread on.
    status["SigCgt"] &= ~(3 << 31)
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    masks = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return status, limits, handlers, masks, os.getcwd()

before = process()
during = []
def note(event): during.append(process() == before)
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/r.data"
    command = [sys.executable, "-c", "pass"]
    with pp.trace("page-faults:u", exec=command, limit=3) as events:
        for event in events: note(event)
    pp.run("page-faults:u", handlers=note, exec=command, limit=3)
    pp.record("page-faults:u", output=path, exec=command)
    with pp.record("page-faults:u", output=path, pid=os.getpid()): note(None)
    with pp.replay(path) as events:
        for event in events: note(event)
    pp.run(input=path, handlers=note)
    pp.stat("page-faults:u", exec=command)
print(len(during) > 5, all(during), process() == before)
"""


class Process(unittest.TestCase):
    def test_handlers_limits_and_masks_are_those_of_the_program(self):
        done = child(EVERYTHING)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("True True True\n", "", 0))

    def test_a_signal_handler_may_stop_a_trace(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            before = signal.signal(signal.SIGUSR1, lambda number, frame: events.stop())
            self.addCleanup(signal.signal, signal.SIGUSR1, before)
            use_memory()
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
            self.assertGreater(sum(1 for _ in events), 200)

    def test_the_handler_of_ctrl_c_stays_that_of_the_program_during_a_run(self):
        code = (
            "import os, signal, threading, perf_prof as pp\n"
            "called = []\n"
            "def handler(number, frame):\n    called.append(number)\n    raise InterruptedError('mine')\n"
            "signal.signal(signal.SIGINT, handler)\n"
            "threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
            "try:\n    pp.run('page-faults:u', handlers={'__sample__': lambda event: None}, exec=['sleep', '60'])\n"
            "except InterruptedError as error:\n    print(error, called == [signal.SIGINT])\n"
        )
        done = child(code)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("mine True\n", "", 0))

    def test_a_run_goes_on_after_an_exception_if_asked_to(self):
        code = (
            "import perf_prof as pp\ncalls = []\n"
            "def fail(event):\n    calls.append(event)\n    raise KeyError('mine')\n"
            "result = pp.run('page-faults:u', handlers=fail, on_error='continue', exec=['true'], count=1)\n"
            "print(len(calls) == result.delivered > 10, result.status)\n"
        )
        done = child(code)
        self.assertEqual((done.stdout, done.returncode), ("True 1\n", 0), done.stderr)
        self.assertIn("KeyError: 'mine'", done.stderr)

    @needs_root
    def test_what_the_kernel_refuses_is_an_os_error_with_its_number(self):
        # The kernel has too little memory for a ring of this size. Before it tries, it checks the limit of a plain
        # user, who gets another error.
        with self.assertRaisesRegex(OSError, "memory") as raised:
            pp.trace("page-faults:u", pid=os.getpid(), mmap_pages="64G")
        self.assertIsInstance(raised.exception, pp.KernelError)
        self.assertNotIsInstance(raised.exception, PermissionError)
        self.assertEqual(raised.exception.errno, errno.ENOMEM)


if __name__ == "__main__":
    unittest.main()
