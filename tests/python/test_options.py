"""Tests of the keywords of trace, replay and run: each of them does what the command-line option with the same name
does."""

import os
import pathlib
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings

import perf_prof as pp
from library_testing import needs_root, use_memory

KERNEL = 1 << 63


class Targets(unittest.TestCase):
    def test_a_thread_or_several(self):
        other = threading.Event()
        ids = []

        def work():
            ids.append(threading.get_native_id())
            other.wait()
            use_memory()

        thread = threading.Thread(target=work)
        thread.start()
        while not ids:
            time.sleep(0.001)
        own = threading.get_native_id()
        with pp.trace("page-faults:u", tid=ids[0], count=1) as one:
            with pp.trace("page-faults:u", tid=[own, ids[0]], count=1) as both:
                use_memory()
                other.set()
                thread.join()
                for events in (one, both):
                    events.stop()
                self.assertEqual({event._tid for event in one}, {ids[0]})
                self.assertEqual({event._tid for event in both}, {own, ids[0]})

    @needs_root
    def test_cpus_are_a_list_or_a_text(self):
        allowed = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, allowed)
        cpu, own = min(allowed), os.getpid()
        for cpus in ([cpu], cpu, str(cpu), f"{cpu}-{cpu}"):
            with pp.trace("page-faults:u", cpus=cpus, count=1) as events:
                os.sched_setaffinity(0, {cpu})
                use_memory()
                os.sched_setaffinity(0, allowed)
                events.stop()
                found = list(events)
            self.assertEqual({event._cpu for event in found}, {cpu})
            self.assertGreater(sum(event._pid == own for event in found), 200)

    @needs_root
    def test_a_cgroup(self):
        roots = [pathlib.Path("/sys/fs/cgroup", name) for name in ("perf_event", "unified", "")]
        root = next((root for root in roots if (root / "cgroup.procs").exists()), None)
        if root is None:
            self.skipTest("no hierarchy of cgroups has the controller perf_event")
        group = root / f"perf-prof-test-{os.getpid()}"
        group.mkdir()
        self.addCleanup(group.rmdir)
        join = f"echo $$ >{group}/cgroup.procs; exec {sys.executable} -c pass"
        with pp.trace("page-faults:u", cgroup=group.name, count=1) as events:
            outside = os.spawnvp(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "pass"])
            inside = os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", join])
            for pid in (outside, inside):
                os.waitpid(pid, 0)
            events.stop()
            self.assertEqual({event._pid for event in events}, {inside})
        with pp.trace("page-faults:u", cgroup=f"/{group.name}", all_cgroups=True, count=1) as events:
            os.waitpid(os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", join]), 0)
            events.stop()
            paths = pp.Count("_cgroup")
            for event in events:
                paths.add(event)
        self.assertEqual(list(paths), [f"/{group.name}"])


class Samples(unittest.TestCase):
    @needs_root
    def test_selectors_have_filters_and_attributes(self):
        with pp.trace("syscalls:sys_enter_getpgid/pid>5/", "page-faults:u//stack/", pid=os.getpid(), count=1) as events:
            for pid in (4, 5, 6, 7):
                try:
                    os.getpgid(pid)
                except ProcessLookupError:
                    pass
            use_memory()
            events.stop()
            found = list(events)
        calls = [event.pid for event in found if event._event == "syscalls:sys_enter_getpgid"]
        faults = [event for event in found if event._event == "page-faults:u"]
        self.assertEqual(calls, [6, 7])
        self.assertGreater(len(faults), 200)
        self.assertTrue(all(event._callchain for event in faults))

    @needs_root
    def test_call_chains_and_their_halves(self):
        def halves(**options):
            name = pathlib.Path("/proc/self/comm")
            with pp.trace("task:task_rename", pid=os.getpid(), **options) as events:
                name.write_text(name.read_text())
                events.stop()
                frames = [frame["addr"] for event in events for frame in event._callchain or []]
            return any(address >= KERNEL for address in frames), any(address < KERNEL for address in frames)

        self.assertEqual(halves(), (False, False))
        for call_graph in (True, "fp"):
            self.assertEqual(halves(call_graph=call_graph), (True, True))
        self.assertEqual(halves(call_graph=True, user_callchain=False), (True, False))
        self.assertEqual(halves(kernel_callchain=False, user_callchain=True), (False, True))

    def test_stacks_that_are_unwound_by_dwarf(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1, call_graph="dwarf") as events:
            use_memory()
            events.stop()
            depths = [len(event._callchain) for event in events]
        self.assertGreater(max(depths), 3)

    def test_a_frequency_and_a_count(self):
        def samples(**options):
            with pp.trace("task-clock:u", pid=os.getpid(), **options) as events:
                start = time.process_time()
                while time.process_time() - start < 0.2:
                    pass
                events.stop()
                return sum(1 for _ in events)

        self.assertGreater(samples(freq=997), 5)
        # A sample for each 20 ms of CPU time (the period is in ns).
        self.assertLess(samples(count=20_000_000), 50)

    def test_times_of_the_monotonic_clock(self):
        before = time.monotonic_ns()
        with pp.trace("page-faults:u", pid=os.getpid(), count=1, monotonic=True) as events:
            use_memory()
            events.stop()
            times = [event._time for event in events]
        self.assertTrue(before < min(times) <= max(times) < time.monotonic_ns())

    def test_events_of_all_cpus_in_the_order_of_time(self):
        work = f"for i in 1 2 3 4; do {sys.executable} -c pass & {sys.executable} -c pass; wait; done"
        with pp.trace("page-faults:u", exec=["sh", "-c", work], count=1, order=True) as events:
            times = [event._time for event in events]
        self.assertGreater(len(times), 1000)
        self.assertEqual(times, sorted(times))

    def test_sizes_are_numbers_or_texts_with_a_unit(self):
        for options in ({"mmap_pages": 8, "buffer": 1 << 20}, {"mmap_pages": "32K", "buffer": "1M"}):
            with pp.trace("page-faults:u", pid=os.getpid(), count=1, **options) as events:
                use_memory()
                events.stop()
                self.assertGreater(sum(1 for _ in events), 200)


class Threads(unittest.TestCase):
    def test_each_thread_reads_its_own_trace(self):
        counts, errors = [], []

        def trace():
            try:
                with pp.trace("page-faults:u", tid=threading.get_native_id(), count=1) as events:
                    use_memory()
                    events.stop()
                    counts.append(sum(1 for _ in events))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=trace) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(len(counts), 8)
        self.assertGreaterEqual(min(counts), 256)

    def test_threads_that_share_a_trace_get_each_event_once(self):
        with pp.trace("page-faults:u", pid=os.getpid(), count=1) as events:
            use_memory()
            events.stop()
            found = []
            threads = [threading.Thread(target=lambda: found.extend(events)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(found), len({id(event) for event in found}))
        self.assertEqual(len(found), events.delivered)
        self.assertGreaterEqual(len(found), 256)


class Counts(unittest.TestCase):
    def test_a_count_has_its_times(self):
        counts = pp.stat("page-faults:u", "instructions:u", pid=os.getpid(), duration="50ms")
        faults, instructions = counts["page-faults:u"], counts["instructions:u"]
        self.assertTrue(0 < faults.running == faults.enabled)
        self.assertGreaterEqual(counts.elapsed, 0.05)
        # Many virtual machines have no counter of instructions.
        if instructions.value is None:
            self.assertFalse(instructions.is_supported)
            self.assertIn("not counted", counts._repr_html_())
        else:
            self.assertGreaterEqual(instructions.enabled, instructions.running)


class Replays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "perf.data"
        work = f"{sys.executable} -c pass & {sys.executable} -c pass; wait"
        pp.record("page-faults:u", "minor-faults:u", output=cls.path, exec=["sh", "-c", work], count=1)

    def times(self, *selectors, **options):
        with pp.replay(self.path, *selectors, **options) as events:
            return [event._time for event in events]

    def test_the_parts_of_a_recording_make_the_whole(self):
        whole = self.times()
        parts = [self.times(time=f"10%/{part}") for part in range(1, 11)]
        self.assertEqual(sum(parts, []), whole)
        first, last = whole[0] / 1e9, whole[-1] / 1e9
        self.assertEqual(self.times(time=(first - 1, last + 1)), whole)

    def test_the_cpus_of_a_recording_make_the_whole(self):
        cpus = range(os.cpu_count())
        parts = [self.times(cpus=[cpu]) for cpu in cpus]
        self.assertEqual(sorted(sum(parts, [])), self.times())
        self.assertEqual(self.times(cpus=f"0-{len(cpus) - 1}"), self.times())

    def test_one_of_several_events_is_selected(self):
        with pp.replay(self.path, "minor-faults:u") as events:
            self.assertEqual({event._event for event in events}, {"minor-faults:u"})
        with pp.replay(self.path) as events:
            self.assertEqual({event._event for event in events}, {"page-faults:u", "minor-faults:u"})

    def test_a_process_is_selected_with_its_new_children_and_a_thread_alone(self):
        with pp.replay(self.path) as events:
            pids = [event._pid for event in events]
        shell, children = pids[0], set(pids[1:]) - {pids[0]}
        self.assertEqual(len(children), 2)
        self.assertEqual((len(self.times(pid=shell)), len(self.times(tid=shell))), (len(pids), pids.count(shell)))
        for child in children:
            self.assertEqual(len(self.times(pid=child)), pids.count(child))

    def test_limit_is_a_number_of_events(self):
        self.assertEqual(len(self.times(limit=5)), 5)

    def test_a_replay_that_is_closed_early_gives_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pp.replay(self.path) as events:
                next(events)
            with pp.replay(self.path) as events:
                events.stop()
                self.assertLessEqual(len(list(events)), len(self.times()))

    def test_progress_is_that_of_tqdm_if_it_is_installed(self):
        shown = []
        fake = types.ModuleType("tqdm.auto")
        fake.tqdm = lambda events, **options: (shown.append(options["unit"]), events)[1]
        before = {name: sys.modules.get(name) for name in ("tqdm", "tqdm.auto")}

        def restore():
            for name, module in before.items():
                if module is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module

        self.addCleanup(restore)
        whole = self.times()
        sys.modules.update({"tqdm": types.ModuleType("tqdm"), "tqdm.auto": fake})
        self.assertEqual(self.times(progress=True), whole)
        self.assertEqual(shown, [" events"])
        # None in sys.modules makes the import fail.
        sys.modules["tqdm.auto"] = None
        self.assertEqual(self.times(progress=True), whole)

    def test_a_module_is_a_handler(self):
        module = types.ModuleType("handlers")
        exec("calls = []\ndef page_faults_u(event): calls.append(event)\ndef __exit__(): calls.append('exit')", vars(module))
        result = pp.run("page-faults:u", input=self.path, handlers=module)
        self.assertEqual(len(module.calls), result.delivered + 1)
        self.assertEqual(module.calls[-1], "exit")


if __name__ == "__main__":
    unittest.main()
