#!/usr/bin/env -S perf-prof python -q --order -e dummy
"""Function latency: how long calls of functions in programs and libraries take, with a histogram for each function.

usage: uprobe_latency.py [OPTION of perf-prof python]... [--ns] [--min US]

Select the entry and the return of each function with -e. Select processes with -p PID, -t TID or --exec CMD; without
these, the calls of all processes are timed. With -i 1000, histograms are printed every second, else once at the end.

    uprobe_latency.py -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' -i 1s

Functions with the same name in several files have one histogram each. The script finds the file of a function in
/proc/PID/maps, as long as the process exists.

The time of a call includes the functions that it calls, its waits, and about one or two microseconds for the probes. If
a thread is in 64 calls of probed functions, the kernel reports no return of deeper calls. The deeper calls are counted,
but not timed. A call that ends by an exception or longjmp() has no return either, so it looks as if it were still open.
If a function is entered while its thread has 64 open calls, it is not known to which call its next return belongs. Such
returns are counted, but not timed.

Needs --order, which the script's first line has: a thread may return from a call on another CPU. The first line also
has the event `dummy`, which never occurs. It is only a placeholder for the events that are given with -e.

To replay a recording of perf-prof record (not of perf) in two processes, select the probes with -e again:

    perf-prof record -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' -a -- sleep 10
    uprobe_latency.py --input perf.data -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' --jobs 2
"""
from __future__ import annotations

import argparse
import heapq
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator

from perf_prof import Log2Hist, PerfEvent, at_least, is_recording, print, realtime, shard, stats

title, _, explained = (__doc__ or "").split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--ns", action="store_true", help="histograms of nanoseconds, not of microseconds")
parser.add_argument("--min", type=at_least(0.0), default=0, metavar="US", help="only calls of at least US microseconds")
parser.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
args = parser.parse_args()

unit, per_unit = ("nsecs", 1) if args.ns else ("usecs", 1000)


# `dummy` is only a placeholder for the events that are given with -e.
__without__ = {"dummy": None}


class Thread:
    """The open calls of a thread: all calls for which the kernel waits for a return, and maybe calls that will not
    return."""

    __slots__ = ("calls", "known_from", "refused")

    def __init__(self) -> None:
        # (address of the function, time of its entry); the latest call is the last element
        self.calls: list[tuple[int, int]] = []
        # A call that ends by longjmp() or an exception looks as if it were still open. `refused` has two kinds of
        # functions: functions that were entered when there was no room, and functions with a call that was removed to
        # make room. If a function in `refused` returns, it is known which call returned only if the entry of this call
        # is at index `known_from` of `calls` or later.
        self.known_from = 0
        self.refused: set[int] = set()

    def enters(self, function: int, now: int) -> bool:
        """Adds a call. Returns whether there was room for the call. If so, the kernel has room for the call too."""
        if len(self.calls) < DEEPEST:
            self.calls.append((function, now))
            return True
        self.refused.add(function)
        self.known_from = len(self.calls)
        return False

    def returns(self, function: int) -> int | None:
        """Removes a call and returns the time of its entry. Returns None if it is not known which call returned.

        Raises KeyError if the function was not entered.
        """
        calls = self.calls
        # The latest call of a recursive function returns first.
        at = next((at for at in reversed(range(len(calls))) if calls[at][0] == function), None)
        if function in self.refused and (at is None or at < self.known_from):
            # Whichever call it was, the kernel now waits for one return less of the calls before `known_from`, and for
            # no return of later calls.
            del calls[self.known_from :]
            self.refused.add(calls.pop()[0])
            self.known_from = len(calls)
            return None
        if at is None:
            raise KeyError(function)
        entered = calls[at][1]
        # Calls that were made by this call and have not returned will never return.
        del calls[at:]
        if at < self.known_from:
            self.refused.clear()
            self.known_from = 0
        return entered


class Calls:
    """The times of one function's calls."""

    def __init__(self) -> None:
        self.histogram = Log2Hist(unit)
        self.total = 0
        self.longest = 0

    def add(self, ns: int) -> None:
        self.histogram.add(ns / per_unit)
        self.total += ns
        self.longest = max(self.longest, ns)

    def merge(self, others: Calls) -> None:
        self.histogram.update(others.histogram)
        self.total += others.total
        self.longest = max(self.longest, others.longest)


# The kernel's limit of pending return probes per thread (MAX_URETPROBE_DEPTH, include/linux/uprobes.h).
DEEPEST = 64
# The largest number of threads with open calls. If there are more, some of the calls must have ended without a return:
# by longjmp(), or because the thread ended.
MOST_THREADS = 10000
MOST_PLACES = 10000

open_calls: dict[int, Thread] = {}  # tid -> Thread, for threads with open calls
files: dict[tuple[int | None, int], str | None] = {}  # (pid, address of the function) -> its file
# (name of the function, its offset in the page, which is the same in all processes) -> its file
files_of: dict[tuple[str, int | str], str] = {}
Functions = defaultdict[tuple[str, int | str], Calls]
functions: Functions = defaultdict(Calls)  # (name, file; if the file is not known, the offset in the page) -> Calls
unpaired = 0
deeper = 0
ambiguous = 0
tables = 0


