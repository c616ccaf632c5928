"""What scripts have in common: options, tables of the first rows, lines in the order of time, and flame graphs.

    from perf_prof.script import Options, Report

    args = Options(__doc__, top=10).parse()
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from perf_prof import FlameGraph, Parts, at_least, is_recording, is_target, missing, print, process_of, shard
from perf_prof._folders import File, Files, Paths, namespace_mark
from perf_prof._pairs import Pairs, Switches, Waits
from perf_prof._processes import Process, Processes, ProcessNames, Senders
from perf_prof._programs import Programs, arguments, parent_of
from perf_prof._signals import IN_INTERRUPT, is_of_kernel, signal_name, signal_result
from perf_prof._times import Percentiles, Times, TimesHist
from perf_prof._waits import Futexes, Wakers

__all__ = [
    "Columns",
    "File",
    "Files",
    "Futexes",
    "IN_INTERRUPT",
    "Lines",
    "Options",
    "Pairs",
    "Paths",
    "Percentiles",
    "Process",
    "ProcessNames",
    "Processes",
    "Programs",
    "Report",
    "Senders",
    "Switches",
    "Times",
    "TimesHist",
    "Waits",
    "Wakers",
    "WholeRun",
    "arguments",
    "clock",
    "counted",
    "cpu_list",
    "duration",
    "first_rows",
    "function_name",
    "is_of_kernel",
    "is_selected",
    "mapped_file",
    "namespace_mark",
    "parent_of",
    "save_flame",
    "say_missing",
    "signal_name",
    "signal_result",
]

_Item = TypeVar("_Item")

class Options(ArgumentParser):
    """The options of a script: an argparse.ArgumentParser with texts from the script's docstring.

    doc has a title, the usage and the explanation, with empty lines between them. The script gets the option --usage, which
    shows them with its options. --help belongs to perf-prof, which shows doc. These options are common to many scripts:

    * top: --top N, the number of rows. top is its default, least the minimum of N. rows says what the rows are.
    * comm: --comm NAME, the name of a task.
    * task: --pid PID and --tid TID, for is_selected().
    * flame: --flame FILE. A file that cannot be written is wrong usage.
    * json: --json, for Columns.

    error(message) ends the script with wrong usage, exit status 2.
    """

    def __init__(
        self,
        doc: str | None,
        *,
        top: int | None = None,
        least: int = 1,
        rows: str = "rows in a table",
        comm: bool = False,
        task: bool = False,
        flame: bool = False,
        json: bool = False,
    ) -> None:
        title, _, explained = (doc or "").split("\n\n", 2)
        super().__init__(
            description=title, epilog=explained, formatter_class=RawDescriptionHelpFormatter, add_help=False
        )
        if top is not None:
            text = f"number of {rows} (default: {top})"
            self.add_argument("--top", type=at_least(least), default=top, metavar="N", help=text)
        if comm:
            self.add_argument("--comm", metavar="NAME", help="only tasks of this name")
        if task:
            self.add_argument("--pid", type=at_least(1), help="only the threads of this process")
            self.add_argument("--tid", type=at_least(1), help="only this thread")
        if flame:
            text = "write a flame graph: FILE.svg, or FILE.folded as text"
            self.add_argument("--flame", metavar="FILE", help=text)
        if json:
            self.add_argument("--json", action="store_true", help="print JSON objects, one a line, for programs")

    def parse(self) -> Namespace:
        """Returns the arguments of the script."""
        self.add_argument("--usage", action="help", help="show the options of this script (--help explains it)")
        parsed, unknown = self.parse_known_args()
        if unknown:
            # No script takes words after `--`. Users write them because perf-prof trace, top and record take a command there.
            at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
            command = shlex.join(sys.argv[at + 1 :])
            hint = f"; to run and trace a command, write `--exec {command}`" if command else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        if flame := getattr(parsed, "flame", None):
            # The path is checked before the run. An error after the run would lose the collected stacks.
            try:
                FlameGraph.check(flame)
            except (OSError, ValueError) as error:
                self.error(f"--flame {error}")
        return parsed


class Columns:
    """The columns of a script's output: lines of text below a head or, with --json, an object for each line.

        columns = Columns(args.json, time=("TIME", "<12", clock), task=("TASK", "<22"), count=("COUNT", ">8"))
        print(columns.line(event._realtime, event._comm, 1))

    The keyword of a column is its member in JSON. The tuple contains its title, the format of its text, and perhaps a function
    that converts its value to text. JSON contains the value itself. None is `-`, and null in JSON. A line break in a value
    is `\\x0a`, so that no name looks like a line of its own. Only texts of a function in a column without a width may have
    several lines.
    """

    def __init__(self, json: bool, **columns: Any) -> None:
        self.json = json
        self.end: int | None = None  # end of the interval whose rows a Report prints
        self._names = list(columns)
        self._titles, forms, self._shown = zip(*((*column, lambda value: value)[:3] for column in columns.values()))
        self._forms: list[str] = list(forms)
        self._widths = [form[: len(form) - len(form.lstrip("<>0123456789"))] for form in forms]
        self._has_lines = [len(column) > 2 and not width for column, width in zip(columns.values(), self._widths)]
        right = [form.startswith(">") for form in forms]
        # Two spaces separate a number from a text after it. One space separates other columns.
        self._spaces = ["", *("  " if of and not after else " " for of, after in zip(right, right[1:]))]

    def head(self) -> str:
        """Returns the titles, padded to the widths of the columns."""
        return self._joined(f"{title:{width}}" for title, width in zip(self._titles, self._widths))

    def line(self, *values: Any) -> str:
        """Returns the text or JSON of a row. values contains a value for each column."""
        if self.json:
            end = {} if self.end is None else {"end": self.end}
            return json.dumps(end | dict(zip(self._names, values)))
        cells = zip(values, self._shown, self._forms, self._widths, self._has_lines)
        return self._joined(
            f"{'-':{width}}" if value is None else _in_one_line(f"{shown(value):{form}}", has_lines)
            for value, shown, form, width, has_lines in cells
        )

    def print(self, rows: Iterable[Iterable[Any]], last: str) -> None:
        """Prints a table: the head, a line for each row, a last line, and an empty line. In JSON, prints only the rows."""
        lines = [self.line(*row) for row in rows]
        for text in lines if self.json else [self.head(), *lines, last + "\n"]:
            print(text)

    def note(self, text: str) -> None:
        """Prints a line about the output, such as a loss: in parentheses, or as a JSON object with the member note."""
        print(json.dumps({"note": text}) if self.json else _in_one_line(f"({text})"))

    def _joined(self, cells: Iterable[str]) -> str:
        return re.sub(" +$", "", "".join(map(str.__add__, self._spaces, cells)), flags=re.MULTILINE)


def _in_one_line(text: str, has_lines: bool = False) -> str:
    """Escapes the line breaks of a text, so that a name of a task or file cannot look like another line."""
    return text if has_lines else text.replace("\n", r"\x0a")


class Report(Parts):
    """A table for each interval of -i, below the time of day of the interval's end, or a table for the whole run.

    It is like Parts, but it prints the time itself. show(table) prints only the table. In JSON, each row contains the time as
    the member end, if columns are the Columns that show() prints. notes contains a text for each key of total. At the end of
    the run, each count that is not 0 is printed: the note and the count, or what the note returns for the count. A script uses
    its callbacks:

        __interval__, __partial__, __merge__, __exit__ = report.callbacks
    """

    def __init__(
        self,
        table: Callable[[], Any],
        show: Callable[[Any], None],
        total: Any = None,
        columns: Columns | None = None,
        notes: Mapping[str, str | Callable[[int], str]] = {},
    ) -> None:
        def show_below_time(table: Any, end: int | None) -> None:
            if columns is not None:
                columns.end = end
            if end is not None and (columns is None or not columns.json):
                print(_second(end))
            show(table)
            # With --jobs, the losses of single intervals are not known. So for recordings, only exit() prints losses.
            if end is not None and not is_recording():
                say_missing(columns)

        super().__init__(table, show_below_time, total)
        self._columns = columns
        self._note = columns.note if columns else lambda text: print(f"({text})")
        self._notes = notes
        self.callbacks = self.interval, self.partial, self.merge, self.exit

    def exit(self) -> None:
        """Shows the table of the time after the last interval, what is missing in the run, and the notes."""
        super().exit()
        say_missing(self._columns)
        for note in self.noted():
            self._note(note)

    def noted(self) -> list[str]:
        """Returns the notes about counts that are not 0."""
        notes = ((note, self._total[key]) for key, note in self._notes.items())
        return [f"{note}: {count}" if isinstance(note, str) else note(count) for note, count in notes if count]


class WholeRun(Parts):
    """A table for each interval of -i, and at the end one for the whole run.

    table() returns a defaultdict of objects with update(), such as Counter. show(table, title) prints a table. title is the
    time of day of the interval's end, or `whole run`. A script uses its callbacks:

        __interval__, __partial__, __merge__, __exit__ = run.callbacks
    """

    def __init__(
        self, table: Callable[[], defaultdict[Any, Any]], show: Callable[[Any, str], None]
    ) -> None:
        self._whole = table()
        self._intervals = 0
        self._show_titled = show
        super().__init__(table, self._show_interval)
        self.callbacks = self.interval, self.partial, self.merge, self.exit

    def _show_interval(self, table: Any, end: int | None) -> None:
        self._intervals += 1
        self._show_titled(table, "after the last interval" if end is None else _second(end))
        for key, row in table.items():
            self._whole[key].update(row)

    def exit(self) -> None:
        """Shows the table of the time after the last interval, if any, and the table of the whole run."""
        if self._intervals and self.table:
            self._show_interval(self.table, None)
        self._show_titled(self._whole if self._intervals else self.table, "whole run")
        say_missing()


class Lines:
    """Lines about single events, below a head. They are in the order of time, also with --jobs.

    head is a text, or the Columns of lines that add() prints. parts contains the script's states. A script without callbacks
    of its own uses these:

        __init__, __partial__, __merge__ = lines.callbacks
    """

    def __init__(self, head: str | Columns, parts: Parts | None = None) -> None:
        self._head = head
        self._parts = parts or Parts()
        # With --jobs: the lines of this part, each with its time. merge() prints these lines when the results of all
        # parts are known.
        self._kept: list[tuple[int, str]] = []
        self._is_part = shard() is not None
        self.callbacks = self.init, self.partial, self.merge

    def print(self, time: int, text: str) -> None:
        """Prints a line. time is the time of its event in ns (event._time)."""
        if self._is_part:
            self._kept.append((time, text))
        else:
            print(text)

    def add(self, time: int, *values: Any) -> None:
        """Prints a row. values contains a value for each of the Columns."""
        assert isinstance(self._head, Columns)
        self.print(time, self._head.line(*values))

    def init(self) -> None:
        """Prints the head, except in JSON."""
        head = self._head
        if not self._is_part and not (isinstance(head, Columns) and head.json):
            print(head.head() if isinstance(head, Columns) else head)

    def partial(self) -> Any:
        """Returns the lines of this part, and its states."""
        return self._kept, self._parts.partial()

    def merge(self, partials: Iterable[Any]) -> None:
        """Prints the lines of all parts. Deferred steps (see States) may print further lines."""
        partials = list(partials)
        self._kept = [line for kept, _ in partials for line in kept]
        self._is_part = True
        self._parts.merge(of_part for _, of_part in partials)
        self._is_part = False
        for _, text in sorted(self._kept, key=lambda line: line[0]):
            print(text)


def clock(ns: int | None) -> str:
    """Returns the local time of day to the millisecond: 14:03:12.518. ns is event._realtime, which may not be known."""
    if ns is None:
        return "--:--:--.---"
    return f"{_second(ns)}.{ns // 10**6 % 1000:03}"


def _second(ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ns // 10**9))


def say_missing(columns: Columns | None = None) -> None:
    """Prints below a table which events are missing. The table's numbers are then lower bounds. columns are those of the
    table."""
    if text := missing():
        if columns is not None and columns.json:
            print(json.dumps({"partial": True, "note": text}))
        else:
            print(f"(at least: {text})\n")


def duration(ns: int) -> str:
    """Returns a time with its unit: 1.235 ms."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"


