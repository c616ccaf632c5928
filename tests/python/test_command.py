"""Tests of the command `perf-prof` of the installed package, which runs perf-prof in this Python interpreter.

The events are page faults in user space of commands that the tests start, so no test needs root.
"""

import importlib.metadata
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import perf_prof

# The folder may contain several names of this interpreter, such as python and python3.
FOLDER = os.path.dirname(sys.executable)
COMMAND = shutil.which("perf-prof", path=FOLDER)

SCRIPT = """
import sys
def __init__(): print(sys.executable, sys.prefix, sys.argv, sep="\\n")
"""

COUNT = """
from collections import Counter
import perf_prof
parts = perf_prof.Parts(total=Counter())
def __sample__(event): parts._total[event._comm] += 1
__partial__ = parts.partial
__merge__ = parts.merge
def __exit__(): print(sorted(parts._total.items()))
"""


@unittest.skipUnless(COMMAND, "the package is not installed with its command")
class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_words(self, *words, status=0, **options):
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=100, **options)
        self.assertEqual(done.returncode, status, done)
        return done

    def start(self, *words, **options):
        """Starts a command. The end of the test kills it if it still runs."""
        # A shell without job control starts commands in the background with SIGINT ignored. The command must not
        # inherit this.
        stop_ignoring = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        run = subprocess.Popen(words, cwd=self.folder, preexec_fn=stop_ignoring, **options)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def perf_prof(self, *words, **options):
        return self.run_words(COMMAND, *words, **options)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def run_script(self, text, *options, command="true", **more):
        script = self.write("s.py", text)
        return self.perf_prof("python", "-q", "-e", "page-faults:u", *options, script, "--exec", command, **more)

    def record(self):
        self.perf_prof("record", "-q", "-o", "r.data", "-e", "page-faults:u", "--", "sh", "-c", "ls /; true")

    def test_the_version_is_that_of_the_package(self):
        self.assertEqual(perf_prof.__version__, importlib.metadata.version("perf-prof"))
        self.assertEqual(self.perf_prof("-V").stdout, f"perf-prof {perf_prof.__version__}\n")

    def test_python_m_runs_the_same_command_line(self):
        for words in [("-V",), ("--help",), ("python", "--help")]:
            of_module = self.run_words(sys.executable, "-m", "perf_prof", *words)
            self.assertEqual(of_module.stdout, self.perf_prof(*words).stdout)
        wrong = self.run_words(sys.executable, "-m", "perf_prof", "nonsense", status=2)
        self.assertIn("nonsense", wrong.stderr)

    def test_a_script_runs_in_this_interpreter(self):
        # These variables choose a Python for the executable perf-prof. They have no effect on the package's command.
        environment = {**os.environ, "VIRTUAL_ENV": "/no/venv", "PERF_PROF_PYTHON": "/no/python"}
        out = self.run_script(SCRIPT, env=environment).stdout.splitlines()
        self.assertEqual([os.path.dirname(out[0]), *out[1:]], [FOLDER, sys.prefix, "['s.py']"])

    def test_sudo_runs_it_in_this_interpreter_too(self):
        if not shutil.which("sudo") or subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode:
            self.skipTest("sudo is not installed, or it needs a password")
        script = self.write("s.py", SCRIPT)
        words = ["python", "-q", "-e", "page-faults:u", script, "--exec", "true"]
        out = self.run_words("sudo", "-n", COMMAND, *words).stdout.splitlines()
        self.assertEqual([os.path.dirname(out[0]), *out[1:]], [FOLDER, sys.prefix, "['s.py']"])

    def test_another_python_is_refused_with_the_way_out(self):
        err = self.run_script(SCRIPT, "--python", "/usr/bin/python3", status=1).stderr
        self.assertIn(f"installed for '{FOLDER}/python", err)
        self.assertIn("leave --python out, or install perf-prof for the other Python too", err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_a_script_imports_from_its_own_folder_and_not_from_that_of_the_command(self):
        out = self.run_script("import sys\nprint(sys.path)\ndef __sample__(event): pass\n").stdout
        self.assertIn(str(self.folder), out)
        self.assertNotIn(repr(os.path.dirname(COMMAND)), out)

    def test_an_import_that_fails_names_the_environment(self):
        err = self.run_script("import no_such_module_here\n", status=1).stderr
        self.assertIn(f"scripts use the packages of '{FOLDER}/python", err)

    def test_the_exit_status_is_that_of_the_script_or_of_the_command(self):
        self.run_script("def __sample__(event): pass\ndef __exit__(): raise SystemExit(7)\n", status=7)
        self.run_script("def __sample__(event): pass\n", command="false", status=1)

    def test_threads_and_atexit_functions_end_before_the_command(self):
        text = """
import atexit, threading, time
atexit.register(print, "at exit")
def late():
    time.sleep(0.05)
    print("thread")
def __exit__(): threading.Thread(target=late).start()
def __sample__(event): pass
"""
        self.assertEqual(self.run_script(text).stdout, "thread\nat exit\n")

    def test_output_that_cannot_be_written_is_an_error(self):
        script = self.write("s.py", "print('x')\ndef __sample__(event): pass\n")
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [COMMAND, "python", "-q", "-e", "page-faults:u", script, "--exec", "true"],
                cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100,
            )
        self.assertNotEqual(done.returncode, 0, done)
        self.assertIn("No space left on device", done.stderr)

    def test_signals_end_a_run_and_a_command_without_python(self):
        ready = "import sys\ndef __init__(): print('ready', flush=True)\ndef __sample__(event): pass\n"
        script = ["python", "-q", "-e", "page-faults:u", "-p", str(os.getpid()), self.write("s.py", ready)]
        for signal_number, status in [(signal.SIGINT, 0), (signal.SIGTERM, 143)]:
            run = self.start(COMMAND, *script, stdout=subprocess.PIPE, text=True)
            self.assertEqual(run.stdout.readline(), "ready\n")
            run.send_signal(signal_number)
            run.communicate(timeout=100)
            self.assertEqual(run.returncode, status)
        # This command waits for a recording and runs no Python code, so SIGINT has its default action.
        reading, writing = os.pipe()
        run = self.start(COMMAND, "script", "-i", "-", stdin=reading, stderr=subprocess.DEVNULL)
        os.close(reading)
        self.wait_until_signals_are_those_of_an_executable(run)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=100), -signal.SIGINT)
        os.close(writing)

    def wait_until_signals_are_those_of_an_executable(self, run):
        """Waits until the command has loaded the native module and removed Python's handler of SIGINT."""
        folder = pathlib.Path("/proc", str(run.pid))
        for _ in range(10_000):
            status = (folder / "status").read_text()
            caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
            if "_native" in (folder / "maps").read_text() and not caught >> (signal.SIGINT - 1) & 1:
                return
            time.sleep(0.01)
        self.fail("Python still handles SIGINT")

    def test_jobs_give_the_same_result_as_one_process(self):
        self.record()
        script = self.write("count.py", COUNT)
        replay = ["python", "-q", "--input", "r.data"]
        one = self.perf_prof(*replay, script).stdout
        self.assertIn("'ls'", one)
        self.assertEqual(self.perf_prof(*replay, "--jobs", "3", script).stdout, one)
        self.assertEqual(self.perf_prof(*replay, "--jobs", "2", "--split", "cpu", script).stdout, one)

    def test_parallel_runs_the_command(self):
        self.record()
        script = self.write("count.py", COUNT)
        self.perf_prof("parallel", "-q", "-n", "2", "-o", "out", "--", COMMAND, "python", "-q", "--input", "r.data", script)
        printed = [path.read_text() for path in self.folder.glob("out/**/out.txt")]
        self.assertTrue(any("'ls'" in text for text in printed), printed)

    def test_wrappers_of_perf_script_call_the_package(self):
        self.write("perf/scripts/python/bin/count-record", 'perf record -q -e page-faults:u "$@"\n')
        self.write("perf/scripts/python/bin/count-report", 'perf script -s "$PERF_EXEC_PATH"/scripts/python/count.py\n')
        self.write("perf/scripts/python/count.py", "import sys\ndef trace_begin(): print(sys.executable)\n")
        environment = {**os.environ, "PERF_EXEC_PATH": str(self.folder / "perf")}
        self.perf_prof("script", "record", "count", "true", env=environment)
        self.assertTrue((self.folder / "perf.data").exists())
        out = self.perf_prof("script", "report", "count", env=environment).stdout
        self.assertIn(FOLDER + "/python", out)

    def test_processes_of_multiprocessing_run_this_interpreter(self):
        self.write("work.py", "import sys\ndef where(_): return sys.executable\n")
        text = """
import multiprocessing, work
def __init__():
    with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(work.where, [0])[0])
def __sample__(event): pass
"""
        self.assertEqual(os.path.dirname(self.run_script(text).stdout), FOLDER)

    def test_scripts_can_use_the_package(self):
        text = """
import perf_prof, sys
def __init__(): print(perf_prof.__file__, "perf_trace_context" in sys.modules, sys.dont_write_bytecode)
def __sample__(event): pass
"""
        self.assertEqual(self.run_script(text).stdout, f"{perf_prof.__file__} True True\n")
        self.assertFalse((self.folder / "__pycache__").exists())


class PackageTest(unittest.TestCase):
    def test_all_names_are_there(self):
        self.assertEqual(sorted(perf_prof.__all__), sorted(set(perf_prof.__all__)))
        for name in perf_prof.__all__:
            self.assertTrue(hasattr(perf_prof, name), name)

    def test_functions_and_classes_belong_to_the_package(self):
        import pickle

        for member in (perf_prof.ksym, perf_prof.Log2Hist, perf_prof.Parts, perf_prof.PerfEvent, perf_prof.at_least):
            self.assertEqual(member.__module__, "perf_prof")
            self.assertIs(pickle.loads(pickle.dumps(member)), member)

    def test_the_module_links_no_libpython(self):
        needed = subprocess.run(
            ["ldd", sys.modules["perf_prof._native"].__file__], capture_output=True, text=True, check=True
        ).stdout
        self.assertNotIn("libpython", needed)


if __name__ == "__main__":
    unittest.main()
