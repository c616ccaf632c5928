"""Unit tests of the shipped scripts, by perf_prof.testing. They need no root and no events of this kernel."""

import json
import os
import signal
import tempfile
import time
import unittest
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest import mock

from perf_prof import Parts, syscall_nr
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
from perf_prof._programs import script_of
from perf_prof.testing import Lost, make_event, run_script

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
MS = 1_000_000
SECOND = 1_000 * MS
ENDS_EARLY = "{}: call chains end early; programs and libraries without frame pointers need --call-graph dwarf\n"


def make(name, time, **fields):
    # The shipped formats are the same on all machines.
    return make_event(name, formats="shipped", _time=time, **fields)


def clock(ns):
    return time.strftime("%H:%M:%S", time.localtime(ns // SECOND))


class ScriptTest(unittest.TestCase):
    maxDiff = None

    def run_script(self, script, events, *args, status=0, interval=None):
        out = run_script(os.path.join(SCRIPTS, script), events, args, interval)
        # Made call chains are short.
        stderr = out.stderr.replace(ENDS_EARLY.format(script), "")
        self.assertEqual((stderr, out.status), ("", status), out)
        return out.stdout

    def rows(self, *args, **options):
        """Returns the lines that the script prints, each as a list of words."""
        return [line.split() for line in self.run_script(*args, **options).splitlines()]

    def on_spans(self, *args):
        """Returns the lines that a script prints for made spans, each as a list of words."""
        return [line.split() for line in self.run_on_spans(*args).splitlines()]

    def run_on_spans(self, script, name, spans, *args):
        """Returns what a script prints for made spans."""
        # The run needs an event. The handler gets objects with the members that it reads.
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


def system_call(name, start, end, ret, *args, tid=7, comm="app"):
    """Makes a system call. A text among its arguments is the string to which an argument points."""
    number = {"id": syscall_nr(name)}
    strings = {f"arg{at}_str": word for at, word in enumerate(args) if isinstance(word, str)}
    words = [0x7F00 if isinstance(word, str) else word % 2**64 for word in args]
    begin = number | strings | {"args": (*words, 0, 0, 0, 0, 0, 0)[:6], "_time": start}
    ends = number | {"ret": ret, "_time": end, "_tid": tid, "_pid": tid, "_comm": comm}
    return make_event("syscall/str/", formats="shipped", begin=begin | {"_tid": tid, "_pid": tid}, end=ends)


class RunqLat(ScriptTest):
    def test_a_wait_lasts_from_the_wake_up_to_the_switch(self):
        rows = self.rows("runqlat.py", [wakeup(1000, 8), switch(6000, 7, 8)])
        self.assertIn(["task8:", "1", "waits"], rows)
        self.assertIn(["task8", "8", "1", "5.0", "5.0", "5.0"], rows)

    def test_a_task_that_is_preempted_waits_too(self):
        events = [switch(1000, 7, 8, state=0), switch(4000, 8, 7), switch(9000, 7, 8, state=0x100), switch(12000, 8, 7)]
        rows = self.rows("runqlat.py", events)
        self.assertIn(["task7", "7", "2", "3.0", "3.0", "3.0"], rows)
        # The wait of task 8 began before the first event.
        text = self.run_script("runqlat.py", events)
        self.assertIn("(waits that are not counted, because their start was not seen: 2)", text)

    def test_a_new_task_waits_from_its_first_wake_up(self):
        events = [wakeup(1000, 8, name="sched:sched_wakeup_new"), switch(3000, 7, 8)]
        self.assertIn(["task8", "8", "1", "2.0", "2.0", "2.0"], self.rows("runqlat.py", events))

    def test_options_select_tasks(self):
        events = [wakeup(1000, 8), switch(2000, 7, 8), wakeup(2500, 9), switch(4000, 8, 9)]
        rows = self.rows("runqlat.py", events, "--comm", "task9")
        self.assertIn(["task9", "9", "1", "1.5", "1.5", "1.5"], rows)
        self.assertNotIn("task8", [row[0] for row in rows if row])
        self.assertIn(["all", "commands:", "2", "waits"], self.rows("runqlat.py", events, "--all"))

    def test_lost_events_make_a_wait_unknown(self):
        events = [wakeup(1000, 8), Lost(time=2000, events=3), switch(6000, 7, 8)]
        text = self.run_script("runqlat.py", events)
        self.assertIn("no waits seen", text)
        self.assertIn("because events of their CPU were lost meanwhile: 1)", text)

    def test_a_task_that_is_woken_again_waits_from_the_last_wake_up(self):
        events = [wakeup(1 * MS, 8), wakeup(900 * MS, 8), switch(901 * MS, 7, 8)]
        self.assertIn(["task8", "8", "1", "1000.0", "1000.0", "1000.0"], self.rows("runqlat.py", events))
        self.assertIn("woken again before a switch to it was seen: 1)", self.run_script("runqlat.py", events))
        # A task may be woken on its way to sleep, often while it runs, and once after it was preempted.
        runs = [switch(1 * MS, 7, 8), wakeup(2 * MS, 8), wakeup(3 * MS, 8), switch(4 * MS, 8, 7, state=0x100)]
        events = [*runs, wakeup(5 * MS, 8), switch(9 * MS, 7, 8)]
        self.assertIn(["task8", "8", "1", "5000.0", "5000.0", "5000.0"], self.rows("runqlat.py", events))
        self.assertNotIn("woken again", self.run_script("runqlat.py", events))
        events = [*runs, wakeup(5 * MS, 8), wakeup(7 * MS, 8), switch(9 * MS, 7, 8)]
        self.assertIn(["task8", "8", "1", "2000.0", "2000.0", "2000.0"], self.rows("runqlat.py", events))

    def test_a_wake_up_that_is_delivered_to_two_tasks_starts_one_wait(self):
        events = [wakeup(1 * MS, 8), wakeup(1 * MS + 900, 8), switch(2 * MS, 7, 8)]
        self.assertIn(["task8", "8", "1", "1000.0", "1000.0", "1000.0"], self.rows("runqlat.py", events))
        self.assertNotIn("woken again", self.run_script("runqlat.py", events))

    def test_processes_and_threads_are_selected_by_number(self):
        # The process of a task is known from its own events.
        events = [
            switch(500, 8, 7, _pid=80, _tid=8),
            switch(600, 9, 7, _pid=90, _tid=9),
            wakeup(1000, 8), wakeup(1000, 9), switch(2000, 7, 8), switch(3000, 8, 9, _pid=80, _tid=8),
        ]  # fmt: skip
        for option, number in ("--pid", "80"), ("--tid", "8"):
            rows = self.rows("runqlat.py", events, option, number)
            self.assertIn(["task8", "8", "1", "1.0", "1.0", "1.0"], rows)
            self.assertIn("1 task".split(), rows)

    def test_a_switch_that_was_not_seen_is_reported(self):
        # The CPU switched to task 8, and then task 9 leaves it.
        events = [wakeup(1000, 8), switch(2000, 7, 8), switch(3000, 9, 7), switch(4000, 7, 8)]
        self.assertIn("(switches that were not seen, by losses, a filter or the kernel: 1 or more", self.run_script("runqlat.py", events))
        seen = [wakeup(1000, 8), switch(2000, 7, 8), switch(3000, 8, 7)]
        self.assertNotIn("switches that were not seen", self.run_script("runqlat.py", seen))


class OffCpu(ScriptTest):
    CHAIN = [(0xFFFFFFFF81000010, "schedule"), (0x401000, "wait_for_it", "/bin/app"), (0x401100, "main", "/bin/app")]

    def test_a_time_off_cpu_has_the_stack_of_the_switch(self):
        events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN, _comm="task7"), switch(4 * MS, 8, 7)]
        rows = self.rows("offcpu.py", events)
        self.assertEqual(rows[0], ["3.000", "ms", "100.0%", "task7"])
        self.assertEqual(rows[1:4], [["schedule"], ["wait_for_it"], ["main"]])
        self.assertIn("3.000 ms off CPU in 1 stacks", self.run_script("offcpu.py", events))

    def test_only_the_chosen_states_are_counted(self):
        events = [
            switch(1 * MS, 7, 8, state=2, _callchain=self.CHAIN),
            switch(2 * MS, 8, 9, state=1, _callchain=self.CHAIN),
            switch(6 * MS, 9, 7, state=0x10),
            switch(9 * MS, 7, 8, state=0),
        ]
        text = self.run_script("offcpu.py", events, "--state", "uninterruptible")
        self.assertIn("5.000 ms off CPU in 1 stacks", text)
        text = self.run_script("offcpu.py", events, "--min", "6000")
        self.assertIn("7.000 ms off CPU in 1 stacks", text)

    def test_tasks_are_selected_by_name_and_number(self):
        events = [
            switch(1 * MS, 7, 8, _callchain=self.CHAIN),
            switch(2 * MS, 8, 7, _callchain=self.CHAIN),
            switch(4 * MS, 7, 8, _callchain=self.CHAIN),
            switch(9 * MS, 8, 7, _callchain=self.CHAIN),
        ]
        self.assertIn("8.000 ms off CPU in 2 stacks", self.run_script("offcpu.py", events[:3] + [switch(9 * MS, 8, 7)]))
        for args in (["--comm", "task8"], ["--tid", "8"], ["--pid", "8"]):
            self.assertIn("2.000 ms off CPU in 1 stacks", self.run_script("offcpu.py", events[:3], *args))

    def test_losses_and_unseen_switches_are_reported(self):
        events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN), Lost(time=2 * MS), switch(4 * MS, 8, 7)]
        text = self.run_script("offcpu.py", events)
        self.assertIn("because events of their CPU were lost meanwhile: 1, at most 3.000 ms)", text)
        events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN), switch(4 * MS, 9, 7)]
        self.assertIn("(switches that were not seen, by losses, a filter or the kernel: 1 or more", self.run_script("offcpu.py", events))
        self.assertNotIn("switches that were not seen", self.run_script("offcpu.py", [events[0], switch(4 * MS, 8, 7)]))

    def test_without_call_chains_it_says_so(self):
        out = run_script(os.path.join(SCRIPTS, "offcpu.py"), [switch(1 * MS, 7, 8), switch(2 * MS, 8, 7)])
        self.assertIn("no call chains", out.stderr)

    def test_the_flame_graph_has_the_times_in_microseconds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "off.folded")
            events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN, _comm="task7"), switch(4 * MS, 8, 7)]
            self.run_script("offcpu.py", events, "--flame", path)
            with open(path) as file:
                self.assertEqual(file.read(), "task7;main;wait_for_it;schedule_[k] 3000\n")