def __init__() -> None:
    selected = stats().get("events", {})
    for name in selected:
        kind, _, function = name.partition(":")
        other = {"uprobe": "uretprobe", "uretprobe": "uprobe"}.get(kind)
        if other and f"{other}:{function}" not in selected:
            parser.error(f"{name} is selected without {other}:{function}; to time calls, select both")
    if is_recording() and not any(name.startswith("uprobe:") for name in selected):
        parser.error("select the recorded probes with -e uprobe:FUNC@FILE,uretprobe:FUNC@FILE")


def __sample__(event: PerfEvent) -> None:
    function = event.get("__probe_ip")
    if function is not None:
        enters(event._time, event._tid, function)
    else:
        returns(event._time, event._tid, event["__probe_func"], event._event.partition(":")[2], event._pid)


def enters(now: int, tid: int, function: int) -> None:
    global deeper
    thread = open_calls.get(tid)
    if thread is None:
        if len(open_calls) >= MOST_THREADS:
            del open_calls[next(iter(open_calls))]  # the oldest
        thread = open_calls[tid] = Thread()
    deeper += not thread.enters(function, now)


def returns(now: int, tid: int, function: int, name: str, pid: int | None = None) -> None:
    global unpaired, ambiguous
    try:
        thread = open_calls[tid]
        entered = thread.returns(function)
    except KeyError:
        unpaired += 1
        return
    if not thread.calls:
        del open_calls[tid]
    if entered is None:
        ambiguous += 1
        return
    ns = now - entered
    if ns >= args.min * 1000:
        functions[name, file_of(pid, function, name)].add(ns)


def file_of(pid: int | None, address: int, name: str) -> str | int:
    """Returns the file of a function, or the function's offset in its page if the file is not known.

    If the process has exited, returns a file that has a function of this name at the same offset.
    """
    place = pid, address
    if place not in files:
        if len(files) >= MOST_PLACES:
            files.clear()
        files[place] = mapped(pid, address)
    offset = address % 4096
    file = files[place]
    if file:
        files_of[name, offset] = file
    return file or files_of.get((name, offset)) or offset


def mapped(pid: int | None, address: int) -> str | None:
    if is_recording():
        return None
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as maps:
            for line in maps:
                words = line.split(maxsplit=5)
                begin, end = (int(number, 16) for number in words[0].split("-"))
                if begin <= address < end:
                    return words[5].strip() if len(words) > 5 else None
    except OSError:
        pass
    return None


def __lost__(lost_start: int, lost_end: int) -> None:
    # While events were lost, open calls may have returned, and their functions may have been entered again.
    open_calls.clear()


def duration(ns: float) -> str:
    """1234567 -> '1234.567 us'"""
    return f"{ns / 1000:.3f} us"


