"""Aggregators as metrics of Prometheus: for `perf-prof serve`, for programs, and for the package prometheus-client.

Each global aggregator is a metric: Count and Sum are counters, Hist is a histogram. Stacks are profiles for pprof.
There is no login: everybody who reaches the address can read everything.
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perf_prof._native import (
    Aggregator,
    Stacks,
    keep_first_keys,
    metric_families,
    metrics_page,
    refresh_tables,
)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

# The maximum number of requests at a time, and the time in s that a client may take to send a request or to read the
# answer.
REQUESTS = 16
PATIENCE = 10.0


def find_tables(namespace: Mapping[str, Any]) -> dict[str, Aggregator]:
    """Returns the aggregators among the values, and those in tuples and lists among the values. Each has its first
    name. Names with one leading underscore are private."""
    found: dict[str, Aggregator] = {}
    for name, value in namespace.items():
        is_list = isinstance(value, (tuple, list))
        for at, item in enumerate(value if is_list else [value]):
            is_private = name.startswith("_") and not name.startswith("__")
            if isinstance(item, Aggregator) and not is_private and not any(item is known for known in found.values()):
                found[f"{name}_{at}" if is_list else name] = item
    return found


def own_names() -> set[str]:
    """Returns the names of the metrics about perf-prof itself, without the suffix of counters."""
    lines = metrics_page([], native=False).decode().splitlines()
    return {line.split()[2].removesuffix("_total") for line in lines if line.startswith("# TYPE")}


class Metrics:
    """The metrics of some tables. A table keeps its first keys, up to its limit. Later keys are added up in the series
    whose labels are all [others], so that no series decreases."""

    def __init__(self, tables: Mapping[str, Aggregator]) -> None:
        self.stacks = {name: table for name, table in tables.items() if isinstance(table, Stacks)}
        self.tables = [(name, table) for name, table in tables.items() if not isinstance(table, Stacks)]
        keep_first_keys([table for _, table in self.tables])
        names = [family[0] for family in metric_families(self.tables)]
        own = own_names()
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two aggregators have the metric name {name}: rename one of them")
            if name.removesuffix("_total") in own:
                raise ValueError(f"{name} is a metric about perf-prof itself: rename the aggregator")

    def text(self) -> bytes:
        """Returns the metrics in the text format of Prometheus."""
        return metrics_page(self.tables, native=False, others=list(self.stacks.values()))

    def protobuf(self) -> bytes:
        """Returns the metrics in the format of protobuf, with native histograms."""
        return metrics_page(self.tables, native=True, others=list(self.stacks.values()))

    def profile(self, name: str) -> bytes | None:
        """Returns the pprof profile of the Stacks with this name, or None if there is none."""
        table = self.stacks.get(name)
        if table is None:
            return None
        refresh_tables([table])
        return table.pprof()

    def index(self) -> bytes:
        """Returns a page that lists all other pages."""
        pages = ["/metrics", *(f"/debug/pprof/{name}" for name in self.stacks)]
        return "".join(f'<a href="{page}">{page}</a><br>\n' for page in pages).encode()


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: "_HttpServer"

    def do_GET(self) -> None:
        metrics, path = self.server.metrics, self.path.partition("?")[0]
        accepted = self.headers.get("Accept", "")
        if path == "/metrics":
            is_native = "application/vnd.google.protobuf" in accepted and "encoding=delimited" in accepted
            self.answer(metrics.protobuf() if is_native else metrics.text(), PROTOBUF if is_native else TEXT)
        elif path == "/":
            self.answer(metrics.index(), "text/html; charset=utf-8")
        elif path.startswith("/debug/pprof/") and (profile := metrics.profile(path.removeprefix("/debug/pprof/"))):
            self.answer(profile, "application/octet-stream")
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        """Answers as do_GET does, without the page."""
        self.do_GET()

    def answer(self, page: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing, because stderr belongs to the script."""


