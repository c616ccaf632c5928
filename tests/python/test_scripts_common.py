"""Unit tests of `perf_prof.script`, which the shipped scripts import, and of the helpers below it."""

import json
import os
import signal
import time
import unittest
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest import mock

from perf_prof import Parts, States
from perf_prof.script import (
    Columns,
    Pairs,
    Percentiles,
    Report,
    Times,
    Wakers,
    cpu_list,
    duration,
    first_rows,
    signal_name,
    signal_result,
)
from perf_prof._folders import Folders
from perf_prof._parts import enter_recording
from perf_prof._programs import script_of
from script_testing import MS, SCRIPTS, SECOND, ScriptTest


class InCommon(unittest.TestCase):

    def test_cpus_are_listed_as_the_kernel_lists_them(self):
        self.assertEqual([cpu_list(cpus) for cpus in ([], [3], {5, 0, 2, 1}, range(4))], ["", "3", "0-2,5", "0-3"])

    def test_hidden_rows_are_counted(self):
        rows = {"a": 1, "b": 3, "c": 2}.items()
        self.assertEqual(first_rows(rows, 2, lambda row: -row[1]), ([("b", 3), ("c", 2)], ", 1 more with a larger --top"))
        self.assertEqual(first_rows(rows, 3, lambda row: row[0])[1], "")

    def test_times_of_two_parts_are_added(self):
        one, other = Times(), Times()
        one.add(5, place=1)
        other.add(9, place=2)
        other.add(2, place=3)
        one.update(other)
        self.assertEqual((one.count, one.total, one.longest, one.place), (3, 16, 9, 2))

    def test_percentiles_are_at_most_one_percent_too_high(self):
        values = Percentiles()
        for value in range(1, 100_001):
            values.add(value)
        for percent in (1, 50, 90, 99, 100):
            self.assertTrue(percent * 1000 <= values.percentile(percent) <= percent * 1010, percent)
        self.assertEqual((values.longest, len(values), values.percentile(100)), (100_000, 100_000, 100_000))

    def test_a_pair_whose_cpu_lost_events_meanwhile_is_counted_apart(self):
        counts = Counter()
        pairs = Pairs(Parts(), counts)
        for cpu in 0, 1:
            pairs.begins(10, cpu, cpu, f"on {cpu}")
        pairs.begins(10, 2, 0)
        pairs.drops(11, 2)
        with mock.patch("perf_prof._parts.lost_cpu", lambda: 1):
            pairs.lost(15, 20)
        self.assertEqual([pairs.end(30, key) for key in (0, 1, 2)], [(20, "on 0"), None, None])
        self.assertEqual(counts, {"untold": 1, "untold ns": 20})
        # A span that begins after the loss is known. It ends only once.
        pairs.begins(40, 1, 1)
        self.assertEqual([pairs.end(45, 1), pairs.end(50, 1)], [(5, None), None])

    def test_pairs_that_are_open_at_the_end_of_each_recording_are_counted(self):
        parts = Parts()
        pairs = Pairs(parts, Counter())
        for key in 1, 2:
            pairs.begins(10, key, 0)
        enter_recording()
        self.assertEqual((pairs.open(), pairs.end(20, 1)), (2, None))
        pairs.begins(30, 3, 0)
        of_part = {"split": None, "total": None, "tables": [(None, None)], "steps": []}
        # A further recording with a pair of its own, and its second part, which ends this pair.
        parts.merge(of_part | {"states": [states]} for states in [(None, {4: (5, 0, None)}), ({4}, {})])
        self.assertEqual((pairs.open(), len(pairs)), (3, 0))

    def test_steps_behind_a_loss_stay_behind_it_although_it_ends_later(self):
        parts, known = Parts(), []
        states = States(parts)

        @states.step
        def step(now, key):
            known.append((now, sorted(states)))
            states[key] = now

        # Each deferred step has its time, its interval and its number. The number of forget() is 0.
        first, second = [(1, 0, 1, "a"), (2**64 - 1, 0, 0), (5, 0, 1, "a")], [(3, 0, 1, "b"), (7, 0, 1, "b")]
        of_part = {"split": "cpu", "total": None, "tables": [(None, None)], "states": []}
        parts.merge(of_part | {"steps": steps} for steps in (first, second))
        self.assertEqual(known, [(1, []), (3, ["a"]), (5, []), (7, ["a"])])

    def test_a_report_ends_with_notes_about_counts(self):
        counts = Counter(lost=2, late=3, none=0)
        notes = {"late": "{} or more are late".format, "none": "nothing", "lost": "lost"}
        with redirect_stdout(StringIO()) as out:
            Report(Counter, lambda table: None, counts, notes=notes).exit()
        self.assertEqual(out.getvalue(), "(3 or more are late)\n(lost: 2)\n")

    def test_times_have_units(self):
        self.assertEqual([duration(ns) for ns in (7, 1500, 2 * MS, 3 * SECOND)], ["7 ns", "1.500 us", "2.000 ms", "3.000 s"])

    def test_columns_are_lines_of_text_or_objects(self):
        columns = {"comm": ("COMM", "<6"), "took": ("TOOK us", ">8.1f", lambda ns: ns / 1000), "path": ("PATH", "")}
        text = Columns(False, **columns)
        self.assertEqual(text.head(), "COMM    TOOK us  PATH")
        self.assertEqual(text.line("make", 1500, "/x"), "make        1.5  /x")
        self.assertEqual(text.line("make", None, None), "make          -  -")
        self.assertEqual(text.line("a\nb", 1500, "/x\nmake 1.0 /y"), r"a\x0ab         1.5  /x\x0amake 1.0 /y")
        objects = Columns(True, **columns)
        objects.end = 7
        with redirect_stdout(StringIO()) as out:
            objects.print([("make", 1500, None)], "1 row")
            objects.note("2 are lost")
        expected = [{"end": 7, "comm": "make", "took": 1500, "path": None}, {"note": "2 are lost"}]
        self.assertEqual([json.loads(line) for line in out.getvalue().splitlines()], expected)

    def test_a_chain_of_wakers_goes_on_while_most_of_the_wait_was_theirs(self):
        wakers = Wakers()
        wakers.note(2, 100, 900, 3, "third")
        self.assertEqual(wakers.chain(2, "second", 50, 1000), ["second", "third"])
        # Task 2 waited only during a small part of this wait.
        self.assertEqual(wakers.chain(2, "second", 850, 1000), ["second"])
        # Task 2 still waited when this wait ended, so its wait does not explain this one.
        self.assertEqual(wakers.chain(2, "second", 50, 890), ["second"])
        wakers.note(3, 100, 850, 2, "second")
        self.assertEqual(wakers.chain(2, "second", 50, 1000), ["second", "third"])

    def test_paths_are_absolute_if_their_folder_is_known(self):
        folders = Folders()
        folders.look()
        here, own = os.getcwd(), SimpleNamespace(_pid=os.getpid(), _realtime=time.time_ns() + 10**9)
        self.assertEqual(folders.absolute("/a//b/./c", own), "/a/b/c")
        # The path keeps `..`, because the folder b may be a symbolic link.
        self.assertEqual(folders.absolute("/a/b/../c", own), "/a/b/../c")
        self.assertEqual([folders.absolute("a", own), folders.absolute("a", own, 2**32 - 100)], [f"{here}/a"] * 2)
        self.assertIsNone(folders.absolute("a", own, 5))
        self.assertIsNone(folders.absolute("a", SimpleNamespace(_pid=2**30, _realtime=own._realtime)))

    def test_a_folder_that_is_looked_up_holds_for_later_calls_only(self):
        folders = Folders()
        begin = time.time_ns()
        folders.look()
        earlier, later = (SimpleNamespace(_pid=os.getpid(), _realtime=now) for now in (begin, begin + 10**9))
        self.assertIsNone(folders.absolute("a", earlier))
        # The look-up read the folder after this change, so the change is ignored.
        folders.changes(SimpleNamespace(_pid=os.getpid(), _realtime=begin - 10**9), "/old")
        self.assertEqual(folders.absolute("a", later), f"{os.getcwd()}/a")

    def test_folders_follow_changes_and_new_processes(self):
        folders = Folders()

        def call(pid, now):
            return SimpleNamespace(_pid=pid, _realtime=now)

        def begins(parent, pid, flags, now):
            folders.begins(SimpleNamespace(_pid=parent, _realtime=now, pid=pid, clone_flags=flags))

        first, second, third = 2**30, 2**30 + 1, 2**30 + 2  # No processes have these numbers.
        folders.changes(call(first, 1), "/a")
        begins(first, second, 0, 2)
        folders.changes(call(first, 3), "b/c")
        self.assertEqual([folders.absolute("x", call(pid, 4)) for pid in (first, second)], ["/a/b/c/x", "/a/x"])
        # A task that was made with CLONE_FS (0x200) shares its folder with its parent, and each of them may change the
        # folder. So the folder is not known.
        begins(first, third, 0x200, 5)
        self.assertIsNone(folders.absolute("x", call(third, 6)))
        for path in ("..", None):
            folders.changes(call(second, 7), path)
            self.assertIsNone(folders.absolute("x", call(second, 8)))
            folders.changes(call(second, 9), "/a")

    def test_the_program_of_an_interpreter_is_its_script(self):
        for words, program in [
            ("/usr/bin/python3 -u x.py", "x.py"), ("python3 -c code", "python3"), ("sleep 100", "sleep"), ("sh", "sh"),
        ]:  # fmt: skip
            self.assertEqual(script_of(words.split()), program)

    def test_signals_have_names(self):
        names = [signal_name(number) for number in (15, signal.SIGRTMIN + 1, 99)]
        self.assertEqual(names, ["SIGTERM", "SIGRTMIN+1", "99"])
        self.assertEqual([signal_result(number) for number in (0, 1, 9)], ["delivered", "ignored", "9"])


class AllScripts(unittest.TestCase):
    def test_every_script_has_tests(self):
        # If only this file runs, this line loads the test cases of all scripts.
        unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), "test_scripts_*.py")
        names = {name.removesuffix(".py").replace("_", "") for name in os.listdir(SCRIPTS) if name.endswith(".py")}
        tested = {test.__name__.lower() for test in ScriptTest.__subclasses__()}
        self.assertEqual(tested, names)


if __name__ == "__main__":
    unittest.main()
