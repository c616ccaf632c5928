"""The events of perf's Python module that are no samples. Each is made from the bytes of a record."""

from __future__ import annotations

from struct import Struct, unpack_from

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable

    from perf_prof._perf_events import evsel

    # (pid, tid), time, id, stream id, CPU
    SampleId = tuple[tuple[int, int] | None, int | None, int | None, int | None, int | None]

_NO_ID: SampleId = (None, None, None, None, None)
_HEADER = Struct("=IHH")
_ALL_ONES = (1 << 64) - 1


class _RecordEvent:
    """The type and the sample id, which all records have. A member that the record lacks is -1 in the width of the
    member."""

    sample_ip = 0
    sample_addr = 0
    sample_phys_addr = 0
    sample_weight = 0

    def __init__(self, record: bytes, sample_id: SampleId = _NO_ID, of: evsel | None = None) -> None:
        task, time, event, stream, cpu = sample_id
        self.type, self.misc, _ = _HEADER.unpack_from(record)
        self.evsel = of
        self.sample_pid, self.sample_tid = (-1, -1) if task is None else map(_signed, task)
        self.sample_time = _ALL_ONES if time is None else time
        self.sample_id = _ALL_ONES if event is None else event
        self.sample_stream_id = _ALL_ONES if stream is None else stream
        self.sample_cpu = 0xFFFFFFFF if cpu is None else cpu
        self.sample_period = 0
        self._read(record)

    def _read(self, record: bytes) -> None:
        raise NotImplementedError


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


def _text(record: bytes, start: int) -> str:
    """Returns the text at an offset, up to its NUL."""
    return record[start:].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


class mmap_event(_RecordEvent):
    """A mapping (RECORD_MMAP)."""

    def _read(self, record: bytes) -> None:
        self.pid, self.tid, self.start, self.len, self.pgoff = unpack_from("=IIQQQ", record, 8)
        self.filename = _text(record, 40)

    def __repr__(self) -> str:
        return (
            f"{{ type: mmap, pid: {self.pid}, tid: {self.tid}, start: {self.start:#x}, length: {self.len:#x}, "
            f"offset: {self.pgoff:#x}, filename: {self.filename} }}"
        )


class mmap2_event(_RecordEvent):
    """A mapping, with its protection and its file's inode or build id (RECORD_MMAP2). A member that the record lacks is
    None."""

    def _read(self, record: bytes) -> None:
        self.pid, self.tid, self.start, self.len, self.pgoff = unpack_from("=IIQQQ", record, 8)
        self.maj: int | None = None
        self.min: int | None = None
        self.ino: int | None = None
        self.ino_generation: int | None = None
        self.build_id: bytes | None = None
        if self.misc & _MISC_BUILD_ID:
            self.build_id = record[44 : 44 + min(record[40], 20)]
        else:
            self.maj, self.min, self.ino, self.ino_generation = unpack_from("=IIQQ", record, 40)
        self.prot, self.flags = unpack_from("=II", record, 64)
        self.filename = _text(record, 72)

    def __repr__(self) -> str:
        return (
            f"{{ type: mmap2, pid: {self.pid}, tid: {self.tid}, start: {self.start:#x}, length: {self.len:#x}, "
            f"offset: {self.pgoff:#x}, prot: {self.prot:#x}, flags: {self.flags:#x}, filename: {self.filename} }}"
        )


# PERF_RECORD_MISC_MMAP_BUILD_ID
_MISC_BUILD_ID = 1 << 14


class lost_event(_RecordEvent):
    """Lost records (RECORD_LOST: all records of a ring; RECORD_LOST_SAMPLES: samples, whose id is that of the record)."""

    def _read(self, record: bytes) -> None:
        if self.type == 2:
            self.id, self.lost = unpack_from("=QQ", record, 8)
        else:
            (self.lost,) = unpack_from("=Q", record, 8)
            self.id = self.sample_id

    def __repr__(self) -> str:
        return f"{{ type: lost, id: {self.id:#x}, lost: {self.lost:#x} }}"