class Profile(ScriptTest):
    def sample(self, *chain, period=1, pid=7):
        frames = [(0x401000 + 16 * at, name, "/bin/app") for at, name in enumerate(chain)]
        return make("profile", 0, period=period, _pid=pid, _callchain=frames, _comm="app")

    def test_functions_have_their_own_time_and_that_of_their_callees(self):
        events = [self.sample("leaf", "middle", "main", period=3), self.sample("middle", "main", period=1)]
        rows = self.rows("profile.py", events)
        self.assertEqual(
            rows[1:4],
            [
                ["75.0%", "75.0%", "1", "leaf", "(app)"],
                ["25.0%", "100.0%", "1", "middle", "(app)"],
                ["0.0%", "100.0%", "0", "main", "(app)"],
            ],
        )
        self.assertEqual(rows[4], "2 samples in 3 functions".split())

    def test_a_recursive_function_is_counted_once(self):
        rows = self.rows("profile.py", [self.sample("again", "again", "main")], "--sort", "total")
        self.assertIn(["100.0%", "100.0%", "1", "again", "(app)"], rows)

    def test_processes_are_separate_with_by_pid(self):
        events = [self.sample("leaf", pid=7), self.sample("leaf", pid=8)]
        rows = self.rows("profile.py", events, "--by-pid")
        self.assertEqual([row[0] for row in rows[1:3]], ["7", "8"])

    def test_the_flame_graph_has_all_stacks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.folded")
            events = [self.sample("leaf", "main"), self.sample("leaf", "main"), self.sample("main")]
            text = self.run_script("profile.py", events, "--flame", path)
            self.assertIn(f"{path}: 3 samples in 2 stacks", text)
            with open(path) as file:
                self.assertEqual(sorted(file.read().splitlines()), ["app;main 1", "app;main;leaf 2"])
            empty = os.path.join(folder, "empty.folded")
            other = make("page-faults", 0)
            out = run_script(os.path.join(SCRIPTS, "profile.py"), [other], ["--flame", empty])
            self.assertIn(f"{empty}: not written, there were no samples", out.stdout)

    def test_samples_without_call_chains_are_a_warning(self):
        out = run_script(os.path.join(SCRIPTS, "profile.py"), [make("profile", 0)])
        self.assertIn("no call chains", out.stderr)

    def test_each_interval_has_a_table(self):
        frames = [(0x401000, "leaf", "/bin/app")]
        events = [make("profile", at * SECOND, _callchain=frames) for at in (1, 2, 3)]
        text = self.run_script("profile.py", events, interval=1.0)
        for end in (2, 3):
            self.assertIn(clock(end * SECOND), text)
        self.assertEqual(text.count("1 samples in 1 functions"), 3)


class Faults(ScriptTest):
    def fault(self, name, *chain, time=0, pid=7, comm="app"):
        frames = [(0x401000 + 16 * at, function, "/bin/app") for at, function in enumerate(chain)]
        return make(name, time, addr=0x7F0000, _pid=pid, _comm=comm, _callchain=frames)

    def test_faults_are_counted_by_function(self):
        events = [
            self.fault("minor-faults", "leaf", "main"),
            self.fault("minor-faults", "leaf", "main"),
            self.fault("major-faults", "main"),
        ]
        rows = self.rows("faults.py", events)
        self.assertEqual(rows[1:3], [["2", "0", "2", "leaf", "(app)"], ["0", "1", "3", "main", "(app)"]])
        self.assertEqual(rows[3], "2 minor and 1 major faults".split())

    def test_faults_are_counted_by_process(self):
        events = [self.fault("minor-faults", "main", pid=pid, comm=f"app{pid}") for pid in (7, 8, 8)]
        rows = self.rows("faults.py", events, "--by", "process")
        self.assertEqual(rows[1:3], [["2", "0", "8", "app8"], ["1", "0", "7", "app7"]])

    def test_faults_are_counted_by_stack(self):
        events = [self.fault("minor-faults", "leaf", "main")] * 2 + [self.fault("minor-faults", "main")]
        rows = self.rows("faults.py", events, "--by", "stack")
        self.assertEqual(rows[1:4], [["2", "0", "leaf", "(app)"], ["main", "(app)"], ["1", "0", "main", "(app)"]])

    def test_the_name_of_a_process_is_that_of_its_first_thread(self):
        events = [
            self.fault("minor-faults", "main", time=1, comm="first"),
            make("minor-faults", 2, _pid=7, _tid=8, _comm="worker"),
            self.fault("minor-faults", "main", time=3, comm="renamed"),
            make("minor-faults", 4, _pid=7, _tid=8, _comm="worker"),
        ]
        self.assertEqual(self.rows("faults.py", events, "--by", "process")[1], ["4", "0", "7", "renamed"])

    def test_major_faults_alone(self):
        events = [self.fault("minor-faults", "main"), self.fault("major-faults", "main")]
        text = self.run_script("faults.py", events, "--major")
        self.assertIn("0 minor and 1 major faults", text)


class Wakeups(ScriptTest):
    def test_wake_ups_are_counted_by_task(self):
        events = [wakeup(at, pid, cpu) for at, pid, cpu in [(1, 8, 0), (2, 8, 1), (3, 9, 5), (4, 8, 2)]]
        rows = self.rows("wakeups.py", events)
        self.assertEqual(rows[0], "whole run: 4 wake-ups, 2 tasks".split())
        self.assertEqual(rows[2:4], [["task8", "8", "3", "0-2"], ["task9", "9", "1", "5"]])

    def test_each_interval_has_a_table_and_the_whole_run_too(self):
        events = [wakeup(at * SECOND, 8) for at in (1, 2, 3, 4)]
        text = self.run_script("wakeups.py", events, interval="1s")
        self.assertIn(f"{clock(2 * SECOND)}: 1 wake-ups, 1 task", text)
        self.assertIn("whole run: 4 wake-ups, 1 task", text)

    def test_the_last_table_is_for_the_time_after_the_last_interval(self):
        events = [wakeup(1 * SECOND, 8), wakeup(2 * SECOND + 1, 8), wakeup(2 * SECOND + 2, 9)]
        text = self.run_script("wakeups.py", events, interval=1)
        self.assertIn("after the last interval: 2 wake-ups, 2 tasks", text)
        self.assertNotIn("after the last interval", self.run_script("wakeups.py", events))

    def test_one_task_is_selected_by_name(self):
        text = self.run_script("wakeups.py", [wakeup(1, 8), wakeup(2, 9)], "--comm", "task9")
        self.assertIn("whole run: 1 wake-ups, 1 task", text)
        self.assertNotIn("task8", text)


