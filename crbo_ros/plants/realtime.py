"""A fixed rate against a monotonic clock, and what the system permits a process that has to keep it.

Deadlines are start + k / rate, so that a late step does not shift the ones after it; after a gap of more than a period
the grid starts anew, because hurrying through the missed steps would only feed the plant stale actions.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantFailed
from crbo_ros.plants.base import Plant, ResetStopped

Array = NDArray[np.float64]


HOST, LOOP = 50, 40  # real-time priorities: the host goes before the loop that commands it


class Pacer:
    """Waits for the next deadline and keeps the lateness of every step; PlantFailed when the loop is too slow.

    A step is late when it comes more than `tolerance` periods after its deadline. What ends an episode (None: is only
    counted): more than `late_share` of the last `WINDOW` steps late; one step more than `max_gap` periods late; wall
    time of more than `max_stretch` times the plant's (and `SLACK`). Shares and periods, not counts a second: the slower
    a loop is, the fewer steps it has in a second to be late with.
    """

    WINDOW, SLACK = 250, 0.1  # steps, s

    def __init__(
        self,
        rate: float,
        *,
        tolerance: float = 0.5,
        late_share: float | None = None,
        max_gap: float | None = None,
        max_stretch: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.period = 1.0 / rate
        self.tolerance, self.late_share, self.max_gap, self.max_stretch = tolerance, late_share, max_gap, max_stretch
        self._clock, self._sleep = clock, sleep
        self.start()

    def start(self) -> None:
        """A new episode: the grid begins now and the metrics at zero."""
        self._begun = self._origin = self._clock()
        self._step = 0
        self._recent: deque[bool] = deque(maxlen=self.WINDOW)
        self.lateness: list[float] = []  # s, of every step
        self.misses = 0

    @property
    def steps(self) -> int:
        return len(self.lateness)

    @property
    def due(self) -> float:
        """When the next step is to begin."""
        return self._origin + (self._step + 1) * self.period

    def wait(self) -> float:
        """Sleep until the next deadline, or note how late it is already; s of lateness."""
        deadline = self.due
        while (left := deadline - self._clock()) > 0.0:
            self._sleep(left)
        return self.note(self._clock() - deadline)

    def mark(self) -> float:
        """For a driver that waits for its own clock: only measure how much longer than a period the step took."""
        now = self._clock()
        late, self._origin = now - self._origin - self.period, now
        return self.note(late)

    def note(self, late: float) -> float:
        """Count one step that came `late` seconds after its deadline (before it, if negative)."""
        self._step += 1
        self.lateness.append(late)
        missed = late > self.tolerance * self.period
        self.misses += missed
        self._recent.append(missed)
        if late > self.period:  # start the grid anew
            self._origin, self._step = self._clock(), 0
        if missed:
            self._check(late)
        return late

    def _check(self, late: float) -> None:
        if self.max_gap is not None and late > self.max_gap * self.period:
            raise PlantFailed(
                f"the control loop was {1e3 * late:.0f} ms late once (limit: {self.max_gap:g} periods of "
                f"{1e3 * self.period:g} ms)"
            )
        if self.late_share is not None and sum(self._recent) > self.late_share * self.WINDOW:
            raise PlantFailed(
                f"{sum(self._recent)} of the last {len(self._recent)} control steps were late (limit: "
                f"{100 * self.late_share:g} % of {self.WINDOW}): policy or machine are too slow for "
                f"{1.0 / self.period:g} Hz"
            )
        wall, plant = self._clock() - self._begun, self.steps * self.period
        if self.max_stretch is not None and wall > self.max_stretch * plant + self.SLACK:
            raise PlantFailed(
                f"{plant:.2f} s of the plant's time took {wall:.2f} s (limit: {self.max_stretch:g} times)"
            )

    def statistics(self) -> dict[str, float]:
        """Late steps, and the lateness's median, 99th percentile and worst, in ms."""
        late = np.array(self.lateness or [0.0])
        return {
            "deadline_misses": float(self.misses),
            "lateness_median_ms": 1e3 * float(np.median(late)),
            "lateness_p99_ms": 1e3 * float(np.quantile(late, 0.99)),
            "lateness_max_ms": 1e3 * float(np.max(late)),
        }


def priority(level: int) -> str:
    """This thread's real-time priority, 0: none; in words, why that is not permitted, or ""."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO if level else os.SCHED_OTHER, os.sched_param(level))
    except OSError as error:
        return f"no real-time priority ({error.strerror}; see ulimit -r)"
    return ""


def real_time() -> list[str]:
    """Lock this process's memory, raise its priority, hold garbage collection off; in words, what is not permitted."""
    notes = []
    gc.collect()
    gc.freeze()
    gc.disable()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(3) != 0:  # MCL_CURRENT | MCL_FUTURE
        notes.append(f"memory is not locked ({os.strerror(ctypes.get_errno())}; see ulimit -l)")
    if note := priority(HOST):
        notes.append(note)
    return notes


class Paced(Plant):
    """A simulated plant slowed down to the wall clock: step returns when its period is over."""

    def __init__(self, plant: Plant, pacer: Pacer | None = None) -> None:
        self.plant = plant
        self.rate, self.joint_names = plant.rate, plant.joint_names
        self.is_hardware, self.reset_timeout = plant.is_hardware, plant.reset_timeout
        self.pacer = pacer or Pacer(plant.rate)

    def connect(self) -> None:
        self.plant.connect()

    def reset(self, rng: np.random.Generator) -> Array:
        self.plant.reset_watch, self.plant.reset_ready = self.reset_watch, self.reset_ready
        observation = self.plant.reset(rng)
        while self.reset_ready is not None and not self.reset_ready():  # the simulation stands still meanwhile
            if self.reset_watch is not None and (reason := self.reset_watch(observation, np.empty(0))):
                raise ResetStopped(reason)
            time.sleep(self.pacer.period)
        self.pacer.start()
        return observation

    def step(self, action: Array) -> Array:
        observation = self.plant.step(action)
        self.pacer.wait()
        return observation

    def stop(self) -> Safe | None:
        return self.plant.stop()

    def close(self) -> None:
        self.plant.close()

    def statistics(self) -> dict[str, float]:
        return {**self.plant.statistics(), **self.pacer.statistics()}