def is_selected(args: Namespace, tid: int, pid: int = -1) -> bool:
    """Returns whether the user selects a thread: by options of perf-prof such as -p and -t, and by --pid and --tid of
    Options(task=True).

    pid is its process, or -1 if it is not known, as in events of exiting threads.
    """
    if not is_target(tid) or args.tid not in (None, tid):
        return False
    return args.pid is None or bool(args.pid == (pid if pid > 0 else process_of(tid)))


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_rows(rows: Iterable[_Item], top: int, key: Callable[[_Item], Any]) -> tuple[list[_Item], str]:
    """Returns the first rows in the order of key, and a text for the last line of the table: the number of further rows."""
    order = sorted(rows, key=key)
    hidden = len(order) - top
    return order[:top], f", {hidden} more with a larger --top" if hidden > 0 else ""


def cpu_list(cpus: Iterable[int]) -> str:
    """Returns CPUs as the kernel lists them: 0-2,5."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def function_name(symbol: str, dso: str) -> str:
    """Returns a function of a call chain with its file: main (app). Functions without a symbol share one name per file."""
    file = dso.rpartition("/")[2] if dso.startswith("/") else dso
    return f"[unknown] ({file})" if symbol == "Unknown" else f"{symbol} ({file})"


@lru_cache(maxsize=10_000)
def mapped_file(pid: int, address: int) -> str | None:
    """Returns the path of the file that a process has mapped at an address. Returns None if it is not known, because the
    process has ended or the events come from a recording."""
    if is_recording():
        return None
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as maps:
            for words in (line.split(maxsplit=5) for line in maps):
                begin, end = (int(number, 16) for number in words[0].split("-"))
                if begin <= address < end:
                    return words[5].strip() if len(words) > 5 else None
    except OSError:
        pass
    return None


def save_flame(
    graph: FlameGraph | None,
    path: str | None,
    amount: str | Callable[[int], str],
    nothing: str,
    report: Report | None = None,
    table: Callable[[], object] | None = None,
) -> None:
    """Saves a flame graph at the end of the run, and prints what was saved. Does nothing without path.

    amount is the unit of the weights, or a function that converts their sum to text. nothing is the reason that is printed for
    an empty graph, which is not written. The notes of report say what is missing, so the picture has them too. table prints the
    last table before: the graph is also saved if that fails, because `| head` has closed the pipe.
    """
    try:
        if table is not None:
            table()
    finally:
        if path and graph:
            graph.save(path, "; ".join(report.noted()) if report else None)
            text = f"{graph.total} {amount}" if isinstance(amount, str) else amount(graph.total)
            print(f"{path}: {text} in {len(graph)} stacks")
        elif path:
            print(f"{path}: not written, {nothing}")