class Signals(ScriptTest):
    def signal(self, time, number, **more):
        fields = {"sig": number, "comm": "target", "pid": 9, "group": 1, "_pid": 7, "_comm": "sender"} | more
        return make("signal:signal_generate", time, **fields)

    def test_a_line_names_sender_target_and_result(self):
        rows = self.rows("signals.py", [self.signal(5 * MS, 15)])
        self.assertEqual(rows[1], [f"{clock(0)}.005", "SIGTERM", "sender", "7", "target", "9", "delivered"])

    def test_the_kernel_and_interrupts_are_senders_too(self):
        events = [self.signal(1, 11, code=1), self.signal(2, 14, code=0, common_flags=8), self.signal(3, 10, result=1)]
        text = self.run_script("signals.py", events)
        self.assertIn("kernel (sender 7)", text)
        self.assertIn("interrupt", text)
        self.assertRegex(text, r"SIGUSR1 .* ignored")

    def test_signals_are_selected_by_name_and_number(self):
        events = [self.signal(1, 15), self.signal(2, 9), self.signal(3, 10)]
        rows = self.rows("signals.py", events, "--signal", "TERM", "--signal", "9")
        self.assertEqual([row[1] for row in rows[1:]], ["SIGTERM", "SIGKILL"])

    def test_only_the_first_rows_are_shown(self):
        events = [self.signal(at, 15, pid=at) for at in range(5)]
        text = self.run_script("signals.py", events, "--table", "--top", "2")
        self.assertIn("5 signals in 5 rows, 3 more with a larger --top", text)

    def test_a_table_counts_pairs(self):
        rows = self.rows("signals.py", [self.signal(at, 15) for at in range(3)], "--table")
        self.assertEqual(rows[1], ["3", "SIGTERM", "sender", "7", "target", "9"])

    def test_an_unknown_signal_is_wrong_usage(self):
        out = run_script(os.path.join(SCRIPTS, "signals.py"), [self.signal(1, 15)], ["--signal", "NONE"])
        self.assertEqual((out.status, out.module), (2, None))
        self.assertIn("--signal NONE: there is no such signal", out.stderr)


class Syscalls(ScriptTest):
    def enter(self, time, number, tid=7, cpu=0):
        return make("raw_syscalls:sys_enter", time, id=number, _tid=tid, _cpu=cpu)

    def exit(self, time, number, ret=0, tid=7, cpu=0):
        return make("raw_syscalls:sys_exit", time, id=number, ret=ret, _tid=tid, _cpu=cpu)

    def test_calls_are_counted_and_timed(self):
        from perf_prof import syscall_nr

        read = syscall_nr("read")
        events = [self.enter(0, read), self.exit(3000, read, ret=10), self.enter(5000, read), self.exit(6000, read, -4)]
        rows = self.rows("syscalls.py", events)
        self.assertEqual(rows[1], ["read", "2", "4.000", "us", "2.000", "us", "3.000", "us", "EINTR:1"])
        self.assertEqual(rows[2], "2 calls of 1 kinds".split())

    def test_json_has_an_object_for_each_call_and_for_what_is_missing(self):
        from perf_prof import syscall_nr

        read = syscall_nr("read")
        events = [self.enter(0, read), self.exit(3000, read, ret=-4), self.enter(5000, read), Lost(time=5500)]
        lines = [json.loads(line) for line in self.run_script("syscalls.py", events, "--json").splitlines()]
        times = {"total": 3000, "average": 3000, "longest": 3000}
        self.assertEqual(lines[0], {"syscall": "read", "calls": 2, **times, "errors": {"EINTR": 1}})
        self.assertEqual(lines[1]["partial"], True)
        self.assertIn("lost", lines[1]["note"])

    def test_threads_are_told_apart(self):
        events = [self.enter(0, 0, tid=7), self.enter(1000, 0, tid=8), self.exit(2000, 0, tid=7), self.exit(9000, 0, tid=8)]
        rows = self.rows("syscalls.py", events, "--by-pid")
        self.assertEqual([(row[0], row[3], row[4]) for row in rows[1:3]], [("8", "8.000", "us"), ("7", "2.000", "us")])

    def test_a_row_is_for_all_threads_of_a_process(self):
        events = []
        for tid in 7, 8:
            events.append(make("raw_syscalls:sys_enter", 0, id=0, _pid=7, _tid=tid))
            events.append(make("raw_syscalls:sys_exit", 2000, id=0, _pid=7, _tid=tid))
        rows = self.rows("syscalls.py", events, "--by-pid")
        self.assertEqual((rows[1][0], rows[1][2:5]), ("7", ["2", "4.000", "us"]))

    def test_an_exit_of_another_call_is_not_timed(self):
        text = self.run_script("syscalls.py", [self.enter(0, 0), self.exit(1000, 1)])
        self.assertIn("came in the wrong order: 1)", text)

    def test_a_call_across_a_loss_is_not_timed(self):
        text = self.run_script("syscalls.py", [self.enter(0, 0), Lost(time=500), self.exit(1000, 0)])
        self.assertIn("(calls that are not timed, because events of their CPU were lost meanwhile: 1)", text)


class ExecSnoop(ScriptTest):
    def newtask(self, time, parent, child, flags=0):
        return make("task:task_newtask", time, pid=child, comm="shell", clone_flags=flags, _pid=parent)

    def executes(self, time, pid, file):
        return make("sched:sched_process_exec", time, filename=file, pid=pid, _pid=pid)

    def exits(self, time, pid, code):
        return [
            make("syscalls:sys_enter_exit_group", time, error_code=code, _pid=pid),
            make("sched:sched_process_exit", time, pid=pid, group_dead=1, _pid=pid),
        ]

    def test_a_process_is_shown_from_its_exec_to_its_end(self):
        events = [self.newtask(1 * MS, 5, 6), self.executes(2 * MS, 6, "/bin/true"), *self.exits(11 * MS, 6, 3)]
        rows = self.rows("execsnoop.py", events)
        self.assertEqual(rows[1], [f"{clock(0)}.002", "exec", "6", "5", "/bin/true"])
        self.assertEqual(
            rows[2], [f"{clock(0)}.011", "exit", "6", "5", "exit", "3", "after", "10.0", "ms", "/bin/true"]
        )

    def test_a_signal_that_ends_a_process_has_its_sender(self):
        sent = make("signal:signal_generate", 3, sig=15, pid=6, group=1, _pid=9, _tid=10, _comm="killer")
        delivered = make("signal:signal_deliver", 4, sig=15, _pid=6)
        end = make("sched:sched_process_exit", 5, pid=6, group_dead=1, _pid=6)
        text = self.run_script("execsnoop.py", [self.executes(1, 6, "/bin/sleep"), sent, delivered, end])
        self.assertIn("killed by SIGTERM from killer 9", text)

    def test_a_process_that_executes_nothing_is_not_shown(self):
        rows = self.rows("execsnoop.py", [self.newtask(1, 5, 6), *self.exits(2, 6, 0)])
        self.assertEqual([row[0] for row in rows], ["TIME"])

    def test_a_number_that_is_used_again_is_another_process(self):
        first = [self.newtask(1, 5, 6), self.executes(2, 6, "/bin/a"), *self.exits(3, 6, 1)]
        # The fork of the second process was not seen, so its parent is not known.
        rows = self.rows("execsnoop.py", [*first, self.executes(4, 6, "/bin/b"), *self.exits(5, 6, 2)])
        self.assertEqual([(row[1], row[3]) for row in rows[1:]], [("exec", "5"), ("exit", "5"), ("exec", "-"), ("exit", "-")])

    def test_threads_are_no_processes(self):
        events = [self.newtask(1, 5, 6, flags=0x10000), *self.exits(2, 5, 0)]
        self.assertEqual(len(self.rows("execsnoop.py", events, "--forks")), 1)
        self.assertEqual(len(self.rows("execsnoop.py", [self.newtask(1, 5, 6)], "--forks")), 2)

    def test_files_are_selected_by_name(self):
        events = [self.executes(1, 6, "/bin/true"), self.executes(2, 7, "/bin/false")]
        rows = self.rows("execsnoop.py", events, "--name", "true")
        self.assertEqual([row[4] for row in rows[1:]], ["/bin/true"])


