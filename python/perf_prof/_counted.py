"""--jobs for scripts that only count: finds their counters, and adds up those of several processes.

A counter is a global variable of the script: a number, or a dict, Counter or autodict of numbers, whose handlers only
add to it. Then the sum of the counters of all parts is the result of the whole recording. A script with other results
is refused, because its sum would be wrong.
"""

from __future__ import annotations

import ast
import contextlib
import os
import pickle
from types import BuiltinFunctionType, FunctionType, ModuleType

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Partial = dict[str, Any]

# The functions that perf calls with events, in addition to those with `__` in their names.
_HANDLERS = ("trace_unhandled", "process_event", "throttle", "unthrottle", "context_switch", "auxtrace_error")
# The names with which code can reach variables that its text does not name.
_HIDDEN = ("globals", "vars", "exec", "eval", "setattr", "__import__")
# Methods that change the object.
_CHANGES = frozenset(
    "add append appendleft clear discard extend insert pop popitem popleft remove reverse setdefault sort subtract update".split()
)
_CONSTANTS = (int, float, str, bytes, tuple, frozenset, type(None), range)
_CODE = (FunctionType, BuiltinFunctionType, ModuleType, type)


class NotCounted(ValueError):
    """The script has other results than counts. The text names the first one."""


def callbacks(
    names: dict[str, Any], path: str, handlers: Iterable[str] | None = None
) -> tuple[Callable[[], Partial], Callable[[list[Partial]], None]]:
    """Returns `__partial__` and `__merge__` for the script whose global variables are `names`, as they are now.

    Without handlers, these are the functions that perf calls by their names. Raises NotCounted.
    """
    if ("__partial__" in names) != ("__merge__" in names):
        raise NotCounted("It defines only one of __partial__() and __merge__()")
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        tree = ast.parse(file.read())
    counters = _counters(tree, names, handlers)
    before = {name: _copy(names.get(name, 0)) for name in counters}
    others = _states(names, counters)

    def partial() -> Partial:
        after = _states(names, counters)
        for name in {*others, *after}:
            if others.get(name) != after.get(name):
                raise NotCounted(f"{name} changes, and the script does not only add numbers to it")
        return {name: _difference(name, names.get(name, 0), before[name]) for name in counters}

    def merge(partials: list[Partial]) -> None:
        for part in partials:
            for name, amount in part.items():
                names[name] = _sum(names.get(name, 0), amount)

    return partial, merge


def quiet(function: Callable[[], object]) -> Callable[[], object]:
    """Returns a function that does what this one does, but prints nothing."""

    def silent() -> object:
        with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing):
            return function()

    return silent


def _counters(tree: ast.Module, names: dict[str, Any], handlers: Iterable[str] | None) -> list[str]:
    """Returns the names of the counters, in the order in which the functions use them."""
    functions = {of.name: of for of in tree.body if isinstance(of, ast.FunctionDef)}
    for used in _names(tree):
        if used.id in _HIDDEN:
            raise NotCounted(f"Line {used.lineno} uses {used.id}(), which may change any variable")
    is_script = handlers is None
    if handlers is None:
        handlers = [name for name, of in names.items() if _is_handler(name) and callable(of)]
    called = _reachable(functions, handlers)
    uses = _Uses(names, functions)
    for name in called:
        uses.of_function(functions[name])
    if not uses.added:
        raise NotCounted("It has no global variables to which its handlers add numbers")
    beside = _run_beside(tree, functions) if is_script else []
    for used in [*uses.others, *(name for of in beside for name in _names(functions[of]))]:
        if used.id in uses.added:
            raise NotCounted(f"Line {used.lineno} uses {used.id} for more than adding a number")
    return list(uses.added)


def _run_beside(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> list[str]:
    """Returns the functions that run before the events, or beside them in threads: those of trace_begin() and of the code
    at the top level."""
    code = [of for of in tree.body if not isinstance(of, (ast.FunctionDef, ast.ClassDef))]
    used = [name.id for of in code for name in _names(of) if name.id in functions]
    return _reachable(functions, [*used, *(["trace_begin"] if "trace_begin" in functions else [])])


def _is_handler(name: str) -> bool:
    return name in _HANDLERS or ("__" in name and not name.startswith("__"))


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))


