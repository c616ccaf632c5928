#!/usr/bin/env -S perf-prof python -q --order -e dummy
"""Latency of functions of programs and libraries: how long each call took, as a histogram of powers of two per function.

usage: uprobe_latency.py [OPTION of perf-prof python]... [--ns] [--min US]

Select entry and return of each function with -e, and whose calls: those of all processes, of some (-p PID, -t TID), of a
command (--exec CMD). With -i 1000 histograms of each second are printed, else one set at the end.

    uprobe_latency.py -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' -i 1s

Functions of one name in several files have a histogram each, as long as their processes are there to be asked which it is.

A call's time has in it what the functions take that it calls, what it waits, and about a microsecond or two that the probes
take. Of a thread that is in 64 calls of probed functions at a time, the kernel tells no return of those deeper inside: they are
counted, and not timed. Calls that are left by an exception or longjmp() look the same: where 64 entries of a thread are
without return, of functions that are entered then it is not known of which call the next return is; that is counted, too.

Needs --order (its first line has it): a thread may return on another CPU. The event `dummy` there never happens; it stands for
those that are to be given, also to say which of a recording's (of perf-prof record, not of perf) are wanted; by two processes
side by side:

    perf-prof record -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' -a -- sleep 10
    uprobe_latency.py --input perf.data -e 'uprobe:getaddrinfo@libc,uretprobe:getaddrinfo@libc' --jobs 2
"""
import argparse
import heapq
import time
from array import array
from collections import defaultdict

from perf_prof import Log2Hist, is_recording, realtime, shard, stats

title, _, explained = __doc__.split("\n\n", 2)
parser = argparse.ArgumentParser(
    description=title, epilog=explained, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
)
parser.add_argument("--ns", action="store_true", help="histograms of nanoseconds, not of microseconds")
parser.add_argument("--min", type=float, default=0, metavar="US", help="only calls of at least so many microseconds")
parser.add_argument("--usage", action="help", help="show this (--help shows the options of perf-prof)")
args = parser.parse_args()

unit, per_unit = ("nsecs", 1) if args.ns else ("usecs", 1000)


# It stands for the events that are to be given.
__without__ = {"dummy": None}


class Thread:
    """The calls that a thread may be in. Never fewer than the kernel waits for the returns of."""

    __slots__ = ("calls", "known_from", "refused")

    def __init__(self):
        self.calls = []  # (address of the function, time) of each entry, the last one behind
        # Calls that are left by longjmp() or an exception look as if they went on. So of functions that were entered when
        # there was no room, and of those that had to make some, it is not known whether a return is of their last call
        # before this place in `calls`.
        self.known_from = 0
        self.refused = set()

    def enters(self, function, now):
        """Whether there is room: for the kernel, then, there is too."""
        if len(self.calls) < DEEPEST:
            self.calls.append((function, now))
            return True
        self.refused.add(function)
        self.known_from = len(self.calls)
        return False

    def returns(self, function):
        """When it was entered; None if nobody knows, KeyError if it was not."""
        calls = self.calls
        # A function that calls itself returns from the last call first.
        at = next((at for at in reversed(range(len(calls))) if calls[at][0] == function), None)
        if function in self.refused and (at is None or at < self.known_from):
            # Whichever it was, the kernel now waits for one less of the old ones, and for none that came after them.
            del calls[self.known_from :]
            self.refused.add(calls.pop()[0])
            self.known_from = len(calls)
            return None
        if at is None:
            raise KeyError(function)
        entered = calls[at][1]
        # What it has called and what did not return, never will.
        del calls[at:]
        if at < self.known_from:
            self.refused.clear()
            self.known_from = 0
        return entered


class Calls:
    """The calls of one function."""

    def __init__(self):
        self.histogram = Log2Hist(unit)
        self.total = 0
        self.longest = 0

    def add(self, ns):
        self.histogram.add(ns / per_unit)
        self.total += ns
        self.longest = max(self.longest, ns)

    def merge(self, others):
        self.histogram.update(others.histogram)
        self.total += others.total
        self.longest = max(self.longest, others.longest)


