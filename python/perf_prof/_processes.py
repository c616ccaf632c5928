"""The processes of a run: how they start and end, and which signals they send."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from perf_prof import Parts, PerfEvent, States, process_of
from perf_prof._programs import CLONE_THREAD, Programs, arguments_of, parent_of
from perf_prof._signals import IN_INTERRUPT, is_of_kernel, signal_name, signal_result

_SIG_DFL = 0
_TRACE_SIGNAL_DELIVERED = 0  # include/trace/events/signal.h
_SENT_BY_CALLS = (0, -6)  # SI_USER and SI_TKILL (include/uapi/asm-generic/siginfo.h)
# Signals that do not end a process by default, see signal(7).
_HARMLESS = {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
}  # fmt: skip
_MOST_SENDERS = 100_000  # the maximum number of processes whose parents are kept


class Process:
    """The state of a process: its parent, and its start time and comm at its start. file is the program that it
    executed last."""

    __slots__ = ("began", "comm", "file", "parent", "sent", "status")

    def __init__(self, parent: int | None, began: int, comm: str = "") -> None:
        self.parent = parent
        self.began = began
        self.comm = comm
        self.file: str | None = None
        self.status: str | None = None  # exit code or signal of the end, if known
        # The last signal that was sent to the process and that ends a process by default, with its sender.
        self.sent: tuple[int, str] | None = None


class Processes(States):
    """The running processes by their ids: their parents, their programs, and how they end.

    The script passes three functions: forked, executed and ended. They get the time of the event, its time of day, the
    id and the Process. executed also gets the arguments, which are read from /proc if has_arguments(file) returns true.
    A script uses the methods as handlers:

        task__task_newtask, sched__sched_process_exec = processes.newtask, processes.process_exec
    """

    def __init__(
        self,
        parts: Parts,
        forked: Callable[[int, int | None, int, Process], None],
        executed: Callable[[int, int | None, int, Process, list[str]], None],
        ended: Callable[[int, int | None, int, Process], None],
        has_arguments: Callable[[str], bool],
    ) -> None:
        super().__init__(parts)
        self._forked, self._executed, self._ended, self._has_arguments = forked, executed, ended, has_arguments
        self._forks, self._dies = self.sets(self._fork), self.ends(self._death)
        self._executes, self._exits = self.step(self._exec), self.step(self._exit)
        self._is_sent, self._is_killed = self.step(self._sent), self.step(self._killed)

    def newtask(self, event: PerfEvent) -> None:
        """Receives a task:task_newtask."""
        if not event.clone_flags & CLONE_THREAD:
            self._forks(event._time, event.pid, event._pid, event.comm, event._realtime)

    def process_exec(self, event: PerfEvent) -> None:
        """Receives a sched:sched_process_exec."""
        file = event.filename
        words = arguments_of(file, event._pid)[1:] if self._has_arguments(file) else []
        self._executes(event._time, event._pid, file, words, event._realtime)

    def exit_group(self, event: PerfEvent) -> None:
        """Receives a syscalls:sys_enter_exit_group."""
        self._exits(event._time, event._pid, event.error_code)

    def exit(self, event: PerfEvent) -> None:
        """Receives a syscalls:sys_enter_exit, which ends one thread. If no thread calls exit_group, the exit code of
        the main thread is that of the process."""
        if event._tid == event._pid:
            self._exits(event._time, event._pid, event.error_code)

    def signal_generate(self, event: PerfEvent) -> None:
        """Receives a signal:signal_generate."""
        if event.result == _TRACE_SIGNAL_DELIVERED and event.sig not in _HARMLESS:
            is_own = is_of_kernel(event) or event.common_flags & IN_INTERRUPT
            sender = " of the kernel" if is_own else f" from {event._comm} {event._pid}"
            self._is_sent(event._time, process_of(event.pid) or event.pid, event.sig, sender)

    def signal_deliver(self, event: PerfEvent) -> None:
        """Receives a signal:signal_deliver."""
        if event.sa_handler == _SIG_DFL and event.sig not in _HARMLESS:
            self._is_killed(event._time, event._pid, event.sig)

    def process_exit(self, event: PerfEvent) -> None:
        """Receives a sched:sched_process_exit. Before Linux 6.16, it has no field group_dead. The end of the main
        thread then counts as the end of the process."""
        if event.get("group_dead", event._tid == event._pid):
            self._dies(event._time, event._pid, event._realtime)

    def _fork(self, now: int, pid: int, parent: int, comm: str, ns: int | None) -> None:
        self[pid] = Process(parent, now, comm)
        self._forked(now, ns, pid, self[pid])

    def _exec(self, now: int, pid: int, file: str, words: list[str], ns: int | None) -> None:
        process = self.get(pid)
        if process is None:
            process = self[pid] = Process(parent_of(pid), now)
        # An exec kills the other threads of the process with SIGKILL, which is not the end of the process.
        process.file, process.status = file, None
        self._executed(now, ns, pid, process, words)

    def _exit(self, now: int, pid: int, code: int) -> None:
        process = self.get(pid)
        # The first exit_group or fatal signal ends the process. Later calls and signals belong to the other threads,
        # which the kernel kills.
        if process is not None and process.status is None:
            process.status = f"exit {code & 0xFF}"

    def _sent(self, now: int, pid: int, number: int, sender: str) -> None:
        if process := self.get(pid):
            process.sent = (number, sender)

    def _killed(self, now: int, pid: int, number: int) -> None:
        process = self.get(pid)
        if process is None or process.status is not None:
            return
        if process.sent is not None and number in (signal.SIGKILL, process.sent[0]):
            # For most fatal signals, the kernel sends SIGKILL to each thread (complete_signal() in kernel/signal.c). So
            # the status shows the signal that was sent to the process.
            process.status = f"killed by {signal_name(process.sent[0])}{process.sent[1]}"
        else:
            # The sender was not traced. The kernel may have sent a SIGKILL because of another signal, so no signal is
            # named.
            process.status = "killed" if number == signal.SIGKILL else f"killed by {signal_name(number)}"

    def _death(self, now: int, pid: int, ns: int | None) -> None:
        process = self.pop(pid, None)
        if process is not None:
            self._ended(now, ns, pid, process)


class Senders(States):
    """The processes that send signals by system calls, by their ids: their parents, and the signals of unfinished
    calls.

    Call look() in __init__ and in __lost__, begins(event) for each task:task_newtask, and sends(event) for each
    signal:signal_generate. The step for the end of a call calls reached().
    """

    def __init__(self, parts: Parts, programs: Programs) -> None:
        super().__init__(parts)
        self._programs = programs
        self._forks, self._generates = self.sets(self._fork), self.step(self._signal)

    def look(self) -> None:
        """Looks up the parents of all processes, because lost events may have been starts of processes or execs."""
        self.update((pid, (parent, [])) for pid, parent in self._programs.look().items())

    def begins(self, event: PerfEvent) -> None:
        """Receives the event of a new task."""
        if parent := self._programs.begins(event):
            self._forks(event._time, event.pid, parent)

    def sends(self, event: PerfEvent) -> None:
        """Receives a signal:signal_generate."""
        if event.code in _SENT_BY_CALLS:
            target, result = f"{event.comm} {event.pid}", signal_result(event.result)
            self._generates(event._time, event._pid, event._tid, event.sig, target, result)

    def reached(self, pid: int, tid: int, began: int, number: int) -> tuple[str | None, list[tuple[str, str]]]:
        """Returns a process's parent as text, and the targets and results of a signal that the thread has sent since
        `began`."""
        parent, sent = self.setdefault(pid, (None, []))
        reached = [to for thread, time, sig, *to in sent if (thread, sig) == (tid, number) and time >= began]
        sent[:] = [signal for signal in sent if signal[0] != tid]
        return parent, [(target, result) for target, result in reached]

    def _fork(self, now: int, pid: int, parent: str) -> None:
        self[pid] = parent, []
        if len(self) > _MOST_SENDERS:
            del self[next(iter(self))]

    def _signal(self, now: int, pid: int, tid: int, number: int, target: str, result: str) -> None:
        self.setdefault(pid, (None, []))[1].append((tid, now, number, target, result))


class ProcessNames(dict[int, Any]):
    """The name of each process: the last comm of its main thread, or else the first comm of another thread.

    update(other) adds the names of other, so the object may be in a table of Parts.
    """

    def note(self, event: PerfEvent) -> None:
        """Notes the comm in an event."""
        is_first = event._pid == event._tid
        self._add(event._pid, ((is_first, event._time if is_first else -event._time), event))

    def name(self, pid: int) -> str:
        """Returns the name of a process."""
        return str(self[pid][1]._comm)

    def update(self, other: ProcessNames) -> None:  # type: ignore[override]
        """Adds the names of other."""
        for pid, named in other.items():
            self._add(pid, named)

    def _add(self, pid: int, named: Any) -> None:
        if pid not in self or named[0] > self[pid][0]:
            self[pid] = named
