"""The plant host: a process of its own that owns what moves, and makes it safe whatever becomes of its parent.

A runner that is hung, frozen, killed or slow can do nothing, and a driver that blocks with the interpreter's lock takes
every thread of its process with it. So the card, or the duty to put a robot right, lives in here, with nothing else:

    job = Class(say=say, **arguments)   made at once, so that nothing has to be prepared when it counts
    job.command(values)                 one period: apply, and what was measured (None: nothing)
    job.make_safe(last)                 at once, without reading first; then a Safe that says what was measured
    job.close()

The parent's end is plants/hosted.py. Commands come with a sequence number and a deadline on one socket, requests (JSON)
on another. The host keeps the pace: it sleeps until the next period, takes the command that has come meanwhile, and
answers with a reading, for which the parent waits; so each of the two wakes up once a period. Once armed, the host
makes its job safe by itself when no fresh command has come for `patience` seconds, when the job raises, when the loop
is late too often, and when the parent is gone (the kernel closes the sockets, whatever killed it). After that it has
lapsed: commands are refused until the parent arms it anew.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from crbo_ros.core.safe import Safe, safe_of
from crbo_ros.plants.lock import refuse_second
from crbo_ros.plants.realtime import Pacer, real_time

FAILURE = b"\xff" * 8  # where a reading has its sequence number: words (JSON) follow
SIZE = 1 << 16  # bytes of a packet, at most
STOPPED = "stopped on request"
_NOBODY: list[Any] = []
FIRST = 0.1  # s for the first command after arming: nothing has been applied yet


@functools.cache
def packing(n: int) -> struct.Struct:
    """Of a command: sequence number, deadline, n values. Of a reading: sequence number, lateness, n values."""
    return struct.Struct(f"<Qd{n}d")


def unpacked(packet: bytes) -> tuple[Any, ...]:
    """Sequence number, deadline or lateness, values."""
    return packing(len(packet) // 8 - 2).unpack(packet)


class Gone(Exception):
    """The parent's end is closed."""


