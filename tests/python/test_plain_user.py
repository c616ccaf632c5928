"""Tests of the package for a user without privileges. This user may trace own processes and test scripts. All else
raises an error that says why.

The tests need root. They run programs as the user nobody, in a mount namespace. There this user can read the
interpreter and the package, whatever folders contain them.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perf_prof

NOBODY = 65534

NAMESPACE = (pathlib.Path(__file__).parents[1] / "harness" / "namespace.sh").read_text()

START = "import os, sys\nsys.path[:0] = eval(sys.argv[1])\nassert os.geteuid() == 65534\nimport perf_prof as pp\n"

USE_MEMORY = """
import mmap
def use_memory():
    with mmap.mmap(-1, 1 << 20) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE): memory[page] = 1
"""


def closed(path):
    """Returns the topmost folder of the path that other users cannot enter, or None."""
    above = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
    return above[0] if above else None


def why_not():
    """Returns why the tests cannot run programs as the user nobody, or None."""
    if os.geteuid() != 0:
        return "not root"
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt && exec setpriv --reuid=65534 true"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or None


class PlainUser(unittest.TestCase):
    def setUp(self):
        if reason := why_not():
            self.skipTest(reason)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chown(folder.name, NOBODY, NOBODY)

    def run_words(self, *words):
        package = pathlib.Path(perf_prof.__file__).parents[1]
        needed = {pathlib.Path(path).resolve() for path in (sys.prefix, sys.base_prefix, package, self.folder)}
        over = sorted({str(place) for place in map(closed, needed) if place})
        setup = ["unshare", "-m", "sh", "-c", NAMESPACE, "namespace", "closed"]
        setup += [*map(str, sorted(needed)), "--", *over, "--"]
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder)}
        return subprocess.run(
            [*setup, str(self.folder), *words], capture_output=True, text=True, timeout=120, env=environment
        )

    def run_python(self, code):
        """Runs a program that begins with `import perf_prof as pp`. Returns what it printed."""
        done = self.run_words(sys.executable, "-X", "dev", "-c", START + code, repr(sys.path))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def test_events_are_made_and_scripts_are_tested(self):
        (self.folder / "s.py").write_text("def sched__sched_switch(event): print(event.next_comm)\n")
        out = self.run_python(
            "from perf_prof.testing import make_event, run_script\n"
            "event = make_event('sched:sched_switch', next_comm='cc1', next_pid=8)\n"
            "out = run_script('s.py', [event])\n"
            "print(event.next_pid, out.status, repr(out.stdout), out.stderr)\n"
        )
        self.assertEqual(out, "8 0 'cc1\\n' \n")

    def test_own_processes_are_traced(self):
        out = self.run_python(
            USE_MEMORY + "with pp.trace('page-faults:u', pid=os.getpid(), count=1) as events:\n"
            "    use_memory()\n    found = events.read(timeout=10)\n"
            "print(len(found) > 10, {event._pid for event in found} == {os.getpid()}, events.lost)\n"
            "with pp.trace('page-faults:u', exec=[sys.executable, '-c', 'pass'], count=1) as events:\n"
            "    print(sum(1 for _ in events) > 100)\n"
            "print(pp.stat('page-faults:u', exec=['true'])['page-faults:u'].value > 10)\n"
        )
        self.assertEqual(out, "True True 0\nTrue\nTrue\n")

    def test_a_recording_of_this_user_is_replayed(self):
        out = self.run_python(
            "pp.record('page-faults:u', output='own.data', exec=[sys.executable, '-c', 'pass'], count=1)\n"
            "with pp.replay('own.data') as events: found = list(events)\n"
            "counted = []\n"
            "result = pp.run(input='own.data', handlers=counted.append)\n"
            "print(len(found) > 100, result.delivered == len(found) == len(counted))\n"
        )
        self.assertEqual(out, "True True\n")

    def test_a_recording_of_another_user_is_refused(self):
        path = self.folder / "roots.data"
        perf_prof.record("page-faults:u", output=path, exec=["true"])
        path.chmod(0o600)
        out = self.run_python(
            "try: pp.replay('roots.data')\n"
            "except pp.RecordingError as error: print(isinstance(error, OSError), error.errno, error.filename)\n"
        )
        self.assertRegex(out, "^True 13 .*roots.data")

    def test_events_of_the_kernel_are_a_permission_error_with_the_advice_of_doctor(self):
        if os.stat("/sys/kernel/tracing").st_mode & 0o005 or not os.path.exists("/sys/kernel/tracing/events"):
            self.skipTest("tracefs is open to all, or it is not mounted")
        told = self.run_words(sys.executable, "-m", "perf_prof", "doctor").stdout
        advice = "mount -o remount,mode=755 /sys/kernel/tracing"
        self.assertIn(advice, told)
        calls = [
            "pp.trace('sched:sched_switch')",
            "pp.trace('sched:sched_switch', pid=os.getpid())",
            "pp.run('sched:sched_switch', handlers=print)",
            "pp.record('sched:sched_switch', exec=['true'])",
            "pp.events('sched:*')",
        ]
        for call in calls:
            out = self.run_python(
                f"try: {call}\n"
                "except PermissionError as error: print(isinstance(error, pp.AccessError), error.errno, error.strerror)\n"
            )
            self.assertRegex(out, "^True 13 ", call)
            self.assertIn(advice, out, call)
        self.assertFalse((self.folder / "perf.data").exists())

    def test_processes_of_other_users_are_a_permission_error(self):
        out = self.run_python(
            "try: pp.trace('page-faults:u', pid=1)\n"
            "except PermissionError as error: print(isinstance(error, pp.KernelError), error.strerror)\n"
        )
        self.assertRegex(out, "^True .*task 1 belongs to another user.*run as root")


if __name__ == "__main__":
    unittest.main()
