"""Unit tests of the scripts about tasks that run, wait and are woken."""

import json
import os
import tempfile
import unittest
from types import SimpleNamespace

from perf_prof.testing import Lost, make_event, run_script
from script_testing import MS, SCRIPTS, SECOND, ScriptTest, clock, switch, wakeup


class RunqLat(ScriptTest):
    def test_a_wait_lasts_from_the_wake_up_to_the_switch(self):
        rows = self.rows("runqlat.py", [wakeup(1000, 8), switch(6000, 7, 8)])
        self.assertIn(["task8:", "1", "waits"], rows)
        self.assertIn(["task8", "8", "1", "5.0", "5.0", "5.0"], rows)

    def test_a_task_that_is_preempted_waits_too(self):
        events = [switch(1000, 7, 8, state=0), switch(4000, 8, 7), switch(9000, 7, 8, state=0x100), switch(12000, 8, 7)]
        rows = self.rows("runqlat.py", events)
        self.assertIn(["task7", "7", "2", "3.0", "3.0", "3.0"], rows)
        # Task 8 waited already when the trace began.
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
        self.assertIn("because events were lost or not read during them: 1)", text)

    def test_a_task_that_is_woken_again_waits_from_the_last_wake_up(self):
        events = [wakeup(1 * MS, 8), wakeup(900 * MS, 8), switch(901 * MS, 7, 8)]
        self.assertIn(["task8", "8", "1", "1000.0", "1000.0", "1000.0"], self.rows("runqlat.py", events))
        self.assertIn("woken again before a switch to it was seen: 1)", self.run_script("runqlat.py", events))
        # A task that is about to sleep may be woken while it still runs, even often. After a preemption it may be woken
        # once.
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
        # The events of a task itself say to which process it belongs.
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
        # The CPU switched to task 8, but task 9 leaves it: a switch is missing.
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

    def test_tasks_that_have_not_come_back_are_told(self):
        events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN), switch(4 * MS, 8, 7), switch(5 * MS, 7, 9, state=0x10)]
        told = "tasks that had not come back at the end, so that their last times are missing (offwake has them): "
        self.assertIn(told + "1)", self.run_script("offcpu.py", events))
        self.assertNotIn(told, self.run_script("offcpu.py", events, "--comm", "task7"))

    def test_losses_and_unseen_switches_are_reported(self):
        events = [switch(1 * MS, 7, 8, _callchain=self.CHAIN), Lost(time=2 * MS), switch(4 * MS, 8, 7)]
        text = self.run_script("offcpu.py", events)
        self.assertIn("because events were lost or not read during them: 1, at most 3.000 ms)", text)
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


class OffWake(ScriptTest):
    def wait(self, us, state="sleeping", waker="pong", comm="ping", at=0, **more):
        chain = [{"symbol": name, "dso": "/bin/app", "kernel": False} for name in ("schedule", "read")]
        waking = SimpleNamespace(_callchain=[{"symbol": "write", "dso": "/bin/app"}])
        times = {"begin": SimpleNamespace(_time=at * 1000), "duration": us * 1000, "_time": (at + us) * 1000, "waited": 0}
        tasks = {"comm": comm, "pid": 7, "waker_comm": waker, "waker_pid": 8 if waker else -1}
        parts = {"between": [waking] if waker else [], "_callchain": chain, "open": False}
        return SimpleNamespace(state=state, **times | tasks | parts | more)

    def test_a_wait_has_the_stacks_of_both_tasks(self):
        rows = self.on_spans("offwake.py", "offcpu", [self.wait(3000), self.wait(1000), self.wait(5000, "preempted")])
        expected = ["0.004 s 100.0% ping", "schedule", "read", "woken by pong", "write", "0.004 s off CPU in 1 stacks"]
        self.assertEqual([" ".join(row) for row in rows if row], expected)
        rows = self.on_spans("offwake.py", "offcpu", [self.wait(10, waker=""), self.wait(3000)], "--min", "100")
        self.assertEqual(rows[0], "0.003 s 100.0% ping".split())

    def test_a_wait_that_has_not_ended_counts_as_long_as_it_was_and_is_told(self):
        waits = [self.wait(3000), self.wait(1000, waker="", open=True)]
        rows = [" ".join(row) for row in self.on_spans("offwake.py", "offcpu", waits)]
        self.assertEqual(rows[5:9], ["0.001 s 25.0% ping", "schedule", "read", "not woken yet"])
        self.assertIn("(at least: waits that had not ended at the end, and last longer: 1)", rows)

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
        # Frames above an interrupt that the task itself caused stay in the stack.
        waker = SimpleNamespace(_callchain=frames("asm_sysvec_call_function", "write"))
        self.assertIn(" write\n", self.run_on_spans("offwake.py", "offcpu", [self.wait(10, between=[waker])]))

    def test_a_waker_that_waited_itself_is_followed(self):
        own = self.wait(2000, waker="slow", comm="pong", at=500, pid=8, waker_pid=9)
        text = self.run_on_spans("offwake.py", "offcpu", [own, self.wait(3000)], "--comm", "ping", "--by-thread")
        self.assertIn("  ping 7\n", text)
        self.assertLess(text.index("woken by pong 8\n"), text.index("which waited for slow 9\n"))
        # A short wait of the waker did not delay the task that it woke.
        own = self.wait(1000, waker="slow", comm="pong", at=500, pid=8, waker_pid=9)
        text = self.run_on_spans("offwake.py", "offcpu", [own, self.wait(3000)], "--comm", "ping")
        self.assertNotIn("which waited for", text)


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


class RunqueueMetrics(ScriptTest):
    def test_a_wait_is_counted_by_the_name_of_its_task(self):
        ends = [(2, 7), (5, 8), (9, 7)]
        waits = [
            make_event("runqueue", formats="shipped", begin=wakeup(MS, tid), end=switch(end * MS, 0, tid)) for end, tid in ends
        ]
        module = run_script(os.path.join(SCRIPTS, "runqueue_metrics.py"), waits).module
        counts = {comm: (waits.count, waits.sum) for comm, waits in module.runqueue.items()}
        self.assertEqual(counts, {"task7": (2, 9 * MS), "task8": (1, 4 * MS)})


if __name__ == "__main__":
    unittest.main()
