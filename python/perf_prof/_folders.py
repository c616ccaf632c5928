"""The paths of system calls, and the current folder of each process at the time of a call."""

from __future__ import annotations

import os
import re
import time
from collections import Counter, UserDict
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, NamedTuple

from perf_prof import PerfEvent, is_recording

AT_FDCWD = -100  # include/uapi/linux/fcntl.h: a path is relative to the current folder

RENAME_EXCHANGE = 2  # include/uapi/linux/fs.h

# include/uapi/linux/sched.h
CLONE_FS = 0x200
CLONE_THREAD = 0x10000

# The maximum error of an event's time of day, in ns.
_INEXACT = 1_000_000
# The maximum number of processes whose folders are kept. The oldest are dropped.
_MOST = 100_000


# The numbers of the first mount namespace of a machine: MNT_NS_INIT_INO (include/uapi/linux/nsfs.h, Linux 6.18), and those that
# the namespace gets when an older kernel starts.
_FIRST_NAMESPACES = {0xEFFFFFF8, 0xF0000000, 0xF0000001}


class File(NamedTuple):
    """A file as a system call names it. Equal files have equal values."""

    path: str
    folder: Any  # None for an absolute path; otherwise what distinguishes it from equal paths in other folders
    namespace: int  # the mount namespace (container) to which the path belongs; 0 if it is not known


class Files(UserDict[File, Any]):
    """What is known of files: a dict of at most `most` files. If there are more, it drops the oldest and counts it in `dropped`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.dropped = 0
        self._most = most
        self._paths: Counter[str] = Counter()  # absolute path -> in how many mount namespaces the dict has a file with it

    def __setitem__(self, file: File, known: Any) -> None:
        self._paths[file.path] += file.folder is None and file not in self
        super().__setitem__(file, known)
        if len(self) > self._most:
            del self[next(iter(self))]
            self.dropped += 1

    def __delitem__(self, file: File) -> None:
        super().__delitem__(file)
        self._paths[file.path] -= file.folder is None
        if not self._paths[file.path]:
            del self._paths[file.path]

    def elsewhere(self, file: File) -> bool:
        """Returns whether the dict has a file with an equal absolute path in another mount namespace."""
        return self._paths.get(file.path, 0) > (file in self)


class _Folder(NamedTuple):
    path: str
    seen: int  # ns since the epoch: when `path` was determined. Events before this time do not change it.
    since: int  # ns since the epoch: the process was in the folder from this time on


class Folders:
    """The current folder of each process at the time of an event, if it is known.

    Events are delivered after they happened, and the process may be in another folder by then. So a look-up in /proc is
    only valid for later events. Events show all further changes, and have to be delivered in the order of time
    (--order). Call look() in __init__ and in __lost__, begins(event) for each task:task_newtask, and changes(call,
    path) for each chdir() and fchdir().
    """

    def __init__(self) -> None:
        self._of: dict[int, _Folder] = {}
        if not is_recording():
            # The command of --exec starts in this folder. The command is a child of this process, which waits until the
            # events are enabled.
            here = _Folder(os.getcwd(), 0, 0)
            self._of = {pid: here for pid in _processes() if _parent(pid) == os.getpid()}
        self._waiting = dict(self._of)

    def look(self) -> None:
        """Looks up the folders of all processes. Forgets earlier folders."""
        self._of, self._waiting = self._waiting, {}
        if not is_recording():
            for pid in _processes():
                if pid not in self._of:
                    self._look_up(pid)

    def begins(self, event: PerfEvent) -> None:
        """Receives the event of a new task. A new process starts in the folder of its parent."""
        if event.clone_flags & CLONE_THREAD:
            return
        self._of.pop(event.pid, None)
        # With CLONE_FS, both processes share a folder, and either may change it. So the folder of the new process is
        # not known.
        if not event.clone_flags & CLONE_FS and (folder := self._at(event)):
            self._of[event.pid] = folder
        if len(self._of) > _MOST:
            del self._of[next(iter(self._of))]

    def changes(self, call: PerfEvent, path: str | None) -> None:
        """Receives a chdir() or fchdir() that succeeded. path is None if it is not known."""
        pid, now = call._pid, call._realtime or 0
        before = self._of.get(pid)
        if before and now < before.seen:
            return
        is_known = before is not None and now > before.since
        # `..` after a symbolic link leads to another folder than the text of the path. So the folder is not known if
        # the path contains `..`.
        if path and ".." not in path.split("/") and (path.startswith("/") or is_known):
            self._of[pid] = _Folder(os.path.normpath(os.path.join(before.path if before else "/", path)), now, now)
        else:
            self._of.pop(pid, None)
            self._look_up(pid)

    def absolute(self, path: str, call: PerfEvent, folder: int = AT_FDCWD) -> str | None:
        """Returns the absolute path of a call's path, or None if the path is relative to a folder that is not known.
        folder is the descriptor of this folder: the argument's word, of which the low 32 bits count."""
        if not path.startswith("/"):
            own = self._at(call) if (folder - AT_FDCWD) % 2**32 == 0 else None
            if own is None:
                return None
            path = os.path.join(own.path, path)
        return _normalized(path)

    def _at(self, event: PerfEvent) -> _Folder | None:
        folder = self._of.get(event._pid)
        if folder is None:
            # The folder that was looked up is valid for later events, and not for this one.
            self._look_up(event._pid)
            return None
        return folder if (event._realtime or 0) >= folder.since else None

    def _look_up(self, pid: int) -> None:
        if is_recording():
            return
        begin = time.time_ns()
        try:
            path = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return
        if not path.endswith(" (deleted)"):
            self._of[pid] = _Folder(path, begin - _INEXACT, time.time_ns() + _INEXACT)


