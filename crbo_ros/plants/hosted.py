"""The parent's end of a plant host (plants/host.py): start it, command it, stop it, and end it when it is silent.

`command`, `beat` and `arm` belong to the thread that runs the episode; `stop`, `cut` and `close` may come from any.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros import errors
from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError, PlantFailed
from crbo_ros.plants.base import ResetStopped
from crbo_ros.plants.host import FAILURE, SIZE, STOPPED, packing, unpacked
from crbo_ros.plants.lock import PATIENCE, lock_path

Array = NDArray[np.float64]
STOP = 0.5  # s for a host to make its job safe and to say what it measured
SLICE = 0.005  # s, of waiting for a reading (the kernel rounds it up)
BEAT = 0.05  # s between two beats of an unpaced job's parent
BY_HAND = "SWITCH IT OFF BY HAND and look"


class PlantHost:
    """`job`: "module:Class" and its JSON arguments; `target` names what it moves.

    `patience`: s without a fresh command after which the host makes the job safe. `rate`: of a job that answers every
    command with a reading, in Hz; 0: commands are beats without an answer. `silence`: s beyond its period after which a
    host that does not answer is killed.
    """

    def __init__(
        self,
        target: str,
        job: str,
        arguments: Mapping[str, Any],
        *,
        patience: float,
        rate: float = 0.0,
        limits: Mapping[str, float] | None = None,
        silence: float = 0.05,
        device: bool = False,
        log: Callable[[str], None] = print,
    ) -> None:
        self.target, self.rate, self.silence, self.patience, self.log = target, rate, silence, patience, log
        self.notes: list[str] = []
        self._safe = Safe(True, "nothing has been commanded")  # what was known last
        self._armed, self._sequence, self._requests, self._beaten = False, 0, 0, 0.0
        self.lapsed = ""  # why the host has made its job safe by itself
        self._requesting = threading.Lock()
        self._data, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ends = (theirs, their_control)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crbo_ros.plants.host", *(str(end.fileno()) for end in ends)],
            stdin=subprocess.DEVNULL,
            pass_fds=[end.fileno() for end in ends],
            start_new_session=True,  # a Ctrl-C or a group's end is for the parent, not for its host
        )
        for end in ends:
            end.close()
        slice_ = struct.pack("ll", 0, int(1e6 * SLICE))
        self._data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, slice_)  # one call where poll and recv were two
        order = {
            "lock": str(lock_path(target, shared=not device)), "parent": os.getpid(), "job": job,
            "arguments": dict(arguments), "patience": patience, "rate": rate, "limits": dict(limits or {}),
        }  # fmt: skip
        with contextlib.suppress(OSError):  # it is gone; wait_ready says so
            self._control.send(json.dumps(order).encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lock(self) -> Path:
        return lock_path(self.target)

    def wait_ready(self, timeout: float = PATIENCE + 15.0) -> None:
        """Until it owns its job; the job's own error, or PlantError if somebody else has it."""
        answer = self._answer(timeout)
        if answer.get("ready"):
            self.notes = list(answer["notes"])
            return
        self.kill("it never was ready")
        why = answer.get("refused", f"the plant host did not start within {timeout:g} s, or ended at once")
        kind = getattr(errors, str(answer.get("kind", "")), PlantError)
        raise kind(why) if answer.get("kind") in vars(errors) else PlantError(why)

    # -- the thread that runs the episode -----------------------------------------------------------------

    def arm(self) -> None:
        """From now on the host makes safe unless commands come."""
        self.check()
        self._request("arm", STOP)
        while select.select([self._data], [], [], 0.0)[0]:
            if not self._data.recv(SIZE):  # (readings and failures of before)
                break
        self._armed, self.lapsed, self._safe = True, "", Safe(False, "it moves")

    def command(self, values: Sequence[float], waiting: Callable[[], Sequence[float]] | None = None) -> Array:
        """One period: what was measured. PlantFailed: it is safe, or the host was killed; `stop` says which.

        `waiting`: for a command that may take long (a reset): what the host is told meanwhile, in every slice.
        """
        limit, silent = 2.0 / self.rate + self.silence, 0.0
        try:
            before = self._tell(values)
            wanted = self._sequence
            while silent < limit:  # counted in slices: what stalls the whole machine is not the host's silence
                try:
                    packet = self._data.recv(SIZE)  # (for a slice)
                except BlockingIOError:
                    if waiting is not None:
                        self._tell(waiting())
                        continue
                    now = time.monotonic()
                    silent, before = silent + min(now - before, 2.0 * SLICE), now
                    continue
                if not packet:
                    raise PlantFailed(self.kill("the plant host is gone"))
                if packet[:8] == FAILURE:
                    self._heard(packet)
                sequence, _, *measured = unpacked(packet)
                if sequence == wanted:
                    return np.array(measured)
        except OSError as error:
            raise PlantFailed(self.kill(f"the plant host is gone ({error})")) from None
        raise PlantFailed(self.kill(f"the plant host was silent for {1e3 * limit:.0f} ms"))

    def _tell(self, values: Sequence[float] = ()) -> float:
        """Send a command, or a beat; when that was."""
        self._sequence += 1
        now = time.monotonic()
        packet = packing(len(values)).pack(self._sequence, now + self.patience, *values)
        self._data.send(packet, socket.MSG_DONTWAIT)
        return now

    def beat(self) -> None:
        """The episode goes on. PlantFailed if the host has acted meanwhile, or is not there."""
        now = time.monotonic()
        if not self._armed or now - self._beaten < BEAT:
            return
        self._beaten = now
        try:
            self._tell()
            while select.select([self._data], [], [], 0.0)[0]:
                if not (packet := self._data.recv(SIZE)):
                    raise PlantFailed(self.kill("the plant host is gone"))
                self._heard(packet)
        except BlockingIOError:
            raise PlantFailed(self.kill("the plant host does not read its beats")) from None
        except OSError as error:
            raise PlantFailed(self.kill(f"the plant host is gone ({error})")) from None

    def _heard(self, packet: bytes) -> None:
        failure = json.loads(packet[len(FAILURE) :])
        if failure["lapsed"]:
            self.lapsed = failure["why"]
        if failure["why"] == STOPPED:
            raise ResetStopped(STOPPED)
        raise PlantFailed(failure["why"])

    def disarm(self, safe: Safe) -> None:
        """The parent has made it safe itself, and measured that: silence is no reason to act any more."""
        self._request("disarm", STOP)
        self._armed, self._safe = False, safe

    def statistics(self) -> dict[str, float]:
        """About the pace since `arm` or `pace`."""
        answer = self._request("statistics", STOP) if self.alive else {}
        return {name: float(value) for name, value in answer.items() if name != "number"}

    def pace(self) -> None:
        """The statistics begin anew."""
        self._request("pace", STOP)

    # -- any thread ---------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def armed(self) -> bool:
        return self._armed

    def check(self) -> None:
        """PlantFailed if nobody guards what moves."""
        if not self.alive:
            raise PlantFailed(
                f"the plant host of {self.target} is not there (it ended with {self._process.returncode})"
            )

    def stop(self, timeout: float = STOP) -> Safe:
        """Make it safe, and what was measured; a host that does not answer is killed. Again: what is known already."""
        if not self._armed:
            return self._safe
        answer = self._request("stop", timeout) if self.alive else {}
        if "confirmed" in answer:
            self._armed, self._safe = False, Safe(answer["confirmed"], answer["reason"])
        elif self._armed:
            self.kill(f"the plant host gave no answer to a stop within {timeout:g} s")
        return self._safe

    def make_safe(self, timeout: float = STOP) -> Safe:
        """As `stop`, but measured anew."""
        self._armed = self._armed or self.alive
        return self.stop(timeout)

    def cut(self) -> None:
        """Ask for a stop without waiting for its answer."""
        self._requests += 1
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"do": "stop", "number": -1}).encode(), socket.MSG_DONTWAIT)

    def kill(self, why: str) -> str:
        """End it at once: the kernel closes the card's handle. Nobody can measure any more what that left behind."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        text = f"{why}; it was killed, and nobody knows what its device does now: {BY_HAND}"
        if self._armed:
            self._armed, self._safe = False, Safe(False, text)
            self.log(text)
        self._close()
        return text

    def dismiss(self, timeout: float = 10.0) -> None:
        """All is well: it goes without acting."""
        if self.alive:
            self._request("dismiss", timeout)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill("the plant host did not end")
        self._armed = False
        self._close()

    def abandon(self) -> None:
        """Let it act as if this process were gone, while this process goes its way."""
        self._close()

    def _close(self) -> None:
        for end in (self._data, self._control):
            end.close()

    def _request(self, what: str, timeout: float) -> dict[str, Any]:
        """The host's answer; {} when none comes in time."""
        with self._requesting:
            self._requests += 1
            number = self._requests
            try:
                self._control.send(json.dumps({"do": what, "number": number}).encode())
            except OSError:
                return {}
            deadline = time.monotonic() + timeout
            while (left := deadline - time.monotonic()) > 0.0:
                answer = self._answer(left)
                if not answer or answer.get("number") == number:
                    return answer
            return {}

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            if not select.select([self._control], [], [], timeout)[0]:
                return {}
            packet = self._control.recv(SIZE)
        except (OSError, ValueError):  # closed by another thread
            return {}
        return dict(json.loads(packet)) if packet else {}