# The kernel puts no more return probes over a thread's stack (MAX_URETPROBE_DEPTH, include/linux/uprobes.h).
DEEPEST = 64
# What is open in more threads was left in another way than by return: by longjmp(), the end of the thread.
MOST_THREADS = 10000
MOST_PLACES = 10000

open_calls = {}  # tid -> Thread, of those that are in calls
files = {}  # (pid, address of the function) -> the file
files_of = {}  # (name, offset of the function in its page, the same in all processes) -> the file
functions = defaultdict(Calls)  # (name, the file; while that is not known, the offset in the page)
unpaired = 0
deeper = 0
ambiguous = 0
tables = 0


def __init__():
    selected = stats()["events"]
    for name in selected:
        kind, _, function = name.partition(":")
        other = {"uprobe": "uretprobe", "uretprobe": "uprobe"}.get(kind)
        if other and f"{other}:{function}" not in selected:
            parser.error(f"{name} is selected without {other}:{function}; a call's time needs both")
    if is_recording() and not any(name.startswith("uprobe:") for name in selected):
        parser.error("name the probes that were recorded, as for perf-prof record: -e uprobe:FUNC@FILE,uretprobe:FUNC@FILE")


def __sample__(event):
    function = event.get("__probe_ip")
    if function is not None:
        enters(event._time, event._tid, function)
    else:
        returns(event._time, event._tid, event["__probe_func"], event._event.partition(":")[2], event._pid)


def enters(now, tid, function):
    global deeper
    thread = open_calls.get(tid)
    if thread is None:
        if len(open_calls) >= MOST_THREADS:
            del open_calls[next(iter(open_calls))]  # the oldest
        thread = open_calls[tid] = Thread()
    deeper += not thread.enters(function, now)


def returns(now, tid, function, name, pid=None):
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


def file_of(pid, address, name):
    """The file that a function is in. That of a process that is gone is the one with the function at the same place."""
    place = pid, address
    if place not in files:
        if len(files) >= MOST_PLACES:
            files.clear()
        files[place] = mapped(pid, address)
    offset = address % 4096
    if files[place]:
        files_of[name, offset] = files[place]
    return files[place] or files_of.get((name, offset), offset)


def mapped(pid, address):
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


def __lost__(lost_start, lost_end):
    # What was entered before may have returned and been entered again in the gap.
    open_calls.clear()


def duration(ns):
    """1234567 -> '1234.567 us'"""
    return f"{ns / 1000:.3f} us"


def show(end=None):
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
            # The last digits of its address are the same in all processes.
            unknown = f"at ...{file:03x}" if is_recording() else "of processes that are gone"
            name += f" ({unknown if isinstance(file, int) else file})"
        print(f"{name}: {count} calls, mean {duration(calls.total / count)}, longest {duration(calls.longest)}")
        calls.histogram.print()
        print()
    if not functions:
        print("no calls seen (of functions that -e selects with entry and return: uprobe:FUNC@FILE,uretprobe:FUNC@FILE)")
    functions.clear()


def __interval__():
    show(realtime())


# Of a recording that several processes share (--jobs), each sees a part. It times the calls that were entered in it and owes
# __merge__ the returns of others. That is right as long as a thread's calls before the part and those in it are no more than
# the kernel waits for, and none is left: so all steps are kept too, as numbers, and where it may be wrong __merge__ does them
# one after the other. Where each process has its own CPUs it always does.
part = shard()


