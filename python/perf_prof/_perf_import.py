"""Makes `import perf` and `import perf_live` find the modules of this package in scripts that perf-prof runs."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # The module `typing` takes milliseconds to import.
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_NAMES = ("perf", "perf_live")


class _Finder:
    """Finds and loads the modules, as an entry of `sys.meta_path`."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in _NAMES or path is not None:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module

        # The import statement takes the module from `sys.modules`.
        sys.modules[module.__name__] = import_module(f"perf_prof.{module.__name__}")


def install() -> None:
    """Makes the modules importable. Installed modules of the same names, and modules beside the script, come first."""
    sys.meta_path.append(_Finder())


def use_own() -> None:
    """Makes the modules importable, before all other modules of the same names."""
    sys.meta_path.insert(0, _Finder())
