"""Tests of the catalogue of tracepoints: formats and fields."""

import os
import pathlib
import tempfile
import unittest

import perf_prof as pp
from library_testing import needs_root

TRACEFS = pathlib.Path("/sys/kernel/tracing/events")


class Catalogue(unittest.TestCase):
    def test_shipped_formats_are_the_same_on_all_machines(self):
        event = pp.event("sched:sched_switch", formats="shipped")
        self.assertIsInstance(event, pp.EventFormat)
        self.assertEqual((event.system, event.name), ("sched", "sched_switch"))
        self.assertIn("prev_comm=%s", event.print_format)
        fields = {field.name: field for field in event.fields}
        comm, pid = fields["prev_comm"], fields["prev_pid"]
        self.assertEqual((comm.type, comm.python_type, comm.size), ("char[16]", str, 16))
        self.assertEqual((pid.type, pid.python_type, pid.size, pid.signed), ("pid_t", int, 4, True))
        names = [event.name for event in pp.events("sched:sched_wak*", formats="shipped")]
        self.assertIn("sched_wakeup", names)
        self.assertTrue(all(name.startswith("sched_wak") for name in names), names)

    def test_an_unknown_event_is_a_value_error_with_similar_names(self):
        with self.assertRaisesRegex(pp.SelectorError, "sched:sched_switch") as raised:
            pp.event("sched:sched_swich", formats="shipped")
        self.assertIsInstance(raised.exception, ValueError)

    @needs_root
    def test_the_formats_of_this_kernel(self):
        on_disk = {path.name for path in (TRACEFS / "sched").iterdir() if path.is_dir()}
        self.assertEqual({event.name for event in pp.events("sched:*")}, on_disk)
        number = int((TRACEFS / "sched/sched_switch/id").read_text())
        self.assertEqual(pp.event("sched:sched_switch").id, number)

    @needs_root
    def test_the_formats_of_a_recording(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "perf.data")
            pp.record("sched:sched_process_exit", output=path, exec=["true"])
            self.assertEqual([event.name for event in pp.events(formats=path)], ["sched_process_exit"])
            with pp.replay(path) as events:
                found = list(events)
            format = pp.event("sched:sched_process_exit", formats=path)
            self.assertEqual([event.comm for event in found], ["true"])
            self.assertLessEqual({field.name for field in format.fields}, set(found[0].keys()))


if __name__ == "__main__":
    unittest.main()
