"""Finds what a handler of a `perf script` script reads: which parameters, and which keys of parameters that are
dicts.

perf-prof makes no objects that a handler never reads. The bytecode of a function names everything that the function
reads. But other code that looks at the function's frame can read everything. So all objects are made for a script
that may look at frames, and for handlers that are no Python functions.
"""

from __future__ import annotations

import dis
import os
import re
import sys
from collections import namedtuple
from types import CodeType, FunctionType, MethodType

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from typing import Optional

    # The keys of a value that are read, outer key first: ("comm",), or ("sample", "pid") for a key of the dict
    # "sample".
    Path = tuple[str, ...]
    # The paths of a value that are read. The tuple is empty if the value is not read. None means that all of the value
    # may be read.
    Read = Optional[tuple[Path, ...]]

# Names in scripts that may look at frames, or at all locals of another function. A call such as `locals()` is not
# matched, because it concerns only the function that contains it.
_WATCHES = re.compile(
    r"\b(?:f_locals|getargvalues|capture_locals|show_locals|set_?trace\w*|setprofile|breakpoint|post_mortem|cgitb)\b"
    r"|\b(?:[pb]db|pudb|exec|execfile|exec_module|load_module|import_module|__import__|runpy)\b"
    # Libraries that look for variables of their caller, or show these variables.
    r"|\b(?:embed|stackprinter|sentry_sdk|numexpr|duckdb)\b|\.(?:query|eval)\("
    r"|\b(?:locals|vars|eval)\b(?!\s*\()"
)
# Functions that read all locals of their caller.
_SEES_LOCALS = frozenset(("locals", "vars", "eval", "exec"))
# Instructions that neither read nor write a value.
_SILENT = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME"))
_IS_RESUMED = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator: CO_* in `inspect`
_TAKES_REST, _TAKES_NAMES = 0x04, 0x08

# path of a file -> whether its text may look at frames
_watching: dict[str, bool] = {}


class _NotRead:
    """Replaces an argument that the handler does not read."""

    def __repr__(self) -> str:
        return "<not made: the handler does not read it>"


NOT_READ = _NotRead()


# An instruction: what it does, its name or constant, and whether it is the target of a jump.
_Step = namedtuple("_Step", ("does", "what", "is_target"))


def reads(function: object, count: int, names: tuple[str, ...]) -> Optional[list[Read]]:
    """Returns what a handler reads of each argument. Returns None if it may read all of every argument.

    The arguments are `count` positional ones and those with `names`.
    """
    skipped = 0
    if type(function) is MethodType:
        function, skipped = function.__func__, 1
    if type(function) is not FunctionType or _may_be_watched(function.__code__):
        return None
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    places = code.co_varnames[skipped : code.co_argcount]
    rest = list(code.co_varnames[len(own) : len(own) + 2])
    of_rest = rest.pop(0) if code.co_flags & _TAKES_REST else None
    of_names = rest.pop(0) if code.co_flags & _TAKES_NAMES else None
    read = _read(code)

    def read_of(name: Optional[str], collector: Optional[str]) -> Read:
        if name is not None:
            return read.get(name, ())
        # If no parameter takes the rest of the arguments, the call will fail, so this result does not matter.
        return () if collector is not None and collector not in read else None

    positional = [read_of(places[at] if at < len(places) else None, of_rest) for at in range(count)]
    return positional + [read_of(name if name in own else None, of_names) for name in names]


def _may_be_watched(code: CodeType) -> bool:
    """Returns whether other code than the function itself may look at the function's locals."""
    if sys.gettrace() or sys.getprofile() or code.co_flags & _IS_RESUMED or not _SEES_LOCALS.isdisjoint(code.co_names):
        return True
    if not os.path.isfile(code.co_filename):
        return True
    names = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
    files = {file for file in names if isinstance(file, str) and _is_own(file)}
    return any(map(_file_watches, {code.co_filename, *files}))


def _is_own(file: str) -> bool:
    """Returns whether a file belongs to the script, and not to Python or a library."""
    library = file.startswith(os.path.dirname(os.__file__)) or "-packages" + os.sep in file
    return not library and file.endswith(".py")


def _file_watches(file: str) -> bool:
    if file not in _watching:
        try:
            with open(file, encoding="utf-8", errors="replace") as text:
                _watching[file] = _WATCHES.search(text.read()) is not None
        except OSError:
            _watching[file] = True
    return _watching[file]


def _steps(code: CodeType) -> list[_Step]:
    steps, is_target = [], False
    for at in dis.get_instructions(code):
        is_target = is_target or at.is_jump_target
        if at.opname in _SILENT:
            continue
        if "_FAST" in at.opname and at.opname.startswith(("LOAD", "STORE", "DELETE")):
            # One instruction may load or store two variables.
            variables = at.argval if isinstance(at.argval, tuple) else (at.argval,)
            for does, name in zip(re.findall("LOAD|STORE|DELETE", at.opname), variables):
                steps.append(_Step(does, name, is_target))
                is_target = False
            continue
        does = at.opname
        if does == "BINARY_OP" and at.argrepr == "[]":
            does = "BINARY_SUBSCR"
        elif does in ("LOAD_METHOD", "LOAD_ATTR"):
            does = "ATTRIBUTE"
        elif does in ("CALL_METHOD", "CALL_FUNCTION"):
            does = "CALL"
        steps.append(_Step(does, at.argval, is_target))
        is_target = False
    return steps


def _read(code: CodeType) -> dict[str, Read]:
    """Returns what a function reads of its variables. Variables that the function never loads are not in the result."""
    steps = _steps(code)
    read: dict[str, Read] = dict.fromkeys(code.co_cellvars)
    for at, step in enumerate(steps):
        if step.does != "LOAD":
            continue
        name = str(step.what)
        path, before = _path(steps, at), read.get(name, ())
        read[name] = None if path is None or before is None else (*before, path)
    return read


def _path(steps: list[_Step], at: int) -> Optional[Path]:
    """Returns the keys that are read of the variable that this step loads. Returns None if all of its value may be
    read."""
    if at > 0 and _does(steps, at + 1, "CONTAINS_OP") and not steps[at].is_target:
        key = _key(steps[at - 1])
        return (key,) if key else None
    if _does(steps, at + 1, "ATTRIBUTE") and steps[at + 1].what in ("get", "setdefault"):
        key, end = _key_at(steps, at + 2), at + 3
        if _does(steps, end, "LOAD_CONST") or _does(steps, end, "LOAD"):
            end += 1
        return (key,) if key and _does(steps, end, "CALL") and steps[end].what == end - at - 2 else None
    key = _key_at(steps, at + 1)
    if not key or not (_does(steps, at + 2, "BINARY_SUBSCR") or _does(steps, at + 2, "STORE_SUBSCR")):
        return None
    inner = _key_at(steps, at + 3)
    if inner and _does(steps, at + 2, "BINARY_SUBSCR") and _does(steps, at + 4, "BINARY_SUBSCR"):
        return (key, inner)
    return (key,)


def _does(steps: list[_Step], at: int, does: str) -> bool:
    """Returns whether a step does what `does` says, and is only reached from the step before it."""
    return at < len(steps) and steps[at].does == does and not steps[at].is_target


def _key_at(steps: list[_Step], at: int) -> Optional[str]:
    return _key(steps[at]) if at < len(steps) and not steps[at].is_target else None


def _key(step: _Step) -> Optional[str]:
    return step.what if step.does == "LOAD_CONST" and isinstance(step.what, str) else None
