"""The programs and parents of processes at the times of events, for scripts that show who caused something."""

from __future__ import annotations

import os
from typing import NamedTuple

from perf_prof import PerfEvent, is_recording

_INTERPRETERS = ("ash", "awk", "bash", "dash", "ksh", "lua", "node", "perl", "php", "python", "ruby", "sh", "zsh")
_LONGEST_COMMAND = 4096  # in bytes

CLONE_THREAD = 0x10000  # include/uapi/linux/sched.h

# The maximum number of processes whose programs are kept. The oldest are dropped.
_MOST = 100_000


class Program(NamedTuple):
    """The program of a process and its script. If the program is no interpreter, the script is the program too."""

    file: str
    script: str


class Programs:
    """The program of each process at the time of a live event. Recordings contain no command lines.

    Events are delivered after they happened, and a process may have ended or run another program by then. So programs
    are looked up once at the start. Events show all further changes, and have to be delivered in the order of time
    (--order). Call look() in __init__ and in __lost__, begins(event) for each task:task_newtask, and executes(event)
    for each sched:sched_process_exec.
    """

    def __init__(self) -> None:
        self._of: dict[int, Program] = {}

    def look(self) -> dict[int, str]:
        """Looks up the programs of all processes, and forgets earlier ones. Returns for each process a text about its
        parent."""
        pids = [] if is_recording() else [int(name) for name in os.listdir("/proc") if name.isdigit()]
        self._of = {pid: Program(words[0], script_of(words)) for pid in pids if (words := arguments(pid))}
        return {pid: self.about(parent) for pid in pids if (parent := parent_of(pid))}

    def begins(self, event: PerfEvent) -> str | None:
        """Receives the event of a new task. A new process runs its parent's program. Returns a text about the parent,
        or None if the task is a thread."""
        if event.clone_flags & CLONE_THREAD:
            return None
        self._of.pop(event.pid, None)
        if program := self._of.get(event._pid):
            self._of[event.pid] = program
        if len(self._of) > _MOST:
            del self._of[next(iter(self._of))]
        # A new process has the comm of its parent, so the comm in the event is also the comm of the parent.
        return self.about(event._pid, event.comm)

    def executes(self, event: PerfEvent) -> None:
        """Receives the event of an exec, and reads the arguments from /proc. If the process runs another file by now,
        only the file is known."""
        if is_recording():
            return
        pid, file = event.pid, event.filename
        words = arguments_of(file, pid)
        self._of[pid] = Program(words[0], script_of(words)) if words else Program(file, file)

    def about(self, pid: int, comm: str = "") -> str:
        """Returns a text about a process: its program, or comm if the program is not known, and its id."""
        program = self._of.get(pid)
        return f"{program.script if program else comm} {pid}".strip()

    def script(self, pid: int) -> str:
        """Returns the script of a process in parentheses, with a space before it; "" if it runs no interpreter."""
        program = self._of.get(pid)
        return f" ({program.script})" if program and program.script != program.file else ""


def parent_of(pid: int) -> int | None:
    """Returns the parent of a process. Returns None if it is not known, because the process has ended or the events
    come from a recording."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return None if is_recording() else int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def arguments(pid: int) -> list[str]:
    """Returns the words of a process's command line, at most 4096 bytes. Returns an empty list if they are not known,
    because the process has ended or the events come from a recording."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(_LONGEST_COMMAND).rstrip(b"\0").split(b"\0")
    except OSError:
        return []
    return [] if is_recording() or words == [b""] else [os.fsdecode(word) for word in words]


def arguments_of(file: str, pid: int) -> list[str]:
    """Returns the words of the command line of a process that has executed a file. Returns an empty list if they are
    not known, because the process has ended or executes another file now."""
    words = arguments(pid)
    try:
        # A script runs in the process of its interpreter, which gets the file as an argument.
        path = os.path.join(f"/proc/{pid}/cwd", file)
        is_read = file in words[1:] or bool(words) and os.path.samefile(f"/proc/{pid}/exe", path)
    except OSError:
        is_read = False
    return words if is_read else []


def script_of(words: list[str]) -> str:
    """Returns the program of a command line. Of an interpreter, returns the script: the first word that is no option.
    """
    first, *words = words
    # The word after -c is code, and no script.
    if "-c" in words[:3] or not os.path.basename(first).startswith(_INTERPRETERS):
        return first
    return next((word for word in words if not word.startswith("-")), first)
