"""Helpers of the tests of the shipped scripts: they make events, and run a script on them."""

import os
import time
import unittest
from contextlib import redirect_stdout
from io import StringIO

from perf_prof import syscall_nr
from perf_prof.testing import make_event, run_script

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
MS = 1_000_000
SECOND = 1_000 * MS
ENDS_EARLY = "{}: call chains end early; programs and libraries without frame pointers need --call-graph dwarf\n"


def make(name, time, **fields):
    # Formats of tracepoints differ between machines. The formats in the package do not.
    return make_event(name, formats="shipped", _time=time, **fields)


def clock(ns):
    return time.strftime("%H:%M:%S", time.localtime(ns // SECOND))


class ScriptTest(unittest.TestCase):
    maxDiff = None

    def run_script(self, script, events, *args, status=0, interval=None):
        out = run_script(os.path.join(SCRIPTS, script), events, args, interval)
        # The call chains of these tests are short, so a script may warn that call chains end early.
        stderr = out.stderr.replace(ENDS_EARLY.format(script), "")
        self.assertEqual((stderr, out.status), ("", status), out)
        return out.stdout

    def rows(self, *args, **options):
        """Returns the lines that the script prints, each as a list of words."""
        return [line.split() for line in self.run_script(*args, **options).splitlines()]

    def on_spans(self, *args):
        """Calls the handler of a script for each span. Returns the printed lines, each as a list of words."""
        return [line.split() for line in self.run_on_spans(*args).splitlines()]

    def run_on_spans(self, script, name, spans, *args):
        """Calls the handler of a script for each span. Returns what the script prints."""
        # run_script() needs an event, so it gets one that the script ignores. The handler then gets objects that have
        # the members that it reads.
        module = run_script(os.path.join(SCRIPTS, script), [make("page-faults", 0)], args).module
        with redirect_stdout(StringIO()) as out:
            for span in spans:
                handler = getattr(module, f"span__{name}", None) or getattr(module, name)
                handler(span)
            if hasattr(module, "__exit__"):
                module.__exit__()
        return out.getvalue()


def switch(time, prev, next, state=1, cpu=0, **more):
    fields = {"prev_comm": f"task{prev}", "prev_pid": prev, "prev_state": state}
    fields |= {"next_comm": f"task{next}", "next_pid": next, "_pid": prev}
    return make("sched:sched_switch", time, _cpu=cpu, **fields | more)


def wakeup(time, pid, cpu=0, name="sched:sched_wakeup"):
    return make(name, time, comm=f"task{pid}", pid=pid, target_cpu=cpu)


def system_call(name, start, end, ret, *args, tid=7, comm="app", mnt_ns=0):
    """Makes a system call. A string among `args` stands for a pointer to this string."""
    number = {"id": syscall_nr(name)}
    strings = {f"arg{at}_str": word for at, word in enumerate(args) if isinstance(word, str)}
    words = [0x7F00 if isinstance(word, str) else word % 2**64 for word in args]
    begin = number | strings | {"args": (*words, 0, 0, 0, 0, 0, 0)[:6], "_time": start, "mnt_ns": mnt_ns}
    ends = number | {"ret": ret, "_time": end, "_tid": tid, "_pid": tid, "_comm": comm}
    return make_event("syscall/str/", formats="shipped", begin=begin | {"_tid": tid, "_pid": tid}, end=ends)
