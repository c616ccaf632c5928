#!/usr/bin/env -S perf-prof python -q -e tcp/open/
"""TCP connections, one line each when they end: both ends, the time to connect, the life, retransmits and resets.

usage: tcplife.py [OPTION of perf-prof python]... [--port PORT] [--slow MS] [--states] [--bad] [--open] [--json]

    TIME         TASK                   ROLE    LOCAL                 REMOTE                CONNECT ms    LIFE ms RESENT END
    14:03:12.518 curl 604               client  10.0.0.7:43210        10.0.0.9:443               21.42     180.77      0 closed
    14:03:12.611 nginx 811              server  10.0.0.7:80           10.0.0.4:51022                 -    5012.31      3 closed
    14:03:15.002 backup 7120            client  10.0.0.7:43388        10.0.0.9:5432                  -       0.21      0 reset received

A client without a time to connect was refused (a reset in less than about a millisecond), or gave up (RESENT counts its
first packets). RESENT in established connections means a lossy or crowded network. `reset sent` means that close() was called
with unread data, or with SO_LINGER and no time. The end `ESTABLISHED` means that a timeout ended the connection.

A server's connection begins with the last packet of its handshake, so it has no time to connect, RESENT does not count the
SYN-ACKs that it sent again (`perf-prof top tcp:tcp_retransmit_synack --by sport` does), and a handshake that the client never
ends is not shown. A full backlog drops packets, which clients show by RESENT, and the server by `nstat TcpExtListenDrops`.

On virtual machines whose idle CPUs deliver no events (`perf-prof doctor` names them), changes of state may be missing. An END
with `not all seen` tells it, if a later change does: CONNECT and times of states are then not known. RESENT, by which --bad
goes too, lacks what an idle CPU sent again: `perf-prof top 'tcp:tcp_retransmit_skb/err == 0/' --by sport,dport` has all.

Connections that began before the script are not shown. The last lines count those that ended, and packets that were sent again
in them. Those whose end is missing, or that have not ended, are only counted; --open shows them, with the time of their begin.
`--open --states` shows those that a program does not close after the other end did (CLOSE_WAIT): it leaks them. `--slow 1000
--open` shows clients whose connect took 1000 ms or more, that gave up after it, or that still try (no answer).
-p PID, -t TID and --exec COMMAND select tasks; the events of all tasks are traced for that. For a server, TASK is the task that
closes or resets the connection, and `-` if it has not ended, or a reset of the other end or a timeout ended it. With -p these are
only counted at the end (`at least`); --port without -p shows them. -p selects no workers that PID has already: name them too.
No tracepoint tells how many bytes a connection carried, or when accept() returned it: LIFE includes the time in the queue.
"""
from __future__ import annotations

from perf_prof import PerfEvent, at_least, missing, print, stats
from perf_prof.script import Columns, Lines, Options, clock, say_missing

options = Options(__doc__, json=True)
options.add_argument("--port", type=at_least(1), metavar="PORT", help="only connections from or to this port")
options.add_argument("--slow", type=at_least(0), metavar="MS", help="only clients whose connect took at least this long")
options.add_argument("--states", action="store_true", help="also the time in each state")
options.add_argument("--open", action="store_true", help="also connections that have not ended at the end")
options.add_argument("--bad", action="store_true", help="only connections with retransmits or a reset, or never established")
args = options.parse()

CLOSED = ("FIN_WAIT2", "LAST_ACK", "CLOSING", "TIME_WAIT")  # the last states of a connection that both ends closed
unclear = resent = 0


def times(states: dict[str, int]) -> str:
    return f"\n{'':>12} " + ", ".join(f"{name} {ns / 10**6:.2f} ms" for name, ns in states.items()) if args.states else ""


columns = Columns(
    args.json, time=("TIME", "<12", clock), task=("TASK", "<22"), role=("ROLE", "<7"), local=("LOCAL", "<21"),
    remote=("REMOTE", "<21"), connect=("CONNECT ms", ">10.2f", lambda ns: ns / 10**6),
    life=("LIFE ms", ">10.2f", lambda ns: ns / 10**6), resent=("RESENT", ">6"), end=("END", ""), states=("", "", times),
)  # fmt: skip
__init__ = Lines(columns).init


def end(address: str, port: int) -> str:
    return f"[{address}]:{port or '-'}" if ":" in address else f"{address}:{port or '-'}"


def tcp(event: PerfEvent) -> None:
    global unclear, resent
    if args.port not in (None, event.sport, event.dport) or event.open and not args.open:
        return
    parts = [state.partition("=") for state in event.states.split()]
    states = {name: int(ns) for name, _, ns in parts}
    is_seen = "unknown" not in states
    gave_up = event.role == "client" and is_seen and "ESTABLISHED" not in states
    took = event.duration if gave_up else event.connect
    if args.slow is not None and (took is None or took < args.slow * 10**6):
        unclear += event.role == "client" and took is None
        return
    if args.bad and is_seen and "ESTABLISHED" in states and not event.retransmits and not event.reset:
        return
    last = parts[-1][0] if parts else ""
    how = "open" if event.open else f"reset {event.reset}" if event.reset else "closed" if last in CLOSED else last
    task = f"{event.comm} {event.pid}" if event.pid >= 0 else None
    ends = end(event.saddr, event.sport), end(event.daddr, event.dport)
    resent += event.retransmits
    numbers = event.connect or None, event.duration, event.retransmits
    print(columns.line(event._realtime, task, event.role, *ends, *numbers, how if is_seen else f"{how}, not all seen", states))


def __exit__() -> None:
    counts = dict(stats().get("events", {}).get("tcp") or {})
    for number, text in (
        (0 if args.open else counts.get("open", 0), "connections that had not ended, of all tasks: {}; --open shows them"),
        (counts.get("begun_before", 0), "not shown, as they began before: {}; `perf-prof top tcp:tcp_receive_reset` counts resets"),
        (counts.get("begun_before_events", 0), "packets sent again in connections that began before, which are not shown: {}"),
        (unclear, "clients that are not shown, because not all their changes of state were seen: {}"),
        (bool(missing()), "events are missing: RESENT may be too low, a reset or a state be missing, an open connection have ended"),
        (resent, "RESENT counts packets as the kernel sent them again; one may hold several segments (`nstat TcpRetransSegs`)"),
    ):
        if number:
            columns.note(text.format(number))
    say_missing(columns)
