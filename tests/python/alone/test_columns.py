"""Tests of events as columns: tables and batches for pyarrow, polars, pandas, DuckDB and numpy, and exported files.

Needs root for the kernel's tracepoints.
"""

import collections
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import perf_prof as pp
from library_testing import use_memory

try:
    import duckdb
    import numpy
    import pandas  # pyarrow needs pandas to make data frames.
    import polars
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

# Sleeps eight times, and makes system calls between the sleeps.
WORK = "for i in 1 2 3 4 5 6 7 8; do sleep 0.005; done"
EVENTS = [
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_process_exec",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "cpu-clock",
]


def same(value, cell):
    """Returns whether a member of an event and a cell of a table have the same value."""
    if isinstance(value, bytes) and isinstance(cell, list):
        return list(memoryview(value).cast("Q")) == cell
    if isinstance(value, tuple):
        return list(value) == cell
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace") == cell
    return value == cell


@unittest.skipUnless(pyarrow, "pyarrow, polars, pandas, duckdb or numpy is not installed")
@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.recording = cls.path / "perf.data"
        pp.record(*EVENTS, output=cls.recording, exec=["sh", "-c", WORK], freq=997, call_graph=True)
        with pp.replay(cls.recording) as events:
            cls.events = list(events)

    def table(self, *selectors, columns=None):
        with pp.replay(self.recording, *selectors) as events:
            return events.table(columns)

    def command(self, *args, check=True):
        command = [sys.executable, "-m", "perf_prof", *args]
        done = subprocess.run(command, capture_output=True, cwd=self.path, timeout=120, check=False)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_a_table_has_the_values_of_events(self):
        table = self.table()
        rows = pyarrow.table(table).to_pylist()
        self.assertEqual(len(rows), len(self.events))
        self.assertEqual(len(table), len(self.events))
        compared = collections.Counter()
        for event, row in zip(self.events, rows):
            for name in ("_event", "_time", "_cpu", "_pid", "_tid", "_comm"):
                self.assertEqual(row.pop(name), getattr(event, name), (event, name))
            stack = row.pop("_stack")
            self.assertEqual(stack.count(";") + 1 if stack else 0, len(event._callchain))
            values = {name: value for name, value in event.to_dict().items() if not name.startswith("_")}
            for name, cell in row.items():
                if name in values:
                    self.assertTrue(same(values[name], cell), (event, name, values[name], cell))
                    compared[event._event] += 1
                else:
                    self.assertIsNone(cell, (event, name))
        # An idle CPU may make the events of wakeups, which then belong to no task that is recorded.
        self.assertLessEqual(set(EVENTS) - {"sched:sched_wakeup"}, set(compared))
        self.assertEqual(set(compared), {event._event for event in self.events})

    def test_names_of_columns_are_those_of_members(self):
        columns = ["prev_comm", "prev_comm_raw", "_callchain", "_realtime", "_period", "common_pid", "next_pid"]
        table = pyarrow.table(self.table("sched:sched_switch", columns=columns))
        self.assertEqual(table.column_names, columns)
        self.assertEqual(str(table.schema.field("_realtime").type), "timestamp[ns, tz=UTC]")
        self.assertEqual(table.schema.field("next_pid").type, pyarrow.int32())
        switches = [event for event in self.events if event._event == "sched:sched_switch"]
        self.assertEqual(table.num_rows, len(switches))
        for event, row in zip(switches, table.to_pylist()):
            self.assertEqual(row["prev_comm"].encode(), row["prev_comm_raw"])
            self.assertEqual(row["_callchain"], [frame["addr"] for frame in event._callchain if not frame.get("inlined")])
            self.assertEqual(row["_realtime"].value, event._realtime)
            self.assertEqual((row["_period"], row["common_pid"]), (event._period, event.common_pid))

    def test_batches_have_as_many_rows_as_requested(self):
        expected = [event._cpu for event in self.events]
        with pp.replay(self.recording) as events:
            batches = list(events.batches(["_cpu", "_time"], rows=100))
            self.assertEqual(events.delivered, len(expected))
        self.assertEqual([len(batch) for batch in batches[:-1]], [100] * (len(batches) - 1))
        self.assertEqual(sum(map(len, batches)), len(expected))
        cpus = [cpu for batch in batches for cpu in numpy.asarray(batch["_cpu"])]
        self.assertEqual(cpus, expected)

    def test_numpy_reads_integers_without_a_copy(self):
        with pp.replay(self.recording, "sched:sched_switch") as events:
            batch = next(events.batches(["_cpu", "next_pid", "_time", "prev_comm"], rows=5))
        column = batch["next_pid"]
        one, other = numpy.asarray(column), numpy.asarray(batch["next_pid"])
        self.assertEqual((one.dtype, len(one)), (numpy.int32, 5))
        self.assertTrue(numpy.shares_memory(one, other))
        self.assertFalse(one.flags.owndata or one.flags.writeable)
        self.assertEqual(numpy.asarray(batch["_cpu"]).dtype, numpy.uint32)
        self.assertEqual(numpy.asarray(batch["_time"]).dtype, numpy.int64)
        values = one.tolist()
        del batch, column, other
        gc.collect()
        self.assertEqual(one.tolist(), values)
        table = self.table(columns=["next_pid", "prev_comm"])
        for name in table.column_names:
            with self.assertRaises(BufferError):
                memoryview(table[name])
        self.assertGreater(table["next_pid"].null_count, 0)
        with self.assertRaises(KeyError):
            table["nothing"]

    def test_other_libraries_read_the_same_rows(self):
        columns = ["_event", "_time", "next_comm", "id"]
        table = events_table = self.table(columns=columns)
        rows = pyarrow.table(table).to_pylist()
        frame = polars.DataFrame(table)
        self.assertEqual(frame.columns, columns)
        self.assertEqual(frame.rows(), [tuple(row.values()) for row in rows])
        read = pyarrow.table(table).to_pandas()
        self.assertEqual(list(read.columns), columns)
        named = read[read["next_comm"].notna()]
        self.assertEqual(named["next_comm"].tolist(), [row["next_comm"] for row in rows if row["next_comm"] is not None])
        self.assertEqual(read["_time"].tolist(), [row["_time"] for row in rows])
        self.assertEqual(duckdb.sql("select * from events_table").fetchall(), [tuple(row.values()) for row in rows])

    def test_numpy_reads_texts_and_nulls_as_one_dimension_of_objects(self):
        table = self.table(columns=["next_pid", "prev_comm"])
        expected = [(event.get("next_pid"), event.get("prev_comm")) for event in self.events]
        pids, comms = numpy.asarray(table["next_pid"]), numpy.asarray(table["prev_comm"])
        self.assertEqual((pids.shape, pids.dtype, comms.shape, comms.dtype), ((len(expected),), object) * 2)
        self.assertEqual(list(zip(pids.tolist(), comms.tolist())), expected)
        self.assertEqual(table["prev_comm"].to_list(), comms.tolist())
        self.assertEqual([(row["next_pid"], row["prev_comm"]) for row in table], expected)

    def test_pandas_makes_a_frame_of_a_table(self):
        with pp.replay(self.recording, "sched:sched_switch") as events:
            table = events.table(["_cpu", "prev_comm"])
        frame = pandas.DataFrame(table)
        self.assertEqual(frame.to_dict("records"), list(table))
        self.assertEqual((list(frame.columns), len(frame)), (table.column_names, len(table)))

    def test_what_has_no_room_in_a_batch_can_be_iterated(self):
        with pp.replay(self.recording) as events:
            first = next(events.batches(["_time"], rows=5))
            times = numpy.asarray(first["_time"]).tolist() + [event._time for event in events]
            self.assertEqual(times, [event._time for event in self.events])
            self.assertEqual(events.delivered, len(self.events))

    def test_batches_and_events_of_a_trace_are_mixed(self):
        expected = [event._time for event in self.events]
        times = lambda batch: numpy.asarray(batch["_time"]).tolist()
        with pp.replay(self.recording) as events:
            one, other = events.batches(["_time"], rows=7), events.batches(["_cpu", "_time"], rows=9)
            found = times(next(one)) + times(next(other))
            found += [next(events)._time for _ in range(3)]
            found += times(next(one)) + times(next(other)) + [event._time for event in events.read()]
            for batch in one:
                found += times(batch)
            self.assertEqual(list(other), [])
            self.assertEqual((found, events.delivered), (expected, len(expected)))
            self.assertEqual(events.stats()["delivered"], len(expected))
        with pp.replay(self.recording) as events:
            first = next(events)._time
            rest = numpy.asarray(events.table(["_time"])["_time"]).tolist()
            self.assertEqual([first, *rest], expected)
            self.assertEqual(list(events), [])

    def test_a_trace_knows_names_after_its_columns(self):
        event = next(event for event in self.events if event._tid > 0)
        with pp.replay(self.recording) as events:
            table = events.table(["_tid"])
            self.assertEqual(events.process_of(event._tid), event._pid)
            self.assertEqual(events.stats()["delivered"], len(table))
            self.assertEqual((events.delivered, events.lost), (len(table), 0))
            self.assertEqual(list(events), [])
            self.assertIn("ended", repr(events))

    def test_stopped_and_closed_traces_have_no_more_batches(self):
        with pp.replay(self.recording) as events:
            batches = events.batches(["_time"], rows=5)
            next(batches)
            events.close()
            self.assertEqual(list(batches), [])
            with self.assertRaises(pp.ClosedError):
                events.batches(["_time"])
        with pp.replay(self.recording) as events:
            events.stop()
            self.assertLessEqual(sum(map(len, events.batches(["_time"]))), len(self.events))
        with pp.replay(self.recording) as events:
            batches = events.batches(["_time"], rows=5)
            taken = [len(next(batches))]
            events.stop()
            taken += map(len, batches)
            self.assertEqual(sum(taken), events.delivered)

    def test_a_damaged_recording_is_an_error_at_its_place(self):
        damaged = self.path / "damaged.data"
        damaged.write_bytes(self.recording.read_bytes())
        with pp.replay(damaged) as events:
            batches = events.batches(["_time"], rows=5)
            os.truncate(damaged, 4096)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                rows = sum(map(len, batches))
        self.assertLess(rows, len(self.events))
        self.assertTrue(any("is damaged" in str(warning.message) for warning in seen), seen)

    def test_other_programs_read_batches_one_after_the_other(self):
        with pp.replay(self.recording) as events:
            batches = events.batches(["_event", "_cpu"], rows=50)
            answer = duckdb.sql("select _event, count(*) from batches group by all").fetchall()
        self.assertEqual(dict(answer), collections.Counter(event._event for event in self.events))

    def test_spans_have_columns_of_their_begin_and_end(self):
        columns = ["_time", "name", "duration", "ret", "begin._time", "end.ret", "begin.id", "args", "open"]
        with pp.replay(self.recording, "syscall") as events:
            spans = list(events)
        rows = pyarrow.table(self.table("syscall", columns=columns)).to_pylist()
        self.assertEqual(len(rows), len(spans))
        self.assertGreater(len(rows), 0)
        for span, row in zip(spans, rows):
            self.assertEqual((row["name"], row["duration"], row["open"]), (span.name, span.duration, span.open))
            self.assertEqual((row["begin._time"], row["begin.id"]), (span.begin._time, span.begin.id))
            self.assertEqual((row["ret"], row["end.ret"]), (span.ret, span.end.ret))
            self.assertTrue(same(span.args, row["args"]))
        # The table of spans has a row for each span, and no rows for the events that begin and end spans. So it lacks
        # the columns of these events.
        self.assertNotIn("id", self.table("syscall").column_names)

    def test_tables_of_aggregators_have_columns(self):
        counted, summed, durations = pp.Count("prev_comm", "prev_prio"), pp.Sum("next_pid", by="_cpu"), pp.Hist("duration", by="name")
        handlers = {"sched__sched_switch": (counted, summed)}
        pp.run("sched:sched_switch", input=self.recording, handlers=handlers)
        expected = {(*key, count) for key, count in counted.items()}
        self.assertEqual(set(polars.DataFrame(counted).rows()), expected)
        self.assertEqual(polars.DataFrame(counted).columns, ["prev_comm", "prev_prio", "count"])
        self.assertEqual(dict(duckdb.sql("select * from summed").fetchall()), summed.to_dict())
        pp.run("syscall", input=self.recording, handlers={"syscall": durations})
        self.assertGreater(len(durations), 0)
        for row in pyarrow.table(durations).to_pylist():
            of = durations[row["name"]]
            percentiles = [of.percentile(percent) for percent in (50, 90, 99)]
            self.assertEqual([row["count"], row["sum"], row["min"], row["max"]], [of.count, of.sum, of.min, of.max])
            self.assertEqual([row["p50"], row["p90"], row["p99"]], percentiles)
        self.assertEqual(polars.DataFrame(pp.Count("_cpu")).rows(), [])

    def test_wrong_columns_are_errors(self):
        cases = [
            (dict(columns=["prev_comn"]), "no event has a field or member `prev_comn`; did you mean `prev_comm`?"),
            (dict(columns=["_cpu", "_cpu"]), "the column `_cpu` is named twice"),
        ]
        for options, text in cases:
            with self.assertRaises(pp.OptionError) as raised:
                self.table("sched:sched_switch", **options)
            self.assertEqual(str(raised.exception), text)
        with pp.replay(self.recording) as events:
            for options in (dict(rows=0), dict(every=0), dict(every=-1.0)):
                with self.assertRaises(ValueError):
                    events.batches(["_cpu"], **options)
        with self.assertRaises(pp.ClosedError):
            events.table()

    def test_exported_files_have_the_rows_of_the_table(self):
        table = pyarrow.table(self.table())
        self.command("export", "-i", "perf.data", "-o", "x.parquet")
        self.assertEqual(pyarrow.parquet.read_table(self.path / "x.parquet").to_pylist(), table.to_pylist())
        self.command("export", "-i", "perf.data", "-o", "x.arrow")
        frame = polars.read_ipc(self.path / "x.arrow")
        self.assertEqual(frame.columns, table.column_names)
        self.assertEqual(frame.rows(), polars.DataFrame(table).rows())
        self.command("export", "-i", "perf.data", "-o", "y.parquet", "-e", "sched:sched_switch", "--columns", "_cpu,prev_comm")
        self.assertEqual(pyarrow.parquet.read_schema(self.path / "y.parquet").names, ["_cpu", "prev_comm"])

    def test_files_of_columns_are_compressed_and_say_where_they_are_from(self):
        self.command("export", "-i", "perf.data", "-o", "x.arrow")
        self.command("export", "-i", "perf.data", "-o", "x.parquet")
        arrow = pyarrow.ipc.open_file(self.path / "x.arrow")
        self.assertEqual(arrow.schema.field("prev_comm").type, pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
        # All batches share the dictionaries, which follow them and are in the file only once.
        self.assertEqual(arrow.read_all().to_pylist(), pyarrow.parquet.read_table(self.path / "x.parquet").to_pylist())
        sizes = [(self.path / name).stat().st_size for name in ("x.arrow", "x.parquet")]
        self.assertLess(sizes[0], 2 * sizes[1])
        for metadata in (arrow.schema.metadata, pyarrow.parquet.read_schema(self.path / "x.parquet").metadata):
            self.assertEqual(metadata[b"host"].decode(), os.uname().nodename)
            self.assertEqual(metadata[b"kernel"].decode(), os.uname().release)
            self.assertTrue(metadata[b"command"] and metadata[b"clock"])
            self.assertNotIn(b"partial", metadata)

    def test_a_file_of_a_recording_that_is_cut_off_says_so(self):
        whole = (self.path / "perf.data").read_bytes()
        (self.path / "cut.data").write_bytes(whole[: len(whole) // 2])
        self.command("export", "-i", "cut.data", "-o", "cut.arrow")
        self.command("export", "-i", "cut.data", "-o", "cut.parquet")
        arrow, parquet = pyarrow.ipc.open_file(self.path / "cut.arrow").schema, self.path / "cut.parquet"
        # A Parquet file also has a schema of Arrow, which most readers of Arrow take.
        of_table = pyarrow.parquet.read_table(parquet).schema.metadata
        for metadata in (arrow.metadata, pyarrow.parquet.read_metadata(parquet).metadata, of_table):
            self.assertIn(b"is cut off", metadata[b"partial"])

    def test_a_wrong_column_replaces_no_file(self):
        before = b"something"
        (self.path / "kept.parquet").write_bytes(before)
        done = self.command("export", "-i", "perf.data", "-o", "kept.parquet", "--columns", "nothing", check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"no event has a field or member `nothing`", done.stderr)
        self.assertEqual((self.path / "kept.parquet").read_bytes(), before)
        done = self.command("export", "-i", "perf.data", "-o", "x.csv", "--columns", "_cpu", check=False)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_sql_gives_the_answers_of_the_commands(self):
        self.command("export", "-i", "perf.data", "-o", "all.parquet")
        self.command("export", "-i", "perf.data", "-o", "spans.parquet", "-e", "syscall")
        database = duckdb.connect()
        ask = lambda question: database.sql(question).fetchall()
        everything, spans = f"'{self.path / 'all.parquet'}'", f"'{self.path / 'spans.parquet'}'"

        report = self.command("report", "-i", "perf.data", "-g", "--sort", "comm").stdout.decode()
        heads = (line for line in report.splitlines() if line.startswith("# Samples: "))
        counts = {line.split("'")[1]: int(line.split()[2]) for line in heads}
        self.assertEqual(dict(ask(f"select _event, count(*) from {everything} group by all")), counts)

        rows = lambda *args: json.loads(self.command("top", "--input", "perf.data", *args, "--json").stdout)["rows"]
        switches = {row["prev_comm"]: row["count"] for row in rows("sched:sched_switch", "--by", "prev_comm")}
        question = f"select prev_comm, count(*) from {everything} where _event = 'sched:sched_switch' group by all"
        self.assertEqual(dict(ask(question)), switches)

        took = {row["name"]: (row["count"], row["total"], row["max"]) for row in rows("syscall", "--by", "name")}
        question = f"select name, count(*), sum(duration), max(duration) from {spans} group by all"
        self.assertEqual({name: tuple(rest) for name, *rest in ask(question)}, took)
        self.assertTrue(took)


@unittest.skipUnless(pyarrow, "pyarrow, polars, pandas, duckdb or numpy is not installed")
@unittest.skipUnless(os.geteuid() == 0, "the events of the test need root")
class Live(unittest.TestCase):
    def test_all_events_are_in_batches(self):
        with pp.trace("page-faults:u", exec=["sh", "-c", WORK], count=1) as events:
            batches = list(events.batches(["_comm", "addr"], rows=100))
        self.assertEqual(sum(map(len, batches)), events.delivered)
        self.assertEqual(events.lost, 0)
        self.assertGreater(len(batches), 1)
        self.assertTrue(all(len(batch) == 100 for batch in batches[:-1]))

    def test_a_batch_comes_after_a_time(self):
        with pp.trace("page-faults:u", tid=threading.get_native_id(), count=1) as events:
            use_memory()
            batch = next(events.batches(["_tid"], every=0.05))
            self.assertGreater(len(batch), 0)
            self.assertEqual(set(numpy.asarray(batch["_tid"]).tolist()), {threading.get_native_id()})

    def test_an_interrupt_ends_the_wait(self):
        with pp.trace("page-faults:u", tid=threading.get_native_id(), count=1 << 40) as events:
            timer = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                next(events.batches(["_tid"]))
            timer.join()


if __name__ == "__main__":
    unittest.main()
