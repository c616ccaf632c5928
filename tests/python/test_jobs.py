"""Tests of recordings that several processes replay."""

import contextlib
import io
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import perf_prof as pp
from library_testing import Numbers, child, left_behind, needs_root, resources


class Jobs(unittest.TestCase):

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
            self.assertEqual(left_behind(before), (0, 0))
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
        self.assertEqual(left_behind(before), (0, 0))

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


if __name__ == "__main__":
    unittest.main()
