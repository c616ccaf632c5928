"""Tests of timelines, which are read with Perfetto's own definitions of the messages.

Needs perfetto in the environment of perf_prof, which contains these definitions.
"""

import copy
import pathlib
import pickle
import tempfile
import unittest

import perf_prof as pp

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
except ImportError:
    perfetto = None


def trace_of(timeline):
    """Writes a timeline to a file, and returns what Perfetto's definitions read from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.pftrace"
        timeline.save(path)
        trace = perfetto.Trace.FromString(path.read_bytes())
    return trace


class Reader:
    """Finds the tracks, slices and arguments of a trace, as Perfetto's trace processor does."""

    def __init__(self, trace):
        self.tracks, self.slices, self.instants, self.counters = {}, [], [], []
        names, arguments, open_slices = {}, {}, {}
        self.flows_out, self.flows_in = {}, {}
        for packet in trace.packet:
            for name in packet.interned_data.event_names:
                names[name.iid] = name.name
            for name in packet.interned_data.debug_annotation_names:
                arguments[name.iid] = name.name
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                parent = self.tracks[track.parent_uuid] + "/" if track.parent_uuid else ""
                self.tracks[track.uuid] = parent + track.name
            if not packet.HasField("track_event"):
                continue
            event, time = packet.track_event, packet.timestamp
            track = self.tracks[event.track_uuid]
            stack = open_slices.setdefault(event.track_uuid, [])
            values = {
                arguments[value.name_iid]: getattr(value, value.WhichOneof("value")) for value in event.debug_annotations
            }
            kinds = perfetto.TrackEvent
            if event.type == kinds.TYPE_SLICE_BEGIN:
                stack.append((track, names[event.name_iid], time, values))
            elif event.type == kinds.TYPE_SLICE_END:
                of, name, start, values = stack.pop()
                self.slices.append((of, name, start, time - start, values))
            elif event.type == kinds.TYPE_INSTANT:
                self.instants.append((track, names[event.name_iid], time, values))
            elif event.type == kinds.TYPE_COUNTER:
                field = event.WhichOneof("counter_value_field")
                self.counters.append((track, time, getattr(event, field)))
            for flow in event.flow_ids:
                self.flows_out[flow] = names[event.name_iid]
            for flow in event.terminating_flow_ids:
                self.flows_in[flow] = names[event.name_iid]
        assert not any(open_slices.values())


def example():
    timeline = pp.Timeline()
    cpus = timeline.track("cpus")
    cpu = timeline.track("cpu 0", parent=cpus)
    make = timeline.slice(cpu, "make", 1_000, 500, pid=7, nice=-5, share=0.5, on=True, what=("a", 1), big=2**64 - 1)
    timeline.slice(cpu, "irq", 1_100, 50)
    cc1 = timeline.slice(cpu, "cc1", 1_400, 300)
    wake = timeline.instant("wakeups", "wake cc1", 1_390, by="make")
    timeline.flow(make, wake)
    timeline.flow(wake, cc1)
    timeline.counter("run queue", 1_000, 1)
    timeline.counter("run queue", 1_390, 2.5)
    return timeline


