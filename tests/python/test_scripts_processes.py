"""Unit tests of the scripts about processes, their signals and their rights."""

import os
import unittest

from perf_prof.testing import run_script
from script_testing import MS, SCRIPTS, ScriptTest, clock, make, system_call


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
        # No event shows the fork of the second process, so its parent is not known.
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
        # The process has another name when it gets the signal.
        thread = make("task:task_newtask", 2, pid=6, comm="other", clone_flags=0x10000, _pid=5, _tid=5)
        rows = self.rows("killsnoop.py", [created, thread, self.kill(3, 4, 9, 15)])
        self.assertEqual(rows[1][-2:], ["deploy", "5"])


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


if __name__ == "__main__":
    unittest.main()
