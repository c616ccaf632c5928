"""Tests of live traces in this process. Tests of tracepoints need root."""

import asyncio
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import perf_prof as pp
from library_testing import left_behind, needs_root, resources, use_memory


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
        with pp.trace("sched:sched_process_exec", exec=command, all_cpus=True, order=True) as events:
            for event in events:
                self.assertFalse(events.is_target(os.getpid()))
                self.assertEqual(events.process_of(threading.get_native_id()), os.getpid())
                with self.assertRaisesRegex(pp.Error, r"a trace has its own is_target\(\)"):
                    pp.is_target(event._tid)
                self.assertIsNone(pp.process_of(event._tid))
                targets.append(event._comm if events.is_target(event._tid) else None)
        # Other processes may start meanwhile. In the order of time, the fork of a child comes before its exec.
        self.assertEqual([name for name in targets if name], ["sh", "ls"])

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
        self.assertEqual(left_behind(before), (0, 0))


if __name__ == "__main__":
    unittest.main()
