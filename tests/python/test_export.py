"""Tests of the output of `perf-prof export`, with Python's csv and json, and with Perfetto's own definitions.

Needs root for the kernel's tracepoints.
"""

import csv
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import perf_prof as pp

try:
    from test_timeline import perfetto
except ImportError:
    perfetto = None

# Sleeps eight times, and makes system calls between the sleeps.
WORK = "for i in 1 2 3 4 5 6 7 8; do sleep 0.005; done"
EVENTS = ["sched:sched_switch", "sched:sched_wakeup", "sched:sched_process_exec", "cpu-clock"]


class Tables:
    """The tables that Perfetto's trace processor fills from the packets of a trace. The code follows
    `ftrace_sched_event_tracker.cc`, `thread_state_tracker.cc` and `process_tracker.cc`."""

    def __init__(self, trace):
        self.sched, self.thread_state, self.instants, self.ended = [], [], [], {}
        self.threads, self.processes, self.system, self.realtime = {}, {}, None, None
        tracks, names, events = {}, {}, []
        for packet in trace.packet:
            names |= {name.iid: name.name for name in packet.interned_data.event_names}
            if packet.HasField("system_info"):
                self.system = packet.system_info
            if packet.HasField("clock_snapshot"):
                boot, wall = sorted(packet.clock_snapshot.clocks, key=lambda clock: -clock.clock_id)
                self.realtime = boot.timestamp, wall.timestamp
            for thread in packet.process_tree.threads:
                self.threads[thread.tid] = thread.name, thread.tgid
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.HasField("process"):
                    self.processes[track.process.pid] = track.process.process_name
                else:
                    tracks[track.uuid] = track.thread.tid
            if packet.HasField("track_event"):
                self.instants.append((tracks[packet.track_event.track_uuid], packet.timestamp, names[packet.track_event.name_iid]))
            cpu = packet.ftrace_events.cpu
            events += [(event.timestamp, cpu, event) for event in packet.ftrace_events.event]
        self.fill(sorted(events, key=lambda event: event[0]))

    def fill(self, events):
        running, states = {}, {}

        def state(tid, new, time):
            if tid:
                old, since = states.get(tid, (None, 0))
                if old is not None:
                    self.thread_state.append((tid, old, since, time))
                states[tid] = new, time

        for time, cpu, event in events:
            kind = event.WhichOneof("event")
            of = getattr(event, kind)
            if kind == "sched_switch":
                if cpu in running:
                    # If another task left the CPU, Perfetto would extend the slice to the end of the trace.
                    assert running[cpu][1] == of.prev_pid
                    self.sched.append((*running[cpu], time, of.prev_state))
                running[cpu] = cpu, of.next_pid, time
                state(of.prev_pid, of.prev_state, time)
                state(of.next_pid, "Running", time)
            elif kind == "sched_waking" and states.get(of.pid, (1, 0))[0] not in ("R", "Running", 0, 0x100):
                state(of.pid, "R", time)
            elif kind == "sched_process_free":
                self.ended[of.pid] = time


