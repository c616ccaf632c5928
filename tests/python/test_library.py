"""The functions of perf_prof for programs: tracing, replaying, recording and counting in this process.

The kernel's tracepoints need root. Tests that need them are skipped for other users.
"""

import asyncio
import contextlib
import errno
import gc
import io
import mmap
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock
import warnings

import perf_prof as pp

needs_root = unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")


def child(code, *args):
    """Runs a Python program in a process of its own."""
    words = [sys.executable, "-X", "dev", "-c", code, *args]
    # A shell without job control starts commands in the background with SIGINT ignored.
    stop_ignoring = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=os.environ, preexec_fn=stop_ignoring
    )


def use_memory():
    """Makes page faults of this process: one for each page of new memory."""
    with mmap.mmap(-1, 1 << 20) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def resources():
    """Returns the numbers of descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


class Live(unittest.TestCase):
    def test_events_of_this_process_are_read_without_root(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            found = events.read(timeout=10)
        self.assertGreater(len(found), 10)
        self.assertTrue(all(event._pid == os.getpid() for event in found))
        self.assertEqual(events.lost, 0)
        self.assertEqual(events.delivered, len(found))

    @needs_root
    def test_a_command_is_traced_until_its_end(self):
        with pp.trace("sched:sched_process_exec", "sched:sched_process_exit", exec=["sh", "-c", "ls >/dev/null; true"]) as events:
            names = [event._event for event in events]
        self.assertEqual(names.count("sched:sched_process_exec"), 2)
        self.assertEqual(names.count("sched:sched_process_exit"), 2)

    @needs_root
    def test_only_the_threads_of_perf_prof_are_left_out(self):
        with pp.trace("syscalls:sys_enter_getppid", "raw_syscalls:sys_enter", pid=os.getpid()) as events:
            for _ in range(5):
                os.getppid()
            time.sleep(0.3)
            events.stop()
            found = list(events)
        self.assertEqual(sum(event._event == "syscalls:sys_enter_getppid" for event in found), 5)
        self.assertEqual({event._tid for event in found}, {threading.get_native_id()})

    @needs_root
    def test_names_of_system_calls_are_events_in_all_faces(self):
        command = [sys.executable, "-c", "import os\nfor i in range(5): os.getpgid(0)\nos.getsid(0)"]
        with pp.trace("getpgid,getsid", exec=command) as events:
            self.assertEqual([event.name for event in events], ["getpgid"] * 5 + ["getsid"])
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        recorded = os.path.join(folder.name, "perf.data")
        pp.record("getpgid,getsid", output=recorded, exec=command)
        with pp.replay(recorded, "getsid") as events:
            self.assertEqual([event.name for event in events], ["getsid"])
        with self.assertRaisesRegex(pp.SelectorError, "spans cannot be counted"):
            pp.stat("getsid", exec=command)
        path = os.path.join(folder.name, "calls.py")
        with open(path, "w") as file:
            file.write("def syscall(event): print(event.name)\n")
        words = ["python", "-q", "-e", "getsid", "-e", "getpgid", path, "--exec", *command]
        done = subprocess.run([sys.executable, "-m", "perf_prof", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(sorted(done.stdout.split()), ["getpgid"] * 5 + ["getsid"], done.stderr)

    def test_a_trace_has_the_exit_status_of_its_command(self):
        with pp.trace("page-faults:u", exec=["sh", "-c", "exit 7"]) as events:
            self.assertIsNone(events.status)
            list(events)
            self.assertEqual(events.status, 7)
        with pp.trace("page-faults:u", exec=["sh", "-c", "kill -9 $$"]) as events:
            list(events)
        self.assertEqual(events.status, 137)

    @needs_root
    def test_events_outlive_their_trace(self):
        with pp.trace("sched:sched_process_exit", exec=["true"]) as events:
            kept = list(events)
        del events
        gc.collect()
        self.assertEqual([event.comm for event in kept], ["true"])
        self.assertEqual(kept[0]._comm, "true")

    def test_read_returns_nothing_after_its_timeout(self):
        with pp.trace("page-faults:u", pid=1 if os.geteuid() == 0 else os.getpid(), limit=10**9) as events:
            events.read(timeout=0)
            start = time.monotonic()
            while events.read(timeout=0.2):
                start = time.monotonic()
            self.assertGreaterEqual(time.monotonic() - start, 0.19)

    def test_limit_and_duration_end_a_trace(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1, limit=3) as events:
            use_memory()
            self.assertEqual(len(list(events)), 3)
        with pp.trace("page-faults:u", pid=os.getpid(), duration="50ms") as events:
            list(events)
        with pp.trace("page-faults:u", pid=os.getpid(), duration=0.05) as events:
            list(events)

    def test_fileno_is_readable_when_there_are_events(self):
        import select

        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            ready, _, _ = select.select([events], [], [], 20)
            self.assertEqual(ready, [events])
            while not events.read(timeout=0):
                select.select([events], [], [], 20)

    @needs_root
    def test_a_trace_knows_its_counts_and_names(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1, user_callchain=True) as events:
            use_memory()
            events.stop()
            found = list(events)
            counts = events.stats()
            frame = next(frame for event in found for frame in event._callchain if frame["symbol"] != "[unknown]")
            self.assertEqual(events.usym(os.getpid(), frame["addr"]), f"{frame['symbol']}+{frame['offset']:#x}")
        self.assertEqual(counts["delivered"], len(found))
        self.assertEqual(list(counts["events"]), ["page-faults:u"])
        names = [line.split() for line in pathlib.Path("/proc/kallsyms").read_text().splitlines()]
        addr = next(int(addr, 16) for addr, kind, name, *_ in names if name == "do_exit")
        self.assertEqual(events.ksym(addr + 4), "do_exit+0x4")
        self.assertEqual(pp.ksym(addr), hex(addr))

    @needs_root
    def test_a_trace_knows_its_targets(self):
        command = ["sh", "-c", "ls >/dev/null; true"]
        targets = []
        with pp.trace("sched:sched_process_exec", exec=command, all_cpus=True) as events:
            for event in events:
                self.assertFalse(events.is_target(os.getpid()))
                self.assertEqual(events.process_of(threading.get_native_id()), os.getpid())
                with self.assertRaisesRegex(pp.Error, r"a trace has its own is_target\(\)"):
                    pp.is_target(event._tid)
                self.assertIsNone(pp.process_of(event._tid))
                targets.append(event._comm if events.is_target(event._tid) else None)
        # The processes of others may start meanwhile. The two events may be of different CPUs.
        self.assertEqual(sorted(name for name in targets if name), ["ls", "sh"])

    @needs_root
    def test_lost_events_are_counted_exactly_and_reported(self):
        code = "import os\nfor _ in range(200000): os.getppid()"
        lost = []
        with pp.trace(
            "syscalls:sys_enter_getppid",
            exec=[sys.executable, "-c", code],
            mmap_pages=1,
            buffer=1 << 16,
            on_lost=lambda start, end: lost.append((start, end)),
        ) as events:
            time.sleep(0.5)
            delivered = sum(1 for _ in events)
        self.assertEqual(delivered + events.lost, 200000)
        self.assertEqual(bool(lost), events.lost > 0)


class Ends(unittest.TestCase):
    """Traces that end early, in other threads, and in other processes."""

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
        self.assertEqual(resources(), before)

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
        self.assertEqual(resources(), before)

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
        self.assertEqual(resources(), before)

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
        self.assertEqual(resources(), before)
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
            end = time.monotonic() + 60
            # A thread of an earlier test may have ended since.
            while any(now > was for now, was in zip(resources(), before)) and time.monotonic() < end:
                time.sleep(0.01)
        self.assertEqual([max(0, now - was) for now, was in zip(resources(), before)], [0, 0])
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


class Asyncio(unittest.TestCase):
    def test_other_tasks_run_while_events_are_consumed(self):
        async def consume():
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticker = asyncio.create_task(tick())
            count = 0
            with pp.trace("page-faults:u", pid=os.getpid(), count=1, duration=0.5) as events:
                use_memory()
                async for event in events:
                    count += 1
            ticker.cancel()
            return count, ticks

        count, ticks = asyncio.run(consume())
        self.assertGreater(count, 10)
        self.assertGreater(ticks, 5)


    def test_several_tasks_share_the_events_of_a_trace(self):
        async def consume(events):
            return [event._time async for event in events]

        async def main():
            with pp.trace("page-faults:u", pid=os.getpid(), count=1, order=True) as events:
                tasks = [asyncio.create_task(consume(events)) for _ in range(3)]
                for _ in range(20):
                    use_memory()
                    await asyncio.sleep(0.01)
                events.stop()
                return await asyncio.wait_for(asyncio.gather(*tasks), 60), events.delivered

        before = resources()
        found, delivered = asyncio.run(main())
        times = [time for times in found for time in times]
        self.assertEqual(len(times), delivered)
        self.assertGreater(delivered, 20 * 256 - 1)
        self.assertEqual(len(times), len(set(times)))
        self.assertEqual(resources(), before)


class Handlers(unittest.TestCase):
    def run_faults(self, handlers, **options):
        return pp.run("page-faults:u", handlers=handlers, exec=[sys.executable, "-c", "pass"], count=1, **options)

    def test_objects_dicts_and_functions_are_handlers(self):
        class Counter:
            faults = exits = 0

            def page_faults_u(self, event):
                self.faults += 1

            def __exit__(self):
                self.exits += 1

        counter, others = Counter(), []
        result = self.run_faults(counter)
        self.assertEqual((counter.faults, counter.exits, result.status), (result.delivered, 1, 0))
        self.assertGreater(result.delivered, 100)
        self.assertEqual(self.run_faults({"__sample__": others.append}).delivered, len(others))
        del others[:]
        self.assertEqual(self.run_faults(others.append).delivered, len(others))

    def test_the_first_exception_is_raised_after_exit(self):
        calls = []

        def fail(event):
            calls.append("sample")
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.run_faults({"__sample__": fail, "__exit__": lambda: calls.append("exit")})
        self.assertEqual(calls, ["sample", "exit"])

    def test_intervals_are_called(self):
        calls = []
        sleep = [sys.executable, "-c", "import time; time.sleep(0.5)"]
        handlers = {"__interval__": lambda: calls.append(1), "__sample__": lambda event: None}
        pp.run("page-faults:u", handlers=handlers, interval=0.1, exec=sleep)
        self.assertGreater(len(calls), 1)

    def test_the_exit_of_a_context_manager_is_no_callback(self):
        class Manager(contextlib.AbstractContextManager):
            def __exit__(self, kind, value, traceback):
                calls.append(kind)

            def __sample__(self, event):
                calls.append("sample")

        calls = []
        self.run_faults(Manager())
        self.assertEqual(set(calls), {"sample"})
        with Manager():
            del calls[:]
        self.assertEqual(calls, [None])

    def test_names_and_counts_are_those_of_the_run(self):
        found = []
        handlers = {"__sample__": lambda event: None, "__exit__": lambda: found.append(pp.stats())}
        result = self.run_faults(handlers)
        self.assertEqual(found[0]["events"], {"page-faults:u": {"delivered": result.delivered, "lost": 0, "where": "perf-prof"}})
        self.assertEqual(pp.stats(), {})

    def test_the_status_is_that_of_the_command(self):
        result = pp.run("page-faults:u", handlers=lambda event: None, exec=["sh", "-c", "exit 7"])
        self.assertEqual(result.status, 7)

    def test_a_run_ends_when_its_handler_ends_it(self):
        start = time.monotonic()

        def leave(event):
            sys.exit(3)

        with self.assertRaises(SystemExit):
            pp.run("page-faults:u", handlers=leave, on_error="continue", exec=["sleep", "60"])
        self.assertLess(time.monotonic() - start, 30)

    def test_no_handler_is_an_error(self):
        with self.assertRaisesRegex(pp.HandlerError, "page_faults_u"):
            self.run_faults({})
        with self.assertRaises(TypeError):
            self.run_faults(None)


class Recordings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "perf.data")

    def test_a_command_is_recorded_and_replayed(self):
        recording = pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        self.assertEqual((recording.path, recording.status), (self.path, 0))
        with recording.replay() as events:
            found = list(events)
        self.assertGreater(len(found), 100)
        self.assertEqual(sorted(event._time for event in found), [event._time for event in found])
        half = sum(1 for _ in pp.replay(pathlib.Path(self.path), time="0%-50%"))
        rest = sum(1 for _ in pp.replay(self.path, time="50%-100%"))
        self.assertTrue(0 < half < len(found) and 0 < rest < len(found))
        result = pp.run(input=self.path, handlers=lambda event: None)
        self.assertEqual(result.delivered, len(found))

    def test_aggregators_are_handlers(self):
        pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        with pp.replay(self.path) as events:
            found = list(events)
        by_cpu, by_name, added = pp.Count("_cpu"), pp.Count("_event"), pp.Count("_cpu")
        for event in found:
            added.add(event)
        pp.run(input=self.path, handlers={"page_faults": (by_cpu, by_name)})
        self.assertEqual(by_cpu.to_dict(), added.to_dict())
        self.assertEqual(by_name.to_dict(), {"page-faults:u": len(found)})
        pp.run(input=self.path, handlers=by_cpu)
        self.assertEqual(by_cpu.total, 2 * len(found))
        pp.run(input=self.path, handlers={"__sample__": by_cpu}, jobs=2)
        self.assertEqual(by_cpu.to_dict(), {cpu: 3 * count for cpu, count in added.items()})
        with self.assertRaisesRegex(pp.HandlerError, "has no field or member `_cpuu`; did you mean `_cpu`"):
            pp.run(input=self.path, handlers=pp.Count("_cpuu"))

    def test_a_with_statement_records_what_happens_in_it(self):
        with pp.record("page-faults:u", output=self.path, pid=os.getpid(), count=1) as recording:
            use_memory()
        with recording.replay() as events:
            self.assertGreater(sum(event._pid == os.getpid() for event in events), 10)

    def test_a_recording_that_nobody_stopped_is_complete_when_it_is_collected(self):
        with self.assertWarnsRegex(ResourceWarning, "was not stopped"):
            pp.record("page-faults:u", output=pathlib.Path(self.path), pid=os.getpid(), count=1)
            gc.collect()
        with pp.replay(self.path) as events:
            self.assertGreaterEqual(sum(1 for _ in events), 0)

    @needs_root
    def test_a_recording_of_this_process_lacks_the_threads_of_perf_prof(self):
        with pp.record("raw_syscalls:sys_enter", output=self.path, pid=os.getpid()) as recording:
            os.getppid()
            time.sleep(0.3)
        with recording.replay() as events:
            self.assertEqual({event._tid for event in events}, {threading.get_native_id()})

    @needs_root
    def test_a_flight_recorder_writes_what_happened_before_a_dump(self):
        folder = pathlib.Path(self.path).parent / "dumps"
        with pp.flight("syscalls:sys_enter_getppid", before="5s", folder=folder, pid=os.getpid()) as flight:
            time.sleep(1)
            for _ in range(100):
                os.getppid()
            path = flight.dump("slow request")
            own = flight.dump(path=folder / "own.data")
        self.assertRegex(path, r"/dumps/\d{8}-\d{6}-slow_request\.data$")
        self.assertEqual(own, str(folder / "own.data"))
        for file in path, own:
            with pp.replay(file) as events:
                found = list(events)
            calls = [event for event in found if event._event == "syscalls:sys_enter_getppid"]
            self.assertEqual(sum(event._tid == threading.get_native_id() for event in calls), 100)
            triggers = [event.reason for event in found if event._event == "perf-prof:trigger"]
            self.assertEqual(triggers, ["slow request" if file == path else ""])
        with self.assertRaises(pp.ClosedError):
            flight.dump()

    @needs_root
    def test_the_call_before_a_dump_is_in_it_however_many_threads_ask(self):
        folder, asked = pathlib.Path(self.path).parent / "dumps", []

        def ask(number):
            for turn in range(1, 7):
                os.getppid()
                asked.append((flight.dump(f"{number}-{turn}"), threading.get_native_id(), turn))

        with pp.flight("syscalls:sys_enter_getppid", before="60s", folder=folder, pid=os.getpid()) as flight:
            time.sleep(1)
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        calls = {}
        for path in {path for path, _, _ in asked}:
            with pp.replay(path) as events:
                calls[path] = [event._tid for event in events if event._event == "syscalls:sys_enter_getppid"]
        self.assertEqual([calls[path].count(tid) for path, tid, _ in asked], [turn for _, _, turn in asked])

    def test_the_standard_output_is_no_place_for_a_recording(self):
        with self.assertRaisesRegex(pp.OptionError, "standard output"):
            pp.record("page-faults:u", output="-")

    def test_a_recording_that_cannot_be_created_is_an_error_of_files_too(self):
        missing = f"{self.path}-missing/perf.data"
        with self.assertRaises(FileNotFoundError) as raised:
            pp.record("page-faults:u", output=missing, exec=["true"])
        self.assertIsInstance(raised.exception, pp.RecordingNotFoundError)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOENT, missing))
        pathlib.Path(self.path).write_bytes(b"no folder")
        with self.assertRaises(pp.RecordingFileError) as raised:
            pp.record("page-faults:u", output=f"{self.path}/perf.data", exec=["true"])
        self.assertEqual(raised.exception.errno, errno.ENOTDIR)

    @needs_root
    def test_a_recording_for_which_the_disk_has_no_room_is_an_error_and_is_read_up_to_there(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        path = os.path.join(folder, "perf.data")
        work = [sys.executable, "-c", "import os\nfor i in range(40000): os.getppid()"]
        with self.assertRaises(OSError) as raised, self.assertWarnsRegex(pp.Warning, "the recording ends here"):
            pp.record("raw_syscalls:sys_enter", output=path, exec=work)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOSPC, path))
        with pp.replay(path) as events:
            self.assertGreater(sum(1 for _ in events), 1000)

    def test_broken_recordings_are_errors(self):
        pathlib.Path(self.path).write_bytes(b"no recording")
        with self.assertRaisesRegex(pp.RecordingError, "perf.data"):
            pp.replay(self.path)

    def test_a_file_that_is_missing_is_an_error_of_files_too(self):
        missing = [lambda: pp.replay(self.path), lambda: pp.run(input=self.path, handlers=Numbers(), jobs=2)]
        for run in [*missing, lambda: pp.run(input=self.path, handlers=lambda event: None)]:
            with self.assertRaisesRegex(FileNotFoundError, "No such file") as raised:
                run()
            self.assertIsInstance(raised.exception, pp.RecordingError)
            self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOENT, self.path))

    @unittest.skipUnless(os.geteuid() == 0, "starts a program as another user")
    def test_a_file_that_may_not_be_read_is_an_error_of_permissions_too(self):
        code = (
            "import os, sys\nsys.path[:0] = eval(sys.argv[2])\nimport perf_prof as pp\nos.setgid(65534); os.setuid(65534)\n"
            "try:\n    pp.replay(sys.argv[1])\n"
            "except PermissionError as error:\n"
            "    print(isinstance(error, pp.RecordingError), error.errno, error.filename == sys.argv[1])\n"
        )
        done = child(code, self.path, repr(sys.path))
        self.assertEqual(done.stdout, f"True {errno.EACCES} True\n", done.stderr)

    @needs_root
    def test_losses_in_a_recording_are_reported(self):
        code = "import os\nfor _ in range(400000): os.getppid()"
        pp.record("raw_syscalls:sys_enter", output=self.path, exec=[sys.executable, "-c", code], mmap_pages=1, buffer=1 << 16)
        lost, reported = [], []
        with pp.replay(self.path, on_lost=lambda start, end: lost.append((start, end))) as events:
            for _ in events:
                pass
        self.assertEqual(bool(lost), events.lost > 0)
        result = pp.run(input=self.path, handlers=lambda event: None, on_lost=lambda *times: reported.append(times))
        self.assertEqual((result.lost, reported), (events.lost, lost))
        with self.assertRaisesRegex(pp.OptionError, "__lost__"):
            pp.run(input=self.path, handlers={"__lost__": print}, on_lost=print)

    def test_progress_is_shown_with_tqdm(self):
        class Bar(contextlib.AbstractContextManager):
            def __init__(self, total=None, **options):
                self.total, self.count = total, 0
                bars.append(self)

            def update(self, count):
                self.count += count

            def __exit__(self, *_):
                pass

        bars, handlers = [], Numbers()
        pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        auto = types.SimpleNamespace(tqdm=Bar)
        with unittest.mock.patch.dict(sys.modules, {"tqdm": types.SimpleNamespace(auto=auto), "tqdm.auto": auto}):
            result = pp.run(input=self.path, handlers=handlers, progress=True)
            with contextlib.redirect_stdout(io.StringIO()):
                pp.run(input=self.path, handlers=handlers, progress=True, jobs=2)
        self.assertEqual([bar.count for bar in bars], [result.delivered, 2])
        self.assertEqual([bar.total for bar in bars], [None, 2])
        with self.assertRaisesRegex(pp.OptionError, "progress"):
            pp.run("page-faults:u", handlers=handlers, progress=True)

    def test_a_table_that_has_no_room_is_a_memory_error_before_memory_is_used_up(self):
        """Address space that the C library reserves for threads would count as used."""
        code = (
            "import resource, sys, perf_prof as pp\n"
            "pages = int(open('/proc/self/statm').read().split()[0])\n"
            "most = pages * resource.getpagesize() + (160 << 20)\n"
            "events = pp.replay(sys.argv[1])\n"
            "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
            "try:\n"
            "    events.table(['args', '_time', 'id'])\n"
            "except MemoryError as error:\n"
            "    print(error)\n"
            "with pp.replay(sys.argv[1]) as events:\n"
            "    print(sum(len(batch) for batch in events.batches(['args'])))\n"
        )
        calls = "import os\nfor _ in range(2_000_000): os.getppid()"
        pp.record("raw_syscalls:sys_enter", output=self.path, exec=[sys.executable, "-c", calls], mmap_pages="32M")
        with unittest.mock.patch.dict(os.environ, MALLOC_ARENA_MAX="1"):
            done = child(code, self.path)
        self.assertRegex(done.stdout, r"^table\(\) needs more memory than there is: it has \d+ MiB for the first \d+ rows")
        self.assertGreater(int(done.stdout.split()[-1]), 1_000_000, done.stderr)

    def test_an_event_that_the_recording_lacks_is_an_error(self):
        pp.record("page-faults:u", output=self.path, exec=["true"])
        with self.assertRaisesRegex(pp.SelectorError, "sched:sched_switch"):
            pp.replay(self.path, "sched:sched_switch")


class Numbers:
    """Collects a number of each event, in one process or in several."""

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


class Jobs(unittest.TestCase):
    """Recordings that several processes replay."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = str(pathlib.Path(folder.name) / "perf.data")
        code = "import time\nfor _ in range(20): x = bytearray(1 << 20); time.sleep(0.01)"
        pp.record("page-faults:u", output=cls.path, exec=[sys.executable, "-c", code], count=1)
        with pp.replay(cls.path) as events:
            cls.times = [event._time for event in events]

    def replay(self, handlers, **options):
        return pp.run(input=self.path, handlers=handlers, **options)

    def test_children_replay_the_parts_and_the_program_merges_them(self):
        for options in ({"jobs": 3}, {"jobs": 3, "split": "cpu"}):
            before, numbers, out = resources(), Numbers(), io.StringIO()
            with contextlib.redirect_stdout(out):
                result = self.replay(numbers, **options)
            self.assertEqual((numbers.times, numbers.exits), ([], 1))
            self.assertEqual(sorted(time for times, _ in numbers.found for time in times), self.times)
            self.assertEqual((result.delivered, result.lost, result.status), (len(self.times), 0, 0))
            pids = {pid for _, pid in numbers.found}
            self.assertEqual(len(pids), len(numbers.found))
            self.assertNotIn(os.getpid(), pids)
            lines = [f"part {number} of {len(pids)}\nfrom a command\n" for number in range(len(pids))]
            self.assertEqual(sorted(out.getvalue().splitlines()), sorted("".join(lines).splitlines()))
            parts = [line for line in out.getvalue().splitlines() if line.startswith("part")]
            self.assertEqual(parts, [line.split("\n")[0] for line in lines])
            self.assertEqual(resources(), before)
            self.assertIsNone(pp.shard())

    def test_one_job_needs_no_partial_results(self):
        times = []
        self.replay({"__sample__": lambda event: times.append(event._time)}, jobs=1)
        self.assertEqual(times, self.times)

    def test_handlers_without_partial_results_are_an_error_before_the_run(self):
        calls = []
        with self.assertRaisesRegex(pp.HandlerError, "__partial__"):
            self.replay({"__sample__": calls.append, "__exit__": lambda: calls.append("exit")}, jobs=2)
        with self.assertRaisesRegex(pp.HandlerError, "__merge__"):
            self.replay({"__sample__": calls.append, "__partial__": list}, jobs=2)
        with self.assertRaisesRegex(pp.OptionError, "jobs"):
            pp.run("page-faults:u", handlers=Numbers(), jobs=2)
        self.assertEqual(calls, [])

    def test_the_exception_of_a_part_is_raised_in_the_program(self):
        class Fails(Numbers):
            def __sample__(self, event):
                raise LookupError(f"in process {os.getpid()}")

        before, fails = resources(), Fails()
        with self.assertRaisesRegex(LookupError, "in process") as raised:
            self.replay(fails, jobs=2)
        self.assertNotIn(str(os.getpid()), str(raised.exception))
        self.assertIn("__sample__", str(raised.exception.__cause__))
        self.assertEqual((fails.found, fails.exits), (None, 0))
        self.assertEqual(resources(), before)

        class Killed(Numbers):
            def __sample__(self, event):
                os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(pp.Error, "killed"):
            self.replay(Killed(), jobs=2)
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_children_do_not_run_the_end_of_the_program(self):
        code = (
            "import atexit, sys, threading, perf_prof as pp\n"
            "atexit.register(print, 'the end')\n"
            "print('the start')\n"
            "handlers = {'__sample__': lambda event: None, '__partial__': lambda: 1, '__merge__': print}\n"
            "pp.run(input=sys.argv[1], handlers=handlers, jobs=2)\n"
            "raise SystemExit(3)\n"
        )
        done = child(code, self.path)
        self.assertEqual((done.stdout, done.stderr), ("the start\n[1, 1]\nthe end\n", ""))
        self.assertEqual(done.returncode, 3)

    def test_tables_of_parts_are_merged(self):
        from collections import Counter

        class Tables:
            def __init__(self):
                self.parts = pp.Parts(table=Counter, total=Counter())
                self.first, states = {}, pp.States(self.parts)

                @states.step
                def fault(now, tid):
                    if tid not in states:
                        states[tid] = now
                    self.parts.table[states[tid]] += 1

                self.fault = fault
                self.__partial__, self.__merge__ = self.parts.partial, self.parts.merge

            def __sample__(self, event):
                self.fault(event._time, event._tid)

        alone, divided = Tables(), Tables()
        self.replay(alone)
        self.replay(divided, jobs=3)
        self.assertEqual(sum(alone.parts.table.values()), len(self.times))
        self.assertEqual(divided.parts.table, alone.parts.table)

    @needs_root
    def test_spans_that_begin_and_end_in_different_parts_are_joined(self):
        path = self.path + ".spans"
        code = (
            "import os, random\n"
            "random = random.Random(1)\n"
            "for _ in range(400):\n"
            "    try: random.choice((os.getpgid, os.getsid))(900000 + random.randrange(20))\n"
            "    except ProcessLookupError: pass\n"
        )
        events = ("syscalls:sys_enter_getpgid", "syscalls:sys_enter_getsid")
        pp.record(*events, output=path, exec=[sys.executable, "-c", code])

        def spans(jobs):
            found, counts = [], {}

            class Handlers:
                def span__pair(self, event):
                    found.append((event.pid, event.begin._time, event._time, event.open))

                def __partial__(self):
                    return found

                def __merge__(self, partials):
                    found.extend(span for part in partials for span in part)

                def __exit__(self):
                    counts.update(pp.stats()["events"]["span:pair"])

            pp.run(f"span:pair={events[0]}..{events[1]}//key=pid/open/", input=path, handlers=Handlers(), jobs=jobs)
            return found, counts

        found, counts = spans(jobs=1)
        self.assertEqual((len(found), counts["delivered"]), (counts["ended"] + counts["open"], len(found)))
        self.assertGreater(counts["open"], 0)
        self.assertEqual([spans(jobs) for jobs in (2, 4)], [(found, counts)] * 2)

    def test_ctrl_c_ends_the_children(self):
        code = (
            "import os, signal, sys, time, perf_prof as pp\n"
            "def wait(event):\n"
            "    if pp.shard()['number'] == 1: os.kill(os.getppid(), signal.SIGINT)\n"
            "    time.sleep(60)\n"
            "handlers = {'__sample__': wait, '__partial__': lambda: 1, '__merge__': print}\n"
            "try:\n    pp.run(input=sys.argv[1], handlers=handlers, jobs=2)\n"
            "except KeyboardInterrupt:\n    print('interrupted')\n"
            "try:\n    os.waitpid(-1, 0)\nexcept ChildProcessError:\n    print('no child')\n"
        )
        done = child(code, self.path)
        self.assertEqual((done.stdout, done.stderr), ("interrupted\nno child\n", ""))


