"""Tests of pprof profiles, which are read with Google's definitions of the messages.

Needs google-cloud-profiler in the environment of perf_prof, which contains these definitions, and root for the
kernel's tracepoints.
"""

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
    from googlecloudprofiler import profile_pb2
except ImportError:
    profile_pb2 = None


def read(path):
    return profile_pb2.Profile.FromString(gzip.decompress(pathlib.Path(path).read_bytes()))


def text(profile, index):
    return profile.string_table[index]


def labels(profile, sample):
    return {text(profile, label.key): text(profile, label.str) if label.str else label.num for label in sample.label}


@unittest.skipUnless(profile_pb2, "google-cloud-profiler is not installed")
@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Pprof(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.recording = pathlib.Path(cls.folder.name) / "perf.data"
        work = "for i in 1 2 3 4 5 6 7 8; do sleep 0.005; done"
        pp.record("sched:sched_switch", output=cls.recording, exec=["sh", "-c", work], call_graph=True)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_command(self, *args):
        command = [sys.executable, "-m", "perf_prof", *args, "--input", str(self.recording)]
        return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout

    def test_every_field_is_known_and_every_sum_is_that_of_the_report(self):
        self.run_command("export", "-o", self.path("x.pb.gz"))
        profile = read(self.path("x.pb.gz"))
        # A field with a wrong number or type would be unknown to the definitions, and DiscardUnknownFields() would drop
        # it.
        known = profile_pb2.Profile()
        known.CopyFrom(profile)
        known.DiscardUnknownFields()
        self.assertEqual(known.SerializeToString(deterministic=True), profile.SerializeToString(deterministic=True))
        self.assertEqual(profile.string_table[0], "")
        report = json.loads(self.run_command("report", "--json", "--sort", "comm,pid"))["events"][0]
        counted = {}
        for sample in profile.sample:
            of = labels(profile, sample)
            key = of["comm"], str(of["pid"])
            counted[key] = counted.get(key, 0) + sample.value[0]
        self.assertEqual(counted, {(line["comm"], line["pid"]): line["samples"] for line in report["lines"]})
        self.assertGreater(profile.time_nanos, 1_600_000_000_000_000_000)
        with pp.replay(self.recording) as events:
            times = [event._time for event in events]
        # The recording goes on after the last sample, and `top` has the same duration.
        self.assertGreaterEqual(profile.duration_nanos, times[-1] - times[0])
        total = json.loads(self.run_command("top", "--json", "sched:sched_switch").splitlines()[-1])
        self.assertEqual(profile.duration_nanos, round(total["seconds"] * 1_000_000_000))

    def test_a_table_of_stacks_is_a_profile(self):
        stacks = pp.Stacks(by=("prev_comm", "_cpu"))
        pp.run(input=self.recording, handlers={"sched__sched_switch": stacks})
        stacks.save(self.path("stacks.pb.gz"))
        profile = read(self.path("stacks.pb.gz"))
        self.assertEqual([(text(profile, of.type), text(profile, of.unit)) for of in profile.sample_type], [("samples", "count")])
        functions = {function.id: text(profile, function.name) for function in profile.function}
        places = {place.id: [functions[line.function_id] for line in place.line] for place in profile.location}
        found = {}
        for sample in profile.sample:
            of = labels(profile, sample)
            chain = tuple(name for place in reversed(sample.location_id) for name in places[place])
            found[of["prev_comm"], of["cpu"], chain] = sample.value[0]
        expected = {}
        for (comm, cpu, stack), count in stacks.items():
            expected[comm, cpu, tuple(name.removesuffix("_[k]") for name in stack.split(";"))] = count
        self.assertEqual(found, expected)
        self.assertIn("__schedule", {name for *_, chain in found for name in chain})
