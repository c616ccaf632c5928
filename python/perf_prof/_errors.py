"""The exceptions and warnings of the package."""


class Error(Exception):
    """The base of all exceptions of perf_prof."""


class SelectorError(Error, ValueError):
    """An event is unknown, or its selector or its filter is wrong."""


class OptionError(Error, ValueError):
    """A keyword argument has a wrong value, or two of them do not fit together."""


class HandlerError(Error, TypeError):
    """There is no handler for the events, or a handler is no plain function."""


class KernelError(Error, OSError):
    """The kernel refused a system call. `errno` is its error number, or None if it returned none."""


class AccessError(KernelError, PermissionError):
    """This user may not trace the events. The text says which right is missing."""


class RecordingError(Error):
    """A recording is damaged, or it is no recording."""


class RecordingFileError(RecordingError, OSError):
    """The file of a recording cannot be opened, read or created. `errno` and `filename` say why and which."""


class RecordingNotFoundError(RecordingFileError, FileNotFoundError):
    """There is no file at the path of a recording, or no folder for a new one."""


class RecordingAccessError(RecordingFileError, PermissionError):
    """This user may not read the file of a recording."""


class ClosedError(Error, ValueError):
    """A trace was used after it was closed, or in a forked child."""


class Warning(UserWarning):
    """A message about a run: what is missing or different from what was asked for."""
