#!/usr/bin/env -S perf-prof python --listen 127.0.0.1:9464 -e syscall
"""Metrics of failed system calls: how many of them returned an error, by call, error number and name of the task.

usage: failed_calls_metrics.py [OPTION of perf-prof python]... [--listen ADDRESS:PORT]

Prometheus gets the counter perf_prof_failed_calls_total at http://127.0.0.1:9464/metrics. The label ret is the negative error
number, -2 for ENOENT. Left out are rt_sigreturn, which has no result of its own, and -512 to -516, which no program sees: the call is
started again, or returns EINTR. The first 1000 combinations have series of their own, all others have the one whose labels are [others]. At
the end, the largest numbers are printed.
"""
from __future__ import annotations

from perf_prof import Count
from perf_prof.script import Options

Options(__doc__).parse()
FAILED = 'ret < 0 && ret >= -4095 && (ret > -512 || ret < -516) && name != "rt_sigreturn"'
failed_calls = syscall = Count("name", "ret", "comm", where=FAILED, limit=1000)


def __exit__() -> None:
    failed_calls.print(top=20)
