#!/usr/bin/env -S perf-prof python -q -e block-io
"""Requests to block devices, one line each: the task, the place, the size, and where the time went.

usage: biosnoop.py [OPTION of perf-prof python]... [--dev NAME] [--min US] [--failed]

    TIME         TASK                   DEV      OP           SECTOR     BYTES  QUEUED us   FLUSH us  DEVICE us  ERROR
    14:03:12.518 mysqld 604             nvme0n1  write      91830272     16384       12.1        0.0       88.4
    14:03:12.519 kworker/1:0H 24        vda      flush             0         0          -        0.0     4210.7
    14:03:12.519 jbd2/vda1-8 301        vda      write        204800      4096        1.1     4214.9       85.2

A long time on the device means that the device is slow, or gets too many requests at once. A long time in the queue means
that the device is busy with other requests: look for them above. FLUSH is the time for which a write, such as that which
ends a transaction of a journal, waited until the device had flushed its cache, before or after its data.

A `flush` of a kworker is one that the device makes (`FF` in `rwbs`), for all requests that wait for it; a `flush` of another
task is that task's wait for one. If a program only writes into the page cache, a thread of the kernel writes the pages later.

-p PID, -t TID and --exec COMMAND select the tasks that ask; the events of all tasks are traced for that. `-` stands for a
time that is not known. In recordings, devices have only numbers, as `lsblk` shows them.
"""
from __future__ import annotations

import os
from functools import cache

from perf_prof import PerfEvent, at_least, is_recording, print
from perf_prof.script import Options, clock

options = Options(__doc__)
options.add_argument("--dev", metavar="NAME", help="only this device: vda or 254:0")
options.add_argument("--min", type=at_least(0), default=0, metavar="US", help="only requests of at least US microseconds")
options.add_argument("--failed", action="store_true", help="only requests that failed")
args = options.parse()


@cache
def device(number: str) -> str:
    """Returns the name of a device, or its number if this machine does not know it."""
    if is_recording():
        return number
    try:
        return os.path.basename(os.readlink(f"/sys/dev/block/{number}"))
    except OSError:
        return number


def __init__() -> None:
    print(
        f"{'TIME':<12} {'TASK':<22} {'DEV':<8} {'OP':<8} {'SECTOR':>12} {'BYTES':>9} {'QUEUED us':>10} {'FLUSH us':>10}"
        f" {'DEVICE us':>10}  ERROR"
    )


def block_io(event: PerfEvent) -> None:
    name = device(event.dev)
    if event.duration < args.min * 1000 or args.dev not in (None, name, event.dev) or args.failed and not event.errno:
        return
    task = f"{event.comm} {event.pid}"
    parts = event.queued, event.flush, event.device
    times = " ".join(f"{'-':>10}" if ns is None else f"{ns / 1000:>10.1f}" for ns in parts)
    text = f"{clock(event._realtime)} {task:<22} {name:<8} {event.op:<8} {event.sector:>12} {event.bytes:>9} {times}  {event.errno}"
    print(text.rstrip())