class UprobeLatency(ScriptTest):
    FUNCTION = "function:getaddrinfo@libc"

    def call(self, start, end, tid=7, at=0x401230, frame=0x7FF0):
        # On x86, a return has taken the return address off the stack.
        ends = dict(frame=frame + 8, ret=0, _tid=tid, _time=end)
        begins = dict(__probe_ip=at, frame=frame, popped=8, _tid=tid, _time=start)
        return make_event(self.FUNCTION, begin=begins, end=ends)

    def test_calls_are_timed_by_function(self):
        events = [self.call(1000, 6000), self.call(2000, 3000, tid=8)]
        text = self.run_script("uprobe_latency.py", events)
        self.assertIn("getaddrinfo: 2 calls, mean 3.000 us, longest 5.000 us", text)

    def test_short_calls_are_left_out_on_request(self):
        events = [self.call(1000, 6000), self.call(7000, 8000)]
        text = self.run_script("uprobe_latency.py", events, "--min", "2")
        self.assertIn("getaddrinfo: 1 calls, mean 5.000 us", text)

    def test_functions_of_one_name_have_rows_by_their_places(self):
        text = self.run_script("uprobe_latency.py", [self.call(0, 1000), self.call(0, 2000, at=0x405678)])
        self.assertIn("getaddrinfo (at ...678): 1 calls, mean 2.000 us", text)
        self.assertIn("getaddrinfo (at ...230): 1 calls, mean 1.000 us", text)

    def test_a_probe_instead_of_a_function_is_wrong_usage(self):
        entry = make("uprobe:getaddrinfo", 1, __probe_ip=0x401230)
        out = run_script(os.path.join(SCRIPTS, "uprobe_latency.py"), [entry])
        self.assertEqual(out.status, 2)
        self.assertIn("to time them, select function:getaddrinfo@FILE", out.stderr)


class KillSnoop(ScriptTest):
    def kill(self, start, end, target, number, ret=0):
        return system_call("kill", start, end, ret, target, number, comm="sender")

    def reach(self, time, pid, sig, result=0, **more):
        fields = {"comm": f"task{pid}", "pid": pid, "sig": sig, "result": result, "_tid": 7}
        return make("signal:signal_generate", time, **fields | more)

    def test_each_target_of_a_call_has_a_line(self):
        events = [self.reach(2, 8, 15), self.reach(3, 9, 15, 1), self.kill(1, 4 * MS, -5, 15)]
        rows = self.rows("killsnoop.py", events)
        start = [f"{clock(0)}.004", "sender", "7", "SIGTERM"]
        self.assertEqual(rows[1:], [[*start, "task8", "8", "delivered", "-"], [*start, "task9", "9", "ignored", "-"]])

    def test_calls_that_fail_have_their_error(self):
        events = [self.kill(1, 2, 8, 0), self.kill(3, 4, -1, 9, -1)]
        rows = self.rows("killsnoop.py", events)
        self.assertEqual([row[3:] for row in rows[1:]], [["0", "8", "exists", "-"], ["SIGKILL", "-1", "EPERM", "-"]])
        self.assertEqual(self.rows("killsnoop.py", events, "--failed")[1:], rows[2:])

    def test_other_signals_are_not_of_the_call(self):
        other = [self.reach(2, 8, 17), self.reach(2, 8, 15, code=128), self.reach(2, 8, 15, _tid=6)]
        rows = self.rows("killsnoop.py", [self.reach(0, 8, 15), *other, self.kill(1, 3, 9, 15)])
        self.assertEqual([row[3:] for row in rows[1:]], [["SIGTERM", "9", "sent", "-"]])

    def test_tgkill_has_the_process_before_the_thread(self):
        rows = self.rows("killsnoop.py", [system_call("tgkill", 1, 2, -3, 8, 9, 15)])
        self.assertEqual(rows[1][3:], ["SIGTERM", "9", "ESRCH", "-"])

    def test_a_victim_of_a_lack_of_memory_is_shown(self):
        events = [make("oom:mark_victim", 5, pid=9, comm="eater", _tid=7, _comm="any")]
        rows = self.rows("killsnoop.py", events)
        self.assertEqual(rows[1][1:], "out of memory SIGKILL eater 9 for any 7 -".split())

    def test_the_parent_in_a_recording_is_the_one_that_created_the_sender(self):
        created = make("task:task_newtask", 1, pid=7, comm="deploy", clone_flags=0, _pid=5, _tid=5)
        # It has another name when the signal is sent.
        thread = make("task:task_newtask", 2, pid=6, comm="other", clone_flags=0x10000, _pid=5, _tid=5)
        rows = self.rows("killsnoop.py", [created, thread, self.kill(3, 4, 9, 15)])
        self.assertEqual(rows[1][-2:], ["deploy", "5"])


class Capable(ScriptTest):
    def check(self, cap, ret=0, pid=7):
        return make("capability:cap_capable", 1, cap=cap, ret=ret, _pid=pid, _comm="app")

    def test_checks_are_counted_by_name(self):
        rows = self.rows("capable.py", [self.check(21), self.check(21, -1), self.check(18), self.check(99, -1)])
        self.assertEqual(rows[1], ["CAP_SYS_ADMIN", "2", "1", "app"])
        self.assertEqual(rows[2:4], [["CAP_SYS_CHROOT", "1", "0", "app"], ["capability", "99", "1", "1", "app"]])
        self.assertEqual(rows[4], "4 checks in 3 rows".split())

    def test_refused_checks_alone_by_process(self):
        events = [self.check(21), self.check(21, -1, pid=8), self.check(21, -1)]
        rows = self.rows("capable.py", events, "--refused", "--by-pid")
        self.assertEqual([row[3] for row in rows[1:3]], ["7", "8"])
        self.assertEqual(rows[3], "2 checks in 2 rows".split())


class OpenSnoop(ScriptTest):
    def open(self, start, end, ret, flags=0, path="/etc/x"):
        return system_call("openat", start, end, ret, -100, path, flags)

    def test_a_call_has_its_result_and_its_flags(self):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        events = [self.open(1000, 3500, -2, flags), self.open(5000, 6000, 3)]
        rows = self.rows("opensnoop.py", events)
        self.assertEqual(rows[1][1:], ["app", "7", "2.5", "ENOENT", "O_RDWR|O_CREAT|O_CLOEXEC", "/etc/x"])
        self.assertEqual(rows[2][3:], ["1.0", "3", "O_RDONLY", "/etc/x"])
        self.assertEqual(self.rows("opensnoop.py", events, "--failed"), rows[:2])

    def test_each_call_has_its_own_path(self):
        calls = [
            system_call("open", 1000, 2000, 3, "/a", os.O_WRONLY), system_call("creat", 3000, 4000, 3, "/b"),
            system_call("openat2", 5000, 6000, 3, -100, "/c"), self.open(7000, 8000, -14, path=1),
        ]  # fmt: skip
        rows = [row[4:] for row in self.rows("opensnoop.py", calls)[1:]]
        self.assertEqual(rows, [["3", "O_WRONLY", "/a"], ["3", "-", "/b"], ["3", "-", "/c"], ["EFAULT", "O_RDONLY", "?"]])
        self.assertEqual(len(self.rows("opensnoop.py", calls, "--name", "/b")), 2)

    def test_json_has_an_object_for_each_call(self):
        rows = self.run_script("opensnoop.py", [self.open(1000, 3500, -2), self.open(5000, 6000, 3)], "--json")
        objects = [json.loads(line) for line in rows.splitlines()]
        self.assertEqual([(row["took"], row["result"], row["flags"]) for row in objects], [(2500, "ENOENT", "O_RDONLY"), (1000, "3", "O_RDONLY")])


