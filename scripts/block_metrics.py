#!/usr/bin/env -S perf-prof python --listen 127.0.0.1:9464 -e block-io
"""Metrics of block devices: how long requests took and how many bytes they had, by device and operation.

usage: block_metrics.py [OPTION of perf-prof python]... [--listen ADDRESS:PORT]

Prometheus gets the histograms perf_prof_block_duration_seconds and perf_prof_block_size_bytes at http://127.0.0.1:9464/metrics. Devices
have numbers, as `lsblk` shows them. At the end, the same tables are printed.
"""
from __future__ import annotations

from perf_prof import Hist
from perf_prof.script import Options

Options(__doc__).parse()
block = Hist("duration", by=("dev", "op"), unit="us", limit=200)
block_size = Hist("bytes", by=("dev", "op"), unit="bytes", limit=200)
block_io = block, block_size


def __exit__() -> None:
    block.print()
    block_size.print()