class Counting(unittest.TestCase):
    def test_counts_are_a_mapping(self):
        counts = pp.stat("page-faults:u", "task-clock:u", exec=["sh", "-c", "exit 3"])
        self.assertEqual(list(counts), ["page-faults:u", "task-clock:u"])
        count = counts["page-faults:u"]
        self.assertGreater(count.value, 10)
        self.assertEqual(count.enabled, count.running)
        self.assertEqual(counts.status, 3)
        self.assertIn("page-faults:u", counts._repr_html_())

    def test_a_time_or_a_command_is_needed(self):
        with self.assertRaisesRegex(pp.OptionError, "exec"):
            pp.stat("page-faults")


class Texts(unittest.TestCase):
    def test_objects_say_what_they_hold(self):
        hist, graph, timeline = pp.Log2Hist("us"), pp.FlameGraph(count_name="bytes"), pp.Timeline()
        hist.update([1, 5])
        graph.add(["main", "read"], 30)
        timeline.slice("a", "b", 1, 2)
        self.assertEqual(repr(hist), '<perf_prof.Log2Hist "us": 2 values>')
        self.assertEqual(repr(graph), "<perf_prof.FlameGraph: 1 stacks, 30 bytes>")
        self.assertEqual(repr(timeline), "<perf_prof.Timeline: 1 entries on 1 tracks>")

    def test_a_selector_that_cannot_be_read_is_a_selector_error(self):
        for call in (pp.trace, lambda selector: pp.replay("perf.data", selector)):
            with self.assertRaisesRegex(pp.SelectorError, "the section `/pid>3` is not closed"):
                call("sched:sched_wakeup/pid>3")

    def test_the_text_of_an_error_of_the_kernel_has_its_number_once(self):
        with self.assertRaises(pp.KernelError) as raised:
            pp.trace("page-faults:u", exec=["/nonexistent/command"])
        self.assertEqual(raised.exception.errno, errno.ENOENT)
        self.assertNotIn("os error", str(raised.exception))

    def test_an_error_of_the_kernel_has_a_number_where_no_call_was_made(self):
        for number, options in [(errno.ESRCH, {"pid": 2**22 - 1}), (errno.ENODEV, {"cpus": [1023]})]:
            with self.assertRaises(pp.KernelError) as raised:
                pp.trace("page-faults:u", **options)
            self.assertEqual(raised.exception.errno, number, raised.exception)


