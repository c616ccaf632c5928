#!/usr/bin/env -S perf-prof python -q -e oncpu
"""Time on CPU: how long tasks run at a time until they wait or have to make room, as a histogram.

usage: cpudist.py [OPTION of perf-prof python]... [--comm NAME] [--by comm|pid|why]

    412 values, p50 41, p90 2900, p99 3100, max 3998
         usecs               : count     distribution
        16 -> 31             : 205      |****************************************|
        32 -> 63             : 113      |**********************                  |
      2048 -> 4095           : 94       |******************                      |

Many short runs are work in small pieces: locks, messages, small reads. A group near 3000 us that ends preempted
(--by why) is a busy task that shares its CPU with others: it fills the time slice that the scheduler gives to each.

-p PID, -t TID and --exec COMMAND select tasks; the events of all tasks are traced for that. A run that began before the
script started is not counted. With -i 1000, histograms are printed every second, else once at the end.
"""
from __future__ import annotations


from perf_prof import Hist
from perf_prof.script import Options

options = Options(__doc__, comm=True)
options.add_argument("--by", choices=("comm", "pid", "why"), help="a histogram for each of them")
args = options.parse()

runs = oncpu = Hist("duration", by=args.by, unit="us", where=f'comm=="{args.comm}"' if args.comm else None)


def __interval__() -> None:
    runs.print()
    runs.clear()


__exit__ = runs.print