class SlowCalls(ScriptTest):
    def span(self, name, ms, ret, *words, chain=()):
        from perf_prof import errno_name

        args = tuple(word % 2**64 for word in (*words, 0, 0, 0, 0, 0, 0)[:6])
        call = dict(name=name, args=args, ret=ret, errno=errno_name(ret) if ret < 0 else "")
        return SimpleNamespace(duration=ms * MS, comm="app", _tid=7, _realtime=5 * MS, _callchain=list(chain), **call)

    def test_a_call_has_its_arguments_by_name_and_its_error(self):
        spans = [self.span("read", 2, -4, 3, 0x7F00, 10), self.span("openat", 3, 5, -100, 0x10, 0x80000)]
        rows = self.on_spans("slowcalls.py", "syscall", spans)
        start = [f"{clock(0)}.005", "app", "7"]
        self.assertEqual(rows[0], [*start, *"2.000 read(fd=3, buf=0x7f00, count=10) = EINTR".split()])
        expected = "3.000 openat(dfd=-100, filename=0x10, flags=0x80000, mode=0) = 5"
        self.assertEqual(rows[1], [*start, *expected.split()])

    def test_calls_are_selected(self):
        spans = [self.span("read", 2, 0), self.span("fsync", 9, 0, 3), self.span("futex", 50, 0)]
        self.assertEqual(self.on_spans("slowcalls.py", "syscall", spans, "--all", "--comm", "other"), [])
        for options, calls in [
            ([], ["read", "fsync"]),
            (["--all"], ["read", "fsync", "futex"]),
            (["--call", "futex"], ["futex"]),
            (["--min", "3"], ["fsync"]),
            (["--comm", "app", "--min", "3"], ["fsync"]),
        ]:
            rows = self.on_spans("slowcalls.py", "syscall", spans, *options)
            self.assertEqual([row[4].split("(")[0] for row in rows if row[1] == "app"], calls)

    def test_calls_that_are_left_out_are_named(self):
        spans = [self.span("futex", 50, 0), self.span("poll", 700, 0), self.span("futex", 20, 0), self.span("read", 2, 0)]
        text = "calls that wait on purpose, not shown without --all: 1 of poll (700.0 ms), 2 of futex (70.0 ms)"
        self.assertEqual(self.run_on_spans("slowcalls.py", "syscall", spans).splitlines()[-1], f"({text})")
        note = json.loads(self.run_on_spans("slowcalls.py", "syscall", spans, "--json").splitlines()[-1])
        self.assertEqual(note, {"note": text})
        self.assertNotIn("on purpose", self.run_on_spans("slowcalls.py", "syscall", spans, "--all"))
        self.assertNotIn("on purpose", self.run_on_spans("slowcalls.py", "syscall", spans[-1:]))

    def test_a_call_chain_follows_its_call(self):
        frame = {"addr": 255, "dso": "/bin/app", "kernel": False}
        chain = [{**frame, "symbol": "leaf"}, {**frame, "symbol": ""}]
        spans = [self.span("fsync", 2, 0, chain=chain)]
        rows = self.on_spans("slowcalls.py", "syscall", spans)
        self.assertEqual(rows[1:], [["leaf", "(/bin/app)"], ["0xff", "(/bin/app)"]])
        row = json.loads(self.run_on_spans("slowcalls.py", "syscall", spans, "--json"))
        self.assertEqual((row["task"], row["took"], row["call"]), ("app 7", 2 * MS, "fsync(fd=0) = 0"))
        self.assertEqual(row["callchain"], ["leaf (/bin/app)", "0xff (/bin/app)"])


class IrqLat(ScriptTest):
    def soft(self, name, us, cpu=0):
        return SimpleNamespace(name=name, duration=us * 1000, _cpu=cpu)

    def test_runs_are_added_up_by_name(self):
        rows = self.on_spans("irqlat.py", "softirq", [self.soft("NET_RX", us, cpu) for us, cpu in [(2, 0), (7, 1), (1, 0)]] + [self.soft("77", 5)])
        self.assertEqual(rows[1:3], [["soft", "NET_RX", "3", "10.0", "7.0", "1"], ["soft", "77", "1", "5.0", "5.0", "0"]])
        self.assertEqual(rows[3], "4 runs in 2 rows".split())

    def test_timers_and_work_have_the_names_of_their_functions(self):
        for source, kind in [("hrtimer", "timer"), ("workqueue", "work")]:
            span = SimpleNamespace(function="tick", duration=2500, _cpu=1)
            rows = self.on_spans("irqlat.py", source, [span, span])
            self.assertEqual(rows[1], [kind, "tick", "2", "5.0", "2.5", "1"])

    def test_hard_interrupts_have_their_number(self):
        span = SimpleNamespace(irq=27, name="eth0", duration=1500, _cpu=2)
        rows = self.on_spans("irqlat.py", "irq", [span], "--top", "1")
        self.assertEqual(rows[1], ["hard", "27", "eth0", "1", "1.5", "1.5", "2"])


