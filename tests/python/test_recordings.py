"""Tests of recordings that programs make and replay. Tests of tracepoints need root."""

import contextlib
import errno
import gc
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

import perf_prof as pp
from library_testing import Numbers, child, needs_root, use_memory


class Recordings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "perf.data")

    def test_a_command_is_recorded_and_replayed(self):
        recording = pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        self.assertEqual((recording.path, recording.status), (self.path, 0))
        with recording.replay() as events:
            found = list(events)
        self.assertGreater(len(found), 100)
        self.assertEqual(sorted(event._time for event in found), [event._time for event in found])
        half = sum(1 for _ in pp.replay(pathlib.Path(self.path), time="0%-50%"))
        rest = sum(1 for _ in pp.replay(self.path, time="50%-100%"))
        self.assertTrue(0 < half < len(found) and 0 < rest < len(found))
        result = pp.run(input=self.path, handlers=lambda event: None)
        self.assertEqual(result.delivered, len(found))

    def test_aggregators_are_handlers(self):
        pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        with pp.replay(self.path) as events:
            found = list(events)
        by_cpu, by_name, added = pp.Count("_cpu"), pp.Count("_event"), pp.Count("_cpu")
        for event in found:
            added.add(event)
        pp.run(input=self.path, handlers={"page_faults": (by_cpu, by_name)})
        self.assertEqual(by_cpu.to_dict(), added.to_dict())
        self.assertEqual(by_name.to_dict(), {"page-faults:u": len(found)})
        pp.run(input=self.path, handlers=by_cpu)
        self.assertEqual(by_cpu.total, 2 * len(found))
        pp.run(input=self.path, handlers={"__sample__": by_cpu}, jobs=2)
        self.assertEqual(by_cpu.to_dict(), {cpu: 3 * count for cpu, count in added.items()})
        with self.assertRaisesRegex(pp.HandlerError, "has no field or member `_cpuu`; did you mean `_cpu`"):
            pp.run(input=self.path, handlers=pp.Count("_cpuu"))

    def test_a_with_statement_records_what_happens_in_it(self):
        with pp.record("page-faults:u", output=self.path, pid=os.getpid(), count=1) as recording:
            use_memory()
        with recording.replay() as events:
            self.assertGreater(sum(event._pid == os.getpid() for event in events), 10)

    def test_a_recording_that_nobody_stopped_is_complete_when_it_is_collected(self):
        with self.assertWarnsRegex(ResourceWarning, "was not stopped"):
            pp.record("page-faults:u", output=pathlib.Path(self.path), pid=os.getpid(), count=1)
            gc.collect()
        with pp.replay(self.path) as events:
            self.assertGreaterEqual(sum(1 for _ in events), 0)

    @needs_root
    def test_a_recording_of_this_process_lacks_the_threads_of_perf_prof(self):
        with pp.record("raw_syscalls:sys_enter", output=self.path, pid=os.getpid()) as recording:
            os.getppid()
            time.sleep(0.3)
        with recording.replay() as events:
            self.assertEqual({event._tid for event in events}, {threading.get_native_id()})

    @needs_root
    def test_a_flight_recorder_writes_what_happened_before_a_dump(self):
        folder = pathlib.Path(self.path).parent / "dumps"
        with pp.flight("syscalls:sys_enter_getppid", before="5s", folder=folder, pid=os.getpid()) as flight:
            time.sleep(1)
            for _ in range(100):
                os.getppid()
            path = flight.dump("slow request")
            own = flight.dump(path=folder / "own.data")
        self.assertRegex(path, r"/dumps/\d{8}-\d{6}-slow_request\.data$")
        self.assertEqual(own, str(folder / "own.data"))
        for file in path, own:
            with pp.replay(file) as events:
                found = list(events)
            calls = [event for event in found if event._event == "syscalls:sys_enter_getppid"]
            self.assertEqual(sum(event._tid == threading.get_native_id() for event in calls), 100)
            triggers = [event.reason for event in found if event._event == "perf-prof:trigger"]
            self.assertEqual(triggers, ["slow request" if file == path else ""])
        with self.assertRaises(pp.ClosedError):
            flight.dump()

    @needs_root
    def test_the_call_before_a_dump_is_in_it_however_many_threads_ask(self):
        folder, asked = pathlib.Path(self.path).parent / "dumps", []

        def ask(number):
            for turn in range(1, 7):
                os.getppid()
                asked.append((flight.dump(f"{number}-{turn}"), threading.get_native_id(), turn))

        with pp.flight("syscalls:sys_enter_getppid", before="60s", folder=folder, pid=os.getpid()) as flight:
            time.sleep(1)
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        calls = {}
        for path in {path for path, _, _ in asked}:
            with pp.replay(path) as events:
                calls[path] = [event._tid for event in events if event._event == "syscalls:sys_enter_getppid"]
        self.assertEqual([calls[path].count(tid) for path, tid, _ in asked], [turn for _, _, turn in asked])

    def test_the_standard_output_is_no_place_for_a_recording(self):
        with self.assertRaisesRegex(pp.OptionError, "standard output"):
            pp.record("page-faults:u", output="-")

    def test_a_recording_that_cannot_be_created_is_an_error_of_files_too(self):
        missing = f"{self.path}-missing/perf.data"
        with self.assertRaises(FileNotFoundError) as raised:
            pp.record("page-faults:u", output=missing, exec=["true"])
        self.assertIsInstance(raised.exception, pp.RecordingNotFoundError)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOENT, missing))
        pathlib.Path(self.path).write_bytes(b"no folder")
        with self.assertRaises(pp.RecordingFileError) as raised:
            pp.record("page-faults:u", output=f"{self.path}/perf.data", exec=["true"])
        self.assertEqual(raised.exception.errno, errno.ENOTDIR)

    @needs_root
    def test_a_recording_for_which_the_disk_has_no_room_is_an_error_and_is_read_up_to_there(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        path = os.path.join(folder, "perf.data")
        work = [sys.executable, "-c", "import os\nfor i in range(40000): os.getppid()"]
        with self.assertRaises(OSError) as raised, self.assertWarnsRegex(pp.Warning, "the recording ends here"):
            pp.record("raw_syscalls:sys_enter", output=path, exec=work)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOSPC, path))
        with pp.replay(path) as events:
            self.assertGreater(sum(1 for _ in events), 1000)

    def test_broken_recordings_are_errors(self):
        pathlib.Path(self.path).write_bytes(b"no recording")
        with self.assertRaisesRegex(pp.RecordingError, "perf.data"):
            pp.replay(self.path)

    def test_a_file_that_is_missing_is_an_error_of_files_too(self):
        missing = [lambda: pp.replay(self.path), lambda: pp.run(input=self.path, handlers=Numbers(), jobs=2)]
        for run in [*missing, lambda: pp.run(input=self.path, handlers=lambda event: None)]:
            with self.assertRaisesRegex(FileNotFoundError, "No such file") as raised:
                run()
            self.assertIsInstance(raised.exception, pp.RecordingError)
            self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.ENOENT, self.path))

    @unittest.skipUnless(os.geteuid() == 0, "starts a program as another user")
    def test_a_file_that_may_not_be_read_is_an_error_of_permissions_too(self):
        code = (
            "import os, sys\nsys.path[:0] = eval(sys.argv[2])\nimport perf_prof as pp\nos.setgid(65534); os.setuid(65534)\n"
            "try:\n    pp.replay(sys.argv[1])\n"
            "except PermissionError as error:\n"
            "    print(isinstance(error, pp.RecordingError), error.errno, error.filename == sys.argv[1])\n"
        )
        done = child(code, self.path, repr(sys.path))
        self.assertEqual(done.stdout, f"True {errno.EACCES} True\n", done.stderr)

    @needs_root
    def test_losses_in_a_recording_are_reported(self):
        code = "import os\nfor _ in range(400000): os.getppid()"
        pp.record("raw_syscalls:sys_enter", output=self.path, exec=[sys.executable, "-c", code], mmap_pages=1, buffer=1 << 16)
        lost, reported = [], []
        with pp.replay(self.path, on_lost=lambda start, end: lost.append((start, end))) as events:
            for _ in events:
                pass
        self.assertEqual(bool(lost), events.lost > 0)
        result = pp.run(input=self.path, handlers=lambda event: None, on_lost=lambda *times: reported.append(times))
        self.assertEqual((result.lost, reported), (events.lost, lost))
        with self.assertRaisesRegex(pp.OptionError, "__lost__"):
            pp.run(input=self.path, handlers={"__lost__": print}, on_lost=print)

    def test_progress_is_shown_with_tqdm(self):
        class Bar(contextlib.AbstractContextManager):
            def __init__(self, total=None, **options):
                self.total, self.count = total, 0
                bars.append(self)

            def update(self, count):
                self.count += count

            def __exit__(self, *_):
                pass

        bars, handlers = [], Numbers()
        pp.record("page-faults:u", output=self.path, exec=[sys.executable, "-c", "pass"], count=1)
        auto = types.SimpleNamespace(tqdm=Bar)
        with unittest.mock.patch.dict(sys.modules, {"tqdm": types.SimpleNamespace(auto=auto), "tqdm.auto": auto}):
            result = pp.run(input=self.path, handlers=handlers, progress=True)
            with contextlib.redirect_stdout(io.StringIO()):
                pp.run(input=self.path, handlers=handlers, progress=True, jobs=2)
        self.assertEqual([bar.count for bar in bars], [result.delivered, 2])
        self.assertEqual([bar.total for bar in bars], [None, 2])
        with self.assertRaisesRegex(pp.OptionError, "progress"):
            pp.run("page-faults:u", handlers=handlers, progress=True)

    def test_a_table_that_has_no_room_is_a_memory_error_before_memory_is_used_up(self):
        """The limit is on address space. Threads would use up this space too, because the C library reserves much of it
        for them."""
        code = (
            "import resource, sys, perf_prof as pp\n"
            "pages = int(open('/proc/self/statm').read().split()[0])\n"
            "most = pages * resource.getpagesize() + (160 << 20)\n"
            "events = pp.replay(sys.argv[1])\n"
            "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
            "try:\n"
            "    events.table(['args', '_time', 'id'])\n"
            "except MemoryError as error:\n"
            "    print(error)\n"
            "with pp.replay(sys.argv[1]) as events:\n"
            "    print(sum(len(batch) for batch in events.batches(['args'])))\n"
        )
        calls = "import os\nfor _ in range(2_000_000): os.getppid()"
        pp.record("raw_syscalls:sys_enter", output=self.path, exec=[sys.executable, "-c", calls], mmap_pages="32M")
        with unittest.mock.patch.dict(os.environ, MALLOC_ARENA_MAX="1"):
            done = child(code, self.path)
        self.assertRegex(done.stdout, r"^table\(\) needs more memory than is available: the first \d+ rows take \d+ MiB")
        self.assertGreater(int(done.stdout.split()[-1]), 1_000_000, done.stderr)

    def test_an_event_that_the_recording_lacks_is_an_error(self):
        pp.record("page-faults:u", output=self.path, exec=["true"])
        with self.assertRaisesRegex(pp.SelectorError, "sched:sched_switch"):
            pp.replay(self.path, "sched:sched_switch")


if __name__ == "__main__":
    unittest.main()
