"""A fixed rate against a monotonic clock, and calls that cannot hang.

Deadlines are start + k / rate, so that a late step does not shift the ones after it; after a gap of more than a period
the grid starts anew, because hurrying through the missed steps would only feed the plant stale actions.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import PlantError
from crbo_ros.plants.base import Plant, ResetStopped

Array = NDArray[np.float64]
Result = TypeVar("Result")


class Pacer:
    """Waits for the next deadline; counts misses and jitter; raises PlantError when there are too many.

    A miss is a deadline that was reached more than `tolerance` periods late. More than `max_misses` of them within one
    second, or a single gap of more than `max_gap` seconds, end the episode; None: they are only counted.
    """

    def __init__(
        self,
        rate: float,
        *,
        tolerance: float = 0.5,
        max_misses: int | None = None,
        max_gap: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.period = 1.0 / rate
        self.tolerance, self.max_misses, self.max_gap = tolerance, max_misses, max_gap
        self._clock, self._sleep = clock, sleep
        self.start()

    def start(self) -> None:
        """A new episode: the grid begins now and the metrics at zero."""
        self._origin, self._step = self._clock(), 0
        self._recent: deque[float] = deque()
        self.steps, self.misses = 0, 0
        self._sum, self._squares, self._worst = 0.0, 0.0, 0.0

    def wait(self) -> None:
        """Sleep until the next deadline, or note how late it is already."""
        self._step += 1
        deadline = self._origin + self._step * self.period
        while (left := deadline - self._clock()) > 0.0:
            self._sleep(left)
        self.note(self._clock() - deadline)

    def mark(self) -> None:
        """For a driver that waits for its own clock: only measure how much longer than a period the step took."""
        now = self._clock()
        self._step += 1
        late, self._origin = now - self._origin - self.period, now
        self.note(late)

    def note(self, late: float) -> None:
        """Count one step that came `late` seconds after its deadline (before it, if negative)."""
        self.steps += 1
        self._sum += late
        self._squares += late * late
        self._worst = max(self._worst, late)
        if late > self.tolerance * self.period:
            self._miss(late)
        if late > self.period:  # start the grid anew
            self._origin, self._step = self._clock(), 0

    def _miss(self, late: float) -> None:
        self.misses += 1
        now = self._clock()
        self._recent.append(now)
        while self._recent[0] < now - 1.0:
            self._recent.popleft()
        if self.max_gap is not None and late > self.max_gap:
            raise PlantError(f"the control loop was {1e3 * late:.0f} ms late once (limit {1e3 * self.max_gap:.0f} ms)")
        if self.max_misses is not None and len(self._recent) > self.max_misses:
            raise PlantError(
                f"{len(self._recent)} of {1.0 / self.period:.0f} deadlines missed within 1 s "
                f"(limit {self.max_misses}): the machine is too busy for this rate"
            )

    def statistics(self) -> dict[str, float]:
        """Deadline misses and the lateness's mean, standard deviation and worst, in ms."""
        n = max(self.steps, 1)
        mean = self._sum / n
        deviation = math.sqrt(max(self._squares / n - mean * mean, 0.0))
        return {
            "deadline_misses": float(self.misses),
            "lateness_mean_ms": 1e3 * mean,
            "jitter_ms": 1e3 * deviation,
            "lateness_max_ms": 1e3 * self._worst,
        }


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

    def stop(self) -> None:
        self.plant.stop()

    def close(self) -> None:
        self.plant.close()

    def statistics(self) -> dict[str, float]:
        return {**self.plant.statistics(), **self.pacer.statistics()}


class DriverThread:
    """One thread that makes all calls to a driver, so that a driver which hangs can be given up on.

    A call that times out leaves the thread stuck in it: the worker is `stuck` from then on and refuses further calls.
    It is a daemon thread, so that it does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self.stuck = False
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, reply = job
            try:
                reply.put((True, function()))
            except BaseException as error:  # handed to the caller, whatever it is
                reply.put((False, error))

    def call(self, function: Callable[[], Result], timeout: float, what: str) -> Result:
        """function(), or PlantError when it takes longer than `timeout` s or raises anything."""
        if self.stuck:
            raise PlantError(f"{what}: the driver is stuck in an earlier call; reconnect the device and start anew")
        reply: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((function, reply))
        try:
            good, value = reply.get(timeout=timeout)
        except queue.Empty:
            self.stuck = True
            raise PlantError(f"{what}: no answer from the driver within {timeout:g} s") from None
        if not good:
            raise PlantError(f"{what}: {type(value).__name__}: {value}") from value
        return value  # type: ignore[no-any-return]

    def end(self) -> None:
        """Let the thread finish (a stuck one is left to the end of the process)."""
        self._jobs.put(None)