class Paths(Folders):
    """The absolute paths of system calls. If the kernel reported a relative path, it is completed with the current
    folder of the process. For this, a script selects the calls with their strings, and also chdir(), fchdir() and
    task:task_newtask, for example syscall/name=open|openat|chdir|fchdir,str/:

        task__task_newtask = paths.begins
        __lost__ = paths.lost
    """

    def __init__(self) -> None:
        super().__init__()
        self._changes: Counter[int] = Counter()  # process -> how often it changed its folder

    def of(self, call: Any) -> File | None:
        """Returns the file of a system call, or None if the call has no path or the path could not be read. Follows
        chdir() and fchdir(). A path in a folder that is not known stays relative."""
        path = call.pathname_str if call.filename_str is None else call.filename_str
        if call.name.endswith("chdir") and not call.errno:
            self.changes(call, path)
            self._changes[call._pid] += 1
        if (known := call.path) is not None:
            return File(_normalized(known), None, _namespace(call))
        path = call.oldname_str if path is None else path
        if path is None:
            return None
        # creat() takes no descriptor of a folder.
        folder = call.args[0] if call.name.rstrip("2").endswith("at") and call.name != "creat" else AT_FDCWD
        return self._in_folder(path, call, folder)

    def follow(self, call: Any, files: MutableMapping[File, Any]) -> tuple[File, Any] | None:
        """Follows a rename(), renameat() or renameat2() that succeeded in a dict whose keys are files as of() returns them: what
        belongs to the file gets its new path. Returns the item of the file that was replaced, if it is in the dict."""
        old, new = self.of(call), self._new_path(call)
        own = files.pop(old, None) if old else None
        other = files.pop(new, None) if new and new != old else None
        # Other files may have the same first 255 bytes.
        if new and own is not None and not new.path.endswith("..."):
            files[new] = own
        if old and other is not None and call.name == "renameat2" and call.args[4] & RENAME_EXCHANGE:
            files[old], other = other, None
        return (new, other) if new and other is not None else None

    def _new_path(self, call: Any) -> File | None:
        if (known := call.new_path) is not None:
            return File(_normalized(known), None, _namespace(call))
        if (path := call.newname_str) is None:
            return None
        return self._in_folder(path, call, AT_FDCWD if call.name == "rename" else call.args[2])

    def _in_folder(self, path: str, call: Any, folder: int) -> File:
        whole = self.absolute(path, call, folder)
        of_folder = None if whole else (call._pid, self._changes[call._pid], folder % 2**32)
        return File(whole or path, of_folder, _namespace(call))

    def lost(self, lost_start: int, lost_end: int) -> None:
        """Looks up all folders again, because they may have changed while events were lost."""
        self.look()


def namespace_mark(mnt_ns: int) -> str:
    """Returns a text that marks the paths of a container, such as "(mnt 4026532345)". It is empty for the mount namespace
    of this process, for the first one of the machine in a recording, and if the namespace is not known (0)."""
    own = _FIRST_NAMESPACES if is_recording() else {_own_namespace()}
    return f"(mnt {mnt_ns})" if mnt_ns and mnt_ns not in own else ""


@lru_cache(maxsize=None)
def _own_namespace() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino


def _namespace(call: Any) -> int:
    """Returns the id of the call's mount namespace. The number of a namespace can be that of an earlier one, its id cannot."""
    return int(call.mnt_ns_id or call.mnt_ns)


def _normalized(path: str) -> str:
    """Returns the path without `.` and double slashes. `..` stays: after a symbolic link, it leads to another folder."""
    if ".." in path.split("/"):
        return path
    # normpath() keeps two slashes at the start, which Linux takes for one.
    return os.path.normpath(re.sub("^/+", "/", path))


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None
