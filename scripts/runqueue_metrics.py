#!/usr/bin/env -S perf-prof python --listen 127.0.0.1:9464 -e runqueue
"""Metrics of run-queue latency: how long runnable tasks waited for a CPU, by the name of the task.

usage: runqueue_metrics.py [OPTION of perf-prof python]... [--listen ADDRESS:PORT]

Prometheus gets the histogram perf_prof_runqueue_duration_seconds at http://127.0.0.1:9464/metrics. The first 100 names have series
of their own, all others have the one with comm="[others]". At the end, the same table is printed.
"""
from __future__ import annotations

from perf_prof import Hist
from perf_prof.script import Options

Options(__doc__).parse()
runqueue = Hist("duration", by="comm", unit="us", limit=100)


def __exit__() -> None:
    runqueue.print(top=20)
