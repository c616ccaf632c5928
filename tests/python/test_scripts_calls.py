"""Unit tests of the scripts about system calls and files."""

import json
import os
import unittest
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace

from perf_prof import errno_name, syscall_nr
from perf_prof.testing import Lost, run_script
from script_testing import MS, SCRIPTS, ScriptTest, clock, make, system_call


class Syscalls(ScriptTest):
    def enter(self, time, number, tid=7, cpu=0):
        return make("raw_syscalls:sys_enter", time, id=number, _tid=tid, _cpu=cpu)

    def exit(self, time, number, ret=0, tid=7, cpu=0):
        return make("raw_syscalls:sys_exit", time, id=number, ret=ret, _tid=tid, _cpu=cpu)

    def test_calls_are_counted_and_timed(self):
        read = syscall_nr("read")
        events = [self.enter(0, read), self.exit(3000, read, ret=10), self.enter(5000, read), self.exit(6000, read, -4)]
        rows = self.rows("syscalls.py", events)
        self.assertEqual(rows[1], ["read", "2", "4.000", "us", "2.000", "us", "3.000", "us", "EINTR:1"])
        self.assertEqual(rows[2], "2 calls of 1 kinds".split())

    def test_json_has_an_object_for_each_call_and_for_what_is_missing(self):
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
        self.assertIn("(calls that are not timed, because events were lost or not read during them: 1)", text)


class SlowCalls(ScriptTest):
    def span(self, name, ms, ret, *words, chain=()):
        args = tuple(word % 2**64 for word in (*words, 0, 0, 0, 0, 0, 0)[:6])
        call = dict(name=name, args=args, ret=ret, errno=errno_name(ret) if ret < 0 else "")
        return SimpleNamespace(duration=ms * MS, comm="app", _tid=7, _realtime=5 * MS, _callchain=list(chain), **call)

    def test_a_call_has_its_arguments_by_name_and_its_error(self):
        spans = [self.span("read", 2, -4, 3, 0x7F00, 10), self.span("openat", 3, 5, -100, 0x10, 0x80000, 0o640)]
        rows = self.on_spans("slowcalls.py", "syscall", spans)
        start = [f"{clock(0)}.005", "app", "7"]
        self.assertEqual(rows[0], [*start, *"2.000 read(fd=3, buf=0x7f00, count=10) = EINTR".split()])
        expected = "3.000 openat(dfd=AT_FDCWD, filename=0x10, flags=0x80000, mode=0640) = 5"
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
        named = self.run_script("opensnoop.py", calls, "--name", "/b").splitlines()
        self.assertEqual(named[2:], ["(opens whose path is not known, or cut, so --name cannot be compared: 1)"])

    def test_json_has_an_object_for_each_call(self):
        rows = self.run_script("opensnoop.py", [self.open(1000, 3500, -2), self.open(5000, 6000, 3)], "--json")
        objects = [json.loads(line) for line in rows.splitlines()]
        self.assertEqual([(row["took"], row["result"], row["flags"]) for row in objects], [(2500, "ENOENT", "O_RDONLY"), (1000, "3", "O_RDONLY")])