def _reachable(functions: dict[str, ast.FunctionDef], start: Iterable[str]) -> list[str]:
    """Returns the names of the functions that these functions use, and their own."""
    found: list[str] = []
    waiting = list(start)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        if name not in functions:
            raise NotCounted(f"{name}() is not defined with def at the top level of the script")
        found.append(name)
        waiting += [used.id for used in _names(functions[name]) if used.id in functions]
    return found


class _Uses(ast.NodeVisitor):
    """The uses of global variables in functions."""

    def __init__(self, names: dict[str, Any], functions: dict[str, ast.FunctionDef]) -> None:
        self._names = names
        self._functions = functions
        self._local: set[str] = set()
        # The variables to which a number is added, in the order of the text, and all other uses.
        self.added: dict[str, None] = {}
        self.others: list[ast.Name] = []

    def of_function(self, function: ast.FunctionDef) -> None:
        """Collects the uses in a function."""
        declared = {name for of in ast.walk(function) if isinstance(of, ast.Global) for name in of.names}
        stored = {name.id for name in _names(function) if not isinstance(name.ctx, ast.Load)}
        arguments = {of.arg for of in ast.walk(function) if isinstance(of, ast.arg)}
        self._local = (stored | arguments) - declared
        if function.decorator_list or any(not isinstance(of, ast.Constant) for of in function.args.defaults):
            raise NotCounted(f"Line {function.lineno}: a decorator or a default of {function.name}() may keep a state")
        for statement in function.body:
            self.visit(statement)

    def visit_Name(self, name: ast.Name) -> None:
        if name.id not in self._local:
            if not isinstance(name.ctx, ast.Load):
                raise NotCounted(f"Line {name.lineno} sets {name.id} and does not add to it")
            self.others.append(name)

    def visit_AugAssign(self, of: ast.AugAssign) -> None:
        if not self._adds(of):
            self._refuse_change(of.target)
            self.generic_visit(of)

    def visit_Assign(self, of: ast.Assign) -> None:
        if not (len(of.targets) == 1 and self._adds_to_found(of)):
            for target in of.targets:
                self._refuse_change(target)
            self.generic_visit(of)

    def visit_Delete(self, of: ast.Delete) -> None:
        for target in of.targets:
            self._refuse_change(target)
        self.generic_visit(of)

    def visit_Try(self, of: ast.Try) -> None:
        # try: counts[key] += 1
        # except TypeError: counts[key] = 1
        first = of.body[0]
        if len(of.body) == 1 and isinstance(first, ast.AugAssign) and not of.orelse and not of.finalbody:
            if all(len(handler.body) == 1 and _sets_the_same(handler.body[0], first) for handler in of.handlers):
                if self._adds(first):
                    return
        self.generic_visit(of)

    def visit_If(self, of: ast.If) -> None:
        # if key in counts: counts[key] += 1
        # else: counts[key] = 1
        # or: if key not in counts: counts[key] = 0
        test = of.test
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.In, ast.NotIn)) and len(test.ops) == 1:
            there, missing = (of.body, of.orelse) if isinstance(test.ops[0], ast.In) else (of.orelse, of.body)
            only = missing[0] if len(missing) == 1 else None
            is_same = _root(test.comparators[0]) is not None and self._is_target(only, test)
            if is_same and len(there) == 1 and isinstance(there[0], ast.AugAssign) and _sets_the_same(only, there[0]):
                if self._adds(there[0]):
                    self.visit(test.left)
                    return
            if is_same and not there and _sets_nothing(only):
                self.visit(test.left)
                return
        self.generic_visit(of)

    def visit_Call(self, of: ast.Call) -> None:
        function = of.func
        if isinstance(function, ast.Attribute):
            name = _root(function.value)
            if name is not None and name.id not in self._local:
                if function.attr in _CHANGES or self._is_own_object(name.id):
                    raise NotCounted(f"Line {of.lineno} may change {name.id} with .{function.attr}()")
        self.generic_visit(of)

    def _is_own_object(self, name: str) -> bool:
        return type(self._names.get(name)).__module__ == "__main__"

    def _is_target(self, statement: ast.AST | None, test: ast.Compare) -> bool:
        """Returns whether a statement sets the item about whose key the condition is."""
        if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Subscript):
            return False
        return _text(target.value) == _text(test.comparators[0]) and _text(target.slice) == _text(test.left)

    def _adds(self, of: ast.AugAssign) -> bool:
        """Notes an addition to a global variable or its items. Returns False if the statement is something else."""
        name = _root(of.target)
        if name is None or name.id in self._local or not isinstance(of.op, ast.Add):
            return False
        self._visit_keys(of.target)
        self.visit(of.value)
        self.added[name.id] = None
        return True

    def _adds_to_found(self, of: ast.Assign) -> bool:
        # counts[key] = counts.get(key, 0) + 1
        target, value = of.targets[0], of.value
        name = _root(target)
        if name is None or name.id in self._local or not isinstance(target, ast.Subscript):
            return False
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            return False
        if _text(value.left) != f"{_text(target.value)}.get({_text(target.slice)}, 0)":
            return False
        self._visit_keys(target)
        self.visit(value.right)
        self.added[name.id] = None
        return True

    def _visit_keys(self, target: ast.expr) -> None:
        while isinstance(target, ast.Subscript):
            self.visit(target.slice)
            target = target.value

    def _refuse_change(self, target: ast.expr) -> None:
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            of = part
            while isinstance(of, (ast.Subscript, ast.Attribute, ast.Starred)):
                of = of.value
            if isinstance(of, ast.Name) and of.id not in self._local:
                raise NotCounted(f"Line {of.lineno} changes {of.id} and does not only add a number to it")


