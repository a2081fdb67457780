"""One robot, one runner: a lock file for each thing that moves, held by its host, in the name of that host's parent."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from crbo_ros.file_lock import HeldError, take_lock

PATIENCE = 45.0  # s that a new host waits for one whose parent is gone and that is still at work


def lock_path(target: str, shared: bool = True) -> Path:
    """`shared`: a ROS name, another thing in each domain; otherwise a device of this machine."""
    domain = os.environ.get("ROS_DOMAIN_ID", "0") if shared else "device"
    name = hashlib.sha256(f"{domain} {target}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"crbo_ros-{os.getuid()}-{name}.lock"


def refuse_second(path: str | Path, parent: int) -> str:
    """Why nobody may guard this now, or "" (then it is ours until this process ends)."""

    def other_works(holder: str) -> bool:
        return holder.isdigit() and int(holder) != parent and _lives(int(holder))

    try:
        # Waits only for the host of a parent that is gone.
        take_lock(Path(path), parent, PATIENCE, lambda holder: not other_works(holder), 0o600)
    except HeldError as held:
        if other_works(held.holder):
            return f"process {held.holder} on this machine is at work on the same target; one at a time"
        return f"the host of process {held.holder or '?'}, which is gone, is still at work"
    return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
