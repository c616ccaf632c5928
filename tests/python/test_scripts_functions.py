"""Unit tests of the scripts about functions, their faults and their memory."""

import json
import os
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest import mock

from perf_prof.testing import make_event, run_script
from script_testing import MS, SCRIPTS, SECOND, ScriptTest, clock, make


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


class UprobeLatency(ScriptTest):
    FUNCTION = "function:getaddrinfo@libc"

    def call(self, start, end, tid=7, at=0x401230, frame=0x7FF0):
        # On x86, a return takes the return address off the stack, so the frame is 8 bytes higher.
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
        """Returns what the script prints for function calls, each given as (function, begin, end, members)."""
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

    def test_tables_whose_calls_are_missing_are_partial(self):
        with mock.patch("perf_prof.script.missing", lambda: "5 spans are missing"):
            self.assertIn("(at least: 5 spans are missing)", self.run_on([self.malloc(1, 0x10, 1000)]))
            lines = self.run_on([self.malloc(1, 0x10, 1000)], "--json").splitlines()
        self.assertEqual(json.loads(lines[1]), {"partial": True, "note": "5 spans are missing"})

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
        # realloc() freed the old address before it returned, so another thread got this address during the call.
        calls = [self.malloc(1, 0x10, 1000), self.malloc(3, 0x10, 50)]
        calls.append(("function__realloc", 2, 4, {"ret": 0x20, "old": 0x10, "size": 3000}))
        self.assertIn("3,050 bytes in 2 allocations", self.run_on(calls))

    def test_a_loss_forgets_what_may_have_been_freed(self):
        module = run_script(os.path.join(SCRIPTS, "mallocleak.py"), [make("page-faults", 0)], []).module
        module.live[7, 1] = (1, ("x",), 0)
        module.__lost__(0, 1)
        with redirect_stdout(StringIO()) as out:
            module.__exit__()
        self.assertIn("(allocations that are no longer counted, because events that were lost or not read may have freed them: 1)", out.getvalue())


if __name__ == "__main__":
    unittest.main()
