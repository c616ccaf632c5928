#!/usr/bin/env -S perf-prof python -q -e tcp
"""TCP connections, one line each when they end: both ends, the time to connect, the life, retransmits and resets.

usage: tcplife.py [OPTION of perf-prof python]... [--port PORT] [--states] [--bad]

    TIME         TASK                   ROLE    LOCAL                 REMOTE                CONNECT ms    LIFE ms RESENT END
    14:03:12.518 curl 604               client  10.0.0.7:43210        10.0.0.9:443               21.42     180.77      0 closed
    14:03:12.611 nginx 811              server  10.0.0.7:80           10.0.0.4:51022              0.08    5012.31      3 closed
    14:03:15.002 backup 7120            client  10.0.0.7:43388        10.0.0.9:5432                  -       0.21      0 reset received

A client without a time to connect was refused (a reset in less than a millisecond or so), or gave up (RESENT counts its
first packets). RESENT in established connections is a lossy or crowded network. The end `ESTABLISHED` is a connection
that was cut off without a goodbye: by a timeout, or by a close() with unread data, which sends a reset.

-p PID, -t TID and --exec COMMAND select tasks; the events of all tasks are traced for that. A server's task is the one
that closes the connection, and `-` if nobody did. Connections that began before the script are not shown. No tracepoint
tells how many bytes a connection carried.
"""
from __future__ import annotations


from perf_prof import PerfEvent, at_least, print
from perf_prof.script import Options, clock

options = Options(__doc__)
options.add_argument("--port", type=at_least(1), metavar="PORT", help="only connections from or to this port")
options.add_argument("--states", action="store_true", help="also the time in each state")
options.add_argument("--bad", action="store_true", help="only connections with retransmits or a reset, or never established")
args = options.parse()

# The last states of a connection that both ends closed.
CLOSED = ("FIN_WAIT2", "LAST_ACK", "CLOSING", "TIME_WAIT")


def end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def __init__() -> None:
    print(
        f"{'TIME':<12} {'TASK':<22} {'ROLE':<7} {'LOCAL':<21} {'REMOTE':<21} {'CONNECT ms':>10} {'LIFE ms':>10} {'RESENT':>6} END"
    )


def tcp(event: PerfEvent) -> None:
    if args.port not in (None, event.sport, event.dport):
        return
    if args.bad and event.connect and not event.retransmits and not event.reset:
        return
    states = [state.partition("=") for state in event.states.split()]
    last = states[-1][0] if states else ""
    how = f"reset {event.reset}" if event.reset else "closed" if last in CLOSED else last
    task = f"{event.comm} {event.pid}" if event.pid >= 0 else "-"
    connect = f"{event.connect / 10**6:.2f}" if event.connect else "-"
    ends = f"{end(event.saddr, event.sport):<21} {end(event.daddr, event.dport):<21}"
    numbers = f"{connect:>10} {event.duration / 10**6:>10.2f} {event.retransmits:>6}"
    print(f"{clock(event._realtime)} {task:<22} {event.role:<7} {ends} {numbers} {how}")
    if args.states:
        print(f"{'':>12} " + ", ".join(f"{name} {int(ns) / 10**6:.2f} ms" for name, _, ns in states))