class comm_event(_RecordEvent):
    """The name of a task (RECORD_COMM)."""

    def _read(self, record: bytes) -> None:
        self.pid, self.tid = unpack_from("=II", record, 8)
        self.comm = _text(record, 16)

    def __repr__(self) -> str:
        return f"{{ type: comm, pid: {self.pid}, tid: {self.tid}, comm: {self.comm} }}"


class task_event(_RecordEvent):
    """The start or the end of a task (RECORD_FORK, RECORD_EXIT)."""

    def _read(self, record: bytes) -> None:
        self.pid, self.ppid, self.tid, self.ptid, self.time = unpack_from("=IIIIQ", record, 8)

    def __repr__(self) -> str:
        kind = "fork" if self.type == 7 else "exit"
        return (
            f"{{ type: {kind}, pid: {self.pid}, ppid: {self.ppid}, tid: {self.tid}, ptid: {self.ptid}, "
            f"time: {self.time}}}"
        )


class throttle_event(_RecordEvent):
    """An event is throttled because it takes too many samples, or no longer throttled (RECORD_THROTTLE,
    RECORD_UNTHROTTLE)."""

    def _read(self, record: bytes) -> None:
        self.time, self.id, self.stream_id = unpack_from("=QQQ", record, 8)

    def __repr__(self) -> str:
        kind = "throttle" if self.type == 5 else "unthrottle"
        return f"{{ type: {kind}, time: {self.time}, id: {self.id}, stream_id: {self.stream_id} }}"


class read_event(_RecordEvent):
    """The count of an event of a task that exits (RECORD_READ)."""

    def _read(self, record: bytes) -> None:
        self.pid, self.tid = unpack_from("=II", record, 8)

    def __repr__(self) -> str:
        return f"{{ type: read, pid: {self.pid}, tid: {self.tid} }}"


class switch_event(_RecordEvent):
    """A context switch (RECORD_SWITCH, RECORD_SWITCH_CPU_WIDE). RECORD_SWITCH lacks the other task, so its ids are 0.
    """

    def _read(self, record: bytes) -> None:
        self.next_prev_pid, self.next_prev_tid = unpack_from("=II", record, 8) if self.type == 15 else (0, 0)

    def __repr__(self) -> str:
        return (
            f"{{ type: context_switch, next_prev_pid: {self.next_prev_pid}, next_prev_tid: {self.next_prev_tid}, "
            f"switch_out: {int(bool(self.misc & 1 << 13))} }}"
        )


class _OfStat(_RecordEvent):
    """A record of `perf stat record`, which has no sample id. All members of a sample are 0, as in perf."""

    def __init__(self, record: bytes, sample_id: SampleId = _NO_ID, of: evsel | None = None) -> None:
        super().__init__(record, ((0, 0), 0, 0, 0, 0), of)


class stat_event(_OfStat):
    """A count in a recording of `perf stat record` (RECORD_STAT)."""

    def _read(self, record: bytes) -> None:
        self.id, self.cpu, self.thread, self.val, self.ena, self.run = unpack_from("=QIIQQQ", record, 8)

    def __repr__(self) -> str:
        return (
            f"{{ type: stat, id: {self.id}, cpu: {self.cpu}, thread: {self.thread}, val: {self.val}, "
            f"ena: {self.ena}, run: {self.run} }}"
        )


class stat_round_event(_OfStat):
    """The end of a round of counts (RECORD_STAT_ROUND)."""

    def _read(self, record: bytes) -> None:
        self.stat_round_type, self.time = unpack_from("=QQ", record, 8)

    def __repr__(self) -> str:
        return f"{{ type: stat_round, type: {self.stat_round_type}, time: {self.time} }}"


CLASSES: dict[int, Callable[[bytes, SampleId, evsel | None], _RecordEvent]] = {
    1: mmap_event,
    2: lost_event,
    3: comm_event,
    4: task_event,
    5: throttle_event,
    6: throttle_event,
    7: task_event,
    8: read_event,
    10: mmap2_event,
    13: lost_event,
    14: switch_event,
    15: switch_event,
    76: stat_event,
    77: stat_round_event,
}