@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.recording = cls.path / "perf.data"
        pp.record(*EVENTS, output=cls.recording, exec=["sh", "-c", WORK], freq=997, call_graph=True)
        with pp.replay(cls.recording) as events:
            cls.events = [(event._event, event._time, event._cpu, event._tid, event._comm, event.to_dict()) for event in events]

    def export(self, *args, check=True):
        args = args if "-i" in args else ("-i", str(self.recording), *args)
        command = [sys.executable, "-m", "perf_prof", "export", *args]
        done = subprocess.run(command, capture_output=True, cwd=self.path, timeout=120, check=False)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_lines_of_json_have_the_values_of_events(self):
        self.export("-o", "x.ndjson")
        rows = [json.loads(line) for line in (self.path / "x.ndjson").read_text().splitlines()]
        self.assertEqual(len(rows), len(self.events))
        for row, (name, time, cpu, tid, comm, fields) in zip(rows, self.events):
            self.assertEqual((row["_event"], row["_time"], row["_cpu"], row["_tid"], row["_comm"]), (name, time, cpu, tid, comm))
            self.assertTrue(row["_callchain"])
            for field, value in row.items():
                if not field.startswith("_"):
                    self.assertEqual(value, fields[field], (name, field))

    def test_a_table_has_a_column_for_each_field(self):
        self.export("-o", "x.csv.gz", "-e", "sched:sched_switch,sched:sched_wakeup")
        with gzip.open(self.path / "x.csv.gz", "rt") as file:
            rows = list(csv.DictReader(file))
        expected = [event for event in self.events if event[0].startswith(("sched:sched_switch", "sched:sched_wakeup"))]
        self.assertEqual(len(rows), len(expected))
        for row, (name, time, *_, fields) in zip(rows, expected):
            self.assertEqual((row["_event"], int(row["_time"])), (name, time))
            lacking = {"comm", "pid"} if name == "sched:sched_switch" else {"prev_comm", "next_pid"}
            self.assertEqual({row[column] for column in lacking}, {""})
            present = "next_pid" if name == "sched:sched_switch" else "pid"
            self.assertEqual(int(row[present]), fields[present])

    def test_texts_are_no_formulas_of_a_spreadsheet_on_request(self):
        path = self.path / "formula.data"
        name = "import sys; open('/proc/self/comm', 'w').write('=1+1'); import os; os.getpgid(0)"
        pp.record("syscalls:sys_exit_getpgid", output=path, exec=[sys.executable, "-c", name])
        for options, comm in [((), "=1+1"), (("--spreadsheet",), "'=1+1")]:
            self.export("-o", "x.csv", "-i", str(path), *options)
            with open(self.path / "x.csv") as file:
                rows = list(csv.DictReader(file))
            # CSV files contain numbers as digits. Negative numbers keep their sign.
            self.assertEqual([row["_comm"] for row in rows], [comm])
            self.assertTrue(rows[0]["ret"].lstrip("-").isdigit())
        done = self.export("-o", "x.parquet", "-i", str(path), "--spreadsheet", check=False)
        self.assertIn(b"--spreadsheet changes the texts of CSV tables", done.stderr)

    def tables(self, recording, *args):
        self.export("-o", "x.pftrace", "-i", str(recording), *args)
        return Tables(perfetto.Trace.FromString((self.path / "x.pftrace").read_bytes()))

    @unittest.skipUnless(perfetto, "perfetto is not installed")
    def test_perfettos_tables_are_filled_with_scheduling_tasks_and_their_ends(self):
        for call_graph in False, True:
            with self.subTest(call_graph=call_graph):
                self.check_tables(call_graph)

    def check_tables(self, call_graph):
        # Other programs of this machine may sleep too.
        path, nap = self.path / "cpus.data", self.path / "nap-of-the-test"
        if not nap.exists():
            nap.symlink_to(shutil.which("sleep"))
        options = {"cpus": sorted(os.sched_getaffinity(0)), "mmap_pages": "8M", "call_graph": call_graph}
        events = [*EVENTS[:3], "sched:sched_process_fork", "sched:sched_process_exit"]
        pp.record(*events, output=path, exec=["sh", "-c", WORK.replace("sleep", str(nap))], **options)
        with pp.replay(path) as events:
            rows = [(event._event, event._time, event._cpu, event._tid, event._realtime, event.to_dict()) for event in events]
            self.assertEqual(events.lost, 0)
        tables = self.tables(path)
        self.check_scheduling(tables, rows)
        names = {tid: name for tid, (name, _) in tables.threads.items()}
        for name, _, _, tid, _, fields in rows:
            if name == "sched:sched_process_exec":
                self.assertEqual((names[tid], tables.processes[tid]), (tables.threads[tid][0],) * 2)
        slept = [tid for tid, name in names.items() if name == nap.name]
        asleep = {tid for tid, state, start, end in tables.thread_state if state == 1 and end - start >= 5_000_000}
        self.assertEqual((len(slept), len(asleep & set(slept))), (8, 8))
        # The trace reports the end of each process, so Perfetto shows no process as a zombie until the end of the
        # trace.
        exited = {of["prev_pid"] for name, *_, of in rows if name == "sched:sched_switch" and of["prev_state"] & 0x30}
        self.assertLessEqual(set(slept) - {rows[-1][3]}, exited)
        self.assertEqual(set(tables.ended), exited)
        self.check_selected(path, tables, slept, rows)
        self.assertEqual(tables.realtime, (rows[0][1], rows[0][4]))
        self.assertEqual(tables.system.utsname.release, os.uname().release)

    def check_selected(self, path, tables, slept, rows):
        """The trace of a process has the times of the trace of all tasks, although switches to it are events of others."""
        for tid in slept[:2]:
            selected = self.tables(path, "-p", str(tid))
            of_task = lambda tables: [row for row in tables.sched if row[1] == tid]
            self.assertEqual(of_task(selected), of_task(tables))
            self.assertTrue(of_task(selected))
            self.assertEqual({row[0] for row in selected.thread_state}, {tid})
            states = lambda tables: [row for row in tables.thread_state if row[0] == tid]
            self.assertEqual(states(selected), states(tables))
        # The shell has created them.
        parents = {of["child_pid"]: of["parent_pid"] for name, *_, of in rows if name == "sched:sched_process_fork"}
        with_children = self.tables(path, "-p", str(parents[slept[0]]))
        self.assertLessEqual(set(slept), {row[1] for row in with_children.sched})
        # A task gets its name while it is on a CPU. If the kernel did not report the switch to it, its slice begins then.
        by_name = self.tables(path, "-c", "nap-of-the-test")
        self.assertEqual({row[1] for row in by_name.sched} - {0}, set(slept))
        ends = lambda tables: {(cpu, tid, end) for cpu, tid, _, end, _ in tables.sched if tid in slept}
        self.assertLessEqual(ends(by_name), ends(tables))

    def check_scheduling(self, tables, rows):
        # Where the kernel reports no switch, perf-prof adds one for Perfetto. So there may be more slices than
        # switches.
        switches = [row for row in rows if row[0] == "sched:sched_switch"]
        ends = {(cpu, fields["prev_pid"], time, fields["prev_state"]) for _, time, cpu, *_, fields in switches}
        self.assertLessEqual(ends - {(cpu, tid, end, state) for cpu, tid, _, end, state in tables.sched}, self.first_of(switches))
        starts = {(cpu, fields["next_pid"], time) for _, time, cpu, *_, fields in switches}
        last = {cpu: (cpu, fields["next_pid"], time) for _, time, cpu, *_, fields in switches}
        self.assertLessEqual(starts - {row[:3] for row in tables.sched}, set(last.values()))
        for cpu in last:
            slices = sorted(row[2:4] for row in tables.sched if row[0] == cpu)
            self.assertTrue(all(end == start for (_, end), (start, _) in zip(slices, slices[1:])), slices)
        woken = {(fields["pid"], time) for name, time, *_, fields in rows if name == "sched:sched_wakeup"}
        runnable = {(tid, start) for tid, state, start, _ in tables.thread_state if state == "R"}
        self.assertTrue(runnable and runnable <= woken)

    @unittest.skipUnless(perfetto, "perfetto is not installed")
    def test_a_window_of_time_has_the_tasks_that_are_on_a_cpu_where_it_begins_and_ends(self):
        path, burn = self.path / "burn.data", "import time\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end: pass"
        options = {"cpus": sorted(os.sched_getaffinity(0)), "mmap_pages": "8M"}
        pp.record("sched:sched_switch", output=path, exec=[sys.executable, "-c", burn], **options)
        # The longest slice that ends with a switch, and the first one after it. Of this program, or of another one.
        ended = sorted((row for row in self.tables(path).sched if row[1] and not row[4] & 0x8000), key=lambda row: row[2])
        longest = max(ended, key=lambda row: row[3] - row[2])
        after = next((row for row in ended if row[:2] == longest[:2] and row[2] >= longest[3]), longest)
        middle, later = [(start + end) // 2 for _, _, start, end, _ in (longest, after)]
        for first, last in [(middle, middle + 1000), (middle, max(later, middle + 1000))]:
            seconds = ",".join(f"{time // 10**9}.{time % 10**9:09}" for time in (first, last))
            window = self.tables(path, "--time", seconds)
            shown = [row for row in ended if row[:2] == longest[:2] and row[2] < last and row[3] > first]
            expected = [(max(start, first), min(end, last)) for _, _, start, end, _ in shown]
            # Where the kernel reports no switch away, a slice is shorter than it was.
            slices = [row for row in window.sched if row[:2] == longest[:2] and (row[3] == last or not row[4] & 0x8000)]
            self.assertEqual([row[2:4] for row in slices], expected)
            self.assertIn(longest[1], window.threads)
        self.assertEqual(self.tables(path, "--time", "999999999,").threads, {}, "the recording ended before")
        several = self.export("-o", "x.pftrace", "-i", str(path), "--time", "10%-20%,30%-40%", check=False)
        self.assertIn(b"a trace for Perfetto shows one range of time, and 2 are selected", several.stderr)
        # A task that left the CPU may run on another one.
        states = {state for tid, state, *_ in self.tables(path, "-C", str(longest[0])).thread_state}
        self.assertLessEqual(states, {"Running", 0x8000, 0x10, 0x20})

    def first_of(self, switches):
        """Returns the first switch of each CPU. Perfetto does not know when the task that leaves the CPU got it, so it
        makes no slice."""
        firsts = {}
        for _, time, cpu, *_, fields in switches:
            firsts.setdefault(cpu, (cpu, fields["prev_pid"], time, fields["prev_state"]))
        return set(firsts.values())

    @unittest.skipUnless(perfetto, "perfetto is not installed")
    def test_other_events_are_instants_of_their_threads(self):
        tables = self.tables(self.recording)
        execs = [(tid, time) for name, time, _, tid, *_ in self.events if name == "sched:sched_process_exec"]
        self.assertEqual([(tid, time) for tid, time, name in tables.instants if name == "sched:sched_process_exec"], execs)

    def test_the_firefox_profiler_gets_samples_and_markers(self):
        self.export("-o", "x.json.gz")
        profile = json.loads(gzip.decompress((self.path / "x.json.gz").read_bytes()))
        samples = sum(thread["samples"]["length"] for thread in profile["threads"])
        markers = sum(thread["markers"]["length"] for thread in profile["threads"])
        clock = len([event for event in self.events if event[0] == "cpu-clock"])
        self.assertEqual((samples, markers), (clock, len(self.events) - clock))
        self.assertIn("sleep", {thread["name"] for thread in profile["threads"]})
        with pp.replay(self.recording) as events:
            self.assertAlmostEqual(profile["meta"]["startTime"], next(iter(events))._realtime / 1e6, delta=1)
        self.assertEqual(profile["meta"]["markerSchema"][0]["name"], "tracepoint")

    def test_mistakes_are_told(self):
        for args, status, text in [
            (["-o", "x.foo"], 2, "the name of x.foo does not tell the format"),
            (["-o", "-"], 2, "--format says what is written to the standard output"),
            (["-o", "x.csv", "-e", "sched:sched_swich"], 1, "sched_switch"),
            (["-o", "missing/x.csv"], 1, "missing"),
            ([], 2, "--output"),
        ]:
            done = self.export(*args, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(text, done.stderr.decode())

    def test_a_reader_may_close_its_pipe(self):
        shell = f"{sys.executable} -m perf_prof export -i {self.recording} -o - --format ndjson | head -n 1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, timeout=120, check=False)
        self.assertEqual((done.stderr, done.returncode), (b"", 0))
        self.assertEqual(json.loads(done.stdout)["_event"], self.events[0][0])


if __name__ == "__main__":
    unittest.main()