class Part:
    """What a process knows of its part."""

    def __init__(self):
        self.log = array("Q")  # time, thread and step of all of the interval
        self.steps = {}  # (address, name or None for an entry) -> its number; None for a loss
        self.intervals = []  # (when it ended, its functions, its log)
        self.is_sure = part["split"] == "time"
        self.from_nothing = part["number"] == 0  # whether no thread was in a call at first
        self.owed = []  # (time, interval, thread, address, name) of returns from calls of parts before
        self.forgets = False  # whether events were lost in it
        self.deepest = {}  # thread -> in how many calls it was at most, of those in this part
        self.most_threads = 0

    def keep(self, now, tid, step):
        self.log.append(now)
        self.log.append((tid & 0xFFFFFFFF) << 32 | self.steps.setdefault(step, len(self.steps)))

    def enters(self, now, tid, function):
        self.keep(now, tid, (function, None))
        if self.is_sure:
            enters(now, tid, function)
            self.deepest[tid] = max(self.deepest.get(tid, 0), len(open_calls[tid].calls))
            self.most_threads = max(self.most_threads, len(open_calls))
            self.is_sure = deeper == 0 and self.most_threads < MOST_THREADS

    def returns(self, now, tid, function, name):
        self.keep(now, tid, (function, name))
        thread = open_calls.get(tid)
        if not self.is_sure:
            return
        if self.from_nothing or (thread is not None and any(function == call for call, _ in thread.calls)):
            returns(now, tid, function, name)
        elif thread is None:
            self.owed.append((now, len(self.intervals), tid, function, name))
        else:
            # Of a call before the part, and then those in it were left; or of none, and they go on.
            self.is_sure = False

    def loses(self, now):
        self.keep(now, 0, None)
        open_calls.clear()
        self.from_nothing = self.forgets = True

    def ends_interval(self, end):
        self.intervals.append((end, functions.copy(), self.log))
        functions.clear()
        self.log = array("Q")


if part:
    this = Part()

    def __sample__(event):
        function = event.get("__probe_ip")
        if function is not None:
            this.enters(event._time, event._tid, function)
        else:
            this.returns(event._time, event._tid, event["__probe_func"], event._event.partition(":")[2])

    def __lost__(lost_start, lost_end):
        this.loses(lost_end)

    def __interval__():
        this.ends_interval(realtime())


def __partial__():
    this.ends_interval(None)
    this.steps = list(this.steps)
    return this, open_calls, unpaired


def joined(partials):
    """The functions of each interval, of what the parts have timed; None where one of them may be wrong."""
    global functions, unpaired
    merged = defaultdict(lambda: defaultdict(Calls))
    for of_part, still_open, count in partials:
        depth = max((len(open_calls[tid].calls) + of_part.deepest.get(tid, 0) for tid in open_calls), default=0)
        if not of_part.is_sure or depth > DEEPEST or len(open_calls) + of_part.most_threads > MOST_THREADS:
            return None
        for end, timed, _ in of_part.intervals:
            for key, calls in timed.items():
                merged[end][key].merge(calls)
        for now, interval, *call in of_part.owed:
            functions = merged[of_part.intervals[interval][0]]
            returns(now, *call)
        if of_part.forgets:
            open_calls.clear()
        for tid, thread in still_open.items():
            open_calls.setdefault(tid, Thread()).calls.extend(thread.calls)
        unpaired += count
    return merged


def done_again(partials):
    """The same, of all steps."""
    global functions, unpaired
    unpaired = 0
    open_calls.clear()
    merged = defaultdict(lambda: defaultdict(Calls))

    def steps(of_part):
        for end, _, log in of_part.intervals:
            for now, what in zip(log[::2], log[1::2]):
                yield now, end, what >> 32, of_part.steps[what & 0xFFFFFFFF]

    for now, end, tid, step in heapq.merge(*(steps(of_part) for of_part, *_ in partials), key=lambda step: step[0]):
        functions = merged[end]
        if step is None:
            __lost__(now, now)
        elif step[1] is None:
            enters(now, tid, step[0])
        else:
            returns(now, tid, *step)
    return merged


def __merge__(partials):
    global functions
    ends = sorted({end for of_part, *_ in partials for end, *_ in of_part.intervals if end is not None})
    merged = joined(partials)
    if merged is None:
        merged = done_again(partials)
    for end in ends:
        functions = merged[end]
        show(end)
    functions = merged[None]


def __exit__():
    if functions or not tables:
        show()
    if unpaired:
        print(f"({unpaired} returns whose entry was not seen are not counted)")
    if deeper:
        print(f"({deeper} calls are not timed: {DEEPEST} others of their thread had not returned when they were entered)")
    if ambiguous:
        print(f"({ambiguous} returns are not timed: they may be of such calls, or of those before)")
