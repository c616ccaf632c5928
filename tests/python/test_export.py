"""`perf-prof export`, read by other programs: csv, json, and the definitions of Perfetto.

Needs root for the kernel's tracepoints.
"""

import csv
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perf_prof as pp

try:
    from test_timeline import Reader, perfetto
except ImportError:
    perfetto = None

# Sleeps eight times, and makes system calls in between.
WORK = "for i in 1 2 3 4 5 6 7 8; do sleep 0.005; done"
EVENTS = ["sched:sched_switch", "sched:sched_wakeup", "sched:sched_process_exec", "cpu-clock"]


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
        command = [sys.executable, "-m", "perf_prof", "export", "-i", str(self.recording), *args]
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

    @unittest.skipUnless(perfetto, "perfetto is not installed")
    def test_a_timeline_has_a_slice_for_each_time_on_a_cpu(self):
        self.export("-o", "x.pftrace")
        read = Reader(perfetto.Trace.FromString((self.path / "x.pftrace").read_bytes()))
        switches = [event for event in self.events if event[0] == "sched:sched_switch"]
        expected, running = [], {}
        for _, time, cpu, _, _, fields in switches:
            since, comm, tid = running.get(cpu, (0, "", 0))
            if tid:
                expected.append((f"CPUs/CPU {cpu}", comm, since, time - since, {"tid": tid}))
            running[cpu] = time, fields["next_comm"], fields["next_pid"]
        last = self.events[-1][1]
        expected += [
            (f"CPUs/CPU {cpu}", comm, since, last - since, {"tid": tid})
            for cpu, (since, comm, tid) in running.items()
            if tid
        ]
        slices = [of for of in read.slices if of[0].startswith("CPUs/")]
        self.assertEqual(sorted(slices, key=repr), sorted(expected, key=repr))
        sleeping = [of for of in read.slices if of[1] == "sleeping" and of[0].startswith("threads/sleep ")]
        self.assertTrue([of for of in sleeping if of[3] >= 5_000_000])
        execs = [event for event in self.events if event[0] == "sched:sched_process_exec"]
        self.assertEqual(len([of for of in read.instants if of[1] == "sched:sched_process_exec"]), len(execs))

    def test_the_firefox_profiler_gets_samples_and_markers(self):
        self.export("-o", "x.json.gz")
        profile = json.loads(gzip.decompress((self.path / "x.json.gz").read_bytes()))
        samples = sum(thread["samples"]["length"] for thread in profile["threads"])
        markers = sum(thread["markers"]["length"] for thread in profile["threads"])
        clock = len([event for event in self.events if event[0] == "cpu-clock"])
        self.assertEqual((samples, markers), (clock, len(self.events) - clock))
        self.assertIn("sleep", {thread["name"] for thread in profile["threads"]})
        self.assertEqual(profile["meta"]["markerSchema"][0]["name"], "tracepoint")

    def test_mistakes_are_told(self):
        for args, status, text in [
            (["-o", "x.foo"], 2, "the name of x.foo does not say what is written"),
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
