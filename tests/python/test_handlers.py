"""Tests of handlers of runs, of counts, and of the texts of errors and objects."""

import contextlib
import errno
import os
import pathlib
import sys
import tempfile
import time
import unittest

import perf_prof as pp
from library_testing import child


class Handlers(unittest.TestCase):
    def run_faults(self, handlers, **options):
        return pp.run("page-faults:u", handlers=handlers, exec=[sys.executable, "-c", "pass"], count=1, **options)

    def test_objects_dicts_and_functions_are_handlers(self):
        class Counter:
            faults = exits = 0

            def page_faults_u(self, event):
                self.faults += 1

            def __exit__(self):
                self.exits += 1

        counter, others = Counter(), []
        result = self.run_faults(counter)
        self.assertEqual((counter.faults, counter.exits, result.status), (result.delivered, 1, 0))
        self.assertGreater(result.delivered, 100)
        self.assertEqual(self.run_faults({"__sample__": others.append}).delivered, len(others))
        del others[:]
        self.assertEqual(self.run_faults(others.append).delivered, len(others))

    def test_the_first_exception_is_raised_after_exit(self):
        calls = []

        def fail(event):
            calls.append("sample")
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.run_faults({"__sample__": fail, "__exit__": lambda: calls.append("exit")})
        self.assertEqual(calls, ["sample", "exit"])

    def test_intervals_are_called(self):
        calls = []
        sleep = [sys.executable, "-c", "import time; time.sleep(0.5)"]
        handlers = {"__interval__": lambda: calls.append(1), "__sample__": lambda event: None}
        pp.run("page-faults:u", handlers=handlers, interval=0.1, exec=sleep)
        self.assertGreater(len(calls), 1)

    def test_the_exit_of_a_context_manager_is_no_callback(self):
        class Manager(contextlib.AbstractContextManager):
            def __exit__(self, kind, value, traceback):
                calls.append(kind)

            def __sample__(self, event):
                calls.append("sample")

        calls = []
        self.run_faults(Manager())
        self.assertEqual(set(calls), {"sample"})
        with Manager():
            del calls[:]
        self.assertEqual(calls, [None])

    def test_names_and_counts_are_those_of_the_run(self):
        found = []
        handlers = {"__sample__": lambda event: None, "__exit__": lambda: found.append(pp.stats())}
        result = self.run_faults(handlers)
        self.assertEqual(found[0]["events"], {"page-faults:u": {"delivered": result.delivered, "lost": 0, "where": "perf-prof"}})
        self.assertEqual(pp.stats(), {})

    def test_the_status_is_that_of_the_command(self):
        result = pp.run("page-faults:u", handlers=lambda event: None, exec=["sh", "-c", "exit 7"])
        self.assertEqual(result.status, 7)

    def test_a_run_ends_when_its_handler_ends_it(self):
        start = time.monotonic()

        def leave(event):
            sys.exit(3)

        with self.assertRaises(SystemExit):
            pp.run("page-faults:u", handlers=leave, on_error="continue", exec=["sleep", "60"])
        self.assertLess(time.monotonic() - start, 30)

    def test_no_handler_is_an_error(self):
        with self.assertRaisesRegex(pp.HandlerError, "page_faults_u"):
            self.run_faults({})
        with self.assertRaises(TypeError):
            self.run_faults(None)


class Counting(unittest.TestCase):
    def test_counts_are_a_mapping(self):
        counts = pp.stat("page-faults:u", "task-clock:u", exec=["sh", "-c", "exit 3"])
        self.assertEqual(list(counts), ["page-faults:u", "task-clock:u"])
        count = counts["page-faults:u"]
        self.assertGreater(count.value, 10)
        self.assertEqual(count.enabled, count.running)
        self.assertEqual(counts.status, 3)
        self.assertIn("page-faults:u", counts._repr_html_())

    def test_a_time_or_a_command_is_needed(self):
        with self.assertRaisesRegex(pp.OptionError, "exec"):
            pp.stat("page-faults")