@unittest.skipUnless(perfetto, "perfetto is not installed")
class Perfetto(unittest.TestCase):
    def test_tracks_slices_counters_and_arrows_are_read_back(self):
        timeline = example()
        self.assertEqual(len(timeline), 6)
        read = Reader(trace_of(timeline))
        self.assertEqual(
            sorted(read.slices, key=lambda of: of[2]),
            [
                ("cpus/cpu 0", "make", 1_000, 500,
                 {"pid": 7, "nice": -5, "share": 0.5, "on": True, "what": "('a', 1)", "big": 2**64 - 1}),
                ("cpus/cpu 0", "irq", 1_100, 50, {}),
                ("cpus/cpu 0", "cc1", 1_400, 300, {}),
            ],
        )  # fmt: skip
        self.assertEqual(read.instants, [("wakeups", "wake cc1", 1_390, {"by": "make"})])
        self.assertEqual(read.counters, [("run queue", 1_000, 1), ("run queue", 1_390, 2.5)])
        arrows = sorted((read.flows_out[flow], read.flows_in[flow]) for flow in read.flows_out)
        self.assertEqual(arrows, [("make", "wake cc1"), ("wake cc1", "cc1")])
        # The slice cc1 overlaps the slice make, so a second track with the same name contains it.
        self.assertEqual(list(read.tracks.values()).count("cpus/cpu 0"), 2)

    def test_perfetto_knows_every_field(self):
        trace = trace_of(example())
        self.assertEqual(perfetto.Trace.FromString(trace.SerializeToString()), trace)
        # If the definitions lacked a field, the message would keep the field as unknown bytes, and
        # DiscardUnknownFields() would make it shorter.
        for packet in trace.packet:
            known = perfetto.TracePacket()
            known.CopyFrom(packet)
            known.DiscardUnknownFields()
            self.assertEqual(known.ByteSize(), packet.ByteSize())

    def test_wakeups_of_a_recording(self):
        timeline, switches = pp.Timeline(), 0
        make_event = __import__("perf_prof.testing", fromlist=["make_event"]).make_event
        running = {}
        for number in range(10_000):
            event = make_event("sched:sched_switch", _cpu=number % 4, _time=1_000 + 10 * number, prev_pid=number,
                               next_pid=number + 4, next_comm=f"task {number % 9}")  # fmt: skip
            if before := running.get(event._cpu):
                timeline.slice(f"cpu {event._cpu}", before.next_comm, before._time, event._time - before._time)
                switches += 1
            running[event._cpu] = event
        read = Reader(trace_of(timeline))
        self.assertEqual(len(read.slices), switches)
        self.assertEqual(sorted(set(read.tracks.values())), ["cpu 0", "cpu 1", "cpu 2", "cpu 3"])
        self.assertEqual({name for _, name, *_ in read.slices}, {f"task {number}" for number in range(9)})


class Objects(unittest.TestCase):
    def test_copies_are_equal(self):
        timeline = example()
        for other in pickle.loads(pickle.dumps(timeline)), copy.deepcopy(timeline):
            self.assertEqual(other.to_bytes(), timeline.to_bytes())

    def test_parts_are_merged(self):
        first, second = example(), example()
        first.update(second)
        first.update(first)
        self.assertEqual(len(first), 24)

    def test_mistakes_are_told(self):
        timeline = pp.Timeline()
        timeline.slice("a", "b", 1, 2)
        for mistake, error, text in [
            (lambda: timeline.counter("a", 1, 2), ValueError, "the track a shows slices, so it cannot show a counter; use another track"),
            (lambda: timeline.slice(pp.Timeline().track("x"), "b", 1, 2), ValueError, "does not belong to this timeline"),
            (lambda: timeline.slice(5, "b", 1, 2), TypeError, "a track must be a Track or its name, not 'int'"),
            (lambda: timeline.slice("a", "b", -1, 2), OverflowError, ""),
            (lambda: timeline.flow(0, 9), ValueError, "there is no slice or instant 9"),
            (lambda: timeline.save("x.json"), ValueError, "must end in .pftrace"),
            (lambda: timeline.save("/nonexistent/x.pftrace"), FileNotFoundError, "/nonexistent/x.pftrace"),
        ]:
            with self.assertRaises(error) as raised:
                mistake()
            self.assertIn(text, str(raised.exception))

    def test_an_argument_may_use_the_timeline(self):
        timeline = pp.Timeline()

        class Nested:
            def __str__(self):
                timeline.instant("t", "inner", 1)
                return "outer"

        timeline.instant("t", "i", 2, what=Nested())
        self.assertEqual(len(timeline), 2)


if __name__ == "__main__":
    unittest.main()
