#!/usr/bin/env -S perf-prof python -q -e block-io
"""Block device latency: how long requests take, as histograms, in all or by operation, device or task.

usage: biolatency.py [OPTION of perf-prof python]... [--by op|dev|task|rwbs] [--of PART] [--heatmap FILE.svg]

    flush: 41 values
         usecs               : count     distribution
      2048 -> 4095           : 22       |****************************************|
      4096 -> 8191           : 19       |**********************************      |

Two groups in one histogram are often two kinds of requests, for example those that a cache answers and all others. --by op
or --by rwbs shows the kinds separately (S is synchronous, M is metadata, A is read ahead). If the time in the queue
(--of queued) is most of the duration, the device gets more requests than it can serve at a time. --of flush is for how long
writes of journals waited for flushes. `FF` in --by rwbs are the flushes that the device makes, each for all that wait for it.

-p PID, -t TID and --exec COMMAND select the tasks that ask; the events of all tasks are traced for that. Devices have
numbers, as `lsblk` shows them. With -i 1000, histograms are printed every second, else once at the end. --heatmap draws
the latencies over time: slow requests at regular times (a flush of caches, a checkpoint) are visible there.
"""
from __future__ import annotations

from typing import Any

from perf_prof import Heatmap, Hist
from perf_prof.script import Options

options = Options(__doc__)
options.add_argument("--by", choices=("op", "dev", "task", "comm", "rwbs"), help="a histogram for each of them; task is comm")
OF = ("duration", "queued", "flush", "device")
options.add_argument("--of", choices=OF, default="duration", help="which part of a request's time (default: duration, all of it)")
options.add_argument("--heatmap", metavar="FILE.svg", help="write a heat map of the whole run")
args = options.parse()

# Only some writes wait for flushes.
where = "flush>0" if args.of == "flush" else None
latencies = Hist(args.of, by="comm" if args.by == "task" else args.by, unit="us", where=where)
block_io: Any = latencies
if args.heatmap:
    try:
        Heatmap.check(args.heatmap)
    except (OSError, ValueError) as error:
        options.error(f"--heatmap {error}")
    over_time = Heatmap("Block Device Latency", value=args.of)

    def draw(e: Any) -> None:
        ns = getattr(e, args.of)
        if ns is not None and (where is None or ns > 0):
            over_time.add(e._time, ns)

    block_io = latencies, draw


def show() -> None:
    latencies.print()
    # With --by, the lines above are a table of percentiles.
    for key, of_key in latencies.most_common() if args.by else ():
        print(f"\n{key}: {len(of_key)} values")
        of_key.print()


def __interval__() -> None:
    show()
    latencies.clear()


def __exit__() -> None:
    try:
        show()
    finally:  # The heat map is also drawn if `| head` has closed the pipe.
        if args.heatmap and over_time:
            over_time.save(args.heatmap)
            print("the heat map is in", args.heatmap)
        elif args.heatmap:
            print("no heat map was drawn: it would be empty")