class Texts(unittest.TestCase):
    def test_objects_say_what_they_hold(self):
        hist, graph, timeline = pp.Log2Hist("us"), pp.FlameGraph(count_name="bytes"), pp.Timeline()
        hist.update([1, 5])
        graph.add(["main", "read"], 30)
        timeline.slice("a", "b", 1, 2)
        self.assertEqual(repr(hist), '<perf_prof.Log2Hist "us": 2 values>')
        self.assertEqual(repr(graph), "<perf_prof.FlameGraph: 1 stacks, 30 bytes>")
        self.assertEqual(repr(timeline), "<perf_prof.Timeline: 1 entries on 1 tracks>")

    def test_a_selector_that_cannot_be_read_is_a_selector_error(self):
        for call in (pp.trace, lambda selector: pp.replay("perf.data", selector)):
            with self.assertRaisesRegex(pp.SelectorError, "the section `/pid>3` is not closed"):
                call("sched:sched_wakeup/pid>3")

    def test_the_text_of_an_error_of_the_kernel_has_its_number_once(self):
        with self.assertRaises(pp.KernelError) as raised:
            pp.trace("page-faults:u", exec=["/nonexistent/command"])
        self.assertEqual(raised.exception.errno, errno.ENOENT)
        self.assertNotIn("os error", str(raised.exception))

    def test_an_error_of_the_kernel_has_a_number_where_no_call_was_made(self):
        for number, options in [(errno.ESRCH, {"pid": 2**22 - 1}), (errno.ENODEV, {"cpus": [1023]})]:
            with self.assertRaises(pp.KernelError) as raised:
                pp.trace("page-faults:u", **options)
            self.assertEqual(raised.exception.errno, number, raised.exception)


class Errors(unittest.TestCase):
    def test_unknown_events_are_value_errors_with_similar_names(self):
        with self.assertRaisesRegex(pp.SelectorError, "page-faults") as raised:
            pp.trace("page-fault")
        self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(pp.Error):
            pp.trace()

    def test_wrong_keywords_and_values(self):
        with self.assertRaisesRegex(TypeError, "pidd"):
            pp.trace("page-faults", pidd=1)
        with self.assertRaisesRegex(pp.OptionError, "process or thread id"):
            pp.trace("page-faults", pid="x")
        with self.assertRaisesRegex(TypeError, "order is True or False, not int"):
            pp.trace("page-faults", order=1)
        with self.assertRaisesRegex(TypeError, "list of words"):
            pp.trace("page-faults", exec="ls -l")
        with self.assertRaisesRegex(TypeError, "selector"):
            pp.trace(1)

    def test_a_command_that_does_not_exist_is_an_os_error(self):
        with self.assertRaisesRegex(OSError, "/no/such/command"):
            pp.trace("page-faults:u", exec=["/no/such/command"])

    @unittest.skipUnless(os.geteuid() == 0, "starts a program as another user")
    def test_other_users_get_a_permission_error_with_advice(self):
        code = (
            "import os, sys\nsys.path[:0] = eval(sys.argv[1])\nimport perf_prof as pp\nos.setgid(65534); os.setuid(65534)\n"
            "try:\n    pp.trace('sched:sched_switch')\n"
            "except PermissionError as error:\n    print(isinstance(error, pp.AccessError), error)\n"
        )
        done = child(code, repr(sys.path))
        self.assertRegex(done.stdout, "^True .*(tracefs|root|perf_event_paranoid)", done.stderr)

    def test_nothing_is_printed_and_messages_are_warnings(self):
        code = (
            "import sys, warnings, perf_prof as pp\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            "    pp.record('page-faults:u', output=sys.argv[1], exec=['true'])\n"
            "    with pp.replay(sys.argv[1], 'page-faults:u//stack/') as events: n = sum(1 for _ in events)\n"
            "print(n > 0, all(issubclass(warning.category, (pp.Warning, ResourceWarning)) for warning in caught))\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = child(code, str(pathlib.Path(folder) / "perf.data"))
        self.assertEqual((done.stdout, done.stderr), ("True True\n", ""))


if __name__ == "__main__":
    unittest.main()
