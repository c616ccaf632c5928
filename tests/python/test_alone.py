"""Runs the tests in alone/, each file in its own process.

Libraries such as Dask, polars and numpy leave threads and child processes behind. Other tests check the threads and
child processes of their process.
"""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Alone(unittest.TestCase):
    def run_alone(self, module):
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "unittest", module]
        run = subprocess.run(
            command, cwd=HERE / "alone", env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stderr, r"Ran [1-9][0-9]* tests")
        if "skipped=" in run.stderr:
            sys.stderr.write(f" {module}: {run.stderr.splitlines()[-1]} ")

    def test_columns(self):
        self.run_alone("test_columns")

    def test_fleet(self):
        self.run_alone("test_fleet")

    def test_all_files_are_run(self):
        found = {path.stem for path in (HERE / "alone").glob("test_*.py")}
        self.assertLessEqual(found, set(dir(self)))


if __name__ == "__main__":
    unittest.main()
