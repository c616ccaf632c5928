"""Tests of traces that end early, run in other threads, or run in other processes."""

import gc
import os
import pathlib
import resource
import sys
import tempfile
import threading
import unittest
import warnings

import perf_prof as pp
from library_testing import child, left_behind, resources, use_memory


class Ends(unittest.TestCase):

    def test_stop_in_another_thread_ends_the_iteration_after_what_was_recorded(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            threading.Timer(0.2, events.stop).start()
            self.assertGreater(sum(1 for _ in events), 10)
            self.assertEqual(events.read(timeout=5), [])

    def test_further_stops_do_not_drop_what_was_recorded(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            for _ in range(3):
                events.stop()
            self.assertGreater(sum(1 for _ in events), 200)

    def test_a_trace_in_a_cycle_with_its_function_is_collected(self):
        class Program:
            def __init__(self):
                self.events = pp.trace("page-faults:u", pid=os.getpid(), on_lost=self.note)

            def note(self, start, end):
                pass

        before = resources()
        with self.assertWarns(ResourceWarning):
            Program()
            gc.collect()
        self.assertEqual(left_behind(before), (0, 0))

    def test_opening_a_pipe_can_be_interrupted(self):
        code = (
            "import os, signal, sys, threading, perf_prof as pp\n"
            "os.mkfifo(sys.argv[1])\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "try:\n    pp.replay(sys.argv[1])\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = child(code, str(pathlib.Path(folder) / "pipe"))
        self.assertEqual((done.stdout, done.returncode), ("interrupted\n", 0), done.stderr)

    def test_close_during_the_iteration_ends_it(self):
        events = pp.trace("page-faults:u", pid=os.getpid(), count=1)
        threading.Timer(0.2, events.close).start()
        for _ in events:
            pass
        self.assertTrue(events.closed)
        events.close()
        for use in (list, pp.Trace.read, pp.Trace.fileno, aiter):
            with self.assertRaisesRegex(pp.ClosedError, "this trace is closed"):
                use(events)

    def test_a_trace_that_ended_by_itself_stays_empty(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1, limit=1) as events:
            use_memory()
            self.assertEqual(len(list(events)), 1)
            self.assertEqual((list(events), events.read()), ([], []))
        with self.assertRaises(pp.ClosedError):
            list(events)

    def test_a_trace_that_nobody_closed_warns_when_it_is_collected(self):
        before = resources()
        events = pp.trace("page-faults:u", pid=os.getpid())
        with self.assertWarnsRegex(ResourceWarning, "was not closed"):
            del events
            gc.collect()
        self.assertEqual(left_behind(before), (0, 0))

    def test_many_traces_at_a_time(self):
        before = resources()
        traces = [pp.trace("page-faults:u", tid=threading.get_native_id(), count=1) for _ in range(50)]
        use_memory()
        for events in traces:
            events.stop()
        counts = [sum(1 for _ in events) for events in traces]
        for events in traces:
            events.close()
        self.assertTrue(all(count >= 256 for count in counts), counts)
        del traces, events
        self.assertEqual(left_behind(before), (0, 0))

    def test_opening_and_closing_leaves_nothing_behind(self):
        def once():
            with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
                use_memory()
                events.read(timeout=0)

        for _ in range(10):
            once()
        gc.collect()
        before, memory = resources(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100):
            once()
        gc.collect()
        self.assertEqual(left_behind(before), (0, 0))
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory, 8 << 10)

    def test_a_forked_child_cannot_use_the_trace_and_does_not_end_it(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            next(events)
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    next(events)
                except pp.ClosedError as error:
                    status = 0 if "forked child" in str(error) else 2
                events.close()
                os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            events.read(timeout=0)
            use_memory()
            self.assertGreater(len(events.read(timeout=10)), 0)

    def test_a_forked_child_has_no_copies_of_the_events(self):
        code = (
            "import os, sys, perf_prof as pp\n"
            "def count():\n"
            "    links = []\n"
            "    for name in os.listdir('/proc/self/fd'):\n"
            "        try: links.append(os.readlink(f'/proc/self/fd/{name}'))\n"
            "        except FileNotFoundError: pass\n"
            "    return links.count('anon_inode:[perf_event]')\n"
            "recording = pp.record('page-faults:u', output=sys.argv[1], pid=os.getpid())\n"
            "with recording, pp.trace('page-faults:u', pid=os.getpid(), count=1) as events:\n"
            "    before = count()\n"
            "    if os.fork() == 0:\n"
            "        print(count(), events.closed, flush=True)\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "    print(before > 2, count() == before, events.closed)\n"
            "    memory = bytearray(1 << 20)\n"
            "    print(len(events.read(timeout=10)) > 0)\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = child(code, str(pathlib.Path(folder) / "perf.data"))
        self.assertEqual((done.stdout, done.returncode), ("0 True\nTrue True False\nTrue\n", 0), done.stderr)

    def test_a_command_that_outlives_its_trace_leaves_nothing_behind(self):
        before = resources()
        read, write = os.pipe()
        command = [sys.executable, "-c", "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print(flush=True)\nsys.stdin.read()"]
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            saved = os.dup(0), os.dup(1)
            output, their_output = os.pipe()
            try:
                os.dup2(read, 0)
                os.dup2(their_output, 1)
                with pp.trace("page-faults:u", exec=command) as events:
                    os.read(output, 1)
            finally:
                os.dup2(saved[0], 0)
                os.dup2(saved[1], 1)
                for descriptor in (*saved, read, output, their_output):
                    os.close(descriptor)
            del events
            os.close(write)
        self.assertEqual(left_behind(before), (0, 0))
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_the_limit_of_open_files_stays_as_it_is(self):
        code = (
            "import errno, os, resource, threading, perf_prof as pp\n"
            "end = threading.Event()\n"
            "for _ in range(64): threading.Thread(target=end.wait, daemon=True).start()\n"
            "limits = 32, resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
            "try:\n    pp.trace('page-faults:u', pid=os.getpid())\n"
            "except OSError as error:\n    print(errno.errorcode[error.errno], isinstance(error, pp.KernelError))\n"
            "print(resource.getrlimit(resource.RLIMIT_NOFILE) == limits)\n"
            "end.set()\n"
        )
        done = child(code)
        self.assertEqual((done.stdout, done.returncode), ("EMFILE True\nTrue\n", 0), done.stderr)

    def test_threads_that_open_the_same_event_get_one_class(self):
        code = (
            "import os, threading, perf_prof as pp\n"
            "found, barrier = [], threading.Barrier(8)\n"
            "def read():\n"
            "    with pp.trace('page-faults:u', tid=threading.get_native_id(), count=1) as events:\n"
            "        memory = bytearray(1 << 20)\n"
            "        barrier.wait()\n"
            "        found.append(type(events.read(timeout=60)[0]))\n"
            "threads = [threading.Thread(target=read) for _ in range(8)]\n"
            "for thread in threads: thread.start()\n"
            "for thread in threads: thread.join()\n"
            "print(len(found), len(set(found)))\n"
        )
        for _ in range(5):
            done = child(code)
            self.assertEqual((done.stdout, done.stderr), ("8 1\n", ""))

    def test_ctrl_c_interrupts_the_wait_and_handlers_stay_those_of_the_program(self):
        code = (
            "import os, signal, threading, time, perf_prof as pp\n"
            "before = signal.getsignal(signal.SIGTERM)\n"
            "with pp.trace('page-faults:u', pid=1 if os.geteuid() == 0 else os.getpid(), limit=10**9) as events:\n"
            "    sent = []\n"
            "    send = lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT))\n"
            "    threading.Timer(0.3, send).start()\n"
            "    try:\n"
            "        for _ in events: pass\n"
            "    except KeyboardInterrupt:\n"
            "        print('interrupted')\n"
            "assert signal.getsignal(signal.SIGTERM) == before\n"
        )
        done = child(code)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("interrupted\n", "", 0))

    def test_an_open_trace_does_not_delay_the_end_of_the_interpreter(self):
        done = child("import os, perf_prof as pp\nevents = pp.trace('page-faults:u', pid=os.getpid())\nprint('end')")
        self.assertEqual((done.stdout, done.returncode), ("end\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
