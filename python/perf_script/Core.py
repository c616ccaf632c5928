"""The module `Core` for scripts of `perf script`: nested dicts, and names of flags, symbols and task states."""

from collections import defaultdict
from typing import Any, Optional


def autodict() -> defaultdict:
    """Returns a dict that creates missing entries: d["a"]["b"] = 1 works without d["a"].

    A missing entry is an empty dict of this kind, so d["n"] += 1 raises TypeError if "n" is missing.
    """
    return defaultdict(autodict)


# The names that print formats give to values: event, then field, then "values" (and "delim" for flags). perf-prof fills
# the tables before the first event of a type.
flag_fields = autodict()
symbolic_fields = autodict()


def define_flag_field(event_name: str, field_name: str, delim: Optional[str]) -> None:
    """Sets the text between the names of a field's flags."""
    flag_fields[event_name][field_name]["delim"] = delim


def define_flag_value(event_name: str, field_name: str, value: int, field_str: str) -> None:
    """Sets the name of a flag of one or several bits."""
    flag_fields[event_name][field_name]["values"][value] = field_str


def define_symbolic_field(event_name: str, field_name: str) -> None:
    """Announces a field whose values have names. define_symbolic_value() sets the names."""


def define_symbolic_value(event_name: str, field_name: str, value: int, field_str: str) -> None:
    """Sets the name of a value."""
    symbolic_fields[event_name][field_name]["values"][value] = field_str


def _flag_names(names: dict, value: int) -> list:
    """Returns the names of the flags in a value. A flag of several bits only counts if no earlier name used one of its
    bits."""
    if not value:
        return [names[0]] if 0 in names else []
    found = []
    for bits in sorted(names):
        if bits and value & bits == bits:
            found.append(names[bits])
            value &= ~bits
    return found


def flag_str(event_name: str, field_name: str, value: int) -> str:
    """Returns the names of the flags in a field's value, such as 'A | B'. Bits without a name are left out."""
    field = flag_fields[event_name][field_name]
    if not field:
        return ""
    delim = field.get("delim")
    return (f" {delim} " if delim else "").join(_flag_names(field.get("values", {}), value))


def symbol_str(event_name: str, field_name: str, value: int) -> str:
    """Returns the name of a field's value, or '' if it has none."""
    field = symbolic_fields[event_name][field_name]
    try:
        # A missing value counts as 0.
        return field.get("values", {}).get(value or 0, "")
    except TypeError:
        # The value is an array, which has no name and is not hashable.
        return ""


# The bits of common_flags.
trace_flags = {
    0x00: "NONE",
    0x01: "IRQS_OFF",
    0x02: "IRQS_NOSUPPORT",
    0x04: "NEED_RESCHED",
    0x08: "HARDIRQ",
    0x10: "SOFTIRQ",
}


def trace_flag_str(value: int) -> str:
    """Returns the names of the bits in common_flags(context), such as 'IRQS_OFF | SOFTIRQ'."""
    return " | ".join(_flag_names(trace_flags, value))


_TASK_STATES = {0: "R", 1: "S", 2: "D", 64: "DEAD"}


def taskState(state: int) -> str:
    """Returns the name of a task's state in sched_switch: 'R', 'S', 'D' or 'DEAD', or 'Unknown' for all others."""
    return _TASK_STATES.get(state, "Unknown")


class EventHeaders:
    """The values of every event: the CPU, the time, and the task with its call chain."""

    def __init__(
        self,
        common_cpu: int,
        common_secs: int,
        common_nsecs: int,
        common_pid: int,
        common_comm: str,
        common_callchain: Any,
    ) -> None:
        self.cpu = common_cpu
        self.secs = common_secs
        self.nsecs = common_nsecs
        self.pid = common_pid
        self.comm = common_comm
        self.callchain = common_callchain

    def ts(self) -> int:
        """Returns the time in ns."""
        return self.secs * 10**9 + self.nsecs

    def ts_format(self) -> str:
        """Returns the time as text: the seconds, a point, and the microseconds without leading zeros."""
        return "%d.%d" % (self.secs, self.nsecs // 1000)