def _end(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    is_closed = False

    def __init__(self, address: tuple[str, int], metrics: Metrics) -> None:
        self.metrics = metrics
        self.room = threading.BoundedSemaphore(REQUESTS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up the host's name here, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.room.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread was started. Only the thread of a request would release `room`.
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A socket's timeout starts again with each byte, so the whole request has a deadline.
        deadline = threading.Timer(PATIENCE, _end, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error, because a client that disconnects or is too slow is no error of the server."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def run(self) -> None:
        # serve_forever() would wake up twice a second.
        while not self.is_closed:
            self.handle_request()


class Server:
    """A thread that serves metrics until close(), or until the end of a `with` statement."""

    def __init__(self, metrics: Metrics, address: tuple[str, int]) -> None:
        self._http = _HttpServer(address, metrics)
        host, port = self._http.socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}/metrics" if ":" in str(host) else f"http://{host}:{port}/metrics"
        self._thread = threading.Thread(target=self._http.run, name="perf-prof metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. Unfinished answers may be cut off."""
        self._http.is_closed = True
        # Wakes the thread, because a socket that is shut down becomes ready.
        with contextlib.suppress(OSError):
            self._http.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(1.0)
        self._http.server_close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_address(listen: str) -> tuple[str, int]:
    """Returns the address and the port of '127.0.0.1:9464' or '[::1]:9464'. '9464' is a port of the loopback address.
    """
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or (":" in host) != host.startswith("["):
        raise ValueError(f"{listen!r} is no address: write ADDRESS:PORT, for example 127.0.0.1:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve(tables: Mapping[str, Aggregator] | None = None, *, listen: str = "127.0.0.1:9464") -> Server:
    """Serves tables at http://LISTEN/metrics until close() of the result. Without tables, serves the global aggregators
    of the caller."""
    found = find_tables(sys._getframe(1).f_globals) if tables is None else dict(tables)
    return Server(Metrics(found), parse_address(listen))


class Collector:
    """Passes tables, and the metrics about perf-prof itself, to the package prometheus-client:
    REGISTRY.register(collector()). A registry accepts one collector, because a second one would repeat the metrics
    about perf-prof."""

    def __init__(self, tables: Mapping[str, Aggregator]) -> None:
        self._metrics = Metrics(tables)

    def describe(self) -> list[Any]:
        """Returns no metrics, so that registering the object does not read the tables."""
        return []

    def collect(self) -> Iterator[Any]:
        """Returns the metrics as objects of prometheus-client."""
        from importlib import import_module  # Type checkers may not know types of prometheus-client.

        core, text_of = import_module("prometheus_client.core"), import_module("prometheus_client.utils").floatToGoString

        classes = {
            "histogram": core.HistogramMetricFamily,
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
        }
        others = list(self._metrics.stacks.values())
        for name, kind, text, labels, rows in metric_families(self._metrics.tables, others=others):
            family = classes[kind](name, text, labels=labels)
            for values, value, buckets in rows:
                if kind == "histogram":
                    ends = [(text_of(end), count) for end, count in buckets]
                    family.add_metric(values, buckets=ends, sum_value=value)
                else:
                    family.add_metric(values, value)
            yield family


def collector(tables: Mapping[str, Aggregator] | None = None) -> Collector:
    """Returns a Collector for a registry of prometheus-client. Without tables, it collects the global aggregators of
    the caller."""
    return Collector(find_tables(sys._getframe(1).f_globals) if tables is None else tables)


def serve_script(namespace: Mapping[str, Any], listen: str) -> Server:
    """Serves the aggregators of a script that `perf-prof serve` runs."""
    tables = find_tables(namespace)
    if not tables:
        raise ValueError("the script has no Count, Sum, Hist or Stacks among its globals, such as runs = sched__sched_wakeup = Count('comm')")
    return Server(Metrics(tables), parse_address(listen))
