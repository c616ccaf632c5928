"""Tests of map_reduce(), which replays many recordings in the processes of several engines. The recordings need no
root."""

import concurrent.futures
import importlib.util
import os
import signal
import sys
import tempfile
import textwrap
import unittest
import warnings

import perf_prof as pp

SCRIPT = """
    import collections, os, sys
    import perf_prof

    counts = collections.Counter()
    faults = perf_prof.Count("_comm")

    def __init__():
        counts["made by __init__"] = 0

    def __sample__(event):
        counts[os.path.basename(perf_prof.recording()["path"]), event._tid] += 1

    def __partial__():
        print("part", os.path.basename(perf_prof.recording()["path"]))
        return counts

    def __merge__(partials):
        for partial in partials:
            counts.update(partial)

    def __exit__():
        print(sys.argv[1:], sorted(map(str, counts.items())))
        print(perf_prof.stats()["delivered"] == sum(counts.values()))
        if "fail" in sys.argv:
            sys.exit(7)
"""

AGGREGATOR = """
    import perf_prof

    __sample__ = perf_prof.Count("_comm")

    def __exit__():
        print(__sample__)
"""


def touch(pages):
    """Returns a command that causes a page fault for each of so many pages, and some more page faults."""
    return [sys.executable, "-c", f"import mmap; m = mmap.mmap(-1, {pages} * 4096)\nfor i in range({pages}): m[i * 4096] = 1"]


def kill_for_b(part):
    """Replays a part of the work. Kills its own process if the part is the recording b.data."""
    from perf_prof import _engines

    if part.recording.endswith("b.data"):
        os.kill(os.getpid(), signal.SIGKILL)
    return _engines.replay_part(part)


class Killing(concurrent.futures.Executor):
    """An executor that starts a process for each part, and in which the process for b.data is killed."""

    def submit(self, function, part):
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            future = pool.submit(kill_for_b, part)
            concurrent.futures.wait([future])
            return future


class Newer(concurrent.futures.ThreadPoolExecutor):
    """An executor that changes the encoded result of b.data, as if a newer perf-prof had encoded it."""

    def submit(self, function, part):
        def replay(part):
            replayed = function(part)
            if not part.recording.endswith("b.data"):
                return replayed
            return replayed._replace(result=replayed.result[:8] + b"\xff" + replayed.result[9:])

        return super().submit(replay, part)