class LockStat(ScriptTest):
    def wait(self, us, *functions, kind="mutex", addr=0x10, name=""):
        chain = [{"symbol": function, "dso": "[kernel.kallsyms]", "kernel": True} for function in functions]
        chain.append({"symbol": "main", "dso": "/bin/app", "kernel": False})
        return SimpleNamespace(kind=kind, addr=addr, name=name, duration=us * 1000, _callchain=chain)

    def futex(self, us, operation, *functions, tid=7, comm="app", at=0, addr=0x7F00, dso="/bin/app", ret=0, errno=""):
        chain = [{"symbol": "do_syscall_64", "dso": "[kernel.kallsyms]", "kernel": True}]
        chain.append({"symbol": "__lll_lock_wait", "dso": "/lib/libc.so.6", "kernel": False})
        chain += [{"symbol": function, "dso": dso, "kernel": False} for function in functions]
        task = {"comm": comm, "_tid": tid, "_pid": 7, "_time": (at + us) * 1000, "begin": SimpleNamespace(_time=at * 1000)}
        call = {"args": (addr, operation, 0, 0, 0, 0), "ret": ret, "errno": errno, "duration": us * 1000}
        return SimpleNamespace(_callchain=chain, **task, **call)

    def test_waits_are_added_up_by_the_function_that_asks_for_the_lock(self):
        waits = [
            self.wait(5, "__mutex_lock.constprop.0", "mutex_lock_killable", "do_work", "worker"),
            self.wait(7, "mutex_lock", "do_work", addr=0x20),
            self.wait(2, "__pv_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "wake", kind="spinlock", name="big"),
            self.wait(1, "mutex_lock"),
        ]
        rows = self.on_spans("lockstat.py", "lock", waits)
        self.assertEqual(rows[1], ["mutex", "2", "0.012", "0.007", "do_work"])
        self.assertEqual(rows[2:4], [["spinlock", "1", "0.002", "0.002", "wake", "[big]"], ["mutex", "1", "0.001", "0.001", "?"]])
        self.assertEqual(rows[4], "4 waits in 3 rows".split())
        rows = self.on_spans("lockstat.py", "lock", waits, "--by-lock", "--top", "1")
        self.assertEqual(rows[1], ["mutex", "1", "0.007", "0.007", "do_work", "0x20"])
        self.assertEqual(self.on_spans("lockstat.py", "lock", waits, "--futex"), [])

    def test_call_chains_that_end_early_are_a_warning(self):
        said = ENDS_EARLY.format("lockstat.py")
        for functions, message in [((), said), (("work",), said), (("work", "main"), "")]:
            with redirect_stderr(StringIO()) as err:
                self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, *functions)])
            self.assertEqual(err.getvalue(), message)
        # The half is short, which is not the most. Frames of the kernel alone do not count.
        waits = [self.futex(3, 0, "work", "main"), self.futex(3, 0)]
        with redirect_stderr(StringIO()) as err:
            self.on_spans("lockstat.py", "syscall", waits)
            self.on_spans("lockstat.py", "lock", [self.wait(5, "mutex_lock")])
        self.assertEqual(err.getvalue(), "")

    def test_only_the_waits_of_futexes_count(self):
        calls = [self.futex(3, 0x80, "work"), self.futex(4, 9 | 0x180, "work"), self.futex(100, 0x81, "work"), self.futex(1, 0)]
        rows = self.on_spans("lockstat.py", "syscall", calls)
        self.assertEqual(rows[1], ["futex", "2", "0.007", "0.004", "app:", "work"])
        self.assertEqual(rows[2], ["futex", "1", "0.001", "0.001", "app:", "?", "0x7f00"])
        self.assertEqual(self.on_spans("lockstat.py", "syscall", calls, "--kernel"), [])

    def test_the_holder_of_a_futex_is_the_task_that_wakes_the_waiter(self):
        wait = self.futex(100, 0x80, "work", tid=8)
        wake = self.futex(5, 0x81, "flush", comm="writer", at=97, ret=1)
        other = self.futex(5, 0x81, "flush", comm="other", at=97, ret=1, addr=0x9000)
        # The wait may end before or after the call that wakes it.
        for calls in [other, wait, wake], [other, wake, wait]:
            rows = self.on_spans("lockstat.py", "syscall", calls)
            self.assertEqual(rows[2], "held: 100% writer 7: flush".split())
        # A call that wakes nobody, and one that was over before.
        for wake in self.futex(5, 0x81, "flush", at=97), self.futex(5, 0x81, "flush", at=-9, ret=1):
            rows = self.on_spans("lockstat.py", "syscall", [wake, wait])
            self.assertEqual(rows[2], "1 waits in 1 row".split())
        over = self.futex(100, 0x80, "work", tid=8, ret=-110, errno="ETIMEDOUT")
        rows = self.on_spans("lockstat.py", "syscall", [over, wait, self.futex(5, 0x81, "flush", at=97, ret=1)])
        self.assertEqual(rows[2], "held: 50% (time limit), 50% app 7: flush".split())

    def test_a_call_wakes_as_many_tasks_as_it_says(self):
        waits = [self.futex(100, 0x80, "work", tid=tid) for tid in (8, 9, 10)]
        rows = self.on_spans("lockstat.py", "syscall", [*waits, self.futex(5, 0x81, "flush", at=97, ret=2)], "--by-thread")
        self.assertEqual([row[5] for row in rows if row[:1] == ["futex"]], ["10:", "8:", "9:"])
        self.assertEqual(len([row for row in rows if row[:1] == ["held:"]]), 2)

    def test_the_holder_is_the_start_of_the_chain(self):
        calls = [
            self.futex(90, 0x80, "work", tid=8, comm="middle", at=5, addr=0x9000),
            self.futex(2, 0x81, "flush", tid=9, comm="slow", at=94, addr=0x9000, ret=1),
            self.futex(100, 0x80, "work", tid=7, comm="last"),
            self.futex(2, 0x81, "step", tid=8, comm="middle", at=99, ret=1),
        ]
        text = self.run_on_spans("lockstat.py", "syscall", calls, "--json")
        rows = {row["where"]: row for row in map(json.loads, text.splitlines())}
        self.assertEqual(rows["last: work"]["held"], {"slow 9: flush, through 1 other": 1.0})
        self.assertEqual(rows["middle: work"]["held"], {"slow 9: flush": 1.0})

    def test_functions_of_python_win_over_those_of_the_interpreter(self):
        inner = ["PyThread_acquire_lock_timed", "_PyEval_Vector", "py::Queue.get:/app/queue.py", "py::main:/app/x.py"]
        for dso in "/usr/bin/python3.12", "/usr/lib/libpython3.12.so.1.0":
            rows = self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, *inner, dso=dso)])
            self.assertEqual(rows[1][5:], ["Queue.get:/app/queue.py", "[PyThread_acquire_lock_timed]"])
        # The function of an extension is nearer.
        rows = self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, *inner, dso="/usr/lib/ext.so")])
        self.assertEqual(rows[1][5:], ["PyThread_acquire_lock_timed"])
        rows = self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, "take_gil", dso="/usr/bin/python3.12")])
        self.assertEqual(rows[1][5:], ["take_gil"])


class MemLeak(ScriptTest):
    def memory(self, ptr, size, freed=False):
        chain = [(0xFFFFFFFF81000010, "kmalloc_noprof"), (0xFFFFFFFF81000020, "alloc_msg")]
        begin = make("kmem:kmalloc", MS, ptr=ptr, bytes_req=size, bytes_alloc=size, _callchain=chain)
        end = {"end": make("kmem:kfree", 2 * MS, ptr=ptr)} if freed else {}
        return make_event("alloc/open==1/open/stack/", formats="shipped", begin=begin, **end)

    def test_what_is_not_freed_is_added_up_by_call_chain(self):
        lines = self.run_script("memleak.py", [self.memory(0x100, 500), self.memory(0x200, 30)]).splitlines()
        self.assertEqual(lines[:3], ["530 bytes in 2 allocations", "        kmalloc_noprof", "        alloc_msg"])
        self.assertEqual(lines[3], "530 bytes of the kernel in 2 allocations of 1 call chains are not freed")
        self.assertIn("mallocleak.py -p PID", lines[4])


class MallocLeak(ScriptTest):
    CHAIN = [{"symbol": "malloc", "kernel": False}, {"symbol": "", "dso": "/bin/app", "kernel": False}]

    def run_on(self, calls, *args):
        """Returns what the script prints for calls: (function, begin, end, members)."""
        module = run_script(os.path.join(SCRIPTS, "mallocleak.py"), [make("page-faults", 0)], args).module
        with redirect_stdout(StringIO()) as out:
            for name, begin, end, members in calls:
                times = {"begin": SimpleNamespace(_time=begin * MS), "_time": end * MS}
                call = SimpleNamespace(_pid=7, _comm="app", _callchain=self.CHAIN, **times, **members)
                getattr(module, name)(call)
            module.__exit__()
        return out.getvalue()

    def malloc(self, begin, ret, size, name="malloc", **more):
        return f"function__{name}", begin, begin, {"ret": ret, "size": size, **more}

    def free(self, time, ptr):
        return "uprobe__free", time, time, {"p": ptr}

    def test_what_is_not_freed_is_added_up_by_call_chain(self):
        calls = [self.malloc(1, 0x10, 1000), self.malloc(2, 0x20, 500), self.free(3, 0x10), self.free(4, 0)]
        calls += [self.malloc(5, 0, 70), self.malloc(6, 0x30, 10, "calloc", n=3)]
        text = self.run_on(calls)
        self.assertEqual([line.split() for line in text.splitlines()[1:3]], [["530", "2", "malloc"], ["/bin/app"]])
        self.assertIn("530 bytes in 2 allocations of 1 call chain are not freed", text)
        self.assertIn("500 bytes in 1 allocations", self.run_on(calls, "--older", "4"))
        row = json.loads(self.run_on(calls, "--json"))
        self.assertEqual(row, {"bytes": 530, "count": 2, "chain": ["malloc", "/bin/app"]})

    def test_tables_of_intervals_have_their_times_and_the_last_one_comes_once(self):
        module = run_script(os.path.join(SCRIPTS, "mallocleak.py"), [make("page-faults", 0)], ["--json"]).module
        call = SimpleNamespace(_pid=7, _comm="app", _callchain=self.CHAIN, _time=1, ret=0x10, size=1000)
        with redirect_stdout(StringIO()) as out:
            module.function__malloc(call)
            module.__interval__()
            module.__exit__()
        [row] = map(json.loads, out.getvalue().splitlines())
        self.assertEqual((row["bytes"], type(row["end"])), (1000, int))
        with redirect_stdout(StringIO()) as out:
            module.uprobe__free(SimpleNamespace(_pid=7, p=5))
            module.__exit__()
            module.function__malloc(SimpleNamespace(**vars(call) | {"ret": 0x20}))
            module.__exit__()
        self.assertEqual([json.loads(line)["bytes"] for line in out.getvalue().splitlines()], [2000])

    def test_realloc_moves_memory_unless_it_fails(self):
        def total(*members):
            calls = [self.malloc(1, 0x10, 1000), *(("function__realloc", 2, 4, of) for of in members)]
            return self.run_on(calls).split("\n")[-3].split()[0]

        self.assertEqual(total({"ret": 0x20, "old": 0x10, "size": 3000}), "3,000")
        self.assertEqual(total({"ret": 0x10, "old": 0x10, "size": 200}), "200")
        self.assertEqual(total({"ret": 0, "old": 0x10, "size": 2**60}), "1,000")
        self.assertEqual(total({"ret": 0, "old": 0x10, "size": 0}), "0")
        # Another thread got the old address before the call returned.
        calls = [self.malloc(1, 0x10, 1000), self.malloc(3, 0x10, 50)]
        calls.append(("function__realloc", 2, 4, {"ret": 0x20, "old": 0x10, "size": 3000}))
        self.assertIn("3,050 bytes in 2 allocations", self.run_on(calls))

    def test_a_loss_forgets_what_may_have_been_freed(self):
        module = run_script(os.path.join(SCRIPTS, "mallocleak.py"), [make("page-faults", 0)], []).module
        module.live[7, 1] = (1, ("x",), 0)
        module.__lost__(0, 1)
        with redirect_stdout(StringIO()) as out:
            module.__exit__()
        self.assertIn("(allocations that are forgotten, because events were lost while they were not freed: 1)", out.getvalue())


