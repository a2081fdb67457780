"""Qube drivers that break and stay broken, on a card that writes down every voltage it is given. For bench and tests.

The card's record is a file that is mapped into the driver's process: what was written stays there, whatever kills the
process, as the voltage does on a card without a watchdog.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.plants.qube.drivers import QubeDriver
from crbo_ros.plants.qube.model import stand_in
from crbo_ros.plants.qube.simulation import QubeSim

Array = NDArray[np.float64]
ROWS = 200_000
ROW = struct.Struct("<dd")  # s on the monotonic clock, V
HEAD = 16  # bytes: how many rows, and when the driver broke


class Record:
    """(time, voltage) of every write, in a file."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(HEAD + ROWS * ROW.size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def __len__(self) -> int:
        return int(struct.unpack_from("<q", self._map)[0])

    def add(self, voltage: float) -> None:
        n = len(self)
        ROW.pack_into(self._map, HEAD + n * ROW.size, time.monotonic(), voltage)
        struct.pack_into("<q", self._map, 0, n + 1)

    def rows(self) -> Array:
        return np.frombuffer(self._map, "<f8", 2 * len(self), HEAD).reshape(-1, 2).copy()

    def break_now(self) -> None:
        """The driver breaks, for the first time."""
        if not self.broken_at:
            struct.pack_into("<d", self._map, 8, time.monotonic())

    @property
    def broken_at(self) -> float:
        return float(struct.unpack_from("<d", self._map, 8)[0])

    @property
    def voltage(self) -> float:
        """What is on the motor now."""
        n = len(self)
        return float(ROW.unpack_from(self._map, HEAD + (n - 1) * ROW.size)[1]) if n else 0.0

    def safe_since(self) -> float:
        """When the last voltage that is not 0 was taken back; infinite if it was not."""
        rows = self.rows()
        on = np.flatnonzero(rows[:, 1])
        if not len(on):
            return -math.inf
        return math.inf if on[-1] == len(rows) - 1 else float(rows[on[-1] + 1, 0])


def hang_with_the_lock() -> None:
    """For ever, as a C extension that does not release the interpreter's lock: no thread of this process runs."""
    while True:
        ctypes.PyDLL(None).pause()


class BrokenQube(QubeDriver):
    """`fault`: what goes wrong from step `after` on, for good."""

    def __init__(self, record: str, fault: str = "", after: int = 90, board: str = "") -> None:
        self.record, self.fault, self.after = Record(record), fault, after
        self.steps = 0
        self._sim = QubeSim(stand_in()._replace(max_voltage=15.0, latency=0.0))
        self._stuck: float | None = None
        self._reading: Any = np.zeros(4)

    @property
    def broken(self) -> bool:
        return self.steps >= self.after

    def open(self, rate: float, max_voltage: float) -> None:
        self._sim.reset_to(np.array([0.0, math.pi, 0.0, 0.0]))
        self._sim.step(np.zeros(1))
        self.write(0.0)

    def write(self, voltage: float) -> None:
        if self.fault == "amplifier stuck" and self.broken:  # the write returns, and nothing happens
            self._stuck = self._stuck if self._stuck is not None else self.record.voltage
            voltage = self._stuck
        self.record.add(voltage)
        self._voltage = voltage

    def exchange(self, voltage: float) -> Any:
        self.steps += 1
        if self.broken:
            self.record.break_now()
            if self.fault == "hangs with the lock":
                hang_with_the_lock()
            if self.fault == "hangs":
                time.sleep(1e9)
            if self.fault == "raises":
                raise OSError("HIL: the device was unplugged")
            if self.fault == "calls sys.exit":
                raise SystemExit(3)
        self.write(voltage)
        observation = self._sim.step(np.array([self._voltage]))
        if not (self.broken and self.fault == "old readings"):
            self._reading = np.array(observation)
        if self.broken and self.fault == "nan":
            return np.full(4, np.nan)
        if self.broken and self.fault == "wrong shape":
            return self._reading[:3]
        return self._reading

    def zero(self, last: bool) -> str:
        if self.fault.startswith("stop"):
            self.record.break_now()
        if self.broken and self.fault == "stop raises":
            raise OSError("HIL: the device was unplugged")
        if self.broken and self.fault == "stop hangs":
            hang_with_the_lock()
        self.write(0.0)
        return ""

    def close(self) -> None:
        if self.fault == "close raises":
            raise OSError("HIL: cannot close")
        if not (self.broken and self.fault in ("stop raises", "stop hangs")):
            self.write(0.0)