class Host:
    """Serves one parent until that dismisses it or is gone."""

    def __init__(
        self,
        job: Any,
        data: socket.socket,
        control: socket.socket,
        *,
        patience: float,
        rate: float = 0.0,
        limits: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job, self.data, self.control, self.patience, self.clock = job, data, control, patience, clock
        self.pacer = Pacer(rate, clock=clock, **(limits or {})) if rate else None
        self._paces = self.pacer if self.pacer is not None and not job.self_paced else None
        self.armed, self.lapsed, self.dismissed = False, "", False
        self._sequence, self._expires = 0, 0.0
        self._safe: Safe | None = None  # what the last lapse left behind, until somebody asks
        if hasattr(job, "heard"):  # a job that takes long over a command listens meanwhile
            job.heard = self._heard

    def serve(self) -> None:
        """Until the parent says that all is well (dismiss, close), or Gone."""
        while not self.dismissed:
            if not (packet := self._due_command() or self._next_command()):
                continue
            if self.armed:
                self._command(packet)
            else:
                self._fail(self.lapsed or STOPPED)

    def _due_command(self) -> bytes:
        """Of a paced job: sleep until its time, and the command that is there then. Empty: none, or a request came."""
        if self._paces is None or not self.armed:
            return b""
        if self._answered([self.control], max(self._paces.due - self.clock(), 0.0)) is None:
            with contextlib.suppress(BlockingIOError):
                return _receive(self.data, socket.MSG_DONTWAIT)
        return b""

    def _next_command(self) -> bytes:
        """Wait for it. Empty: a request came, or no command in time."""
        left = max(self._expires - self.clock(), 0.0) if self.armed else None
        found = self._answered([self.control, self.data], left)
        if found is None:
            self._lapse(f"no fresh command for {1e3 * self.patience:.0f} ms")
        return _receive(self.data) if found is self.data else b""

    def _answered(self, sources: list[socket.socket], seconds: float | None) -> socket.socket | None:
        """Wait until one of them can be read (None: in vain). A request goes before a command, and is answered here."""
        ready = select.select(sources, _NOBODY, _NOBODY, seconds)[0]
        if self.control in ready:
            self._answer(json.loads(_receive(self.control)))
            return self.control
        return self.data if ready else None

    # -- commands --------------------------------------------------------------------------------------

    def _command(self, packet: bytes) -> None:
        sequence, deadline, *values = unpacked(packet)
        now, late = self.clock(), 0.0
        if sequence <= self._sequence or now > deadline:
            return  # not fresh: a frozen parent's, or a frozen host's
        self._sequence = sequence
        try:
            if self._paces is not None:
                late = self._paces.note(now - self._paces.due)
            measured = self.job.command(values)
            if self._paces is None and self.pacer is not None:
                late = self.pacer.mark()
            answer = b"" if measured is None else packing(len(measured)).pack(sequence, late, *measured)
        except BaseException as error:  # a driver that calls sys.exit() included
            self._lapse(_words(error))
            return
        self._expires = self.clock() + self.patience
        if answer:
            self._send(answer)

    def _heard(self) -> list[Any] | None:
        """The commands that have come while one is at work; None when a request waits, or the parent is gone."""
        found: list[Any] = []
        while not select.select([self.control], [], [], 0.0)[0]:
            if not select.select([self.data], [], [], 0.0)[0]:
                return found
            self._sequence, _, *values = unpacked(_receive(self.data))
            found.append(values)
        return None

    def _lapse(self, reason: str) -> None:
        """By itself. The parent hears of it at once; what was measured is the answer to its next stop."""
        self.armed, self.lapsed = False, reason
        self._fail(reason, lapsed=True)  # (waits for nothing)
        self._safe = self.make_safe(last=True)

    def _fail(self, why: str, lapsed: bool = False) -> None:
        self._send(FAILURE + json.dumps({"why": why, "lapsed": lapsed}).encode())

    def _send(self, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # a parent that does not read must not block us
            self.data.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    # -- requests --------------------------------------------------------------------------------------

    def _answer(self, request: dict[str, Any]) -> None:
        answer = getattr(self, f"_do_{request['do']}")()
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({**answer, "number": request["number"]}).encode(), socket.MSG_NOSIGNAL)

    def _do_arm(self) -> dict[str, Any]:
        self.armed, self.lapsed, self._safe = True, "", None
        self._expires = self.clock() + max(self.patience, FIRST)
        if self.pacer is not None:
            self.pacer.start()
        return {}

    def _do_pace(self) -> dict[str, Any]:
        """A new episode: its statistics begin at zero."""
        if self.pacer is not None:
            self.pacer.start()
        return {}

    def _do_statistics(self) -> dict[str, Any]:
        return {} if self.pacer is None else dict(self.pacer.statistics())

    def _do_stop(self) -> dict[str, Any]:
        if self.armed:  # whoever waits for a reading shall not take us for silent while we measure
            self._fail(STOPPED)
        self.armed = False
        safe, self._safe = self._safe, None
        return vars(safe or self.make_safe(last=False))

    def _do_disarm(self) -> dict[str, Any]:
        """The parent has made it safe itself."""
        self.armed = False
        return {}

    def _do_dismiss(self) -> dict[str, Any]:
        self.armed, self.dismissed = False, True
        return {}

    def make_safe(self, last: bool) -> Safe:
        """`last`: nobody will command this job any more before it is made anew, if that is the price."""
        try:
            return safe_of(self.job.make_safe(last), False, type(self.job).__name__)
        except BaseException as error:
            return Safe(False, f"making it safe failed: {_words(error)}")


def _receive(source: socket.socket, flags: int = 0) -> bytes:
    packet = source.recv(SIZE, flags)
    if not packet:
        raise Gone
    return packet


def _words(error: BaseException) -> str:
    return str(error) if type(error).__module__ == "crbo_ros.errors" else f"{type(error).__name__}: {error}"


def say(text: str) -> None:
    """To the parent's log, if that is still there."""
    with contextlib.suppress(OSError, ValueError):
        print(f"plant host: {text}", file=sys.stderr, flush=True)


def load(name: str) -> Any:
    """ "module:Class"."""
    module, attribute = name.split(":")
    return getattr(import_module(module), attribute)


def main(descriptors: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # only the parent's word or its end counts
    os.dup2(2, 1)  # what the job's libraries print is for the log
    data, control = (socket.socket(fileno=int(number)) for number in descriptors)
    try:
        order = json.loads(_receive(control))
        if why := refuse_second(order["lock"], order["parent"]):
            control.send(json.dumps({"refused": why}).encode())
            return 1
        with contextlib.suppress(OSError):  # (one that is paced gets real-time priority below)
            os.nice(-10)
        try:
            job = load(order["job"])(say=say, **order["arguments"])
        except BaseException as error:
            control.send(json.dumps({"refused": str(error), "kind": type(error).__name__}).encode())
            return 1
        notes = [*real_time(), *getattr(job, "notes", [])] if order["rate"] else []
        control.send(json.dumps({"ready": True, "notes": notes}).encode())
        return _serve(Host(job, data, control, **{name: order[name] for name in ("patience", "rate", "limits")}), order)
    except Gone:  # before it was ready: nothing has moved
        return 0


def _serve(host: Host, order: dict[str, Any]) -> int:
    code = 0
    try:
        host.serve()
    except (Gone, OSError):  # or a parent that was reset in the middle of a packet
        for _ in range(3):
            if (safe := host.make_safe(last=True)).confirmed:
                break
        say(f"process {order['parent']} is gone; {safe}")
        code = 0 if safe.confirmed else 1
    finally:
        try:
            host.job.close()
        except BaseException as error:
            say(f"closing failed: {_words(error)}")
            code = 1
    return code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a library's thread that hangs must not keep the card's handle