class FileLife(ScriptTest):
    def files(self, *calls):
        """Returns what the script prints for system calls, each given as (time, thread, name, arguments). The number of a thread
        from 100 on is also the number of its mount namespace."""
        module = run_script(os.path.join(SCRIPTS, "filelife.py"), [make("page-faults", 0)], ()).module
        with redirect_stdout(StringIO()) as out:
            for time, tid, name, *args in calls:
                module.syscall(system_call(name, time, time, 0, *args, tid=tid, comm=f"task{tid}", mnt_ns=tid if tid >= 100 else 0))
            module.__exit__()
        return out.getvalue()

    def test_a_file_is_removed_by_another_task(self):
        created = ("openat", -100, "/tmp/x", os.O_CREAT)
        text = self.files((MS, 1, *created), (6 * MS, 2, "unlink", "/tmp//x"))
        self.assertEqual(text.split()[1:], ["5.00", "task1", "1?", "task2", "2", "/tmp/x"])

    def test_equal_paths_of_two_mount_namespaces_are_two_files(self):
        creates = (MS, 100, "creat", "/x"), (2 * MS, 200, "creat", "/x"), (2 * MS, 100, "creat", "/y")
        text = self.files(*creates, (3 * MS, 200, "unlink", "/x"), (4 * MS, 200, "unlink", "/x"), (5 * MS, 200, "unlink", "/y"))
        row, *notes = text.splitlines()
        self.assertEqual(row.split()[1:], ["1.00", "task200", "200?", "task200", "200", "/x", "(mnt", "200)"])
        self.assertEqual(notes, ["(removals that are not shown, whose path another mount namespace (container) created: 2)"])

    def test_removals_that_are_not_shown_are_counted_by_their_reason(self):
        text = self.files(
            (1, 1, "openat", -100, "/tmp/old", 0), (2, 2, "unlink", "/tmp/old"), (3, 2, "unlink", 1),
            (4, 2, "unlinkat", 5, "there"), (5, 2, "unlinkat", 5, "folder", 0x200), (6, 2, "rename", "/a", "/b"),
        )  # fmt: skip
        reasons = "of files whose creation was not seen", "of relative paths whose folder is not known", "whose path could not be read"
        counts = ["1", "1 (there)", "1"]
        lines = [f"(removals that are not shown, {reason}: {count})\n" for reason, count in zip(reasons, counts)]
        self.assertEqual(text, "".join(lines))

    def test_a_relative_path_is_not_that_of_the_folder_before(self):
        created = ("openat", -100, "x", os.O_CREAT)
        text = self.files((MS, 1, *created), (2 * MS, 1, "chdir", "other"), (3 * MS, 1, "unlink", "x"))
        self.assertEqual(text, "(removals that are not shown, of relative paths whose folder is not known: 1 (x))\n")
        text = self.files((MS, 1, "chdir", "/a"), (2 * MS, 1, *created), (3 * MS, 1, "chdir", "b/c"), (4 * MS, 1, "unlink", "/a/x"))
        self.assertEqual(text.split()[1:], ["2.00", "task1", "1?", "task1", "1", "/a/x"])

    def removals(self, *calls):
        """Returns the age in ms and the path of each removed file."""
        rows = [line.split() for line in self.files(*((time * MS, 1, *call) for time, *call in calls)).splitlines()]
        return [(float(row[1]), row[-1]) if ":" in row[0] else " ".join(row) for row in rows]

    def test_a_renamed_file_keeps_its_age(self):
        create, again = (0, "creat", "/log"), (5, "creat", "/log")
        renames = (
            ("rename", "/log", "/log.1"), ("renameat", 3, "/log", 4, "/log.1"), ("renameat2", -100, "/log", -100, "/log.1", 0),
        )  # fmt: skip
        for rename in renames:
            calls = create, (4, *rename), again, (6, "unlink", "/log"), (9, "unlink", "/log.1")
            self.assertEqual(self.removals(*calls), [(1.0, "/log"), (9.0, "/log.1")])
        calls = create, (1, "chdir", "/"), (2, "rename", "log", "./log.1"), (3, "unlink", "/log.1")
        self.assertEqual(self.removals(*calls), [(3.0, "/log.1")])

    def test_the_file_that_a_rename_replaces_is_removed(self):
        old, new = (0, "creat", "/old"), (3, "creat", "/new")
        self.assertEqual(self.removals(old, new, (7, "rename", "/new", "/old"), (8, "unlink", "/old")), [(7.0, "/old"), (5.0, "/old")])
        self.assertEqual(self.removals(old, (4, "rename", "/before", "/old")), [(4.0, "/old")])
        self.assertEqual(self.removals(old, (4, "rename", "/old", "/old"), (5, "unlink", "/old")), [(5.0, "/old")])
        exchange = 4, "renameat2", -100, "/new", -100, "/old", 2
        calls = old, new, exchange, (8, "unlink", "/new"), (9, "unlink", "/old")
        self.assertEqual(self.removals(*calls), [(8.0, "/new"), (6.0, "/old")])

    def test_a_file_whose_new_path_is_not_known_is_not_mistaken_for_another(self):
        calls = (0, "creat", "/a"), (1, "rename", "/a", 7), (2, "creat", "/a"), (5, "unlink", "/a"), (6, "unlink", "/b")
        self.assertEqual(self.removals(*calls), [(3.0, "/a"), "(removals that are not shown, of files whose creation was not seen: 1)"])

    def test_files_whose_long_names_begin_equally_are_not_paired(self):
        cut = "/" + "x" * 254 + "..."
        calls = (0, "creat", cut), (1, "creat", "/a"), (2, "rename", "/a", cut), (3, "unlink", cut)
        self.assertEqual(self.removals(*calls), ["(removals that are not shown, whose name is cut off: 1)"])


class FailedCallsMetrics(ScriptTest):
    def test_only_calls_that_fail_are_counted(self):
        calls = [system_call("openat", MS, 2 * MS, ret, -100, "/x", 0) for ret in (3, -2, -2, -13, -512, -516)]
        calls.append(system_call("rt_sigreturn", 3 * MS, 4 * MS, -4))
        module = run_script(os.path.join(SCRIPTS, "failed_calls_metrics.py"), calls).module
        self.assertEqual(module.failed_calls.to_dict(), {("openat", -2, "app"): 2, ("openat", -13, "app"): 1})


if __name__ == "__main__":
    unittest.main()
