"""Tests of the pytest plugin, with tests that pass, tests that fail and tests that cannot trace.

Needs pytest in the environment of perf_prof."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

TESTS = """
    import os, subprocess, threading

    def sync(times, path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        for _ in range(times):
            os.fsync(descriptor)
        os.close(descriptor)

    def test_few_calls_pass(max_syscalls, tmp_path):
        with max_syscalls("fsync|fdatasync", 3) as calls:
            sync(3, tmp_path / "x")
        assert calls["fsync"] == 3 and calls.lost == 0

    def test_more_calls_fail(max_syscalls, tmp_path):
        with max_syscalls("fsync", 3):
            sync(4, tmp_path / "x")

    def test_calls_of_threads_are_counted(syscalls, tmp_path):
        with syscalls("fsync") as calls:
            thread = threading.Thread(target=sync, args=(2, tmp_path / "x"))
            thread.start()
            thread.join()
        assert calls == {"fsync": 2}

    def test_an_error_of_the_test_itself_stays(syscalls):
        with syscalls() as calls:
            raise KeyError("own")
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Plugin(unittest.TestCase):
    def test_tests_state_how_many_system_calls_they_may_make(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test_calls.py"
            path.write_text(textwrap.dedent(TESTS))
            # pytest finds the plugin of an installed package by its entry point.
            plugin = [] if self.is_installed() else ["-p", "perf_prof.pytest_plugin"]
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)
        self.assertIn("2 failed, 2 passed", done.stdout, done.stdout + done.stderr)
        self.assertIn("4 calls of fsync, at most 3 are allowed (fsync: 4)", done.stdout)
        self.assertIn("KeyError: 'own'", done.stdout)

    def is_installed(self):
        from importlib.metadata import entry_points

        return any(entry.name == "perf_prof" for entry in entry_points(group="pytest11"))


if __name__ == "__main__":
    unittest.main()