class CpuDist(ScriptTest):
    def run_of(self, time, us, tid, state):
        ends = {"begin": switch(time, 0, tid), "end": switch(time + us * 1000, tid, 0, state)}
        return make_event("oncpu", formats="shipped", **ends)

    def test_runs_are_distributed_by_why_they_ended(self):
        runs = [self.run_of(at * MS, us, 7, state) for at, (us, state) in enumerate([(10, 1), (20, 1), (900, 0x100)])]
        rows = self.rows("cpudist.py", runs, "--by", "why")
        self.assertEqual([row[:2] for row in rows[1:3]], [["sleeping", "2"], ["preempted", "1"]])
        self.assertEqual(self.rows("cpudist.py", runs, "--by", "why", "--comm", "task8")[1:], [])


class SchedBlame(ScriptTest):
    def wait(self, time, us, tid, taker=None, ran=9):
        begin = switch(time, tid, taker, 0x100) if taker else wakeup(time, tid)
        return make_event("runqueue", formats="shipped", begin=begin, end=switch(time + us * 1000, ran, tid))

    def test_waits_are_blamed_on_those_that_ran(self):
        waits = [self.wait(MS, 10, 7), self.wait(2 * MS, 300, 7, taker=8, ran=8), self.wait(3 * MS, 5, 6)]
        rows = self.rows("schedblame.py", waits)
        self.assertEqual(rows[1][:3] + rows[1][6:], ["task7", "2", "0.310", "task8", "97%,", "task9", "3%", "task8", "1"])
        self.assertEqual(rows[2][:3] + rows[2][6:], ["task6", "1", "0.005", "task9", "100%"])
        self.assertEqual(rows[3], "3 waits of 2 tasks, 0.315 ms".split())
        self.assertEqual(self.rows("schedblame.py", waits, "--comm", "task6")[2], "1 waits of 1 task, 0.005 ms".split())

    def test_threads_and_more_than_two_culprits_are_shown(self):
        waits = [self.wait(at * MS, 90 - at, 7, taker=10 + at, ran=20 + at) for at in (1, 2, 3, 4)]
        text = self.run_script("schedblame.py", waits, "--by-thread", "--json")
        [row] = map(json.loads, text.splitlines())
        self.assertEqual((row["task"], row["waits"], row["total"], row["max"]), ("task7 7", 4, 350000, 89000))
        self.assertEqual([list(row["ran"]), list(row["takers"])], [[f"task{n} {n}" for n in range(first, first + 3)] for first in (21, 11)])
        text = self.run_script("schedblame.py", waits, "--culprits", "4")
        self.assertIn("task11 1, task12 1, task13 1, task14 1\n", text)


class RunqLen(ScriptTest):
    def test_the_length_is_the_time_of_all_waits_over_the_time_of_the_run(self):
        def wait(begin, end, tid, cpu):
            ends = {"begin": wakeup(begin * MS, tid), "end": switch(end * MS, 0, tid, cpu=cpu)}
            return make_event("runqueue", formats="shipped", **ends)

        rows = self.rows("runqlen.py", [wait(1, 3, 7, 0), wait(2, 5, 8, 0), wait(10, 11, 7, 1)])
        self.assertEqual([row[:3] for row in rows[1:4]], [["0", "2", "0.50"], ["1", "1", "0.10"], ["all", "3", "0.60"]])