class MapReduce(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for at, name in enumerate(("a.data", "b.data", "c.data")):
            pp.record("page-faults:u", output=cls.path(name), exec=touch(300 * (at + 1)), count=1)
        for name, text in (("count.py", SCRIPT), ("aggregator.py", AGGREGATOR)):
            with open(cls.path(name), "w") as file:
                file.write(textwrap.dedent(text))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    def reduce(self, *recordings, script="count.py", **options):
        return pp.map_reduce(self.path(script), [self.path(name) for name in recordings], **options)

    def check(self, executor, expected):
        for parts in (1, 2):
            result = self.reduce("?.data", executor=executor, parts=parts, args=["x"])
            lines = [line for line in result.stdout.splitlines() if not line.startswith("part")]
            self.assertEqual((lines, result.status, result.failed), (expected, 0, []))
            self.assertGreater(result.received, 100)

    def test_all_executors_give_what_one_process_after_the_other_gives(self):
        counts = {}
        for name in ("a.data", "b.data", "c.data"):
            with pp.replay(self.path(name)) as events:
                for event in events:
                    key = name, event._tid
                    counts[key] = counts.get(key, 0) + 1
        shown = sorted([*map(str, counts.items()), "('made by __init__', 0)"])
        expected = [f"['x'] {shown}", "True"]
        self.check(None, expected)
        with concurrent.futures.ThreadPoolExecutor(1) as one_after_the_other:
            self.check(one_after_the_other, expected)
        with concurrent.futures.ProcessPoolExecutor(2) as processes:
            self.check(processes, expected)

    @unittest.skipUnless(importlib.util.find_spec("distributed"), "needs the package dask[distributed]")
    def test_dask_gives_the_same(self):
        from distributed import Client, LocalCluster

        expected = self.reduce("?.data", args=["x"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    result = self.reduce("?.data", args=["x"], executor=client.get_executor())
        self.assertEqual((result.stdout, result.status, result.failed), (expected.stdout, 0, []))

    def test_a_recording_whose_result_cannot_be_decoded_is_left_out_with_the_reason(self):
        result = self.reduce("?.data", executor=Newer(2))
        reason = (
            "cannot read the result of a part: it was written by a newer perf-prof "
            "(version 255 of the format; this one reads version 3)"
        )
        failed = [(os.path.basename(failed.path), failed.error) for failed in result.failed]
        self.assertEqual((failed, result.status), ([("b.data", reason)], 1))
        self.assertNotIn("b.data", result.stdout)

    def test_output_of_parts_comes_in_the_order_of_the_recordings(self):
        result = self.reduce("c.data", "a.data")
        self.assertEqual(result.stdout.splitlines()[:2], ["part c.data", "part a.data"])

    def test_the_module_is_that_of_the_script_after_its_exit(self):
        result = self.reduce("a.data", "b.data")
        self.assertEqual({key[0] for key in result.module.counts if isinstance(key, tuple)}, {"a.data", "b.data"})
        self.assertNotEqual(sys.argv[0], self.path("count.py"))
        self.assertNotIn(self.folder, sys.path)
        self.assertIsNone(pp.recording())

    def test_aggregators_need_no_functions(self):
        result = self.reduce("?.data", script="aggregator.py")
        self.assertEqual((result.status, result.failed), (0, []), result.stdout)
        merged = result.module.__sample__.total
        one_by_one = [self.reduce(name, script="aggregator.py").module.__sample__.total for name in ("a.data", "b.data", "c.data")]
        self.assertEqual(merged, sum(one_by_one))

    def test_a_recording_that_cannot_be_read_is_in_failed(self):
        with open(self.path("junk"), "w") as file:
            file.write("junk")
        result = self.reduce("a.data", "junk", "missing", "c.data")
        self.assertEqual([failed.path for failed in result.failed], [self.path("junk"), self.path("missing")])
        self.assertIn("is not a perf.data file", result.failed[0].error)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.stdout, self.reduce("a.data", "c.data").stdout)

    def test_a_recording_that_is_cut_off_or_lost_events_is_in_incomplete_with_the_reason(self):
        with open(self.path("b.data"), "rb") as whole, open(self.path("cut"), "wb") as cut:
            cut.write(whole.read()[:-9000])
        for parts in (1, 2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = self.reduce("a.data", "cut", parts=parts)
            self.assertEqual((result.status, result.failed), (0, []))
            self.assertEqual({path for path, _ in result.incomplete}, {self.path("cut")})
            reasons = [reason for _, reason in result.incomplete]
            self.assertIn("is cut off", " ".join(reasons))
            # The warnings name the line that called map_reduce().
            self.assertEqual(len(caught), len(reasons))
            self.assertEqual({os.path.basename(warning.filename) for warning in caught}, {"test_fleet.py"})
        self.assertEqual(self.reduce("a.data", "b.data").incomplete, [])

    def test_a_worker_that_is_killed_is_in_failed_and_nothing_is_counted_twice(self):
        result = self.reduce("?.data", executor=Killing(), parts=2)
        self.assertEqual([failed.path for failed in result.failed], [self.path("b.data")])
        self.assertIn("BrokenProcessPool", result.failed[0].error)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.stdout, self.reduce("a.data", "c.data", parts=2).stdout)

    def test_the_status_is_that_of_the_script(self):
        with self.subTest("sys.exit"):
            self.assertEqual(self.reduce("a.data", args=["fail"]).status, 7)
        with self.subTest("no recording"):
            result = self.reduce("missing")
            self.assertEqual((result.status, result.module, result.stdout), (1, None, ""))

    def test_wrong_arguments_are_refused(self):
        with self.assertRaises(pp.RecordingNotFoundError):
            self.reduce("x*.data")
        with self.assertRaises(ValueError):
            self.reduce("a.data", parts=0)
        result = self.reduce("a.data", script="missing.py")
        self.assertEqual((len(result.failed), result.status), (1, 1))
        self.assertIn("no such file", result.failed[0].error)


if __name__ == "__main__":
    unittest.main()
