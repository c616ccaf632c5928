"""Tests of the installed package: its files, its native module, and what the import costs."""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

import perf_prof

try:
    DISTRIBUTION = importlib.metadata.distribution("perf-prof")
except importlib.metadata.PackageNotFoundError:
    DISTRIBUTION = None

COMMAND = shutil.which("perf-prof", path=os.path.dirname(sys.executable))

# The files of completions below share/, by shell.
COMPLETIONS = {
    "bash": "bash-completion/completions/perf-prof",
    "zsh": "zsh/site-functions/_perf-prof",
    "fish": "fish/vendor_completions.d/perf-prof.fish",
}


def undated(page):
    """Returns the lines of a manual page, without the date in the title."""
    lines = page.splitlines()
    return [" ".join(line.split(" ")[:3] + line.split(" ")[4:]) if line.startswith(".TH ") else line for line in lines]


@unittest.skipUnless(DISTRIBUTION and COMMAND, "the package is not installed with its command")
class Files(unittest.TestCase):
    def installed(self):
        """Returns the paths of the files that the package installed."""
        return [pathlib.Path(file.locate()).resolve() for file in DISTRIBUTION.files]

    def share(self, path):
        """Returns the path of an installed file, given its path below share/."""
        found = [file for file in self.installed() if str(file).endswith(f"/share/{path}")]
        self.assertEqual(len(found), 1, path)
        return found[0]

    def test_completions_are_those_that_the_command_prints(self):
        for shell, path in COMPLETIONS.items():
            printed = subprocess.run([COMMAND, "completions", shell], capture_output=True, text=True, check=True).stdout
            self.assertEqual(self.share(path).read_text(), printed)

    def test_manual_pages_are_those_that_the_command_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([COMMAND, "man", folder], check=True)
            written = {page.name: page.read_text() for page in pathlib.Path(folder).iterdir()}
        self.assertIn("perf-prof-python.1", written)
        names = [file.name for file in self.installed() if file.parent.name == "man1"]
        self.assertEqual(sorted(names), sorted(written))
        for name, text in written.items():
            self.assertEqual(undated(self.share(f"man/man1/{name}").read_text()), undated(text), name)

    def test_a_wheel_is_smaller_than_12_mb(self):
        files = [file for file in self.installed() if file.suffix != ".pyc"]
        size = sum(len(zlib.compress(file.read_bytes())) for file in files)
        self.assertLess(size, 12_000_000)

    def test_types_and_licences_are_installed(self):
        names = {file.name for file in self.installed()}
        for name in ("py.typed", "_native.pyi", "LICENSE-APACHE", "LICENSE-MIT"):
            self.assertIn(name, names)


class Module(unittest.TestCase):
    @unittest.skipUnless(shutil.which("readelf"), "readelf is not installed")
    @unittest.skipUnless(DISTRIBUTION, "the package is not installed")
    def test_the_native_module_is_stripped(self):
        path = sys.modules["perf_prof._native"].__file__
        sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
        self.assertIn(".dynsym", sections)
        self.assertNotIn(".symtab", sections)
        self.assertNotIn(".debug_", sections)

    def test_the_import_loads_no_large_module(self):
        code = (
            "import sys\nbefore = set(sys.modules)\nsys.path[:0] = eval(sys.argv[1])\nimport perf_prof\n"
            "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))\n"
        )
        words = [sys.executable, "-I", "-c", code, repr(sys.path)]
        loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        self.assertIn("perf_prof", loaded)
        large = {"asyncio", "ctypes", "email", "html", "inspect", "json", "logging", "socket", "subprocess", "tempfile"}
        large |= {"tqdm", "typing"}
        self.assertEqual(large & set(loaded), set())

    def test_the_import_reads_nothing_of_the_kernel_and_starts_no_thread(self):
        code = (
            "import os, sys\nsys.path[:0] = eval(sys.argv[1])\nopened = []\n"
            "sys.addaudithook(lambda event, words: event == 'open' and opened.append(str(words[0])))\n"
            "import perf_prof\n"
            "print(len(os.listdir('/proc/self/task')), [path for path in opened if path.startswith(('/sys', '/proc'))])\n"
        )
        done = subprocess.run([sys.executable, "-I", "-c", code, repr(sys.path)], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("1 []\n", ""))


if __name__ == "__main__":
    unittest.main()