class OffWake(ScriptTest):
    def wait(self, us, state="sleeping", waker="pong", comm="ping", at=0, **more):
        chain = [{"symbol": name, "dso": "/bin/app", "kernel": False} for name in ("schedule", "read")]
        waking = SimpleNamespace(_callchain=[{"symbol": "write", "dso": "/bin/app"}])
        times = {"begin": SimpleNamespace(_time=at * 1000), "duration": us * 1000, "_time": (at + us) * 1000, "waited": 0}
        tasks = {"comm": comm, "pid": 7, "waker_comm": waker, "waker_pid": 8 if waker else -1}
        parts = {"between": [waking] if waker else [], "_callchain": chain}
        return SimpleNamespace(state=state, **times | tasks | parts | more)

    def test_a_wait_has_the_stacks_of_both_tasks(self):
        rows = self.on_spans("offwake.py", "offcpu", [self.wait(3000), self.wait(1000), self.wait(5000, "preempted")])
        expected = ["0.004 s 100.0% ping", "schedule", "read", "woken by pong", "write", "0.004 s off CPU in 1 stacks"]
        self.assertEqual([" ".join(row) for row in rows if row], expected)
        rows = self.on_spans("offwake.py", "offcpu", [self.wait(10, waker=""), self.wait(3000)], "--min", "100")
        self.assertEqual(rows[0], "0.003 s 100.0% ping".split())

    def test_code_that_an_interrupt_hit_did_not_wake_the_task(self):
        def frames(*names, kernel=True):
            return [{"symbol": name, "dso": "", "kernel": kernel} for name in names]

        timer = frames("try_to_wake_up", "hrtimer_wakeup", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt")
        of_irq = frames("try_to_wake_up", "handle_irq", "el0t_64_irq")
        hits = [frames("innocent", kernel=False), frames("cpuidle_enter", "do_idle"), frames("do_syscall_64") + frames("other", kernel=False)]
        chains = [*(timer + hit for hit in hits), *(of_irq + hit for hit in hits)]
        chains += [frames("try_to_wake_up", "unknown_entry") + hit for hit in hits[:1]]
        waits = [self.wait(10, waker="(interrupt)", waker_pid=0, between=[SimpleNamespace(_callchain=chain)]) for chain in chains]
        text = self.run_on_spans("offwake.py", "offcpu", waits)
        self.assertIn("0.000 s off CPU in 3 stacks", text)
        for word in ("innocent", "do_idle", "do_syscall_64", "other"):
            self.assertNotIn(word, text)
        # What a task interrupts itself for is not cut.
        waker = SimpleNamespace(_callchain=frames("asm_sysvec_call_function", "write"))
        self.assertIn(" write\n", self.run_on_spans("offwake.py", "offcpu", [self.wait(10, between=[waker])]))

    def test_a_waker_that_waited_itself_is_followed(self):
        own = self.wait(2000, waker="slow", comm="pong", at=500, pid=8, waker_pid=9)
        text = self.run_on_spans("offwake.py", "offcpu", [own, self.wait(3000)], "--comm", "ping", "--by-thread")
        self.assertIn("  ping 7\n", text)
        self.assertLess(text.index("woken by pong 8\n"), text.index("which waited for slow 9\n"))
        # A short wait of the waker did not delay the other one.
        own = self.wait(1000, waker="slow", comm="pong", at=500, pid=8, waker_pid=9)
        text = self.run_on_spans("offwake.py", "offcpu", [own, self.wait(3000)], "--comm", "ping")
        self.assertNotIn("which waited for", text)


class BioLatency(ScriptTest):
    def request(self, time, us, op):
        fields = {"dev": 0xFE00000, "sector": 8, "nr_sector": 8, "rwbs": op}
        begin = make("block:block_io_start", time, bytes=4096, **fields)
        end = make("block:block_rq_complete", time + us * 1000, **fields)
        return make_event("block-io", formats="shipped", begin=begin, end=end)

    def test_requests_are_distributed_by_operation(self):
        requests = [self.request(MS, 100, "R"), self.request(2 * MS, 200, "W"), self.request(3 * MS, 300, "W")]
        rows = self.rows("biolatency.py", requests, "--by", "op")
        self.assertEqual([row[:2] for row in rows[1:3]], [["write", "2"], ["read", "1"]])

    def test_a_heat_map_has_all_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.svg")
            requests = [self.request(number * MS, 100, "R") for number in range(1, 6)]
            text = self.run_script("biolatency.py", requests, "--heatmap", path)
            self.assertTrue(text.endswith(f"the heat map is in {path}\n"), text)
            with open(path) as file:
                self.assertIn("duration; 5 values", file.read())


class BioSnoop(ScriptTest):
    def request(self, us, op="write", error="", dev="999:1"):
        return SimpleNamespace(
            _realtime=SECOND, comm="app", pid=7, dev=dev, op=op, rwbs="W", sector=64, bytes=4096, queued=1000, flush=0,
            device=us * 1000 - 1000, duration=us * 1000, errno=error,
        )  # fmt: skip

    def test_requests_are_selected(self):
        requests = [self.request(20), self.request(500, error="EIO"), self.request(30, dev="999:2")]
        all_rows = self.on_spans("biosnoop.py", "block_io", requests)
        self.assertEqual(len(all_rows), 3)
        self.assertIn("999:1", all_rows[0])
        self.assertEqual(self.on_spans("biosnoop.py", "block_io", requests, "--min", "100"), all_rows[1:2])
        self.assertEqual(self.on_spans("biosnoop.py", "block_io", requests, "--failed"), all_rows[1:2])
        self.assertEqual(self.on_spans("biosnoop.py", "block_io", requests, "--dev", "999:2"), all_rows[2:])


class BlockMetrics(ScriptTest):
    def test_a_request_is_counted_by_its_device_and_operation(self):
        requests = [BioLatency.request(self, number * MS, 100, op) for number, op in enumerate("RWW", 1)]
        module = run_script(os.path.join(SCRIPTS, "block_metrics.py"), requests).module
        counts = {op: (block.count, block.sum) for (_, op), block in module.block.items()}
        self.assertEqual(counts, {"read": (1, 100_000), "write": (2, 200_000)})
        self.assertEqual({op: size.sum for (_, op), size in module.block_size.items()}, {"read": 4096, "write": 8192})


class RunqueueMetrics(ScriptTest):
    def test_a_wait_is_counted_by_the_name_of_its_task(self):
        ends = [(2, 7), (5, 8), (9, 7)]
        waits = [
            make_event("runqueue", formats="shipped", begin=wakeup(MS, tid), end=switch(end * MS, 0, tid)) for end, tid in ends
        ]
        module = run_script(os.path.join(SCRIPTS, "runqueue_metrics.py"), waits).module
        counts = {comm: (waits.count, waits.sum) for comm, waits in module.runqueue.items()}
        self.assertEqual(counts, {"task7": (2, 9 * MS), "task8": (1, 4 * MS)})


class FailedCallsMetrics(ScriptTest):
    def test_only_calls_that_fail_are_counted(self):
        calls = [system_call("openat", MS, 2 * MS, ret, -100, "/x", 0) for ret in (3, -2, -2, -13)]
        module = run_script(os.path.join(SCRIPTS, "failed_calls_metrics.py"), calls).module
        self.assertEqual(module.failed_calls.to_dict(), {("openat", -2, "app"): 2, ("openat", -13, "app"): 1})


class TcpLife(ScriptTest):
    def connection(self, sport=40000, reset="", retransmits=0, connect=2 * MS, states="SYN_SENT=2 ESTABLISHED=5 TIME_WAIT=0"):
        return SimpleNamespace(
            _realtime=SECOND, comm="app", pid=7, role="client", saddr="10.0.0.1", sport=sport, daddr="::1", dport=443,
            connect=connect, duration=7 * MS, retransmits=retransmits, reset=reset, states=states,
        )  # fmt: skip

    def test_a_connection_has_its_ends_and_how_it_ended(self):
        connections = [self.connection(), self.connection(40001, reset="received"), self.connection(40002, retransmits=3)]
        rows = self.on_spans("tcplife.py", "tcp", connections)
        expected = ["app", "7", "client", "10.0.0.1:40000", "[::1]:443", "2.00", "7.00", "0", "closed"]
        self.assertEqual(rows[0][1:], expected)
        self.assertEqual(rows[1][-2:], ["reset", "received"])
        self.assertEqual(self.on_spans("tcplife.py", "tcp", connections, "--bad"), rows[1:])
        self.assertEqual(self.on_spans("tcplife.py", "tcp", connections, "--port", "40002"), rows[2:])


class FileLife(ScriptTest):
    def files(self, *calls):
        """Returns what the script prints for calls: (time, thread, name, arguments)."""
        module = run_script(os.path.join(SCRIPTS, "filelife.py"), [make("page-faults", 0)], ()).module
        with redirect_stdout(StringIO()) as out:
            for time, tid, name, *args in calls:
                module.syscall(system_call(name, time, time, 0, *args, tid=tid, comm=f"task{tid}"))
            module.__exit__()
        return out.getvalue()

    def test_a_file_is_removed_by_another_task(self):
        created = ("openat", -100, "/tmp/x", os.O_CREAT)
        text = self.files((MS, 1, *created), (6 * MS, 2, "unlink", "/tmp//x"))
        self.assertEqual(text.split()[1:], ["5.00", "task1", "1", "task2", "2", "/tmp/x"])

    def test_removals_that_are_not_shown_are_counted_by_their_reason(self):
        text = self.files(
            (1, 1, "openat", -100, "/tmp/old", 0), (2, 2, "unlink", "/tmp/old"), (3, 2, "unlink", 1),
            (4, 2, "unlinkat", 5, "there"), (5, 2, "unlinkat", 5, "folder", 0x200), (6, 2, "rename", "/a", "/b"),
        )  # fmt: skip
        reasons = "by relative paths of unknown folders", "of files that were renamed, at most"
        reasons += "of files whose creation was not seen", "whose path could not be read"
        counts = ["1 (there)", "1", "1", "1"]
        lines = [f"(removals that are not shown, {reason}: {count})\n" for reason, count in zip(reasons, counts)]
        self.assertEqual(text, "".join(lines))

    def test_a_relative_path_is_not_that_of_the_folder_before(self):
        created = ("openat", -100, "x", os.O_CREAT)
        text = self.files((MS, 1, *created), (2 * MS, 1, "chdir", "other"), (3 * MS, 1, "unlink", "x"))
        self.assertEqual(text, "(removals that are not shown, by relative paths of unknown folders: 1 (x))\n")
        text = self.files((MS, 1, "chdir", "/a"), (2 * MS, 1, *created), (3 * MS, 1, "chdir", "b/c"), (4 * MS, 1, "unlink", "/a/x"))
        self.assertEqual(text.split()[1:], ["2.00", "task1", "1", "task1", "1", "/a/x"])


class InCommon(unittest.TestCase):
    """`perf_prof.script`, on which the scripts stand."""

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
        # What begins after the loss can be told. It ends once.
        pairs.begins(40, 1, 1)
        self.assertEqual([pairs.end(45, 1), pairs.end(50, 1)], [(5, None), None])

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
        # The second one waited for a small part of this wait.
        self.assertEqual(wakers.chain(2, "second", 850, 1000), ["second"])
        # A wait that ended after the wake-up is a later one.
        self.assertEqual(wakers.chain(2, "second", 50, 890), ["second"])
        wakers.note(3, 100, 850, 2, "second")
        self.assertEqual(wakers.chain(2, "second", 50, 1000), ["second", "third"])

    def test_paths_are_absolute_if_their_folder_is_known(self):
        folders = Folders()
        folders.look()
        here, own = os.getcwd(), SimpleNamespace(_pid=os.getpid(), _realtime=time.time_ns() + 10**9)
        self.assertEqual(folders.absolute("/a//b/./c", own), "/a/b/c")
        # The folder b may be a symbolic link.
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
        # A change from before is in the look-up already.
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
        # A thread and a process that shares its folder may be moved by others.
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
        names = {name.removesuffix(".py").replace("_", "") for name in os.listdir(SCRIPTS) if name.endswith(".py")}
        tested = {test.__name__.lower() for test in ScriptTest.__subclasses__()}
        self.assertEqual(tested, names)


if __name__ == "__main__":
    unittest.main()
