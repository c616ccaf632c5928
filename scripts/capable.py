#!/usr/bin/env -S perf-prof python -q -e capability:cap_capable
"""Capabilities: which task is asked for which capability, how often, and how often it does not have it.

usage: capable.py [OPTION of perf-prof python]... [--refused] [--by-pid] [--top N]

    CAPABILITY                 CHECKS   REFUSED  COMM
    CAP_SYS_ADMIN                  12        12  updatedb
    CAP_NET_ADMIN                   4         0  NetworkManager

Rows of a program that runs as root show the capabilities that it needs without root (capabilities(7)). If checks are
refused, the program may lack this capability. But some refused checks are harmless: the kernel also checks before it
gives a task more than others, for example more memory (CAP_SYS_ADMIN), and goes on without an error if it is refused.

With -i 1000, a table is printed every second, else one at the end. Needs Linux 6.14 or later.

To replay a recording in two processes (`perf record` can be used instead of `perf-prof record`):

    perf-prof record -a -e capability:cap_capable -- sleep 10
    capable.py --input perf.data --jobs 2
"""
from __future__ import annotations

from collections import Counter

from perf_prof import PerfEvent, print
from perf_prof.script import Options, Report, counted, first_rows

options = Options(__doc__, top=40)
options.add_argument("--refused", action="store_true", help="only checks that the kernel refused")
options.add_argument("--by-pid", action="store_true", help="one row for each process and capability")
args = options.parse()

# The names of the capabilities from number 0 on (include/uapi/linux/capability.h).
NAMES = """chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service
net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin
sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override
mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore""".upper().split()

Task = tuple[str, int | None]  # name, and process with --by-pid
Table = Counter[tuple[Task, int, bool]]  # (task, capability, whether the kernel refused the check) -> number of checks


def name(number: int) -> str:
    return f"CAP_{NAMES[number]}" if 0 <= number < len(NAMES) else f"capability {number}"


def show(table: Table) -> None:
    print(f"{'CAPABILITY':<24} {'CHECKS':>8} {'REFUSED':>9}  {'PID      ' if args.by_pid else ''}COMM")
    rows = {(task, cap): (table[task, cap, False], table[task, cap, True]) for task, cap, _ in table.copy()}
    first, more = first_rows(rows.items(), args.top, lambda row: (-sum(row[1]), str(row[0][0]), row[0][1]))
    for ((comm, pid), cap), (granted, refused) in first:
        process = f"{pid:<8} " if pid is not None else ""
        print(f"{name(cap):<24} {granted + refused:>8} {refused:>9}  {process}{comm}")
    print(f"{table.total()} checks in {counted(len(rows), 'row')}{more}\n")


report = Report(Counter, show)
__interval__, __partial__, __merge__, __exit__ = report.callbacks


def capability__cap_capable(event: PerfEvent) -> None:
    refused = event.ret != 0
    if refused or not args.refused:
        report.table[(event._comm, event._pid if args.by_pid else None), event.cap, refused] += 1