def _root(of: ast.expr) -> ast.Name | None:
    """Returns the variable in `variable[key][key]`."""
    while isinstance(of, ast.Subscript):
        of = of.value
    return of if isinstance(of, ast.Name) else None


def _text(of: ast.AST) -> str:
    return ast.unparse(of)


def _sets_the_same(statement: ast.AST | None, added: ast.AugAssign) -> bool:
    """Returns whether a statement sets the target of an addition to the number that is added."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return _text(statement.targets[0]) == _text(added.target) and _text(statement.value) == _text(added.value)


def _sets_nothing(statement: ast.AST | None) -> bool:
    """Returns whether a statement sets an item to 0 or to an empty dict."""
    return isinstance(statement, ast.Assign) and _text(statement.value) in (
        "0", "0.0", "{}", "dict()", "Counter()", "autodict()", "defaultdict(int)"
    )


def _copy(amount: Any) -> Any:
    return {key: _copy(of) for key, of in amount.items()} if isinstance(amount, dict) else amount


def _difference(name: str, after: Any, before: Any) -> Any:
    if isinstance(after, dict):
        old = before if isinstance(before, dict) else {}
        return {key: _difference(name, of, old.get(key, 0)) for key, of in after.items()}
    if not isinstance(after, (int, float)) or not isinstance(before, (int, float)):
        raise NotCounted(f"{name} has values that are no numbers")
    return after - before


def _sum(own: Any, amount: Any) -> Any:
    if not isinstance(amount, dict):
        # An autodict has no number yet.
        return amount if isinstance(own, dict) else own + amount
    into = own if isinstance(own, dict) else {}
    for key, of in amount.items():
        # The item of an autodict is an autodict, whose own items scripts print.
        item = into[key] if key in into or (isinstance(of, dict) and hasattr(into, "__missing__")) else 0
        into[key] = _sum(item, of)
    return into


def _states(names: dict[str, Any], counters: Iterable[str]) -> dict[str, bytes]:
    """Returns the values of all other variables of the script, and of its classes, as bytes."""
    imported = {id(of) for module in _modules() for of in vars(module).values()}
    found: dict[str, bytes] = {}
    for name, value in list(names.items()):
        if name.startswith("__") or name in counters or id(value) in imported:
            continue
        if isinstance(value, type) and value.__module__ == "__main__":
            # Python itself sets members such as __slotnames__.
            members = {of: member for of, member in vars(value).items() if not of.startswith("__")}
            found.update({f"{name}.{of}": _bytes(member) for of, member in members.items() if not isinstance(member, _CODE)})
        elif not isinstance(value, _CODE):
            found[name] = _bytes(value)
    return found


def _modules() -> Iterator[ModuleType]:
    """Returns the modules whose variables perf-prof itself fills."""
    import sys

    return (sys.modules[name] for name in ("Core", "perf_trace_context") if name in sys.modules)


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:
        # An open file, a thread and the like.
        return repr(sorted(map(repr, value.items()))).encode() if isinstance(value, dict) else b""
