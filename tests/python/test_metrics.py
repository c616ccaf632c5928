"""Tests of `perf_prof.metrics`: the server and the collector, whose output the package prometheus-client reads.

Needs prometheus-client in the environment of perf_prof, and root for the kernel's tracepoints.
"""

import os
import threading
import unittest
import urllib.request

import perf_prof as pp
from perf_prof import metrics

try:
    import prometheus_client
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    prometheus_client = None

CALL = "syscalls:sys_enter_getppid"


class Call:
    """Starts a run in another thread. The run counts the system calls of this process."""

    def __init__(self, tables):
        handlers = {"syscalls__sys_enter_getppid": tables}
        self.thread = threading.Thread(target=pp.run, args=(CALL,), kwargs={"handlers": handlers, "pid": os.getpid(), "duration": 4})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()


def samples(families):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


@unittest.skipUnless(prometheus_client, "prometheus-client is not installed")
@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Metrics(unittest.TestCase):
    def setUp(self):
        self.counted, self.sizes = pp.Count("_pid", "_comm"), pp.Hist("_tid", unit="ids")
        self.tables = {"calls": self.counted, "sizes": self.sizes}

    def work(self, handler_tables):
        with Call(handler_tables):
            while not self.counted.total:
                os.getppid()
            for _ in range(1000):
                os.getppid()

    def test_a_page_is_what_the_parser_of_prometheus_client_reads(self):
        self.work((self.counted, self.sizes))
        with metrics.serve(self.tables, listen="127.0.0.1:0") as server:
            with urllib.request.urlopen(server.url) as answer:
                found = samples(text_string_to_metric_families(answer.read().decode()))
        for (pid, comm), count in self.counted.items():
            self.assertEqual(found["perf_prof_calls_total", (("comm", comm), ("pid", str(pid)))], count)
        self.assertEqual(found["perf_prof_sizes_tid_count", ()], self.sizes.total.count)
        self.assertEqual(found["perf_prof_sizes_tid_sum", ()], self.sizes.total.sum)

    def test_a_registry_gets_the_same(self):
        self.work((self.counted, self.sizes))
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.collector(self.tables))
        text = prometheus_client.generate_latest(registry).decode()
        found = samples(text_string_to_metric_families(text))
        [((pid, comm), count)] = self.counted.items()
        self.assertEqual(found["perf_prof_calls_total", (("comm", comm), ("pid", str(pid)))], count)
        self.assertEqual(found["perf_prof_sizes_tid_bucket", (("le", "+Inf"),)], self.sizes.total.count)
        self.assertEqual(found["perf_prof_sizes_tid_sum", ()], self.sizes.total.sum)
        self.assertEqual(found["perf_prof_delivered_total", ()], count)
        self.assertEqual(found["perf_prof_lost_total", ()], 0)
        self.assertEqual((found["perf_prof_partial", ()], found["perf_prof_up_to_date", ()]), (0, 1))
        self.assertEqual(found["perf_prof_build_info", (("version", pp.__version__),)], 1)

    def test_tables_of_the_caller_are_found_by_their_first_names(self):
        table, private = pp.Count(), pp.Count()
        namespace = {"handler": (table, private), "calls": table, "_hidden": private, "__sample__": private, "x": 3}
        self.assertEqual(list(metrics.find_tables(namespace)), ["handler_0", "handler_1"])
        self.assertEqual(list(metrics.find_tables(dict(reversed(namespace.items())))), ["__sample__", "calls"])

    def test_addresses(self):
        self.assertEqual(metrics.parse_address("9464"), ("127.0.0.1", 9464))
        self.assertEqual(metrics.parse_address("[::1]:9464"), ("::1", 9464))
        for wrong in ["", "localhost", "1.2.3.4:99999", "::1:80", "1.2.3.4:x"]:
            with self.assertRaises(ValueError, msg=wrong):
                metrics.parse_address(wrong)
