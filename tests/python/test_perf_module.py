"""Tests of `perf_prof.perf`, with and without an installed module `perf`."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


def run(*args, **options):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, **options)


class PerfModule(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def test_the_package_installs_no_module_of_this_name(self):
        import perf_prof

        installed = Path(perf_prof.__file__).parent.parent
        self.assertEqual([path.name for path in installed.glob("perf*") if path.stem in ("perf", "perf_live")], [])

    def test_a_program_imports_it_from_the_package(self):
        from perf_prof import perf

        self.assertEqual(perf.TYPE_TRACEPOINT, 2)
        self.assertTrue(issubclass(perf.sample_event, __import__("perf_prof").PerfEvent))
        missing = [name for name, value in vars(perf).items() if isinstance(value, type) and not value.__doc__]
        self.assertEqual(missing, [])

    def test_the_module_runs_scripts_even_if_another_one_is_installed(self):
        script = self.write("script.py", "import perf, sys\nprint(perf.__name__, sys.argv[1:], __name__)\n")
        self.write("perf.py", "raise SystemExit('the installed module ran')\n")
        done = run("-m", "perf_prof.perf", script, "-x", env={"PYTHONPATH": str(self.folder)})
        self.assertEqual((done.stdout, done.stderr), ("perf_prof.perf ['-x'] __main__\n", ""))

    def test_an_installed_module_keeps_working(self):
        self.write("perf.py", "OWN = 1\n")
        text = "import perf, perf_prof\nfrom perf_prof import perf as ours\nimport perf as again\n"
        done = run("-c", text + "print(perf.OWN, again is perf, ours is perf)", env={"PYTHONPATH": str(self.folder)})
        self.assertEqual((done.stdout, done.stderr), ("1 True False\n", ""))
        script = self.write("script.py", "import perf\nprint(perf.OWN)\n")
        command = ["-m", "perf_prof", "script", script]
        self.assertEqual(run(*command, env={"PYTHONPATH": str(self.folder)}).stdout, "1\n")


if __name__ == "__main__":
    unittest.main()
