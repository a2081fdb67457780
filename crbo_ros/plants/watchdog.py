"""A small process that puts things right when its parent dies, even by SIGKILL: tuned parameters back, an arm held.

A killed process can do nothing any more. So a plant on somebody else's nodes starts this one beside itself, tells it
through a pipe what to do in that case, and dismisses it at the end. The kernel closes the pipe whatever kills the
parent; end of file without the dismissal means: act. The job is a class, by name, with JSON arguments: made at once (it
connects, so that nothing has to be prepared when it counts), called if the parent dies, closed in any case.

A lock file for each target (this machine, this user, this ROS domain) keeps two runners from tuning the same thing, and
a restarted runner from starting before the old one's guardian has finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from crbo_ros.errors import PlantError
from crbo_ros.file_lock import HeldError, private_folder, take_lock

DISMISSED = "dismissed\n"
ANSWER = "watchdog: "  # how its own lines begin
PATIENCE = 45.0  # s that a new guardian waits for an old one that is at work


class Watchdog:
    """The parent's end. `job`: "module:Class" and its JSON arguments; `target` names what is guarded."""

    def __init__(self, target: str, job: str, arguments: dict[str, Any]) -> None:
        order = {"target": target, "job": job, "arguments": arguments, "parent": os.getpid()}
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "crbo_ros.plants.watchdog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C or a group's end is for the parent, not for its guardian
        )
        self._send(json.dumps(order) + "\n")

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_ready(self, timeout: float = PATIENCE + 15.0) -> None:
        """Until it is on guard; PlantError if it cannot be."""
        if (line := self._answer(timeout)) != "ready":
            self.dismiss()
            raise PlantError(f"the watchdog that restores safe values is not on guard: {line}")

    def _answer(self, timeout: float) -> str:
        """Its first line of its own: what it loads may print others (DDS complains on stdout)."""
        assert self._popen.stdout is not None
        source, buffer, deadline = self._popen.stdout.fileno(), b"", time.monotonic() + timeout
        while select.select([source], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            if not (chunk := os.read(source, 4096)):
                return "it ended at once"
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                if line.startswith(ANSWER.encode()):
                    return line[len(ANSWER) :].decode(errors="replace").strip()
        return f"no answer within {timeout:g} s"

    def dismiss(self) -> None:
        """All is well: it goes without acting."""
        if self._popen.stdin is None or self._popen.stdin.closed:
            return
        self._send(DISMISSED)
        with contextlib.suppress(OSError):
            self._popen.stdin.close()
        try:
            self._popen.wait(10.0)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    def abandon(self) -> None:
        """Let it act now, while this process goes its way."""
        with contextlib.suppress(OSError):
            if self._popen.stdin is not None:
                self._popen.stdin.close()

    def _send(self, text: str) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # it is gone; wait_ready says so
            self._popen.stdin.write(text)
            self._popen.stdin.flush()


# -- the guardian's own process ------------------------------------------------------------------------


def lock_path(target: str) -> Path:
    domain = os.environ.get("ROS_DOMAIN_ID", "0")
    name = hashlib.sha256(f"{domain} {target}".encode()).hexdigest()[:16]
    return private_folder() / f"crbo_ros-{name}.lock"


def refuse_second(target: str, parent: int) -> str:
    """Why nobody may guard this target now, or "" (then it is ours until this process ends)."""

    def other_works(holder: str) -> bool:
        return holder.isdigit() and int(holder) != parent and _lives(int(holder))

    try:
        # Waits only for the guardian of a parent that is gone.
        take_lock(lock_path(target), parent, PATIENCE, lambda holder: not other_works(holder), 0o600)
    except HeldError as held:
        if other_works(held.holder):
            return f"process {held.holder} on this machine is at work on the same target; one at a time"
        return f"the guardian of process {held.holder or '?'}, which is gone, is still at work"
    return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def say(text: str) -> None:
    """To the parent's log, if that is still there."""
    with contextlib.suppress(OSError, ValueError):
        print(f"guardian: {text}", file=sys.stderr, flush=True)


def answer(text: str) -> None:
    """To the parent, which waits for it."""
    with contextlib.suppress(OSError):
        print(f"{ANSWER}{text}", flush=True)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # only the parent's word or its death counts
    line = sys.stdin.readline()
    if not line:
        return 0
    order = json.loads(line)
    if why := refuse_second(order["target"], order["parent"]):
        answer(why)
        return 1
    module, name = order["job"].split(":")
    job = getattr(import_module(module), name)(say=say, **order["arguments"])
    answer("ready")  # nothing moves before
    os.dup2(2, 1)  # nobody reads its answers any more: a full pipe must not block it
    try:
        if sys.stdin.readline() == DISMISSED:
            return 0
        say(f"process {order['parent']} died; putting things right")
        job()
    except Exception as error:  # the last line of defence: say what happened, whatever it was
        say(f"FAILED: {type(error).__name__}: {error}")
        return 1
    finally:
        job.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