def show(end: int | None = None) -> None:
    global tables
    tables += 1
    if end is not None:
        print(time.strftime("%H:%M:%S", time.localtime(end // 10**9)))
    for name, file in list(functions):
        if (name, file) in files_of:
            functions[name, files_of[name, file]].merge(functions.pop((name, file)))
    names = [name for name, _ in functions]
    for (name, file), calls in sorted(functions.items(), key=lambda item: (-item[1].total, item[0][0], str(item[0][1]))):
        count = len(calls.histogram)
        if names.count(name) > 1:
            # The last three digits of the function's address are the same in all processes.
            unknown = f"at ...{file:03x}" if is_recording() else "in processes that have exited"
            name += f" ({unknown if isinstance(file, int) else file})"
        print(f"{name}: {count} calls, mean {duration(calls.total / count)}, longest {duration(calls.longest)}")
        calls.histogram.print()
        print()
    if not functions:
        print("no calls seen (select a function's entry and return: -e uprobe:FUNC@FILE,uretprobe:FUNC@FILE)")
    functions.clear()


def __interval__() -> None:
    show(realtime())


# With --jobs, this process sees only a part of the recording. It times the calls that were entered in this part, and
# passes the returns of earlier calls to __merge__. This is right if no thread exceeds the kernel's limit of open calls,
# calls from earlier parts included, and if all calls return. To be safe, the process also keeps all steps, as numbers.
# If the result may be wrong, __merge__ does all steps again, in the order of time. With --split cpu, __merge__ always
# does this.
part = shard()
Step = tuple[int, str | None] | None  # (address, name, or None for an entry); None is a loss of events


class Part:
    """The results of this part of the recording."""

    def __init__(self, number: int, split: str) -> None:
        self.log = array("Q")  # two numbers for each step in the interval: the time; the thread and step number
        self.steps: dict[Step, int] = {}  # to the step's number, which counts from 0
        # (end of the interval, its functions, its log)
        self.intervals: list[tuple[int | None, Functions, array[int]]] = []
        self.is_sure = split == "time"  # True while the result is known to be right
        self.from_nothing = number == 0  # True if no call of an earlier part can be open
        # Returns from calls of earlier parts: (time, interval, thread, address, name).
        self.unmatched_returns: list[tuple[int, int, int, int, str]] = []
        self.has_losses = False  # True if events were lost in this part
        self.deepest: dict[int, int] = {}  # thread -> the largest number of open calls that were entered in this part
        self.most_threads = 0  # the largest number of threads that had open calls at the same time

    def keep(self, now: int, tid: int, step: Step) -> None:
        self.log.append(now)
        self.log.append((tid & 0xFFFFFFFF) << 32 | self.steps.setdefault(step, len(self.steps)))

    def enters(self, now: int, tid: int, function: int) -> None:
        self.keep(now, tid, (function, None))
        if self.is_sure:
            enters(now, tid, function)
            self.deepest[tid] = max(self.deepest.get(tid, 0), len(open_calls[tid].calls))
            self.most_threads = max(self.most_threads, len(open_calls))
            self.is_sure = deeper == 0 and self.most_threads < MOST_THREADS

    def returns(self, now: int, tid: int, function: int, name: str) -> None:
        self.keep(now, tid, (function, name))
        thread = open_calls.get(tid)
        if not self.is_sure:
            return
        if self.from_nothing or (thread is not None and any(function == call for call, _ in thread.calls)):
            returns(now, tid, function, name)
        elif thread is None:
            self.unmatched_returns.append((now, len(self.intervals), tid, function, name))
        else:
            # If the call was entered in an earlier part, the thread's open calls of this part have ended without a
            # return. If no entry of the call was seen at all, the open calls of this part are still open.
            self.is_sure = False

    def loses(self, now: int) -> None:
        self.keep(now, 0, None)
        open_calls.clear()
        self.from_nothing = self.has_losses = True

    def ends_interval(self, end: int | None) -> None:
        self.intervals.append((end, functions.copy(), self.log))
        functions.clear()
        self.log = array("Q")


Partial = tuple[Part, dict[int, Thread], int]
Merged = defaultdict[int | None, Functions]  # from the end of an interval

if part:
    this = Part(part["number"], part["split"])

    def __sample__(event: PerfEvent) -> None:
        function = event.get("__probe_ip")
        if function is not None:
            this.enters(event._time, event._tid, function)
        else:
            this.returns(event._time, event._tid, event["__probe_func"], event._event.partition(":")[2])

    def __lost__(lost_start: int, lost_end: int) -> None:
        this.loses(lost_end)

    def __interval__() -> None:
        this.ends_interval(realtime())


def __partial__() -> Partial:
    this.ends_interval(None)
    return this, open_calls, unpaired


def combine_parts(partials: list[Partial]) -> Merged | None:
    """Combines the results of all parts. Returns the functions of each interval, or None if a result may be wrong."""
    global functions, unpaired
    merged: Merged = defaultdict(lambda: defaultdict(Calls))
    for of_part, still_open, count in partials:
        depth = max((len(open_calls[tid].calls) + of_part.deepest.get(tid, 0) for tid in open_calls), default=0)
        if not of_part.is_sure or depth > DEEPEST or len(open_calls) + of_part.most_threads > MOST_THREADS:
            return None
        for end, timed, _ in of_part.intervals:
            for key, calls in timed.items():
                merged[end][key].merge(calls)
        for now, interval, tid, function, name in of_part.unmatched_returns:
            functions = merged[of_part.intervals[interval][0]]
            returns(now, tid, function, name)
        if of_part.has_losses:
            open_calls.clear()
        for tid, thread in still_open.items():
            open_calls.setdefault(tid, Thread()).calls.extend(thread.calls)
        unpaired += count
    return merged


def replay_steps(partials: list[Partial]) -> Merged:
    """Does all steps of all parts again, in the order of time. Returns the functions of each interval."""
    global functions, unpaired
    unpaired = 0
    open_calls.clear()
    merged: Merged = defaultdict(lambda: defaultdict(Calls))

    def steps(of_part: Part) -> Iterator[tuple[int, int | None, int, Step]]:
        known = list(of_part.steps)
        for end, _, log in of_part.intervals:
            for now, what in zip(log[::2], log[1::2]):
                yield now, end, what >> 32, known[what & 0xFFFFFFFF]

    for now, end, tid, step in heapq.merge(*(steps(of_part) for of_part, *_ in partials), key=lambda step: step[0]):
        functions = merged[end]
        if step is None:
            __lost__(now, now)
            continue
        function, name = step
        if name is None:
            enters(now, tid, function)
        else:
            returns(now, tid, function, name)
    return merged


def __merge__(partials: Iterable[Partial]) -> None:
    global functions
    partials = list(partials)
    ends = sorted({end for of_part, *_ in partials for end, *_ in of_part.intervals if end is not None})
    merged = combine_parts(partials)
    if merged is None:
        merged = replay_steps(partials)
    for end in ends:
        functions = merged[end]
        show(end)
    functions = merged[None]


def __exit__() -> None:
    if functions or not tables:
        show()
    if unpaired:
        print(f"(returns that are not counted, because their entry was not seen: {unpaired})")
    if deeper:
        print(f"({deeper} calls are not timed: {DEEPEST} others of their thread had not returned when they were entered)")
    if ambiguous:
        print(f"({ambiguous} returns are not timed: they may belong to calls that are not timed, or to earlier calls)")
