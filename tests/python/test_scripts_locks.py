"""Unit tests of the scripts about locks, interrupts, disks and connections."""

import json
import os
import tempfile
import unittest
from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace

from perf_prof.testing import make_event, run_script
from script_testing import ENDS_EARLY, MS, SCRIPTS, SECOND, ScriptTest, make


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
        # Half of the call chains end early, and the warning needs more than half. Call chains with frames of the kernel
        # alone do not count.
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
        # The waiter's call may end before or after the call that wakes it.
        for calls in [other, wait, wake], [other, wake, wait]:
            rows = self.on_spans("lockstat.py", "syscall", calls)
            self.assertEqual(rows[2], "held: 100% writer 7: flush".split())
        # A call that wakes nobody, and a call that ended before the wait.
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
        # A function of an extension is nearer to the wait than the Python function, so the row names it.
        rows = self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, *inner, dso="/usr/lib/ext.so")])
        self.assertEqual(rows[1][5:], ["PyThread_acquire_lock_timed"])
        rows = self.on_spans("lockstat.py", "syscall", [self.futex(3, 0, "take_gil", dso="/usr/bin/python3.12")])
        self.assertEqual(rows[1][5:], ["take_gil"])


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
                self.assertIn("5 values, ", file.read())


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


class TcpLife(ScriptTest):
    def connection(self, sport=40000, reset="", retransmits=0, connect=2 * MS, states="SYN_SENT=2 ESTABLISHED=5 TIME_WAIT=0"):
        return SimpleNamespace(
            _realtime=SECOND, comm="app", pid=7, role="client", saddr="10.0.0.1", sport=sport, daddr="::1", dport=443,
            connect=connect, duration=7 * MS, retransmits=retransmits, reset=reset, states=states, open=False,
        )  # fmt: skip

    def test_a_connection_has_its_ends_and_how_it_ended(self):
        connections = [self.connection(), self.connection(40001, reset="received"), self.connection(40002, retransmits=3)]
        rows = self.on_spans("tcplife.py", "tcp", connections)
        expected = ["app", "7", "client", "10.0.0.1:40000", "[::1]:443", "2.00", "7.00", "0", "closed"]
        self.assertEqual(rows[0][1:], expected)
        self.assertEqual(rows[1][-2:], ["reset", "received"])
        self.assertEqual(self.on_spans("tcplife.py", "tcp", connections, "--bad"), rows[1:])
        self.assertEqual(self.on_spans("tcplife.py", "tcp", connections, "--port", "40002"), rows[2:])

    def test_a_connection_with_changes_that_were_not_delivered_says_so(self):
        connection = self.connection(connect=None, states="unknown=2 ESTABLISHED=0 CLOSE_WAIT=1 LAST_ACK=4")
        for options in (), ("--bad",):
            [row] = self.on_spans("tcplife.py", "tcp", [connection], *options)
            self.assertEqual((row[6], row[9:]), ("-", ["closed,", "not", "all", "seen"]))


if __name__ == "__main__":
    unittest.main()
