"""Makes `import perf` and `import perf_live` find the modules of this package in scripts that perf-prof runs."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_NAMES = ("perf", "perf_live")
# Modules of perf's older interface. What they contain is filled for functions that perf calls, and so lacks names here.
_OLDER = ("Core", "Util", "EventClass", "SchedGui", "perf_trace_context")
# The folder in which perf has them.
_OLDER_FOLDER = "Perf-Trace-Util"


class _Finder:
    """Finds and loads the modules, as the first entry of `sys.meta_path`. Modules of the same names in a folder come
    before those of this package."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if path is not None or fullname not in (*_NAMES, *_OLDER):
            return None
        from importlib.machinery import ModuleSpec, PathFinder

        if fullname in _OLDER:
            return _own_module(fullname)

        if self._folder is not None:
            beside = PathFinder.find_spec(fullname, [self._folder])
            # A folder without __init__.py, such as tools/perf of the kernel, has no loader. It is not meant.
            if beside is not None and beside.loader is not None:
                return beside
        return ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module

        # The import statement takes the module from `sys.modules`.
        sys.modules[module.__name__] = import_module(f"perf_prof.{module.__name__}")


def _own_module(name: str) -> ModuleSpec | None:
    """Returns the user's module that has the name of one of perf's older interface. Raises ImportError if there is none."""
    from importlib.machinery import PathFinder

    own = [folder for folder in sys.path if _OLDER_FOLDER not in folder]
    found = PathFinder.find_spec(name, own)
    if found is None or found.loader is None:
        raise ImportError(
            f"{name} is a module of perf's older interface, which scripts with `import perf` cannot use: "
            "docs/perf-module.md shows what takes its place",
            name=name,
        )
    return found


def install(folder: str | None = None) -> None:
    """Makes the modules importable, before installed modules of the same names: those of perf may be too old for the
    script. Only modules in the folder come first."""
    sys.meta_path.insert(0, _Finder(folder))
