"""The command `perf-prof`, which is also `python -m perf_prof`."""

import sys

from perf_prof._native import main as _main


def main() -> None:
    """Runs the command line and exits with its status."""
    # Python puts the folder of this command, or the current folder, first in `sys.path`. The folder is removed, because
    # none of its files may replace a module of this command.
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]
    sys.exit(_main(sys.argv))


if __name__ == "__main__":
    # Messages and recordings show `perf-prof` as the name of the command, and not the path of this file.
    sys.argv[0] = "perf-prof"
    main()
