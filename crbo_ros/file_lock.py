"""A lock file that names the process it stands for. The system lets go of it when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


class HeldError(Exception):
    """Another process has the lock. `holder`: the process it stands for, as text; empty if it did not say."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def private_folder() -> Path:
    """A folder for locks that belongs to this user alone: in one that all may write, others could hold them for us."""
    for place in (os.environ.get("XDG_RUNTIME_DIR"), f"{tempfile.gettempdir()}/crbo_ros-{os.getuid()}"):
        if not place:
            continue
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o700)
        found = os.lstat(place)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return Path(place)
    raise PermissionError(
        f"{place} belongs to somebody else; remove it, or set XDG_RUNTIME_DIR to a folder of your own"
    )


def take_lock(
    path: Path, pid: int, patience: float, worth_waiting: Callable[[str], bool] = lambda holder: True, mode: int = 0o666
) -> int:
    """A descriptor: locked, in the name of process `pid`, until it is closed or this process ends. HeldError: not now.

    Waits up to `patience` s, as long as the holder is `worth_waiting` for.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    if os.fstat(lock).st_uid != os.getuid():
        os.close(lock)
        raise PermissionError(f"{path} was made by another user; it is no lock of ours")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            if time.monotonic() > deadline or not worth_waiting(holder):
                os.close(lock)
                raise HeldError(holder) from None
            time.sleep(0.05)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(pid).encode(), 0)
    return lock
