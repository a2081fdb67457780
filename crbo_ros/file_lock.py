"""A lock file that names the process it stands for. The system lets go of it when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path


class HeldError(Exception):
    """Another process has the lock. `holder`: the process it stands for, as text; empty if it did not say."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def take_lock(
    path: Path, pid: int, patience: float, worth_waiting: Callable[[str], bool] = lambda holder: True, mode: int = 0o666
) -> int:
    """A descriptor: locked, in the name of process `pid`, until it is closed or this process ends. HeldError: not now.

    Waits up to `patience` s, as long as the holder is `worth_waiting` for.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, mode)
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