class Errors(unittest.TestCase):
    def test_unknown_events_are_value_errors_with_similar_names(self):
        with self.assertRaisesRegex(pp.SelectorError, "page-faults") as raised:
            pp.trace("page-fault")
        self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(pp.Error):
            pp.trace()

    def test_wrong_keywords_and_values(self):
        with self.assertRaisesRegex(TypeError, "pidd"):
            pp.trace("page-faults", pidd=1)
        with self.assertRaisesRegex(pp.OptionError, "process or thread id"):
            pp.trace("page-faults", pid="x")
        with self.assertRaisesRegex(TypeError, "order is True or False, not int"):
            pp.trace("page-faults", order=1)
        with self.assertRaisesRegex(TypeError, "list of words"):
            pp.trace("page-faults", exec="ls -l")
        with self.assertRaisesRegex(TypeError, "selector"):
            pp.trace(1)

    def test_a_command_that_does_not_exist_is_an_os_error(self):
        with self.assertRaisesRegex(OSError, "/no/such/command"):
            pp.trace("page-faults:u", exec=["/no/such/command"])

    @unittest.skipUnless(os.geteuid() == 0, "starts a program as another user")
    def test_other_users_get_a_permission_error_with_advice(self):
        code = (
            "import os, sys\nsys.path[:0] = eval(sys.argv[1])\nimport perf_prof as pp\nos.setgid(65534); os.setuid(65534)\n"
            "try:\n    pp.trace('sched:sched_switch')\n"
            "except PermissionError as error:\n    print(isinstance(error, pp.AccessError), error)\n"
        )
        done = child(code, repr(sys.path))
        self.assertRegex(done.stdout, "^True .*(tracefs|root|perf_event_paranoid)", done.stderr)

    def test_nothing_is_printed_and_messages_are_warnings(self):
        code = (
            "import sys, warnings, perf_prof as pp\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            "    pp.record('page-faults:u', output=sys.argv[1], exec=['true'])\n"
            "    with pp.replay(sys.argv[1], 'page-faults:u//stack/') as events: n = sum(1 for _ in events)\n"
            "print(n > 0, all(issubclass(warning.category, (pp.Warning, ResourceWarning)) for warning in caught))\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = child(code, str(pathlib.Path(folder) / "perf.data"))
        self.assertEqual((done.stdout, done.stderr), ("True True\n", ""))


if __name__ == "__main__":
    unittest.main()
